// VECTOR_IO neighbours, 1 or 2, that are read, finished and written at once: Numbers of a tensor, Entries of a vector in shared
// memory, Floats. What is read ahead is kept as it came (see numbers.cu). Two lie at a multiple of their size.
//
// Beside those of numbers.cu and of the product: VECTOR_IO.

template <class One>
struct VectorOf;
#if VECTOR_IO == 1
template <>
struct VectorOf<float> {
    typedef float Type;
};
template <>
struct VectorOf<u16> {
    typedef u16 Type;
};
__device__ __forceinline__ float nth(float all, int) { return all; }
__device__ __forceinline__ void pack(float& all, const float (&v)[1]) { all = v[0]; }
#if NUMBER != FLOAT32
__device__ __forceinline__ float nth(u16 all, int) { return as_float(all); }
__device__ __forceinline__ void pack(u16& all, const float (&v)[1]) { store(&all, 0, v[0]); }
#endif
#else
template <>
struct VectorOf<float> {
    typedef float2 Type;
};
template <>
struct VectorOf<u16> {
    typedef u32 Type;
};
__device__ __forceinline__ float nth(const float2& all, int i) { return i ? all.y : all.x; }
__device__ __forceinline__ void pack(float2& all, const float (&v)[2]) { all = make_float2(v[0], v[1]); }
#if NUMBER != FLOAT32
__device__ __forceinline__ float nth(u32 all, int i) { return as_float((u16)(i ? all >> 16 : all)); }
__device__ __forceinline__ void pack(u32& all, const float (&v)[2]) {
    all = NUMBER == BFLOAT16 ? to_bf16x2(v[0], v[1]) : to_f16x2(v[0], v[1]);
}
#endif
#endif
typedef VectorOf<Number>::Type Numbers;
typedef VectorOf<Entry>::Type Entries;
typedef VectorOf<float>::Type Floats;

template <class Vector>
__device__ __forceinline__ void unpack(float (&v)[VECTOR_IO], const Vector& all) {
#pragma unroll
    for (int e = 0; e < VECTOR_IO; ++e) v[e] = nth(all, e);
}
