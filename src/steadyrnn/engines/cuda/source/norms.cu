// Sums of squares of many vectors, of which each warp keeps the largest.
//
// Defined by the caller: THREADS, VEC (1 or 4: entries that a lane reads at a time).

typedef long long i64;

extern "C" __global__ void __launch_bounds__(THREADS) run_norms(
    const float* __restrict__ vectors,  // (rows, size)
    float* __restrict__ most,           // (warps,), 0 where a warp has no row
    int rows, int size, int warps) {
    const int warp = (blockIdx.x * THREADS + threadIdx.x) / 32, lane = threadIdx.x % 32;
    float best = 0.0f;
    for (i64 row = warp; row < rows; row += warps) {
        const float* here = vectors + row * size;
        float sum = 0.0f;
        for (int i = lane * VEC; i < size; i += 32 * VEC) {
#if VEC == 4
            const float4 v = *reinterpret_cast<const float4*>(here + i);
            sum += v.x * v.x + v.y * v.y + (v.z * v.z + v.w * v.w);
#else
            sum += here[i] * here[i];
#endif
        }
#pragma unroll
        for (int far = 16; far > 0; far /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, far);
        best = sum > best || sum != sum ? sum : best;  // NaN stays
    }
    if (lane == 0) most[warp] = best;
}
