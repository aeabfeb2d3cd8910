// Sums of squares of many vectors, of which each warp keeps the largest; or, where EVERY, the 2-norm of each in double precision.
//
// Defined by the caller: THREADS, VEC (1 or 4: entries that a lane reads at a time), EVERY.

#if EVERY
typedef double Sum;
#else
typedef float Sum;
#endif

extern "C" __global__ void __launch_bounds__(THREADS) run_norms(
    const float* __restrict__ vectors,  // (rows, size)
    Sum* __restrict__ found,            // (rows,) where EVERY; else (warps,), 0 where a warp has no row
    int rows, int size, int warps) {
    const int warp = (blockIdx.x * THREADS + threadIdx.x) / 32, lane = threadIdx.x % 32;
#if !EVERY
    Sum best = 0;
#endif
    for (i64 row = warp; row < rows; row += warps) {
        const float* here = vectors + row * size;
        Sum sum = 0;
        const auto add = [&](Sum v) { sum += v * v; };
        for (int i = lane * VEC; i < size; i += 32 * VEC) {
#if VEC == 4
            const float4 v = load_vector<float4>(here + i);
            add(v.x), add(v.y), add(v.z), add(v.w);
#else
            add(here[i]);
#endif
        }
#pragma unroll
        for (int far = 16; far > 0; far /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, far);
#if EVERY
        if (lane == 0) found[row] = sqrt(sum);
#else
        best = sum > best || sum != sum ? sum : best;  // NaN stays
#endif
    }
#if !EVERY
    if (lane == 0) found[warp] = best;
#endif
}
