// A recurrence whose step multiplies the whole state: every block holds the state of all units of its rows (in two buffers,
// where they fit), multiplies it with the rows of the weight that belong to its own units, and sends what becomes of them
// to the others. FORWARD of all cells, and the adjoint of the Elman cell, whose "state" is the adjoint of pre-activations.
//
// Rows come in SETS, one after another within a step: while one set's messages are on their way, the other is multiplied.
//
// Beside head.cu's, product.cu's and abreast.cu's: CELL (0 Elman, 1 GRU, 2 LSTM), BACK, KEEP (what the adjoint wants), BUFFERS
// (1 or 2), SETS, AHEAD (whether numbers are read a step before they are used, where steps are short).
//
// FAR has one buffer a set. One more warp tells of a set's message, and another fetches all messages as soon as the product is
// done, while other sets are multiplied. A block overwrites a message (of which there are two, by turns) only when it has
// fetched the one after it from all, so that all have fetched the one before.

#define WIDE (BLOCKS * UNITS)
#define ITEMS_OF_ROW (UNITS / ABREAST)
#define EARLY 12  // steps
#define HELD (BACK || CELL == 2)
// FAR, the first turn only sends the initial states: a turn without a product is what the adjoint has, and for a loop that may
// leave the product out the compiler takes the registers that it is given (187 against 165).
#define LEAD (FAR && !BACK)
#if BACK || !KEEP || (CELL == 0 && KIND != 4)
#define RESULT 1  // numbers of an item that go to device memory: output, extra, gates
#elif CELL == 0
#define RESULT 2
#else
#define RESULT (GATES + 2)
#endif

extern "C" __global__ void
#if CLUSTERED
    __cluster_dims__(BLOCKS, 1, 1)
#endif
        __launch_bounds__(ALL_THREADS, 1) run_gather(
            Number* __restrict__ gates,          // (T, B, G * H): parts of the input; with KEEP, gates take their place.
                                                 // BACK: gradient of the output, where `given`
            const Number* __restrict__ weight,   // (G * H, H)
            const Number* __restrict__ bias,     // (H,): GRU, of the candidate's product
            const Number* __restrict__ begin,    // (B, H): the state before, BACK: gradient of the final one
            const Number* __restrict__ begin_c,  // (B, H): LSTM
            Number* __restrict__ output,         // (T, B, H), BACK: adjoints of pre-activations
            Number* __restrict__ extra,          // (T, B, H): LSTM its c, GRU the candidate's product, abs its argument;
                                                 // BACK: what tells the derivative
            Number* __restrict__ end,            // (B, H)
            Number* __restrict__ end_c,          // (B, H)
            const int* __restrict__ lengths,     // (B,), where `ragged`
            Entry* __restrict__ post,            // FAR and POSTED: (groups, SETS, 2, BLOCKS, half or more, UNITS), messages
            u32* __restrict__ told,              // FAR: (groups, SETS), how many were sent, 0 at first
            double slope_, int steps, int batch, int size, int height, int ragged, int backwards, int given, int offset,
            u32 zero) {
    extern __shared__ __align__(128) float memory[];
    __shared__ __align__(8) u64 boxes[BUFFERS * SETS];
#if FAR
    __shared__ __align__(8) u64 freed[SETS];  // a set's state is read no more
#endif
    const float slope = (float)slope_;
    const int rank = block_rank();
    const i64 first = offset + (i64)(blockIdx.x / BLOCKS) * height;
    if (first >= batch) return;
    const int rows = (int)(batch - first < height ? batch - first : height);
    const int half = (height + SETS - 1) / SETS, share = half * UNITS;
#if defined(EIGHTS) && !FAR
    constexpr int slab = EIGHTS * 8 * UNITS;  // what the matrix units read: all places of a product are known to the compiler
#else
    const int slab = share;
#endif
    const int buffer_size = SETS * BLOCKS * slab;
    Entry* state = reinterpret_cast<Entry*>(memory);                         // (BUFFERS, SETS, BLOCKS, half or more, UNITS)
    float* pre = reinterpret_cast<float*>(state + BUFFERS * buffer_size);    // (WARPS_K, half, RESULTS)
    float* held = pre + WARPS_K * half * RESULTS;  // (SETS, half, UNITS): LSTM c, BACK what is carried
    float* later = held + (HELD ? SETS * share : 0);
    const int last = ragged ? lengths[first] : steps;  // rows are sorted, the longest first
#if FAR || POSTED
    post += (i64)(blockIdx.x / BLOCKS) * SETS * 2 * BLOCKS * slab;
#endif
#if FAR
    const int sets_here = (rows + half - 1) / half;
    told += blockIdx.x / BLOCKS * SETS;
    if (threadIdx.x >= THREADS) {
        give_registers();
        __syncthreads();
        const int turns = last + BACK + LEAD, helper = threadIdx.x - THREADS;
        for (int step = 0; helper >= 32 && helper < 64 && step < turns; ++step) {
            for (int set = 0; set < sets_here; ++set) {
                await_written(set);
                if (helper == 32) tell(told + set), arrive(&freed[set]);
            }
        }
        for (int step = 1; helper == 0 && step < turns; ++step) {
            for (int set = 0; set < sets_here; ++set) {
                await(&freed[set], (step - 1) & 1);
                fetch(&boxes[set], state + set * BLOCKS * slab, post + ((i64)set * 2 + (step & 1)) * BLOCKS * slab,
                      BLOCKS * slab * sizeof(Entry), told + set, BLOCKS * step);
            }
        }
        return;
    }
    take_registers();
#endif

    const Place at(UNITS, slab, WIDE);
    const Matrix matrix(later, at, [&](int o, int k) {
        const int unit = rank * UNITS + o % UNITS;
        const bool inside = o < GATES * UNITS && unit < size && k < size;
        return inside ? load(weight, BACK ? (i64)k * size + unit : ((i64)(o / UNITS) * size + unit) * size + k) : 0.0f;
    });

    if (threadIdx.x == 0) {
#pragma unroll
        for (int i = 0; i < BUFFERS * SETS; ++i) open_mailbox(&boxes[i]);
#if FAR
#pragma unroll
        for (int i = 0; i < SETS; ++i) open_mailbox(&freed[i]);
#endif
    }
    for (int i = threadIdx.x; i < BUFFERS * buffer_size; i += THREADS) {
        const int set = i / (BLOCKS * slab) % SETS, unit = i % (BLOCKS * slab) / slab * UNITS + i % UNITS;
        const int of = i % slab / UNITS, row = set * half + of;
        const bool given_here = !BACK && i < buffer_size && unit < size && of < half && row < rows;
        const float start = given_here ? load(begin, (first + row) * size + unit) : 0.0f;
        state[i - i % UNITS + swap(i % UNITS, of)] = entry(start);
    }
#if HELD
    for (int i = threadIdx.x; i < SETS * share; i += THREADS) {
        const int unit = rank * UNITS + i % UNITS, row = i / UNITS;
        held[i] = unit < size && row < rows ? load(BACK ? begin : begin_c, (first + row) * size + unit) : 0.0f;
    }
#endif

    const bool downwards = BACK ? !backwards : backwards;  // in which direction time is walked
    const int begins = downwards ? last - 1 : 0, way = downwards ? -1 : 1;
    const i64 stride = (i64)batch * size, move = way * stride;
    const i64 origin = first * size + rank * UNITS;  // of the block's entries at time 0
    const int whole = min(max(size - rank * UNITS, 0), UNITS);  // units of the block that there are
    constexpr int READ = BACK ? 2 : GATES;
    // Item `item` of a set is ABREAST neighbours of row item / ITEMS_OF_ROW. From the set's first entry it lies `down` +
    // `unit_of` far; where there is no such item, another one is read instead, so that nothing branches.
    const auto down = [&](u32 item, u32 items) { return (item < items ? item / ITEMS_OF_ROW : 0) * size; };
    const auto unit_of = [&](int i) {
        const u32 of = (threadIdx.x + i * THREADS) % ITEMS_OF_ROW * ABREAST;
        return of < whole ? of : 0;
    };
    // What a step reads: parts of the input, BACK: gradient and what tells the derivative.
    const auto read = [&](Numbers (&to)[READ], u32 row, u32 unit, i64 from, bool more) {
#if BACK
        const i64 place = from + row + unit;
        if (more && given) ask_for(gates + place + EARLY * move);
        if (more) ask_for(extra + place + EARLY * move);
        to[0] = given ? *reinterpret_cast<const Numbers*>(gates + place) : Numbers{};
        to[1] = *reinterpret_cast<const Numbers*>(extra + place);
#else
        const Number* part = gates + GATES * (from - rank * UNITS + row) + (rank * UNITS + unit);
#pragma unroll
        for (int g = 0; g < GATES; ++g) {
            if (more) ask_for(part + GATES * EARLY * move + g * size);
            to[g] = *reinterpret_cast<const Numbers*>(part + g * size);
        }
#endif
    };
    Numbers x[ITEMS][READ] = {};
#if AHEAD
    if (last > 0 && whole > 0) {
#pragma unroll
        for (int i = 0; i < ITEMS; ++i)
            read(x[i], down(threadIdx.x + i * THREADS, rows * ITEMS_OF_ROW), unit_of(i), origin + begins * stride, false);
    }
#endif
    publish();
    __syncthreads();
    cluster_arrive();
    cluster_wait();

    for (int turn = 0; turn < (last + BACK + LEAD) * SETS; ++turn) {
        const int step = turn / SETS, set = turn % SETS, top = set * half;
        const int height_here = min(half, rows - top);
        if (height_here <= 0) continue;
        const i64 time = begins + (i64)way * (step - LEAD), now = origin + time * stride + (i64)top * size;
        const int items = height_here * ITEMS_OF_ROW;
        const int buffer = BUFFERS == 2 ? step & 1 : 0, next = BUFFERS == 2 ? buffer ^ 1 : 0;
        const bool more = step + 1 + EARLY < last + LEAD;
        u32 tall[ITEMS];
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) tall[i] = down(threadIdx.x + i * THREADS, items);
#if AHEAD
        Numbers ahead[ITEMS][READ] = {};
        if (step + 1 < last && whole > 0) {
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) read(ahead[i], tall[i], unit_of(i), now + move, more);
        }
#else
        if (step >= LEAD && step < last + LEAD && whole > 0) {
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) read(x[i], tall[i], unit_of(i), now, more);
        }
#endif
        const Entry* old = state + buffer * buffer_size + set * BLOCKS * slab;
#if BLOCKS > 1
        if (step > 0) await(&boxes[buffer * SETS + set], BUFFERS == 2 ? (step - 1) >> 1 & 1 : (step - 1) & 1);
#endif
        if (!(BACK || LEAD) || step > 0)  // there is no adjoint yet, or the states themselves are sent
            matrix.times<UNITS>(
                old, height_here, pre + at.part * half * RESULTS, RESULTS, at, zero, [](int o) { return o; });
        wait_for_all();
#if BUFFERS == 1 && CLUSTERED
        cluster_arrive_lightly();  // the old state is read no more
        cluster_wait();
#endif

        Entry* mine = state + next * buffer_size + (set * BLOCKS + rank) * slab;
#if FAR || POSTED
        Entry* sent = post + (((i64)set * 2 + ((step + 1) & 1)) * BLOCKS + rank) * slab;
#endif
        const auto put = [&](u32 slot, const Entries& all) {
            *reinterpret_cast<Entries*>(mine + slot) = all;
#if FAR || POSTED
            *reinterpret_cast<Entries*>(sent + slot) = all;
#endif
        };
        Numbers result[ITEMS][RESULT];  // goes to device memory behind the messages
        bool runs[ITEMS];
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {  // without a branch, so that items hide each other's latency
            const u32 item = threadIdx.x + i * THREADS, here = item < items ? item : 0;
            const u32 of = here % ITEMS_OF_ROW * ABREAST, row = here / ITEMS_OF_ROW, slot = row * UNITS + swap(of, row);
            const int length = ragged ? lengths[first + top + row] : steps;
            const bool inside = item < items && of < whole;
            runs[i] = inside && time < length && step >= LEAD && step < last + LEAD;
            float p[GATES][ABREAST];
#pragma unroll
            for (int g = 0; g < GATES; ++g) {
                const float* sums = pre + row * RESULTS + g * UNITS + of;
                unpack(p[g], *reinterpret_cast<const Floats*>(sums));
#pragma unroll
                for (int k = 1; k < WARPS_K; ++k) {
                    const Floats more_sums = *reinterpret_cast<const Floats*>(sums + k * half * RESULTS);
#pragma unroll
                    for (int e = 0; e < ABREAST; ++e) p[g][e] += nth(more_sums, e);
                }
            }
#if HELD
            float* carry = held + set * share + here * ABREAST;
            Floats kept = {};
            if (item < items) kept = *reinterpret_cast<const Floats*>(carry);  // item 0's is being written
            float carried[ABREAST];
            unpack(carried, kept);
#endif
            float after[ABREAST];  // BACK: the adjoint
#if BACK
            const bool comes = inside && step > 0 && time - way < length;
#else
            Entries before = {};
            if (item < items) before = *reinterpret_cast<const Entries*>(old + rank * slab + slot);
            float more_results[RESULT][ABREAST];
#endif
#pragma unroll
            for (int e = 0; e < ABREAST; ++e) {
#if BACK
                carried[e] = comes ? p[0][e] : carried[e];
                after[e] = runs[i] ? (carried[e] + nth(x[i][0], e)) * slope_at(nth(x[i][1], e), slope) : 0.0f;
#elif CELL == 0
                const float sum = p[0][e] + nth(x[i][0], e);
                after[e] = activate(sum, slope);
                more_results[RESULT - 1][e] = sum;
#elif CELL == 1
                const float r = sigmoid(nth(x[i][0], e) + p[0][e]), z = sigmoid(nth(x[i][1], e) + p[1][e]);
                const float q = p[2][e] + load(bias, (of < whole ? rank * UNITS + of : 0) + e);
                const float n = hyperbolic_tangent(nth(x[i][2], e) + r * q);
                after[e] = n + z * (nth(before, e) - n);
#if KEEP
                more_results[1][e] = q, more_results[2][e] = r, more_results[3][e] = z, more_results[4][e] = n;
#endif
#else
                const float in = sigmoid(nth(x[i][0], e) + p[0][e]), f = sigmoid(nth(x[i][1], e) + p[1][e]);
                const float g = hyperbolic_tangent(nth(x[i][2], e) + p[2][e]), o = sigmoid(nth(x[i][3], e) + p[3][e]);
                const float c = f * carried[e] + in * g;
                after[e] = o * hyperbolic_tangent(c);
                carried[e] = runs[i] ? c : carried[e];
#if KEEP
                more_results[1][e] = c, more_results[2][e] = in, more_results[3][e] = f, more_results[4][e] = g;
                more_results[5][e] = o;
#endif
#endif
            }
            Entries sent_now;
            pack(sent_now, after);
#if !BACK
            sent_now = runs[i] ? sent_now : before;
#pragma unroll
            for (int r = 1; r < RESULT; ++r) pack(result[i][r], more_results[r]);
#endif
            pack(result[i][0], after);
            if (item < items) {
                put(slot, sent_now);
#if HELD
                pack(kept, carried);
                *reinterpret_cast<Floats*>(carry) = kept;
#endif
            }
        }
#if FAR
        publish();
        written(set);
        wait_for_all();
#elif BLOCKS > 1
#if POSTED
        publish_posted();
#else
        publish();
#endif
        __syncthreads();
        if (step + 1 < last + BACK) {
            const u32 bytes = height_here * UNITS * sizeof(Entry);
            u64* box = &boxes[next * SETS + set];
            if (threadIdx.x == 0) expect(box, (BLOCKS - 1) * bytes);
#if POSTED
            if (threadIdx.x == 0) send_to_all(box, mine, sent, bytes, rank);
#else
            if (threadIdx.x < BLOCKS && threadIdx.x != rank) send(box, mine, mine, bytes, threadIdx.x);
#endif
        }
#else
        __syncthreads();
#endif
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            if (!runs[i]) continue;
            const i64 place = now + tall[i] + unit_of(i);
            *reinterpret_cast<Numbers*>(output + place) = result[i][0];
#if RESULT > 1
            *reinterpret_cast<Numbers*>(extra + place) = result[i][1];
#endif
#if RESULT > 2
            const u32 unit = rank * UNITS + unit_of(i);
            Number* gate = gates + GATES * (place - unit) + unit;
#pragma unroll
            for (int g = 0; g < GATES; ++g) *reinterpret_cast<Numbers*>(gate + g * size) = result[i][2 + g];
#endif
        }
#if AHEAD
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
#pragma unroll
            for (int g = 0; g < READ; ++g) x[i][g] = ahead[i][g];
        }
#endif
    }
    const Entry* final = state + (BUFFERS == 2 ? last & 1 : 0) * buffer_size + rank * slab;
    for (int i = threadIdx.x; i < rows * UNITS; i += THREADS) {
        const int unit = rank * UNITS + i % UNITS, row = i / UNITS;
        if (unit >= size) continue;
        const i64 place = (first + row) * size + unit;
        const int spot_in = row / half * BLOCKS * slab + row % half * UNITS + swap(i % UNITS, row % half);
        store(end, place, BACK ? held[i] : value_of(final[spot_in]));
#if CELL == 2
        store(end_c, place, held[i]);
#endif
    }
    cluster_arrive();  // a block stays while others may still send to it
    cluster_wait();
}
