// An Elman cell whose recurrent weight is a diagonal and two thin factors, diag(d) + L R': a step is p = R' h, then
// h = phi(d h + L p + x). The adjoint is the same loop with L and R exchanged; its "state" is the adjoint of pre-activations.
//
// Every block keeps its units' rows of both factors in registers, once as warps use them for p (a warp has EACH columns, a lane
// 4 * REACH units of them), once as threads use them for h (a thread has ITEMS units, THREADS apart). In a cluster p is the
// sum of the blocks' parts, which every block sends to all, itself included, and adds up in the order of blocks.
//
// Beside head.cu's, where ITEMS are units of a thread: RANK (columns, padded: a power of two from 8 to 64), ROWS (1 or an
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
#define EARLY 12  // steps
#define OFTEN 64  // steps after which sums over time are put aside: a sum of fewer numbers loses less

static_assert(RANK % WARPS == 0 && SUMS <= 32 && (SUMS & (SUMS - 1)) == 0, "sums are halved from lane to lane");
static_assert(UNITS <= ITEMS * THREADS && (ROWS == 1 || ROWS % 2 == 0), "every entry has a thread");

// Writes a number into a block's shared memory and tells its mailbox that four bytes came.
__device__ __forceinline__ void put(u32 to, float v, u32 box) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
                 "r"(__float_as_uint(v)), "r"(box)
                 : "memory");
}

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
__device__ __forceinline__ float summed(const float (&w)[EACH][4 * REACH], const float* rows, int lane, int kept) {
    float sum[SUMS] = {};
    const float* from[2] = {rows + kept / EACH * STRIDE + 4 * lane, rows + (PAIR - 1 - kept / EACH) * STRIDE + 4 * lane};
#pragma unroll
    for (int j = 0; j < REACH; ++j) {
#pragma unroll
        for (int i = 0; i < PAIR; ++i) {
            const float4 q = *reinterpret_cast<const float4*>(from[i] + 128 * j);
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

// Returns L p for the units of a thread and one row; two sums a unit, so that additions need not wait for each other.
__device__ __forceinline__ void spread(const float (&l)[ITEMS][RANK], const float* p, float (&to)[ITEMS]) {
    float odd[ITEMS] = {};
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) to[i] = 0.0f;
#pragma unroll
    for (int j = 0; j < RANK; j += 4) {
        const float4 q = *reinterpret_cast<const float4*>(p + j);
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            to[i] = fmaf(l[i][j], q.x, to[i]), odd[i] = fmaf(l[i][j + 1], q.y, odd[i]);
            to[i] = fmaf(l[i][j + 2], q.z, to[i]), odd[i] = fmaf(l[i][j + 3], q.w, odd[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) to[i] += odd[i];
}

extern "C" __global__ void
#if BLOCKS > 1
    __cluster_dims__(BLOCKS, 1, 1)
#endif
        __launch_bounds__(THREADS, 1) run_factored(
            const Number* __restrict__ gates,     // (T, B, H): parts of the input, BACK: gradient of the output, where `given`
            const Number* __restrict__ diagonal,  // (H,)
            const Number* __restrict__ inward,    // (H, rank): R, BACK: L
            const Number* __restrict__ outward,   // (H, rank): L, BACK: R
            const Number* __restrict__ begin,     // (B, H): the state before, BACK: gradient of the final one
            Number* __restrict__ output,          // (T, B, H), BACK: adjoints of pre-activations
            Number* __restrict__ extra,           // (T, B, H): abs its argument, BACK: what tells the derivative
            Number* __restrict__ end,             // (B, H)
            float* __restrict__ sums,             // BACK, (2, tiles, H), over a tile's rows and time: adjoints times the
                                                  // states before them, but for the first; adjoints
            const int* __restrict__ lengths,      // (B,), where `ragged`
            double slope_, int steps, int batch, int size, int rank, int height, int ragged, int backwards, int given) {
    extern __shared__ __align__(128) float memory[];
    __shared__ __align__(8) u64 boxes[2];
    __shared__ int stops[ROWS];  // when a row runs no more; 0 where there is no row
    float* state = memory;                               // (ROWS, STRIDE), zero beyond rows and units
    float* p = state + ROWS * STRIDE;                    // (ROWS, RANK)
    float* parts = p + PART;                             // (2, BLOCKS, ROWS, RANK), in a cluster
    float* staged = parts + (BLOCKS > 1 ? 2 * BLOCKS * PART : 0);  // (UNITS, PITCH)
    const float slope = (float)slope_;
    const int thread = threadIdx.x, lane = thread % 32, block = block_rank();
    const int warp = __shfl_sync(0xffffffffu, thread / 32, 0);  // so that the compiler sees one number a warp
    const i64 first = (i64)(blockIdx.x / BLOCKS) * height;
    const int rows = (int)(batch - first < height ? batch - first : height);
    const int last = ragged ? lengths[first] : steps;  // rows are sorted, the longest first
    const int from = block * UNITS, whole = min(UNITS, size - from);  // units of the block, those that there are
    const int kept = kept_by(lane);
    const i64 corner = first * size + from + thread;  // of the thread's first entry among all rows

    if (thread == 0) open_mailbox(&boxes[0]), open_mailbox(&boxes[1]);
    if (thread < ROWS) stops[thread] = thread >= rows ? 0 : ragged ? lengths[first + thread] : steps;
    for (int i = thread; i < ROWS * STRIDE; i += THREADS) state[i] = 0.0f;

    float w[EACH][4 * REACH], l[ITEMS][RANK], d[ITEMS];
    stage(staged, inward, from, size, rank);
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
#pragma unroll
        for (int k = 0; k < 4 * REACH; ++k) {
            const int unit = k / 4 * 128 + lane * 4 + k % 4, column = warp * EACH + (e ^ kept % EACH);
            w[e][k] = unit < UNITS ? staged[unit * PITCH + column] : 0.0f;
        }
    }
    float held[ROWS][ITEMS];  // the state, BACK: what is carried
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const int unit = thread + i * THREADS;
            const bool there = unit < whole && r < rows;
            held[r][i] = there ? load(begin, corner + (i64)r * size + i * THREADS) : 0.0f;
            if (!BACK && there) state[r * STRIDE + unit] = held[r][i];
        }
    }
    stage(staged, outward, from, size, rank);
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        const int unit = thread + i * THREADS;
        d[i] = unit < whole ? load(diagonal, from + unit) : 0.0f;
#pragma unroll
        for (int k = 0; k < RANK; ++k) l[i][k] = unit < UNITS ? staged[unit * PITCH + k] : 0.0f;
    }

#if BACK
    float total[2][ITEMS] = {}, recent[2][ITEMS] = {};  // of `sums`
#endif
    const bool downwards = BACK ? !backwards : backwards;  // in which direction time is walked
    const int begins = downwards ? last - 1 : 0, way = downwards ? -1 : 1;
    const i64 move = (i64)way * batch * size;
    i64 place = corner + (i64)begins * batch * size;  // of the thread's first entry at this step
    constexpr int READ = BACK ? 2 : 1;
    Number x[ROWS][ITEMS][READ];  // what this step reads: part of the input, BACK: gradient and what tells the derivative
    const auto read = [&](Number (&to)[READ], int r, int i, i64 at, bool live, bool more) {
        live = live && r < rows && thread + i * THREADS < whole;
        at += r * size + i * THREADS;
        if (live && more && lane == 0) {
            if (!BACK || given) ask_for(gates + at + EARLY * move);
            if (BACK) ask_for(extra + at + EARLY * move);
        }
        to[0] = live && (!BACK || given) ? gates[at] : Number(0);
        if (BACK) to[READ - 1] = live ? extra[at] : Number(0);
    };
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) read(x[r][i], r, i, place, last > 0, false);
    }
#if BLOCKS > 1
    const u32 sends_to = address(parts) + 4 * (block * PART + kept / EACH * RANK + warp * EACH + kept % EACH);
    u32 far[PEERS];  // from an address here to the same at a peer
#pragma unroll
    for (int k = 0; k < PEERS; ++k) {
        const int peer = min(lane / SUMS + k * COPIES, BLOCKS - 1);
        far[k] = at_peer(address(memory), peer) - address(memory);
    }
#endif
    __syncthreads();
    cluster_arrive();
    cluster_wait();

    // Two buffers of parts are enough, without a barrier of the cluster: a block sends its part of step t + 2 after it has
    // received all of step t + 1, and each other block sent that after its own barrier at the end of step t, behind which
    // none of its threads reads the parts of step t or waits for them.
    for (int step = 0; step < last + BACK; ++step, place += move) {
        const int time = begins + way * step;
#if BLOCKS > 1
        const int buffer = step & 1;
        if (thread == 0) expect(&boxes[buffer], BLOCKS * PART * 4);
#endif
#pragma unroll
        for (int r = 0; r < ROWS; r += PAIR) {
            const float sum = summed(w, state + r * STRIDE, lane, kept);
#if BLOCKS > 1
#pragma unroll
            for (int k = 0; k < PEERS; ++k) {
                const u32 to = sends_to + 4 * (buffer * BLOCKS * PART + r * RANK) + far[k];
                if (lane / SUMS + k * COPIES < BLOCKS) put(to, sum, address(&boxes[buffer]) + far[k]);
            }
#else
            if (lane < SUMS) p[(r + kept / EACH) * RANK + warp * EACH + kept % EACH] = sum;
#endif
        }
#if BLOCKS > 1
        if (thread < PART) await(&boxes[buffer], step >> 1 & 1);
#pragma unroll
        for (int n = 0; n < (PART + THREADS - 1) / THREADS; ++n) {
            const int i = thread + n * THREADS;
            if (i >= PART) break;
            float sum = parts[buffer * BLOCKS * PART + i];
#pragma unroll
            for (int k = 1; k < BLOCKS; ++k) sum += parts[(buffer * BLOCKS + k) * PART + i];
            p[i] = sum;
        }
#endif
        __syncthreads();  // behind it p is there, and the old state is read by its own thread only

#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            float product[ITEMS];
            spread(l, p + r * RANK, product);
            const int stop = stops[r];
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) {
                const int unit = thread + i * THREADS, entry = r * STRIDE + unit;
                const bool inside = unit < whole, runs = inside && time < stop && step < last;
                const i64 here = place + r * size + i * THREADS;
#if BACK
                const bool ran = inside && step > 0 && time - way < stop;
                if (ran) held[r][i] = fmaf(d[i], state[entry], product[i]);
                const float told = as_float(x[r][i][READ - 1]), along = slope_at(told, slope);
                const float h = KIND == 4 ? fabsf(told) : told;  // the state that the adjoint of the step before came from
                if (ran && runs) recent[0][i] = fmaf(state[entry], h, recent[0][i]);
                const float adjoint = runs ? (held[r][i] + as_float(x[r][i][0])) * along : 0.0f;
                recent[1][i] += adjoint;
                if (runs) store(output, here, adjoint);
                if (inside) state[entry] = adjoint;
#else
                const float sum = fmaf(d[i], held[r][i], product[i]) + as_float(x[r][i][0]), h = activate(sum, slope);
                if (runs) {
                    held[r][i] = state[entry] = h;
                    store(output, here, h);
#if KEEP && KIND == 4
                    store(extra, here, sum);
#endif
                }
#endif
                read(x[r][i], r, i, place + move, step + 1 < last, step + 1 + EARLY < last);
            }
        }
#if BACK
        if (step % OFTEN == OFTEN - 1) {
#pragma unroll
            for (int i = 0; i < 2 * ITEMS; ++i) {
                float& sum = recent[i % 2][i / 2];
                total[i % 2][i / 2] += sum, sum = 0.0f;
            }
        }
#endif
        __syncthreads();
    }
#if BACK
    const i64 tiles = (batch + height - 1) / height, tile = blockIdx.x / BLOCKS;
#pragma unroll
    for (int i = 0; i < 2 * ITEMS; ++i) {
        const int unit = thread + i / 2 * THREADS;
        if (unit < whole) sums[(i % 2 * tiles + tile) * size + from + unit] = total[i % 2][i / 2] + recent[i % 2][i / 2];
    }
#endif
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            if (thread + i * THREADS < whole && r < rows) store(end, corner + (i64)r * size + i * THREADS, held[r][i]);
        }
    }
    cluster_arrive();  // a block stays while others may still send to it
    cluster_wait();
}
