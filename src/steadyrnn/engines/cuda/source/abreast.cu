// ABREAST neighbours, 1 or 2, that are read, finished and written at once: Numbers of a tensor, Entries of a vector in shared
// memory, Floats. What is read ahead is kept as it came (see head.cu). Two lie at a multiple of their size.
//
// Beside head.cu's and product.cu's: ABREAST.

template <class One>
struct Of;
#if ABREAST == 1
template <>
struct Of<float> {
    typedef float All;
};
template <>
struct Of<u16> {
    typedef u16 All;
};
__device__ __forceinline__ float nth(float all, int) { return all; }
__device__ __forceinline__ void pack(float& all, const float (&v)[1]) { all = v[0]; }
#if NUMBER != 0
__device__ __forceinline__ float nth(u16 all, int) { return as_float(all); }
__device__ __forceinline__ void pack(u16& all, const float (&v)[1]) { store(&all, 0, v[0]); }
#endif
#else
template <>
struct Of<float> {
    typedef float2 All;
};
template <>
struct Of<u16> {
    typedef u32 All;
};
__device__ __forceinline__ float nth(const float2& all, int i) { return i ? all.y : all.x; }
__device__ __forceinline__ void pack(float2& all, const float (&v)[2]) { all = make_float2(v[0], v[1]); }
#if NUMBER != 0
__device__ __forceinline__ float nth(u32 all, int i) { return as_float((u16)(i ? all >> 16 : all)); }
__device__ __forceinline__ void pack(u32& both, const float (&v)[2]) {
    const float low = v[0], high = v[1];
#if NUMBER == 1
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
#else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
#endif
}
#endif
#endif
typedef Of<Number>::All Numbers;
typedef Of<Entry>::All Entries;
typedef Of<float>::All Floats;

template <class All>
__device__ __forceinline__ void unpack(float (&v)[ABREAST], const All& all) {
#pragma unroll
    for (int e = 0; e < ABREAST; ++e) v[e] = nth(all, e);
}
