// float32 numbers as three bfloat16 numbers each, whose sum they are except for 2^-24 of them: the nearest one, the nearest to
// what is left, and once more. Where the nearest would be infinite, the one below it is taken. Infinity becomes infinity and NaN
// twice, NaN three times NaN.
//
// Defined by the caller: THREADS, VEC (1, 4 or 8: columns of a thread).

struct __align__(VEC > 1 ? 16 : 4) Read {
    float number[VEC];
};
struct __align__(2 * VEC) Written {
    u16 number[VEC];
};

__device__ __forceinline__ u32 nearest(float v) {
    if (v != v) return 0x7fc0;  // rounded up, a NaN whose bits are all set would be 0
    const u32 bits = __float_as_uint(v), up = bits + 0x7fff + (bits >> 16 & 1);
    return ((up & 0x7f800000) == 0x7f800000 ? bits : up) >> 16;
}

extern "C" __global__ void __launch_bounds__(THREADS) run_bf16x3(
    const float* __restrict__ from,  // (rows, columns), rows `from_stride` apart
    u16* __restrict__ to,            // (padded, 3, columns), rows `to_stride` and parts `part_stride` apart; 0 beyond `rows`
    int rows, int padded, int columns, int from_stride, int to_stride, int part_stride) {
    const u32 wide = columns / VEC, item = blockIdx.x * THREADS + threadIdx.x;
    const i64 row = item / wide, column = item % wide * VEC;
    if (row >= padded) return;
    Read left = {};
    if (row < rows) left = load_vector<Read>(from + row * from_stride + column);
    u16* here = to + row * to_stride + column;
#pragma unroll
    for (int p = 0; p < 3; ++p, here += part_stride) {
        Written part;
#pragma unroll
        for (int i = 0; i < VEC; ++i) {
            const u32 found = nearest(left.number[i]);
            left.number[i] -= __uint_as_float(found << 16);
            part.number[i] = (u16)found;
        }
        store_vector(here, part);
    }
}
