// The Elman cell over windows of time, or its adjoint, in one launch: row r of all is window r / batch of batch row r % batch, so
// that rows start at different times, and the first steps of windows but the first, their lead, are the last ones of the window
// before, too. What belongs to a time alone lies at its place in the sequence, (T, B, H); what belongs to a lead apart from
// it, in a trail, (lead, (J - 1) * B, H).
//
// Beside head.cu's and planed.cu's: AT_ONCE (blocks on a multiprocessor), BACK, MEASURE, TRAIL (whether there is one), EVEN
// (whether H is, and pairs are aligned).
//
// What a step reads is read when the one before has used its own; lines are asked for EARLY steps ahead.

#define EARLY 8

__device__ __forceinline__ Pair read_pair(const float* from, bool both) {
#if EVEN
    const float2 v = *reinterpret_cast<const float2*>(from);
    return {v.x, v.y};
#else
    return {from[0], both ? from[1] : 0.0f};
#endif
}

__device__ __forceinline__ void write_pair(float* to, const Pair& v, bool both) {
#if EVEN
    *reinterpret_cast<float2*>(to) = make_float2(v.low, v.high);
#else
    to[0] = v.low;
    if (both) to[1] = v.high;
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS, AT_ONCE) run_windows(
    const float* __restrict__ gates,    // (T, B, H): U x + b. BACK: gradient of the output, where `given`
    const float* __restrict__ weight,   // (H, H)
    const float* __restrict__ begin,    // (J * B, H): state before the first step. BACK: gradient of `end`, where `begun`
    float* __restrict__ output,         // (T, B, H): written behind leads, and all of window 0. BACK: adjoints of arguments
    float* __restrict__ trail,          // where TRAIL: the same in leads
    const float* __restrict__ states,   // BACK: outputs
    const float* __restrict__ trodden,  // BACK: those of leads
    float* __restrict__ led,            // (J * B, H): state behind the lead, where there is one. Not BACK
    float* __restrict__ end,            // (J * B, H): state behind the last step. BACK: gradient of `begin`
    float* __restrict__ most,           // (J * B,): largest sum of squares of a row's states, where MEASURE
    double slope_, int steps, int batch, int size, int number,
    int first,                          // time at which window 0 starts
    int lead,
    int chunk,                          // window j starts this much later than window j - 1
    int given, int begun) {
    __shared__ __align__(16) u32 memory[2][3][PART];
    __shared__ __align__(16) uint4 smallest[FRAGMENTS];
    const float slope = (float)slope_;
    const int total = lead + chunk;
    const i64 rows = (i64)number * batch, top = (i64)blockIdx.x * ROWS;
    const i64 stride = (i64)batch * size, trail_stride = (rows - batch) * size;
    const Planed matrix(smallest, [&](int o, int k) {
        return o < size && k < size ? weight[BACK ? (i64)k * size + o : (i64)o * size + k] : 0.0f;
    });
    for (int i = threadIdx.x; i < 2 * 3 * PART; i += THREADS) memory[i / (3 * PART)][i / PART % 3][i % PART] = 0;

    // The pairs that this thread finishes; where there is none, its row runs no steps.
    const bool own = matrix.unit < size, both = matrix.unit + 1 < size;
    const i64 move = BACK ? -stride : stride, trail_move = BACK ? -trail_stride : trail_stride;
    int last[2], from[2];          // steps that a row runs, and the one from which it is not in its lead
    i64 place[2], trail_place[2];  // where this step's entries lie in a sequence, and in a trail
    Pair kept[2], x[2];            // the state, BACK: its adjoint; what the step reads
#if BACK
    Pair y[2];
#endif
    int step = BACK ? total - 1 : 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const i64 row = top + matrix.row(i), window = row / batch, time = first + window * chunk;
        const bool mine = own && row < rows;
        last[i] = mine ? (int)max(min((i64)steps - time, (i64)total), 0ll) : 0;
        from[i] = window == 0 ? 0 : lead;
        place[i] = ((time + step) * batch + row % batch) * size + matrix.unit;
        trail_place[i] = step * trail_stride + (row - batch) * size + matrix.unit;
        kept[i] = mine && begun ? read_pair(begin + row * size + matrix.unit, both) : Pair{0.0f, 0.0f};
    }
    const auto keep = [&](float* to) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const i64 row = top + matrix.row(i);
            if (own && row < rows) write_pair(to + row * size + matrix.unit, kept[i], both);
        }
    };
    const auto read = [&](int i, int step, i64 here, i64 trail_here) {
        if (step < 0 || step >= last[i]) return;
        const i64 soon = here + EARLY * move;
#if BACK
        const bool leads = step < from[i];
        x[i] = given && !leads ? read_pair(gates + here, both) : Pair{0.0f, 0.0f};
        y[i] = read_pair(leads ? trodden + trail_here : states + here, both);
        if (step - EARLY < from[i]) return;
        if (given) ask_for(gates + soon);
        ask_for(states + soon);
#else
        x[i] = read_pair(gates + here, both);
        if (step + EARLY < last[i]) ask_for(gates + soon);
#endif
    };
#if MEASURE
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float largest[(ROWS * 32 + THREADS - 1) / THREADS] = {};
    const auto measure = [&](const Vectors& now) {
#pragma unroll
        for (int j = 0, r = warp; r < ROWS; ++j, r += THREADS / 32) {
            float square = 0.0f;
#pragma unroll
            for (int word = lane; word < 16 * CHUNKS; word += 32) {
                const u32 a = now[0][row_at(r) + word], b = now[1][row_at(r) + word], c = now[2][row_at(r) + word];
                const float low = low_of(a) + (low_of(b) + low_of(c)), high = high_of(a) + (high_of(b) + high_of(c));
                square = fmaf(low, low, fmaf(high, high, square));
            }
#pragma unroll
            for (int far = 16; far > 0; far /= 2) square += __shfl_xor_sync(0xffffffffu, square, far);
            largest[j] = square <= largest[j] ? largest[j] : square;  // NaN stays, being last
        }
    };
#endif
    __syncthreads();  // zero is written before states are
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        if (!BACK) matrix.write(memory[0], i, kept[i]);
        read(i, step, place[i], trail_place[i]);
    }
    __syncthreads();

    for (int count = 0; count < total + BACK; ++count, step += BACK ? -1 : 1) {
        Vectors& next = memory[~count & 1];
        Pair result[2];
        matrix.times(memory[count & 1], result);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const bool acts = step >= 0 && step < last[i];
#if BACK
            if (step < last[i] - 1) kept[i] = result[i];
            result[i].low = acts ? (kept[i].low + x[i].low) * slope_at(y[i].low, slope) : 0.0f;
            result[i].high = acts && both ? (kept[i].high + x[i].high) * slope_at(y[i].high, slope) : 0.0f;
            matrix.write(next, i, result[i]);
#else
            result[i].low = activate(result[i].low + x[i].low, slope);
            result[i].high = both ? activate(result[i].high + x[i].high, slope) : 0.0f;
            if (acts) kept[i] = result[i];
            matrix.write(next, i, kept[i]);
#endif
            read(i, BACK ? step - 1 : step + 1, place[i] + move, trail_place[i] + trail_move);
        }
#if !BACK
        if (step == lead - 1) keep(led);
#endif
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (step >= 0 && step < last[i]) {
                if (step >= from[i]) write_pair(output + place[i], result[i], both);
#if TRAIL
                if (step < from[i]) write_pair(trail + trail_place[i], result[i], both);
#endif
            }
            place[i] += move, trail_place[i] += trail_move;
        }
#if MEASURE
        measure(next);
#endif
    }
    keep(end);
#if MEASURE
#pragma unroll
    for (int j = 0, r = warp; r < ROWS; ++j, r += THREADS / 32)
        if (lane == 0 && top + r < rows) most[top + r] = largest[j];
#endif
}
