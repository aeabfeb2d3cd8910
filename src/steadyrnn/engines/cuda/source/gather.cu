// A recurrence whose step multiplies the whole state: every block holds the state of all units of its rows (in two buffers,
// where they fit), multiplies it with the rows of the weight that belong to its own units, and sends what becomes of them
// to the others. Forward of all cells, and the adjoint (BACK) of the Elman cell, whose "state" is the adjoint of pre-activations.
//
// Rows come in SETS, one after another within a step: while one set's messages are on their way, the other is multiplied.
//
// Beside those of cluster.cu, of the product and of vector_io.cu: UNITS (of a block, per gate), GATES, CELL (see activations.cu), BACK, KEEP
// (whether what the adjoint reads is kept), ITEMS (how often a thread finishes entries of the state), BUFFERS (1 or 2), SETS,
// AHEAD (whether numbers are read a step before they are used, where steps are short), POSTED and RAGGED (see cluster.cu).
//
// FAR has one buffer per set. One more warp announces a set's message, and another fetches all messages as soon as the product
// is done, while other sets are multiplied. A block overwrites a message (of which there are two, by turns) only when it has
// fetched the one after it from all, so that all have fetched the one before.

// One set of rows at one step.
struct Turn {
    int step, set, top, rows, items;  // `top`: the set's first row of the block's
    int buffer, next;
    i64 time, now;  // `now`: place of the set's first entry at this time
    bool more;      // whether a step EARLY steps from the next one runs

    __device__ __forceinline__ Turn(const Walk& walk, int step, int set, int rows)
        : step(step), set(set), top(set * walk.half), rows(rows) {
        time = walk.begins + (i64)walk.way * (step - LEAD), now = walk.origin + time * walk.stride + (i64)top * walk.size;
        items = rows * ITEMS_OF_ROW;
        buffer = BUFFERS == 2 ? step & 1 : 0, next = BUFFERS == 2 ? buffer ^ 1 : 0;
        more = step + 1 + EARLY < walk.last + LEAD;
    }

    // All of the state before the step.
    __device__ __forceinline__ const Entry* old(const Walk& walk) const {
        return walk.state + buffer * walk.buffer_size + set * BLOCKS * walk.slab;
    }
};

// Where the block's part of the state behind a turn goes, in shared memory and in device memory.
struct Behind {
    Entry *mine, *sent;

    __device__ __forceinline__ Behind(const Walk& walk, const Turn& turn) {
        mine = walk.state + turn.next * walk.buffer_size + (turn.set * BLOCKS + walk.rank) * walk.slab;
        sent = walk.post + (((i64)turn.set * 2 + ((turn.step + 1) & 1)) * BLOCKS + walk.rank) * walk.slab;
    }
};

__device__ __forceinline__ void read_items(
    Numbers (&to)[ITEMS][READ], const Walk& walk, const u32 (&row_offset)[ITEMS], i64 from, bool more) {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) walk.read(to[i], row_offset[i], walk.unit_of(i), from, more);
}

// Reads how many steps each item's row runs. BACK only, long before it is used: next to its uses, the compiler would write the
// adjoint's step twice, for rows with lengths and without. (Forward, registers that hold it are missed elsewhere: 1.07 to 1.10 of the time.)
__device__ __forceinline__ void read_lengths(int (&length)[ITEMS], const Walk& walk, int top, u32 items) {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) length[i] = walk.length_of(top + walk.row_of(threadIdx.x + i * THREADS, items));
}

// VECTOR_IO neighbours of one row that a thread finishes at once. (Their numbers are apart in `Values`: while an array is indexed
// in a loop, the compiler keeps all that is in one struct with it in memory.)
struct Item {
    u32 here, row, of, slot;  // its number, row of the set, unit of the block; place in the set's state
    bool there, inside, runs, comes;  // `comes`: BACK, whether the product is the adjoint of a state

    __device__ __forceinline__ Item(const Walk& walk, const Turn& turn, int i, int early) {
        const u32 item = threadIdx.x + i * THREADS;
        here = item < turn.items ? item : 0, of = here % ITEMS_OF_ROW * VECTOR_IO, row = here / ITEMS_OF_ROW;
        slot = row * UNITS + swap(of, row);
        const int length = BACK ? early : walk.length_of(turn.top + row);
        there = item < turn.items, inside = there && of < walk.whole;
        runs = inside && turn.time < length && turn.step >= LEAD && turn.step < walk.last + LEAD;
        comes = inside && turn.step > 0 && turn.time - walk.way < length;
    }
};
struct Values {
    float product[GATES][VECTOR_IO];
    float carried[VECTOR_IO];
    float after[VECTOR_IO];  // the state, BACK: the adjoint
    float results[RESULT][VECTOR_IO];  // from 1 on

    // Adds up what warps found of the products.
    __device__ __forceinline__ void read_products(const Walk& walk, const Item& item) {
#pragma unroll
        for (int g = 0; g < GATES; ++g) {
            const float* sums = walk.pre + item.row * RESULTS + g * UNITS + item.of;
            unpack(product[g], load_vector<Floats>(sums));
#pragma unroll
            for (int k = 1; k < WARPS_K; ++k) {
                const Floats more_sums = load_vector<Floats>(sums + k * walk.half * RESULTS);
#pragma unroll
                for (int e = 0; e < VECTOR_IO; ++e) product[g][e] += nth(more_sums, e);
            }
        }
    }

    template <class... Kept>
    __device__ __forceinline__ void keep(int e, Kept... kept) {
        const float all[] = {kept...};
#pragma unroll
        for (int r = 1; r < RESULT; ++r) results[r][e] = all[r - 1];
    }
};

// The step of a cell for entry e of an item, of which it reads x; `before` is the state before.
#if BACK
__device__ __forceinline__ void finish_entry(
    Values& v, int e, const Numbers (&x)[READ], const Entries& before, const Item& item, const Walk& walk) {
    v.carried[e] = item.comes ? v.product[0][e] : v.carried[e];
    v.after[e] = item.runs ? (v.carried[e] + nth(x[0], e)) * slope_at(nth(x[1], e), walk.slope) : 0.0f;
}
#elif CELL == ELMAN
__device__ __forceinline__ void finish_entry(
    Values& v, int e, const Numbers (&x)[READ], const Entries& before, const Item& item, const Walk& walk) {
    const float sum = v.product[0][e] + nth(x[0], e);
    v.after[e] = activate(sum, walk.slope);
    v.keep(e, sum);
}
#elif CELL == GRU
__device__ __forceinline__ void finish_entry(
    Values& v, int e, const Numbers (&x)[READ], const Entries& before, const Item& item, const Walk& walk) {
    const float r = sigmoid(nth(x[0], e) + v.product[0][e]), z = sigmoid(nth(x[1], e) + v.product[1][e]);
    const float q = v.product[2][e] + load(walk.bias, (item.of < walk.whole ? walk.rank * UNITS + item.of : 0) + e);
    const float n = hyperbolic_tangent(nth(x[2], e) + r * q);
    v.after[e] = n + z * (nth(before, e) - n);
    v.keep(e, q, r, z, n);
}
#else
__device__ __forceinline__ void finish_entry(
    Values& v, int e, const Numbers (&x)[READ], const Entries& before, const Item& item, const Walk& walk) {
    const float i = sigmoid(nth(x[0], e) + v.product[0][e]), f = sigmoid(nth(x[1], e) + v.product[1][e]);
    const float g = hyperbolic_tangent(nth(x[2], e) + v.product[2][e]), o = sigmoid(nth(x[3], e) + v.product[3][e]);
    const float c = f * v.carried[e] + i * g;
    v.after[e] = o * hyperbolic_tangent(c);
    v.carried[e] = item.runs ? c : v.carried[e];
    v.keep(e, c, i, f, g, o);
}
#endif

// Finishes item i (BACK: of a row of `length` steps), puts it into the state behind, and leaves what goes to device memory in `result`.
// Returns whether it runs. Nothing branches, so that items hide each other's latency.
__device__ __forceinline__ bool finish_item(
    Numbers (&result)[RESULT], const Walk& walk, const Turn& turn, const Behind& to, const Numbers (&x)[READ], int i,
    int length) {
    const Item item(walk, turn, i, length);
    Values v;
    v.read_products(walk, item);
    float* carry = walk.held + turn.set * walk.share + item.here * VECTOR_IO;
    Floats kept = {};
    if (HELD && item.there) kept = load_vector<Floats>(carry);  // item 0's is being written
    if (HELD) unpack(v.carried, kept);
    Entries before = {};
    if (!BACK && item.there) before = load_vector<Entries>(turn.old(walk) + walk.rank * walk.slab + item.slot);
#pragma unroll
    for (int e = 0; e < VECTOR_IO; ++e) finish_entry(v, e, x, before, item, walk);
    Entries behind;
    pack(behind, v.after);
    if (!BACK) behind = item.runs ? behind : before;
#pragma unroll
    for (int r = 1; r < RESULT; ++r) pack(result[r], v.results[r]);
    pack(result[0], v.after);
    if (item.there) {
        store_vector(to.mine + item.slot, behind);
        if (BY_MEMORY) store_vector(to.sent + item.slot, behind);
        if (HELD) {
            pack(kept, v.carried);
            store_vector(carry, kept);
        }
    }
    return item.runs;
}

// Sends the block's part of the state behind a turn to the other blocks. FAR, other warps do.
__device__ __forceinline__ void send_state(const Walk& walk, const Turn& turn, const Behind& to, u64* arrived) {
    if (FAR) {
        fence_async_shared();
        mark_written(turn.set);
        sync_computing_threads();
        return;
    }
    if (BLOCKS > 1 && POSTED) fence_async_global();
    if (BLOCKS > 1 && !POSTED) fence_async_shared();
    __syncthreads();
    if (BLOCKS == 1 || turn.step + 1 >= walk.last + BACK) return;
    const u32 bytes = turn.rows * UNITS * sizeof(Entry);
    u64* barrier = &arrived[turn.next * SETS + turn.set];
    if (threadIdx.x == 0) mbarrier_expect(barrier, (BLOCKS - 1) * bytes);
    if (POSTED) {
        if (threadIdx.x == 0) copy_to_all_peers(barrier, to.mine, to.sent, bytes, walk.rank);
    } else if (threadIdx.x < BLOCKS && threadIdx.x != walk.rank) {
        copy_to_peer(barrier, to.mine, to.mine, bytes, threadIdx.x);
    }
}

__device__ __forceinline__ void write_results(
    const Numbers (&result)[ITEMS][RESULT], const bool (&runs)[ITEMS], const u32 (&row_offset)[ITEMS], const Walk& walk,
    const Turn& turn) {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        if (!runs[i]) continue;
        const i64 place = turn.now + row_offset[i] + walk.unit_of(i);
        store_vector(walk.output + place, result[i][0]);
#if RESULT > 1
        store_vector(walk.extra + place, result[i][1]);
#endif
#if RESULT > 2
        const u32 unit = walk.rank * UNITS + walk.unit_of(i);
        Number* gate = walk.gates + GATES * (place - unit) + unit;
#pragma unroll
        for (int g = 0; g < GATES; ++g) store_vector(gate + g * walk.size, result[i][2 + g]);
#endif
    }
}

// FAR: what the warps do that do not compute.
__device__ __forceinline__ void deliver_messages(const Block& block, u64* arrived, u64* freed) {
    const int sets_here = (block.rows + block.half - 1) / block.half;
    const int turns = block.last + BACK + LEAD, helper = threadIdx.x - THREADS, slab = block.slab;
    for (int step = 0; helper >= 32 && helper < 64 && step < turns; ++step) {
        for (int set = 0; set < sets_here; ++set) {
            wait_until_written(set);
            if (helper == 32) increment_release(block.announced + set), mbarrier_arrive(&freed[set]);
        }
    }
    for (int step = 1; helper == 0 && step < turns; ++step) {
        for (int set = 0; set < sets_here; ++set) {
            wait_for_phase(&freed[set], (step - 1) & 1);
            fetch(&arrived[set], block.state + set * BLOCKS * slab, block.post + ((i64)set * 2 + (step & 1)) * BLOCKS * slab,
                  BLOCKS * slab * sizeof(Entry), block.announced + set, BLOCKS * step);
        }
    }
}

__device__ __forceinline__ void open_barriers(u64* arrived, u64* freed) {
    if (threadIdx.x != 0) return;
#pragma unroll
    for (int i = 0; i < BUFFERS * SETS; ++i) mbarrier_init(&arrived[i]);
#pragma unroll
    for (int i = 0; FAR && i < SETS; ++i) mbarrier_init(&freed[i]);
}

// Runs all steps, once everything is in its place; `x` is what the first one reads, where AHEAD.
__device__ __forceinline__ void run_steps(
    const Walk& walk, const Matrix& matrix, const Place& at, Numbers (&x)[ITEMS][READ], u64* arrived, u32 zero) {
    int length[ITEMS] = {};  // BACK: steps that an item's row runs
    for (int count = 0; count < (walk.last + BACK + LEAD) * SETS; ++count) {
        const int set = count % SETS, rows = min(walk.half, walk.rows - set * walk.half);
        if (rows <= 0) continue;
        const Turn turn(walk, count / SETS, set, rows);
        const int step = turn.step;
        u32 row_offset[ITEMS];
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) row_offset[i] = walk.row_offset(threadIdx.x + i * THREADS, turn.items);
        if (BACK) read_lengths(length, walk, turn.top, turn.items);
        Numbers ahead[ITEMS][READ] = {};
        if (AHEAD && step + 1 < walk.last && walk.whole > 0) read_items(ahead, walk, row_offset, turn.now + walk.move, turn.more);
        if (!AHEAD && step >= LEAD && step < walk.last + LEAD && walk.whole > 0) read_items(x, walk, row_offset, turn.now, turn.more);
        if (BLOCKS > 1 && step > 0)
            wait_for_phase(&arrived[turn.buffer * SETS + turn.set], BUFFERS == 2 ? (step - 1) >> 1 & 1 : (step - 1) & 1);
        if (!(BACK || LEAD) || step > 0)  // there is no adjoint yet, or the states themselves are sent
            matrix.times<UNITS>(
                turn.old(walk), turn.rows, walk.pre + at.part * walk.half * RESULTS, RESULTS, at, zero, [](int o) { return o; });
        sync_computing_threads();
        if (BUFFERS == 1) {
            cluster_arrive_lightly();  // the old state is read no more
            cluster_wait();
        }
        const Behind to(walk, turn);  // not before the barrier: addresses would take registers from the product
        Numbers result[ITEMS][RESULT];  // goes to device memory behind the messages
        bool runs[ITEMS];
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) runs[i] = finish_item(result[i], walk, turn, to, x[i], i, length[i]);
        send_state(walk, turn, to, arrived);
        write_results(result, runs, row_offset, walk, turn);
#pragma unroll
        for (int i = 0; AHEAD && i < ITEMS; ++i) {
#pragma unroll
            for (int g = 0; g < READ; ++g) x[i][g] = ahead[i][g];
        }
    }
}

extern "C" __global__ void CLUSTER_DIMS __launch_bounds__(ALL_THREADS, 1) run_gather(
    Number* __restrict__ gates,          // (T, B, G * H): parts of the input; with KEEP, gates take their place.
                                         // BACK: gradient of the output, where `given`
    const Number* __restrict__ weight,   // (G * H, H)
    const Number* __restrict__ bias,     // (H,): GRU, of the candidate's product
    const Number* __restrict__ begin,    // (B, H): the state before, BACK: gradient of the final one
    const Number* __restrict__ begin_c,  // (B, H): LSTM
    Number* __restrict__ output,         // (T, B, H), BACK: adjoints of pre-activations
    Number* __restrict__ extra,          // (T, B, H): LSTM its c, GRU the candidate's product, abs its argument;
                                         // BACK: what determines the derivative
    Number* __restrict__ end,            // (B, H)
    Number* __restrict__ end_c,          // (B, H)
    const int* __restrict__ lengths,     // (B,), where `ragged`
    Entry* __restrict__ post,            // BY_MEMORY: (groups, SETS, 2, BLOCKS, half or more, UNITS), messages
    u32* __restrict__ announced,         // FAR: (groups, SETS), how many were sent, 0 at first
    double slope, int steps, int batch, int size, int height, int ragged, int backwards, int given, int offset, u32 zero) {
    DYNAMIC_SHARED(float, memory);
    SHARED(u64, arrived, [BUFFERS * SETS]);
    SHARED(u64, freed, [SETS]);  // FAR: a set's state is read no more
    const i64 first = offset + (i64)(blockIdx.x / BLOCKS) * height;
    if (first >= batch) return;
    const Block block(
        {gates, weight, bias, begin, begin_c, output, extra, end, end_c, lengths, post, announced},
        {steps, batch, size, height, ragged, backwards, given}, (float)slope, first, memory);
#if FAR
    if (threadIdx.x >= THREADS) {
        give_registers<24>();  // to those that compute, by fours of warps: 128 x 24 + 256 x 240 of 64 K
        __syncthreads();
        deliver_messages(block, arrived, freed);
        return;
    }
    take_registers<240>();
#endif
    const Place at(UNITS, block.slab, WIDE);
    const Matrix matrix(block.later, at, [&](int o, int k) { return block.weight_at(o, k); });
    open_barriers(arrived, freed);
    block.write_first_states();
    const Walk walk(block);
    Numbers x[ITEMS][READ] = {};
    if (AHEAD && walk.last > 0 && walk.whole > 0) {
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const u32 down = walk.row_offset(threadIdx.x + i * THREADS, walk.rows * ITEMS_OF_ROW);
            walk.read(x[i], down, walk.unit_of(i), walk.origin + walk.begins * walk.stride, false);
        }
    }
    fence_async_shared();
    __syncthreads();
    cluster_arrive();
    cluster_wait();
    run_steps(walk, matrix, at, x, arrived, zero);
    block.write_last_states();
    cluster_arrive();  // a block stays while others may still send to it
    cluster_wait();
}
