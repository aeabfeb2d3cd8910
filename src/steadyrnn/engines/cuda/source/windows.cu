// The Elman cell over windows of time, in one launch: as direct.cu, but row r of all is window r / batch of batch row r % batch,
// so that rows start at different times. Beside head.cu's and packed.cu's: MEASURE.

extern "C" __global__ void __launch_bounds__(THREADS, 2) run_windows(
    const float* __restrict__ gates,   // (T, B, H): U x + b
    const float* __restrict__ weight,  // (H, H)
    const float* __restrict__ begin,   // (J * B, H): state before the first step
    float* __restrict__ output,        // (T, B, H): written from step `lead` of a window on, and all of window 0
    float* __restrict__ led,           // (J * B, H): state behind the first `lead` steps, where there are any
    float* __restrict__ end,           // (J * B, H): state behind the last step
    float* __restrict__ most,          // (J * B,): largest sum of squares of a row's states, where MEASURE
    double slope_, int steps, int batch, int size, int number,
    int first,                         // time at which window 0 starts
    int lead,
    int chunk                          // window j starts this much later than window j - 1
) {
    __shared__ __align__(16) float state[2][ROWS][WIDE];
    const float slope = (float)slope_;
    const int total = lead + chunk;
    const i64 rows = (i64)number * batch, top = (i64)blockIdx.x * ROWS, stride = (i64)batch * size;
    const Packed matrix([&](int o, int k) { return o < size && k < size ? weight[(i64)o * size + k] : 0.0f; });
    for (int i = threadIdx.x; i < 2 * ROWS * WIDE; i += THREADS) {
        const int own = i / WIDE % ROWS, unit = i % WIDE;
        const bool there = i < ROWS * WIDE && unit < size && top + own < rows;
        state[i / (ROWS * WIDE)][own][unit] = there ? begin[(top + own) * size + unit] : 0.0f;
    }

    // The entries that this thread finishes; where there is none, its row runs no steps.
    int last[ITEMS], from[ITEMS];  // steps that a row runs, and the one from which its outputs count
    i64 place[ITEMS];              // where this step's entry lies in gates and output
    float kept[ITEMS], x[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        const i64 row = top + i * PACK + matrix.top, window = row / batch, time = first + window * chunk;
        const bool mine = matrix.finishes && matrix.unit < size && row < rows;
        last[i] = mine ? (int)max(min((i64)steps - time, (i64)total), 0ll) : 0;
        from[i] = window == 0 ? 0 : lead;
        place[i] = mine ? (time * batch + row % batch) * size + matrix.unit : 0;
        kept[i] = mine ? begin[row * size + matrix.unit] : 0.0f;
        x[i] = last[i] > 0 ? gates[place[i]] : 0.0f;
    }
    const auto keep = [&](float* to) {
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const i64 row = top + i * PACK + matrix.top;
            if (matrix.finishes && matrix.unit < size && row < rows) to[row * size + matrix.unit] = kept[i];
        }
    };
#if MEASURE
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float largest[(ROWS * 32 + THREADS - 1) / THREADS] = {};
    const auto measure = [&](const float (*states)[WIDE]) {
#pragma unroll
        for (int j = 0, r = warp; r < ROWS; ++j, r += THREADS / 32) {
            float square = 0.0f;
#pragma unroll
            for (int u = 0; u < WIDE; u += 32) square = fmaf(states[r][u + lane], states[r][u + lane], square);
#pragma unroll
            for (int far = 16; far > 0; far /= 2) square += __shfl_xor_sync(0xffffffffu, square, far);
            largest[j] = square <= largest[j] ? largest[j] : square;  // NaN stays, being last
        }
    };
#endif
    __syncthreads();

    for (int step = 0; step < total; ++step) {
        float(*next)[WIDE] = state[~step & 1];
        float result[ITEMS];
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) result[i] = matrix.times(state[step & 1] + i * PACK);
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            result[i] = activate(result[i] + x[i], slope);
            kept[i] = step < last[i] ? result[i] : kept[i];
            if (matrix.finishes && matrix.unit < size) next[i * PACK + matrix.top][matrix.unit] = kept[i];
            if (step + 1 < last[i]) x[i] = gates[place[i] + stride];
        }
        if (step == lead - 1) keep(led);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            if (step < last[i] && step >= from[i]) output[place[i]] = result[i];
            place[i] += stride;
        }
#if MEASURE
        measure(state[~step & 1]);
#endif
    }
    keep(end);
#if MEASURE
#pragma unroll
    for (int j = 0, r = warp; r < ROWS; ++j, r += THREADS / 32)
        if (lane == 0 && top + r < rows) most[top + r] = largest[j];
#endif
}
