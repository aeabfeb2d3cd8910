// The Elman cell, and its adjoint, where one block holds the whole weight and runs ROWS rows: a step has one barrier. Beside
// those of numbers.cu, activations.cu and packed.cu: BACK, KEEP (the arguments of the activation), RAGGED (whether
// rows have lengths of their own).
//
// What a step reads of device memory is read when the one before has used its own; lines are prefetched EARLY steps ahead.

#define EARLY 16
#define READ (BACK ? 2 : 1)  // numbers of an entry that a step reads
// Of two steps in a row the two states have fixed places; for more entries than one there are no registers.
constexpr int UNROLL = ITEMS == 1 && !KEEP ? 2 : 1;

typedef float State[ROWS][WIDE];

// Arguments of the kernel; see there.
struct Tensors {
    const Number *gates, *weight, *bias, *begin;
    Number *output, *extra, *end;
    const int* lengths;
};
struct Sizes {
    int steps, batch, size, biased, begun, backwards, given;
};

// A block's rows and its way through time.
struct Walk : Tensors, Sizes {
    float slope;
    i64 first;  // row of the batch
    int last;   // steps that the longest row runs
    bool downwards;  // in which direction time is walked
    int way;
    i64 move;  // from step to step

    __device__ __forceinline__ Walk(const Tensors& tensors, const Sizes& sizes, float slope)
        : Tensors(tensors), Sizes(sizes), slope(slope), first((i64)blockIdx.x * ROWS) {
        last = RAGGED ? lengths[first] : steps;  // rows are sorted, the longest first
        downwards = BACK ? !backwards : backwards;
        way = downwards ? -1 : 1, move = (i64)way * batch * size;
    }

    __device__ __forceinline__ float weight_at(int o, int k) const {
        return o < size && k < size ? load(weight, BACK ? (i64)k * size + o : (i64)o * size + k) : 0.0f;
    }

    __device__ __forceinline__ void write_first_states(State* state) const {
        for (int i = threadIdx.x; i < 2 * ROWS * WIDE; i += THREADS) {
            const int row = i / WIDE % ROWS, unit = i % WIDE;
            const bool there = !BACK && begun && i < ROWS * WIDE && unit < size && first + row < batch;
            state[i / (ROWS * WIDE)][row][unit] = there ? load(begin, (first + row) * size + unit) : 0.0f;
        }
    }
};

// The entries that a thread finishes; where there is none it reads another, so that nothing branches.
struct Entries {
    int spot[ITEMS], length[ITEMS];
    bool mine[ITEMS];
    float kept[ITEMS];  // the state, BACK: the adjoint of the state

    __device__ __forceinline__ Entries(const Walk& walk, const Packed& matrix) {
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const int row = i * PACK + matrix.top;
            mine[i] = matrix.finishes && matrix.unit < walk.size && walk.first + row < walk.batch;
            spot[i] = mine[i] ? row * walk.size + matrix.unit : 0;
            length[i] = RAGGED ? walk.lengths[walk.first + (mine[i] ? row : 0)] : walk.steps;
            kept[i] = walk.begun ? load(walk.begin, walk.first * walk.size + spot[i]) : 0.0f;
        }
    }

    // Reads parts of the input, BACK: gradient and what determines the derivative.
    __device__ __forceinline__ void read(Number (&x)[READ][ITEMS], const Walk& walk, i64 from, bool ahead) const {
        const i64 soon = from + (ahead ? EARLY * walk.move : 0);
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            x[0][i] = walk.gates[from + spot[i]];
            prefetch_l2(walk.gates + soon + spot[i]);
            if (!BACK) continue;
            x[READ - 1][i] = walk.extra[from + spot[i]];
            prefetch_l2(walk.extra + soon + spot[i]);
        }
    }
};

// Finishes entry i of a step: `total` is its product, and becomes its argument; returns what goes to the output.
__device__ __forceinline__ float finish_entry(
    Entries& all, const Walk& walk, const Packed& matrix, State& next, const Number (&x)[READ][ITEMS], float& total, float bias,
    int step, int time, int i) {
    const bool runs = time < all.length[i] && (!BACK || step < walk.last);
    float result;
    if (BACK) {
        if (step > 0 && time - walk.way < all.length[i]) all.kept[i] = total;
        const float came = walk.given ? as_float(x[0][i]) : 0.0f;
        result = runs ? (all.kept[i] + came) * slope_at(as_float(x[READ - 1][i]), walk.slope) : 0.0f;
        if (all.mine[i]) next[i * PACK + matrix.top][matrix.unit] = result;
    } else {
        total += as_float(x[0][i]) + bias;
        result = activate(total, walk.slope);
        all.kept[i] = runs ? result : all.kept[i];
        if (all.mine[i]) next[i * PACK + matrix.top][matrix.unit] = all.kept[i];
    }
    return result;
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) run_direct(
    const Number* __restrict__ gates,   // (T, B, H): parts of the input. BACK: gradient of the output, where
                                        // `given`, else any memory as large
    const Number* __restrict__ weight,  // (H, H)
    const Number* __restrict__ bias,    // (H,), where `biased`: added to the argument
    const Number* __restrict__ begin,   // (B, H): the state before, BACK: gradient of the final one, where `begun`, else 0
    Number* __restrict__ output,        // (T, B, H), BACK: adjoints of pre-activations
    Number* __restrict__ extra,         // (T, B, H): arguments. BACK: what determines the derivative
    Number* __restrict__ end,           // (B, H)
    const int* __restrict__ lengths,    // (B,), where RAGGED
    double slope, int steps, int batch, int size, int biased, int begun, int backwards, int given) {
    SHARED(State, state, [2]);
    const Walk walk(
        {gates, weight, bias, begin, output, extra, end, lengths},
        {steps, batch, size, biased, begun, backwards, given}, (float)slope);
    const Packed matrix([&](int o, int k) { return walk.weight_at(o, k); });
    walk.write_first_states(state);
    const float more = !BACK && biased && matrix.unit < size ? load(bias, matrix.unit) : 0.0f;
    Entries all(walk, matrix);
    int time = walk.downwards ? walk.last - 1 : 0;
    i64 now = ((i64)time * batch + walk.first) * size;
    i64 from = walk.last > 0 ? now : walk.first * size;  // what is read next; there is always something to read, if not to use
    Number x[READ][ITEMS];
    all.read(x, walk, from, walk.last > EARLY);
    __syncthreads();
#pragma unroll UNROLL
    for (int step = 0; step < walk.last + BACK; ++step) {
        float total[ITEMS], result[ITEMS];
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) total[i] = matrix.times(state[step & 1] + i * PACK);
#pragma unroll
        for (int i = 0; i < ITEMS; ++i)
            result[i] = finish_entry(all, walk, matrix, state[~step & 1], x, total[i], more, step, time, i);
        from += step + 1 < walk.last ? walk.move : 0;
        all.read(x, walk, from, step + 1 + EARLY < walk.last);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            if (!all.mine[i] || time >= all.length[i] || (BACK && step >= walk.last)) continue;
            store(output + now, all.spot[i], result[i]);
            if (KEEP) store(extra + now, all.spot[i], total[i]);
        }
        now += walk.move, time += walk.way;
    }
#pragma unroll
    for (int i = 0; i < ITEMS; ++i)
        if (all.mine[i]) store(end, walk.first * size + all.spot[i], all.kept[i]);
}
