// The adjoint of a gated recurrence. A block finds the adjoints of its own units' gates, multiplies them with its own rows of
// the weight, and sends each other block the part of the state's adjoint that belongs there: G times fewer numbers than the
// gates' adjoints would be.
//
// Beside those of cluster.cu and of the product: UNITS (of a block, per gate), GATES, CELL (see activations.cu), ITEMS (entries of
// the state that a thread finishes), AHEAD (whether numbers are read a step before they are used), RAGGED (see cluster.cu).

#define WIDE (BLOCKS * UNITS)
#define OWN (GATES * UNITS)
#define EARLY 12  // steps between asking for a line of memory and reading it
#define SENT ((RESULTS + UNITS - 1) / UNITS * UNITS)  // results, and those that pad them
// Numbers of an entry that a step reads. LSTM: i f g o, c, c before, gradient. GRU: r z n, candidate's product, h before, gradient.
#define SAVED (GATES + 3)

// Arguments of the kernel; see there.
struct Tensors {
    const Number *gates, *extra, *weight, *states, *start, *grad, *begin, *begin_c;
    Number *adjoint, *inner, *end, *end_c;
    const int* lengths;
};
struct Sizes {
    int steps, batch, size, height, ragged, backwards, given;
};

// What is to be done for a block's rows and units, and where it lies.
struct Block : Tensors, Sizes {
    int rank;
    i64 first;  // row of the batch
    int rows, slab;  // its rows, and its entries of the state
    float* inbox;   // (BLOCKS, rows, UNITS): parts of the state's adjoint
    float* outbox;  // likewise, for the others
    Entry* own;     // (rows, OWN): adjoints of the own gates
    float* held_h;  // (rows, UNITS): the state's adjoint
    float* held_c;  // LSTM: of c; GRU: what goes past the gates
    float* later;   // part of the weight
    int last;       // steps that the longest row runs

    __device__ __forceinline__ Block(const Tensors& tensors, const Sizes& sizes, float* memory)
        : Tensors(tensors), Sizes(sizes), rank(block_rank()), first((i64)(blockIdx.x / BLOCKS) * sizes.height) {
        rows = (int)(batch - first < height ? batch - first : height);
        slab = rows * UNITS;
        inbox = memory;
        outbox = inbox + (BLOCKS > 1 ? WIDE * height : 0);
        own = reinterpret_cast<Entry*>(outbox + SENT * height);
        held_h = reinterpret_cast<float*>(own + OWN * height);
        held_c = held_h + UNITS * height;
        later = held_c + UNITS * height;
        last = HAS_LENGTHS(ragged) ? lengths[first] : steps;  // rows are sorted, the longest first
    }

    // Entry k of the transposed weight's row o, of the gates that are the block's own; 0 beyond the weight. 32 bits index it, as in
    // gather_block.cu.
    __device__ __forceinline__ float weight_at(int o, int k) const {
        const int unit = rank * UNITS + k % UNITS;
        const bool inside = o < size && k < OWN && unit < size;
        return inside ? load(weight, (k / UNITS * size + unit) * size + o) : 0.0f;
    }

    __device__ __forceinline__ void read_final_gradients() const {
        for (int i = threadIdx.x; i < slab; i += THREADS) {
            const int unit = rank * UNITS + i % UNITS;
            const i64 place = (first + i / UNITS) * size + unit;
            held_h[i] = unit < size ? load(begin, place) : 0.0f;
            held_c[i] = unit < size && CELL == LSTM ? load(begin_c, place) : 0.0f;
        }
    }

    __device__ __forceinline__ void write_first_gradients() const {
        for (int i = threadIdx.x; i < slab; i += THREADS) {
            const int unit = rank * UNITS + i % UNITS;
            const i64 place = (first + i / UNITS) * size + unit;
            if (unit >= size) continue;
            store(end, place, held_h[i]);
            if (CELL == LSTM) store(end_c, place, held_c[i]);
        }
    }
};

// A block's way through time, and what it reads on it.
struct Walk : Block {
    int begins, way;  // first time, and the direction
    i64 stride;       // from time to time
    int whole;        // units of the block that there are

    __device__ __forceinline__ Walk(const Block& block) : Block(block) {
        const bool downwards = !backwards;
        begins = downwards ? last - 1 : 0, way = downwards ? -1 : 1;
        stride = (i64)batch * size;
        whole = min(max(size - rank * UNITS, 0), UNITS);
    }

    // Reads what the step at a time reads. Where there is no such entry, another one is read instead, so that nothing branches.
    __device__ __forceinline__ void read(Number (&to)[SAVED], u32 item, i64 time, bool more) const {
        const u32 here = item < slab ? item : 0, of = here % UNITS, unit = rank * UNITS + (of < whole ? of : 0);
        const i64 row = first + here / UNITS, place = time * stride + row * size + unit;
        const Number* gate = gates + GATES * (place - unit) + unit;
        const i64 soon = (i64)EARLY * way * stride;
        if (more) {
#pragma unroll
            for (int g = 0; g < GATES; ++g) prefetch_l2(gate + soon * GATES + g * size);
            prefetch_l2(extra + place + soon);
            if (CELL == GRU) prefetch_l2(states + place + soon);
            if (given) prefetch_l2(grad + place + soon);
        }
#pragma unroll
        for (int g = 0; g < GATES; ++g) to[g] = gate[g * size];
        to[GATES] = extra[place];
        const i64 earlier = time + way;  // of the run's own order
        const bool from = earlier >= 0 && earlier < (HAS_LENGTHS(ragged) ? lengths[row] : steps);
        to[GATES + 1] = *(from ? (CELL == LSTM ? extra : states) + place + way * stride : start + row * size + unit);
        to[GATES + 2] = given ? grad[place] : Number(0);
    }

    __device__ __forceinline__ void read_items(Number (&to)[ITEMS][SAVED], i64 time, bool more) const {
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) read(to[i], threadIdx.x + i * THREADS, time, more);
    }
};

// Adds up the parts of the state's adjoint; what is its own a block does not send.
__device__ __forceinline__ void add_parts(float (&sum)[ITEMS], const Walk& walk) {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        const u32 item = threadIdx.x + i * THREADS, here = item < walk.slab ? item : 0;
        sum[i] = walk.outbox[(BLOCKS > 1 ? walk.rank * walk.slab : 0) + here];
#pragma unroll
        for (int p = 0; p < BLOCKS; ++p)
            if (BLOCKS > 1) sum[i] += p == walk.rank ? 0.0f : walk.inbox[p * walk.slab + here];
    }
}

// The adjoints of the sums in a cell's gates, from what the step kept, the adjoint `total` of its state and what is held
// `beside` it, which is returned anew. GRU: d[2] is the adjoint of the candidate's product, `d_n` that of its sum.
#if CELL == LSTM
__device__ __forceinline__ float differentiate(float (&d)[GATES], float& d_n, const Number (&kept)[SAVED], float total, float beside) {
    const float in = as_float(kept[0]), f = as_float(kept[1]), g = as_float(kept[2]), o = as_float(kept[3]);
    const float c = hyperbolic_tangent(as_float(kept[4]));
    const float d_c = beside + total * o * (1.0f - c * c), held = d_c * f;
    d[0] = d_c * g * in * (1.0f - in);
    d[1] = d_c * as_float(kept[5]) * f * (1.0f - f);
    d[2] = d_c * in * (1.0f - g * g);
    d[3] = total * c * o * (1.0f - o);
    return held;
}
#else
__device__ __forceinline__ float differentiate(float (&d)[GATES], float& d_n, const Number (&kept)[SAVED], float total, float beside) {
    const float r = as_float(kept[0]), z = as_float(kept[1]), n = as_float(kept[2]), held = total * z;
    d_n = total * (1.0f - z) * (1.0f - n * n);
    d[0] = d_n * as_float(kept[3]) * r * (1.0f - r);
    d[1] = total * (as_float(kept[4]) - n) * z * (1.0f - z);
    d[2] = d_n * r;
    return held;
}
#endif

// Finishes item i of a step, whose state's adjoint is `sum` as far as it came from the step behind it.
__device__ __forceinline__ void finish_item(const Walk& walk, int step, i64 time, const Number (&kept)[SAVED], float sum, int i) {
    const u32 item = threadIdx.x + i * THREADS, here = item < walk.slab ? item : 0, of = here % UNITS;
    const u32 unit = walk.rank * UNITS + of;
    const i64 row = walk.first + here / UNITS;
    const int length = HAS_LENGTHS(walk.ragged) ? walk.lengths[row] : walk.steps;
    const bool inside = item < walk.slab && of < walk.whole, runs = inside && step < walk.last && time < length;
    const bool ran = step > 0 && inside && time - walk.way < length;
    const float beside = item < walk.slab ? walk.held_c[here] : 0.0f;
    const float d_h = ran ? (CELL == LSTM ? sum : sum + beside) : item < walk.slab ? walk.held_h[here] : 0.0f;
    const float total = d_h + as_float(kept[GATES + 2]);
    float d[GATES], d_n;
    const float held = differentiate(d, d_n, kept, total, beside);
    if (runs) {
        const i64 place = time * walk.stride + row * walk.size + unit, gate = GATES * (place - unit) + unit;
        walk.held_c[here] = held;
        store(walk.adjoint, gate, d[0]), store(walk.adjoint, gate + walk.size, d[1]);
        store(walk.adjoint, gate + 2 * walk.size, CELL == LSTM ? d[2] : d_n);
        if (CELL == LSTM)
            store(walk.adjoint, gate + 3 * walk.size, d[GATES - 1]);
        else
            store(walk.inner, place, d[2]);
    }
    if (item < walk.slab) {
        walk.held_h[here] = d_h;
#pragma unroll
        for (int g = 0; g < GATES; ++g)
            walk.own[here / UNITS * OWN + swap(g * UNITS + of, here / UNITS)] = entry(runs ? d[g] : 0.0f);
    }
}

__device__ __forceinline__ void send_parts(const Walk& walk, u64* arrived) {
    if (BLOCKS > 1) fence_async_shared();
    __syncthreads();
    if (BLOCKS == 1) return;
    const int rank = walk.rank, slab = walk.slab;
    if (threadIdx.x == 0) mbarrier_expect(arrived, (BLOCKS - 1) * slab * 4);
    if (threadIdx.x < BLOCKS && threadIdx.x != rank)
        copy_to_peer(arrived, walk.inbox + rank * slab, walk.outbox + threadIdx.x * slab, slab * 4, threadIdx.x);
}

// Runs all steps, once everything is in its place; `now` is what the first one reads, where AHEAD.
__device__ __forceinline__ void run_steps(
    const Walk& walk, const Matrix& matrix, const Place& at, Number (&now)[ITEMS][SAVED], u64* arrived, u32 zero) {
    const auto by_owner = [&](int o) { return o / UNITS * walk.slab + o % UNITS; };
    for (int step = 0; step <= walk.last; ++step) {
        const i64 time = walk.begins + (i64)walk.way * step;
        const bool more = step + 1 + EARLY < walk.last;
        if (!AHEAD && step < walk.last && walk.whole > 0) walk.read_items(now, time, more);
        if (BLOCKS > 1 && step > 0) wait_for_phase(arrived, (step - 1) & 1);
        float sum[ITEMS];
        add_parts(sum, walk);
        if (step < walk.last) cluster_arrive();  // what came is read, and so, everywhere, is what was sent
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) finish_item(walk, step, time, now[i], sum[i], i);
        if (step == walk.last) break;
        __syncthreads();
        cluster_wait();
        if (AHEAD && step + 1 < walk.last && walk.whole > 0) walk.read_items(now, time + walk.way, more);
        matrix.times<OWN>(walk.own, walk.rows, walk.outbox, UNITS, at, zero, by_owner);
        send_parts(walk, arrived);
    }
}

extern "C" __global__ void CLUSTER_DIMS __launch_bounds__(THREADS, 1) run_scatter(
    const Number* __restrict__ gates,    // (T, B, G * H): what the run kept
    const Number* __restrict__ extra,    // (T, B, H): LSTM its c, GRU the candidate's product
    const Number* __restrict__ weight,   // (G * H, H)
    const Number* __restrict__ states,   // (T, B, H): GRU, the outputs
    const Number* __restrict__ start,    // (B, H): the state before, LSTM its c
    const Number* __restrict__ grad,     // (T, B, H): gradient of the output, where `given`
    const Number* __restrict__ begin,    // (B, H): gradient of the final state
    const Number* __restrict__ begin_c,  // (B, H): LSTM
    Number* __restrict__ adjoint,        // (T, B, G * H): of the gates' sums
    Number* __restrict__ inner,          // (T, B, H): GRU, of the candidate's product
    Number* __restrict__ end,            // (B, H)
    Number* __restrict__ end_c,          // (B, H)
    const int* __restrict__ lengths,     // (B,), where `ragged`
    int steps, int batch, int size, int height, int ragged, int backwards, int given, u32 zero) {
    DYNAMIC_SHARED(float, memory);
    SHARED(u64, arrived, );
    const Block block(
        {gates, extra, weight, states, start, grad, begin, begin_c, adjoint, inner, end, end_c, lengths},
        {steps, batch, size, height, ragged, backwards, given}, memory);
    const Place at(OWN, 0, OWN);
    const Matrix matrix(block.later, at, [&](int o, int k) { return block.weight_at(o, k); });
    if (threadIdx.x == 0) mbarrier_init(&arrived);
    block.read_final_gradients();
    const Walk walk(block);
    Number now[ITEMS][SAVED] = {};
    if (AHEAD && block.last > 0 && walk.whole > 0) walk.read_items(now, walk.begins, false);
    __syncthreads();
    cluster_arrive();
    cluster_wait();
    run_steps(walk, matrix, at, now, &arrived, zero);
    __syncthreads();
    block.write_first_gradients();
    cluster_arrive();
    cluster_wait();
}
