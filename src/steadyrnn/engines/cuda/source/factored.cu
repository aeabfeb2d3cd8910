// An Elman cell whose recurrent weight is a diagonal and two thin factors, diag(d) + L R': a step is p = R' h, then
// h = phi(d h + L p + x). The adjoint is the same loop with L and R exchanged; its "state" is the adjoint of pre-activations.
//
// Every block keeps its units' rows of both factors in registers, once as warps use them for p (a warp has EACH columns, a lane
// 4 * REACH units of them), once as threads use them for h (a thread has ITEMS units, THREADS apart). In a cluster p is the
// sum of the blocks' parts, which every block sends to all, itself included, and adds up in the order of blocks.
//
// Beside those of cluster.cu, numbers.cu and activations.cu: UNITS (of a block), ITEMS (units of a thread), RANK (columns, padded: a power of two from 8 to 64), ROWS (1 or an
// even number, at least `height`), BACK, KEEP (what the adjoint wants).

#define WARPS (THREADS / 32)
#define EACH (RANK / WARPS)
#define REACH ((UNITS + 127) / 128)
#define STRIDE (128 * REACH)  // from row to row of the state: 16-byte reads of two rows by one warp do not collide
#define PAIR (ROWS > 1 ? 2 : 1)
#define SUMS (PAIR * EACH)  // that a warp finds at once
#define COPIES (32 / SUMS)  // lanes that end up with the same one
#define PEERS ((BLOCKS + COPIES - 1) / COPIES)
#define PART (ROWS * RANK)
#define PITCH (RANK + 1)
#define READ (BACK ? 2 : 1)  // numbers of an entry that a step reads
#define EARLY 12  // steps between asking for a line of memory and reading it
// Whether a step reads what the next one needs first or last, as measured: first for 16-bit numbers, except in the SHORTEST step,
// forward with one entry per thread. (With 64 columns the compiler would let that one wait for it, see `has_row`.)
#define SHORTEST (BLOCKS * ROWS * ITEMS == 1 && RANK <= 32 && !BACK && NUMBER != FLOAT32)
#define READ_FIRST (NUMBER != FLOAT32 && !SHORTEST)
#define OFTEN 64  // steps after which sums over time are put aside: a sum of fewer numbers loses less

static_assert(RANK % WARPS == 0 && SUMS <= 32 && (SUMS & (SUMS - 1)) == 0, "sums are halved from lane to lane");
static_assert(UNITS <= ITEMS * THREADS && (ROWS == 1 || ROWS % 2 == 0), "every entry has a thread");

// Which sum a lane ends up with: its lowest bits, reversed.
__device__ __forceinline__ int kept_by(int lane) {
    int sum = 0;
#pragma unroll
    for (int bit = 1, to = SUMS / 2; to > 0; bit *= 2, to /= 2) sum |= lane & bit ? to : 0;
    return sum;
}

// Copies a block's rows of a factor (H, rank) to shared memory, zero beyond them: neighbours are read together, and threads then
// take out what is theirs.
__device__ __forceinline__ void stage(float* to, const Number* factor, int from, int size, int rank) {
    __syncthreads();
#pragma unroll 8
    for (int i = threadIdx.x; i < UNITS * RANK; i += THREADS) {
        const int unit = from + i / RANK, column = i % RANK;
        to[i / RANK * PITCH + column] = unit < size && column < rank ? load(factor, (i64)unit * rank + column) : 0.0f;
    }
    __syncthreads();
}

// Returns sum number `kept` of a warp's SUMS: of PAIR rows at `rows`, with EACH columns. Entry (i, e) of a lane is row
// i ^ kept / EACH and column e ^ kept % EACH, so that what is given away in a round always lies in the upper half.
__device__ __forceinline__ float sum_columns(const float (&w)[EACH][4 * REACH], const float* rows, int lane, int kept) {
    float sum[SUMS] = {};
    const float* from[2] = {rows + kept / EACH * STRIDE + 4 * lane, rows + (PAIR - 1 - kept / EACH) * STRIDE + 4 * lane};
#pragma unroll
    for (int j = 0; j < REACH; ++j) {
#pragma unroll
        for (int i = 0; i < PAIR; ++i) {
            const float4 q = load_vector<float4>(from[i] + 128 * j);
            const float v[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
            for (int k = 0; k < 4; ++k) {
#pragma unroll
                for (int e = 0; e < EACH; ++e) sum[i * EACH + e] = fmaf(w[e][4 * j + k], v[k], sum[i * EACH + e]);
            }
        }
    }
#pragma unroll
    for (int round = 0; round < 5; ++round) {
        const int width = SUMS >> (round + 1);
        if (width == 0) sum[0] += __shfl_xor_sync(0xffffffffu, sum[0], 1 << round);
#pragma unroll
        for (int i = 0; i < SUMS / 2; ++i)
            if (i < width) sum[i] += __shfl_xor_sync(0xffffffffu, sum[i + width], 1 << round);
    }
    return sum[0];
}

// Returns L p for the units of a thread and one row; two sums per unit, so that additions need not wait for each other.
__device__ __forceinline__ void spread(const float (&l)[ITEMS][RANK], const float* p, float (&to)[ITEMS]) {
    float odd[ITEMS] = {};
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) to[i] = 0.0f;
#pragma unroll
    for (int j = 0; j < RANK; j += 4) {
        const float4 q = load_vector<float4>(p + j);
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            to[i] = fmaf(l[i][j], q.x, to[i]), odd[i] = fmaf(l[i][j + 1], q.y, odd[i]);
            to[i] = fmaf(l[i][j + 2], q.z, to[i]), odd[i] = fmaf(l[i][j + 3], q.w, odd[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) to[i] += odd[i];
}

// Arguments of the kernel; see there.
struct Tensors {
    const Number *gates, *diagonal, *inward, *outward, *begin;
    Number *output, *extra, *end;
    float* sums;
    const int* lengths;
};
struct Sizes {
    int steps, batch, size, rank, height, ragged, backwards, given;
};

// What is to be done for a block's rows and units, and where it lies.
struct Block : Tensors, Sizes {
    float slope;
    float* state;   // (ROWS, STRIDE), zero beyond rows and units
    float* p;       // (ROWS, RANK)
    float* parts;   // (2, BLOCKS, ROWS, RANK), in a cluster
    float* staged;  // (UNITS, PITCH)
    int* stops;     // (ROWS,): when a row runs no more; 0 where there is no row
    int thread, lane, block, warp;
    i64 first;  // row of the batch
    int rows, last;   // its rows, and the steps that the longest one runs
    int from, whole;  // units of the block, those that there are
    int kept;         // which sum the lane ends up with
    i64 corner;       // of the thread's first entry among all rows

    __device__ __forceinline__ Block(const Tensors& tensors, const Sizes& sizes, float slope, float* memory, int* stops)
        : Tensors(tensors), Sizes(sizes), slope(slope), stops(stops) {
        state = memory, p = state + ROWS * STRIDE, parts = p + PART;
        staged = parts + (BLOCKS > 1 ? 2 * BLOCKS * PART : 0);
        thread = threadIdx.x, lane = thread % 32, block = block_rank();
        warp = __shfl_sync(0xffffffffu, thread / 32, 0);  // so that the compiler sees one number per warp
        first = (i64)(blockIdx.x / BLOCKS) * height;
        rows = (int)(batch - first < height ? batch - first : height);
        last = ragged ? lengths[first] : steps;  // rows are sorted, the longest first
        from = block * UNITS, whole = min(UNITS, size - from);
        kept = kept_by(lane);
        corner = first * size + from + thread;
    }

    // Whether row r is there, as the first always is. If the SHORTEST step asked for that one, the compiler would convert what is
    // read last at the beginning of the next step, and wait for it there (1.35 of the time).
    __device__ __forceinline__ bool has_row(int r) const { return (SHORTEST && r == 0) || r < rows; }

    __device__ __forceinline__ void clear() const {
        if (thread < ROWS) stops[thread] = thread >= rows ? 0 : ragged ? lengths[first + thread] : steps;
        for (int i = thread; i < ROWS * STRIDE; i += THREADS) state[i] = 0.0f;
    }

    // Takes a warp's columns of the staged factor, as `sum_columns` reads them.
    __device__ __forceinline__ void take_columns(float (&w)[EACH][4 * REACH]) const {
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
#pragma unroll
            for (int k = 0; k < 4 * REACH; ++k) {
                const int unit = k / 4 * 128 + lane * 4 + k % 4, column = warp * EACH + (e ^ kept % EACH);
                w[e][k] = unit < UNITS ? staged[unit * PITCH + column] : 0.0f;
            }
        }
    }

    // Takes a thread's rows of the staged factor, as `spread` reads them, and its entries of the diagonal.
    __device__ __forceinline__ void take_rows(float (&l)[ITEMS][RANK], float (&d)[ITEMS]) const {
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const int unit = thread + i * THREADS;
            d[i] = unit < whole ? load(diagonal, from + unit) : 0.0f;
#pragma unroll
            for (int k = 0; k < RANK; ++k) l[i][k] = unit < UNITS ? staged[unit * PITCH + k] : 0.0f;
        }
    }

    __device__ __forceinline__ void read_first_states(float (&held)[ROWS][ITEMS]) const {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) {
                const int unit = thread + i * THREADS;
                const bool there = unit < whole && has_row(r);
                held[r][i] = there ? load(begin, corner + (i64)r * size + i * THREADS) : 0.0f;
                if (!BACK && there) state[r * STRIDE + unit] = held[r][i];
            }
        }
    }

    __device__ __forceinline__ void write_last_states(const float (&held)[ROWS][ITEMS]) const {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) {
                if (thread + i * THREADS < whole && has_row(r)) store(end, corner + (i64)r * size + i * THREADS, held[r][i]);
            }
        }
    }
};

// What a thread reads for a step.
struct Inputs {
    Number x[ROWS][ITEMS][READ];
};

// A block's way through time, and what it reads on it.
struct Walk : Block {
    int begins, way;  // first time, and the direction
    i64 move;         // from step to step

    __device__ __forceinline__ Walk(const Block& block) : Block(block) {
        const bool downwards = BACK ? !backwards : backwards;
        begins = downwards ? last - 1 : 0, way = downwards ? -1 : 1;
        move = (i64)way * batch * size;
    }

    // Reads what the step after `step` needs, and asks for a later one; the thread's first entry of `step` lies at `place`.
    __device__ __forceinline__ void read_next(Inputs& next, int step, i64 place) const {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) read_entry(next, step, place, r, i);
        }
    }

    __device__ __forceinline__ void read_entry(Inputs& next, int step, i64 place, int r, int i) const {
        read(next.x[r][i], r, i, place + move, step + 1 < last, step + 1 + EARLY < last);
    }

    // Reads entry i of row r, which is part of the input, BACK: gradient and what determines the derivative.
    __device__ __forceinline__ void read(Number (&to)[READ], int r, int i, i64 at, bool live, bool more) const {
        live = live && has_row(r) && thread + i * THREADS < whole;
        at += r * size + i * THREADS;
        if (live && more && lane == 0) {
            if (!BACK || given) prefetch_l2(gates + at + EARLY * move);
            if (BACK) prefetch_l2(extra + at + EARLY * move);
        }
        to[0] = live && (!BACK || given) ? gates[at] : Number(0);
        if (BACK) to[READ - 1] = live ? extra[at] : Number(0);
    }
};

// How a lane sends its sums to the other blocks.
struct Sending {
    u32 base;        // where its first sum belongs here
    u32 far[PEERS];  // from an address here to the same at a peer

    __device__ __forceinline__ Sending(const Block& block) {
        const int kept = block.kept;
        base = shared_address(block.parts) + 4 * (block.block * PART + kept / EACH * RANK + block.warp * EACH + kept % EACH);
#pragma unroll
        for (int k = 0; BLOCKS > 1 && k < PEERS; ++k) {
            const int peer = min(block.lane / SUMS + k * COPIES, BLOCKS - 1);
            far[k] = peer_address(shared_address(block.state), peer) - shared_address(block.state);
        }
    }
};

// Finds p, which is there behind a barrier. Two buffers of parts are enough, without a barrier of the cluster: a block sends its
// part of step t + 2 after it has received all of step t + 1, and each other block sent that after its own barrier at the end
// of step t, behind which none of its threads reads the parts of step t or waits for them.
#if BLOCKS > 1
__device__ __forceinline__ void find_p(
    const Walk& walk, const float (&w)[EACH][4 * REACH], const Sending& sending, int step, u64* arrived) {
    const int buffer = step & 1, thread = walk.thread, lane = walk.lane;
    if (thread == 0) mbarrier_expect(&arrived[buffer], BLOCKS * PART * 4);
#pragma unroll
    for (int r = 0; r < ROWS; r += PAIR) {
        const float sum = sum_columns(w, walk.state + r * STRIDE, lane, walk.kept);
#pragma unroll
        for (int k = 0; k < PEERS; ++k) {
            const u32 to = sending.base + 4 * (buffer * BLOCKS * PART + r * RANK) + sending.far[k];
            if (lane / SUMS + k * COPIES < BLOCKS) store_async(to, sum, shared_address(&arrived[buffer]) + sending.far[k]);
        }
    }
    if (thread < PART) wait_for_phase(&arrived[buffer], step >> 1 & 1);
#pragma unroll
    for (int n = 0; n < (PART + THREADS - 1) / THREADS; ++n) {
        const int i = thread + n * THREADS;
        if (i >= PART) break;
        float sum = walk.parts[buffer * BLOCKS * PART + i];
#pragma unroll
        for (int k = 1; k < BLOCKS; ++k) sum += walk.parts[(buffer * BLOCKS + k) * PART + i];
        walk.p[i] = sum;
    }
}
#else
__device__ __forceinline__ void find_p(
    const Walk& walk, const float (&w)[EACH][4 * REACH], const Sending& sending, int step, u64* arrived) {
#pragma unroll
    for (int r = 0; r < ROWS; r += PAIR) {
        const float sum = sum_columns(w, walk.state + r * STRIDE, walk.lane, walk.kept);
        const int kept = walk.kept;
        if (walk.lane < SUMS) walk.p[(r + kept / EACH) * RANK + walk.warp * EACH + kept % EACH] = sum;
    }
}
#endif

// Sums over time for the gradients, BACK: see `sums` of the kernel.
struct Sums {
    float total[2][ITEMS], recent[2][ITEMS];

    __device__ __forceinline__ void put_aside() {
#pragma unroll
        for (int i = 0; i < 2 * ITEMS; ++i) {
            float& sum = recent[i % 2][i / 2];
            total[i % 2][i / 2] += sum, sum = 0.0f;
        }
    }

    __device__ __forceinline__ void write(const Block& block) const {
        const i64 tiles = (block.batch + block.height - 1) / block.height, tile = blockIdx.x / BLOCKS;
#pragma unroll
        for (int i = 0; i < 2 * ITEMS; ++i) {
            const int unit = block.thread + i / 2 * THREADS;
            if (unit < block.whole)
                block.sums[(i % 2 * tiles + tile) * block.size + block.from + unit] = total[i % 2][i / 2] + recent[i % 2][i / 2];
        }
    }
};

// One step of row r and the thread's unit i, at time `time`.
struct Moment {
    int step, time;
    i64 place;  // of the thread's first entry
};
__device__ __forceinline__ void finish_entry(
    const Walk& walk, const Moment& now, int r, int i, int stop, float d, float product, const Number (&x)[READ], float& held,
    Sums& sums) {
    const int unit = walk.thread + i * THREADS, entry = r * STRIDE + unit;
    const bool inside = unit < walk.whole, runs = inside && now.time < stop && now.step < walk.last;
    const i64 here = now.place + r * walk.size + i * THREADS;
#if BACK
    const bool ran = inside && now.step > 0 && now.time - walk.way < stop;
    if (ran) held = fmaf(d, walk.state[entry], product);
    const float saved = as_float(x[READ - 1]), along = slope_at(saved, walk.slope);
    const float h = ACTIVATION == ABSOLUTE ? fabsf(saved) : saved;  // the state that the adjoint of the step before came from
    if (ran && runs) sums.recent[0][i] = fmaf(walk.state[entry], h, sums.recent[0][i]);
    const float adjoint = runs ? (held + as_float(x[0])) * along : 0.0f;
    sums.recent[1][i] += adjoint;
    if (runs) store(walk.output, here, adjoint);
    if (inside) walk.state[entry] = adjoint;
#else
    const float sum = fmaf(d, held, product) + as_float(x[0]), h = activate(sum, walk.slope);
    if (runs) {
        held = walk.state[entry] = h;
        store(walk.output, here, h);
        if (KEEP && ACTIVATION == ABSOLUTE) store(walk.extra, here, sum);
    }
#endif
}

// Runs all steps, once everything is in its place.
__device__ __forceinline__ void run_steps(
    const Walk& walk, const float (&w)[EACH][4 * REACH], const float (&l)[ITEMS][RANK], const float (&d)[ITEMS],
    float (&held)[ROWS][ITEMS], Inputs& next, Sums& sums, const Sending& sending, i64 place, u64* arrived) {
    for (int step = 0; step < walk.last + BACK; ++step, place += walk.move) {
        const Moment now{step, walk.begins + walk.way * step, place};
#if READ_FIRST
        const Inputs current = next;
        walk.read_next(next, step, place);
#else
        const Inputs& current = next;
#endif
        find_p(walk, w, sending, step, arrived);
        __syncthreads();  // behind it p is there, and the old state is read by its own thread only
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            float product[ITEMS];
            spread(l, walk.p + r * RANK, product);
            const int stop = walk.stops[r];
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) {
                finish_entry(walk, now, r, i, stop, d[i], product[i], current.x[r][i], held[r][i], sums);
                if (!READ_FIRST) walk.read_entry(next, step, place, r, i);
            }
        }
        if (BACK && step % OFTEN == OFTEN - 1) sums.put_aside();
        __syncthreads();
    }
}

extern "C" __global__ void CLUSTER_DIMS __launch_bounds__(THREADS, 1) run_factored(
    const Number* __restrict__ gates,     // (T, B, H): parts of the input, BACK: gradient of the output, where `given`
    const Number* __restrict__ diagonal,  // (H,)
    const Number* __restrict__ inward,    // (H, rank): R, BACK: L
    const Number* __restrict__ outward,   // (H, rank): L, BACK: R
    const Number* __restrict__ begin,     // (B, H): the state before, BACK: gradient of the final one
    Number* __restrict__ output,          // (T, B, H), BACK: adjoints of pre-activations
    Number* __restrict__ extra,           // (T, B, H): abs its argument, BACK: what determines the derivative
    Number* __restrict__ end,             // (B, H)
    float* __restrict__ sums,             // BACK, (2, tiles, H), over a tile's rows and time: adjoints times the
                                          // states before them, except for the first; adjoints
    const int* __restrict__ lengths,      // (B,), where `ragged`
    double slope, int steps, int batch, int size, int rank, int height, int ragged, int backwards, int given) {
    DYNAMIC_SHARED(float, memory);
    SHARED(u64, arrived, [2]);
    SHARED(int, stops, [ROWS]);
    const Block block(
        {gates, diagonal, inward, outward, begin, output, extra, end, sums, lengths},
        {steps, batch, size, rank, height, ragged, backwards, given}, (float)slope, memory, stops);
    if (block.thread == 0) mbarrier_init(&arrived[0]), mbarrier_init(&arrived[1]);
    block.clear();
    float w[EACH][4 * REACH], l[ITEMS][RANK], d[ITEMS];
    float held[ROWS][ITEMS];  // the state, BACK: what is carried
    stage(block.staged, inward, block.from, size, rank);
    block.take_columns(w);
    block.read_first_states(held);
    stage(block.staged, outward, block.from, size, rank);
    block.take_rows(l, d);
    Sums along = {};
    const Walk walk(block);
    const i64 place = block.corner + (i64)walk.begins * batch * size;
    Inputs next;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) walk.read(next.x[r][i], r, i, place, block.last > 0, false);
    }
    const Sending sending(block);
    __syncthreads();
    cluster_arrive();
    cluster_wait();
    run_steps(walk, w, l, d, held, next, along, sending, place, arrived);
    if (BACK) along.write(block);
    block.write_last_states(held);
    cluster_arrive();  // a block stays while others may still send to it
    cluster_wait();
}
