// The Elman cell over windows of time, or its adjoint, in one launch: row r of all is window r / batch of batch row r % batch, so
// that rows start at different times, and the first steps of windows but the first, their lead, are the last ones of the window
// before, too. What belongs to a time alone lies at its place in the sequence, (T, B, H); what belongs to a lead apart from
// it, in a trail, (lead, (J - 1) * B, H).
//
// Beside those of numbers.cu, activations.cu and bf16x3_product.cu: AT_ONCE (blocks on a multiprocessor), BACK, MEASURE, TRAIL (whether there is one), EVEN
// (whether H is, and pairs are aligned).
//
// What a step reads is read when the one before has used its own; lines are prefetched EARLY steps ahead.

#define EARLY 8

__device__ __forceinline__ Pair read_pair(const float* from, bool both) {
#if EVEN
    const float2 v = load_vector<float2>(from);
    return {v.x, v.y};
#else
    return {from[0], both ? from[1] : 0.0f};
#endif
}

__device__ __forceinline__ void write_pair(float* to, const Pair& v, bool both) {
#if EVEN
    store_vector(to, make_float2(v.low, v.high));
#else
    to[0] = v.low;
    if (both) to[1] = v.high;
#endif
}

// Arguments of the kernel; see there.
struct Tensors {
    const float *gates, *weight, *begin;
    float *output, *trail;
    const float *states, *trail_states;
    float *led, *end, *most;
};
struct Sizes {
    int steps, batch, size, number, first, lead, chunk, given, begun;
};

// A block's rows and their way through time.
struct Walk : Tensors, Sizes {
    float slope;
    int total;      // steps of a window
    i64 rows, top;  // of all windows, and the block's first one
    i64 stride, trail_stride;  // from time to time
    i64 move, trail_move;      // from step to step

    __device__ __forceinline__ Walk(const Tensors& tensors, const Sizes& sizes, float slope)
        : Tensors(tensors), Sizes(sizes), slope(slope) {
        total = lead + chunk, rows = (i64)number * batch, top = (i64)blockIdx.x * ROWS;
        stride = (i64)batch * size, trail_stride = (rows - batch) * size;
        move = BACK ? -stride : stride, trail_move = BACK ? -trail_stride : trail_stride;
    }

    __device__ __forceinline__ float weight_at(int o, int k) const {
        return o < size && k < size ? weight[BACK ? (i64)k * size + o : (i64)o * size + k] : 0.0f;
    }
};

// One of the two pairs that a thread finishes; where there is none, its row runs no steps.
struct Owned {
    bool both;       // whether there is a second entry of the pair
    int last, from;  // steps that the row runs, and the one from which it is not in its lead
    i64 place, trail_place;  // where this step's entries lie in a sequence, and in a trail
    Pair kept, x, y;  // the state, BACK: its adjoint; what the step reads, BACK: `y` determines the derivative

    __device__ __forceinline__ void open(const Walk& walk, const BF16x3Matrix& matrix, int i, int step) {
        const i64 row = walk.top + matrix.row(i), window = row / walk.batch, time = walk.first + window * walk.chunk;
        const bool mine = matrix.unit < walk.size && row < walk.rows;
        both = matrix.unit + 1 < walk.size;
        last = mine ? (int)max(min((i64)walk.steps - time, (i64)walk.total), 0ll) : 0;
        from = window == 0 ? 0 : walk.lead;
        place = ((time + step) * walk.batch + row % walk.batch) * walk.size + matrix.unit;
        trail_place = step * walk.trail_stride + (row - walk.batch) * walk.size + matrix.unit;
        kept = mine && walk.begun ? read_pair(walk.begin + row * walk.size + matrix.unit, both) : Pair{0.0f, 0.0f};
    }

    __device__ __forceinline__ void write_kept(float* to, const Walk& walk, const BF16x3Matrix& matrix, int i) const {
        const i64 row = walk.top + matrix.row(i);
        if (matrix.unit < walk.size && row < walk.rows) write_pair(to + row * walk.size + matrix.unit, kept, both);
    }

    __device__ __forceinline__ void read(const Walk& walk, int step, i64 here, i64 trail_here) {
        if (step < 0 || step >= last) return;
        const i64 soon = here + EARLY * walk.move;
        if (BACK) {
            const bool leads = step < from;
            x = walk.given && !leads ? read_pair(walk.gates + here, both) : Pair{0.0f, 0.0f};
            y = read_pair(leads ? walk.trail_states + trail_here : walk.states + here, both);
            if (step - EARLY < from) return;
            if (walk.given) prefetch_l2(walk.gates + soon);
            prefetch_l2(walk.states + soon);
        } else {
            x = read_pair(walk.gates + here, both);
            if (step + EARLY < last) prefetch_l2(walk.gates + soon);
        }
    }

    // Finishes a step whose product is `result`, which becomes what goes to the output.
    __device__ __forceinline__ void finish(Pair& result, Vectors& next, const Walk& walk, const BF16x3Matrix& matrix, int i, int step) {
        const bool acts = step >= 0 && step < last;
        if (BACK) {
            if (step < last - 1) kept = result;
            result.low = acts ? (kept.low + x.low) * slope_at(y.low, walk.slope) : 0.0f;
            result.high = acts && both ? (kept.high + x.high) * slope_at(y.high, walk.slope) : 0.0f;
            matrix.write(next, i, result);
        } else {
            result.low = activate(result.low + x.low, walk.slope);
            result.high = both ? activate(result.high + x.high, walk.slope) : 0.0f;
            if (acts) kept = result;
            matrix.write(next, i, kept);
        }
    }

    __device__ __forceinline__ void write(const Pair& result, const Walk& walk, int step) {
        if (step >= 0 && step < last) {
            if (step >= from) write_pair(walk.output + place, result, both);
            if (TRAIL && step < from) write_pair(walk.trail + trail_place, result, both);
        }
        place += walk.move, trail_place += walk.trail_move;
    }
};

// The largest sum of squares of the states of each row, which a warp measures.
struct Largest {
    float squares[(ROWS * 32 + THREADS - 1) / THREADS];

    __device__ __forceinline__ void measure(const Vectors& now) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
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
            squares[j] = square <= squares[j] ? squares[j] : square;  // NaN stays, being last
        }
    }

    __device__ __forceinline__ void write(const Walk& walk) const {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
        for (int j = 0, r = warp; r < ROWS; ++j, r += THREADS / 32)
            if (lane == 0 && walk.top + r < walk.rows) walk.most[walk.top + r] = squares[j];
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, AT_ONCE) run_windows(
    const float* __restrict__ gates,         // (T, B, H): U x + b. BACK: gradient of the output, where `given`
    const float* __restrict__ weight,        // (H, H)
    const float* __restrict__ begin,         // (J * B, H): state before the first step. BACK: gradient of `end`, where `begun`
    float* __restrict__ output,              // (T, B, H): written behind leads, and all of window 0. BACK: adjoints of arguments
    float* __restrict__ trail,               // where TRAIL: the same in leads
    const float* __restrict__ states,        // BACK: outputs
    const float* __restrict__ trail_states,  // BACK: those of leads
    float* __restrict__ led,                 // (J * B, H): state behind the lead, where there is one. Not BACK
    float* __restrict__ end,                 // (J * B, H): state behind the last step. BACK: gradient of `begin`
    float* __restrict__ most,                // (J * B,): largest sum of squares of a row's states, where MEASURE
    double slope, int steps, int batch, int size, int number,
    int first,                               // time at which window 0 starts
    int lead,
    int chunk,                               // window j starts this much later than window j - 1
    int given, int begun) {
    SHARED(Vectors, memory, [2]);
    SHARED(uint4, smallest, [FRAGMENTS]);
    const Walk walk(
        {gates, weight, begin, output, trail, states, trail_states, led, end, most},
        {steps, batch, size, number, first, lead, chunk, given, begun}, (float)slope);
    const BF16x3Matrix matrix(smallest, [&](int o, int k) { return walk.weight_at(o, k); });
    for (int i = threadIdx.x; i < 2 * 3 * PART; i += THREADS) memory[i / (3 * PART)][i / PART % 3][i % PART] = 0;
    Owned own[2];
    Largest largest = {};
    int step = BACK ? walk.total - 1 : 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) own[i].open(walk, matrix, i, step);
    __syncthreads();  // zero is written before states are
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        if (!BACK) matrix.write(memory[0], i, own[i].kept);
        own[i].read(walk, step, own[i].place, own[i].trail_place);
    }
    __syncthreads();
    for (int count = 0; count < walk.total + BACK; ++count, step += BACK ? -1 : 1) {
        Vectors& next = memory[~count & 1];
        Pair result[2];
        matrix.times(memory[count & 1], result);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            own[i].finish(result[i], next, walk, matrix, i, step);
            own[i].read(walk, BACK ? step - 1 : step + 1, own[i].place + walk.move, own[i].trail_place + walk.trail_move);
        }
#pragma unroll
        for (int i = 0; i < 2; ++i)
            if (!BACK && step == lead - 1) own[i].write_kept(led, walk, matrix, i);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 2; ++i) own[i].write(result[i], walk, step);
        if (MEASURE) largest.measure(next);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) own[i].write_kept(end, walk, matrix, i);
    if (MEASURE) largest.write(walk);
}
