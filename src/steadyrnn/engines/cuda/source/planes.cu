// float32 numbers as three bfloat16 numbers each, whose sum they are but for 2^-24 of them: the nearest one, the nearest to
// what is left, and once more. Where the nearest would be infinite, the one below it is taken; a number that is infinite itself
// becomes infinity and NaN.
//
// Defined by the caller: THREADS, VEC (1 or 4: columns of a thread).

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;
typedef long long i64;

__device__ __forceinline__ u32 nearest(float v) {
    const u32 bits = __float_as_uint(v) | (v == v ? 0 : 0x400000), up = bits + 0x7fff + (bits >> 16 & 1);
    return ((up & 0x7f800000) == 0x7f800000 ? bits : up) >> 16;
}

extern "C" __global__ void __launch_bounds__(THREADS) run_planes(
    const float* __restrict__ from,  // (rows, columns), rows `from_stride` apart
    u16* __restrict__ to,            // (padded, 3, columns), rows `to_stride` and planes `plane` apart; 0 beyond `rows`
    int rows, int padded, int columns, int from_stride, int to_stride, int plane) {
    const u32 wide = columns / VEC, item = blockIdx.x * THREADS + threadIdx.x;
    const i64 row = item / wide, column = item % wide * VEC;
    if (row >= padded) return;
    __align__(16) float left[VEC] = {};
    if (row < rows) {
#if VEC == 4
        *reinterpret_cast<float4*>(left) = *reinterpret_cast<const float4*>(from + row * from_stride + column);
#else
        left[0] = from[row * from_stride + column];
#endif
    }
    u16* here = to + row * to_stride + column;
#pragma unroll
    for (int p = 0; p < 3; ++p, here += plane) {
        u64 together = 0;
#pragma unroll
        for (int i = 0; i < VEC; ++i) {
            const u32 found = nearest(left[i]);
            left[i] -= __uint_as_float(found << 16);
            together |= (u64)found << 16 * i;
        }
#if VEC == 4
        *reinterpret_cast<u64*>(here) = together;
#else
        *here = (u16)together;
#endif
    }
}
