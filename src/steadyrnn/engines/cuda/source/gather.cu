// A recurrence whose step multiplies the whole state: every block holds the state of all units of its rows (in two buffers,
// where they fit), multiplies it with the rows of the weight that belong to its own units, and sends what becomes of them
// to the others. FORWARD of all cells, and the adjoint of the Elman cell, whose "state" is the adjoint of pre-activations.
//
// Rows come in SETS, one after another within a step: while one set's messages are on their way, the other is multiplied.
//
// Beside head.cu's and product.cu's: CELL (0 Elman, 1 GRU, 2 LSTM), BACK, KEEP (what the adjoint wants), BUFFERS (1 or 2),
// SETS (1 or 2), AHEAD (whether numbers are read a step before they are used, where steps are short).

#define WIDE (BLOCKS * UNITS)
#define EARLY 12  // steps
#define HELD (BACK || CELL == 2)

extern "C" __global__ void
#if BLOCKS > 1
    __cluster_dims__(BLOCKS, 1, 1)
#endif
        __launch_bounds__(THREADS, 1) run_gather(
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
            double slope_, int steps, int batch, int size, int height, int ragged, int backwards, int given, u32 zero) {
    extern __shared__ __align__(128) float memory[];
    __shared__ __align__(8) u64 boxes[BUFFERS * SETS];
    const float slope = (float)slope_;
    const int rank = block_rank();
    const i64 first = (i64)(blockIdx.x / BLOCKS) * height;
    const int rows = (int)(batch - first < height ? batch - first : height);
    const int half = (height + SETS - 1) / SETS, slab = half * UNITS, buffer_size = SETS * BLOCKS * slab;
    Entry* state = reinterpret_cast<Entry*>(memory);                         // (BUFFERS, SETS, BLOCKS, half, UNITS)
    float* pre = reinterpret_cast<float*>(state + BUFFERS * buffer_size);    // (WARPS_K, half, RESULTS)
    float* held = pre + WARPS_K * half * RESULTS;  // (SETS, half, UNITS): LSTM c, BACK what is carried
    float* later = held + (HELD ? SETS * slab : 0);
    const int last = ragged ? lengths[first] : steps;  // rows are sorted, the longest first

    const Place at(UNITS, slab, WIDE);
    const Matrix matrix(later, at, [&](int o, int k) {
        const int unit = rank * UNITS + o % UNITS;
        const bool inside = o < GATES * UNITS && unit < size && k < size;
        return inside ? load(weight, BACK ? (i64)k * size + unit : ((i64)(o / UNITS) * size + unit) * size + k) : 0.0f;
    });

    if (threadIdx.x == 0) {
#pragma unroll
        for (int i = 0; i < BUFFERS * SETS; ++i) open_mailbox(&boxes[i]);
    }
    for (int i = threadIdx.x; i < BUFFERS * buffer_size; i += THREADS) {
        const int set = i / (BLOCKS * slab) % SETS, unit = i % (BLOCKS * slab) / slab * UNITS + i % UNITS;
        const int row = set * half + i % slab / UNITS;
        const bool given_here = !BACK && i < buffer_size && unit < size && row < rows;
        state[i - i % UNITS + swap(i % UNITS, i % slab / UNITS)] = entry(given_here ? load(begin, (first + row) * size + unit) : 0.0f);
    }
#if HELD
    for (int i = threadIdx.x; i < SETS * slab; i += THREADS) {
        const int unit = rank * UNITS + i % UNITS, row = i / UNITS;
        held[i] = unit < size && row < rows ? load(BACK ? begin : begin_c, (first + row) * size + unit) : 0.0f;
    }
#endif

    const bool downwards = BACK ? !backwards : backwards;  // in which direction time is walked
    const int begins = downwards ? last - 1 : 0, way = downwards ? -1 : 1;
    const i64 stride = (i64)batch * size, move = way * stride;
    const i64 origin = first * size + rank * UNITS;  // of the block's entries at time 0
    constexpr int READ = BACK ? 2 : GATES;
    // Entry `item` of a set is its row item / UNITS and unit item % UNITS of the block; from `origin` it lies this far.
    const auto spot = [&](u32 item) { return (item / UNITS) * size + item % UNITS; };
    const u32 whole = size - rank * UNITS > 0 ? size - rank * UNITS : 0;  // units of the block that there are
    // What a step reads for an entry of the set that starts `from` numbers behind the tensor's: parts of the input,
    // BACK: gradient and what tells the derivative.
    const auto read = [&](float (&to)[READ], u32 item, i64 from, int items, bool live, bool more) {
        live = live && item < items && item % UNITS < whole;
        const bool asks = live && more && (item % 32 == 0 || item % UNITS == 0);
        const i64 place = from + spot(item);
#if BACK
        if (asks && given) ask_for(gates + place + EARLY * move);
        if (asks) ask_for(extra + place + EARLY * move);
        to[0] = live && given ? load(gates, place) : 0.0f;
        to[1] = live ? load(extra, place) : 0.0f;
#else
        const Number* at_gates = gates + GATES * (from + (i64)(item / UNITS) * size) - (GATES - 1) * (i64)(rank * UNITS) + item % UNITS;
#pragma unroll
        for (int g = 0; g < GATES; ++g) {
            if (asks) ask_for(at_gates + GATES * EARLY * move + g * size);
            to[g] = live ? load(at_gates, g * size) : 0.0f;
        }
#endif
    };
    float x[ITEMS][READ];
#if AHEAD
#pragma unroll
    for (int i = 0; i < ITEMS; ++i)
        read(x[i], threadIdx.x + i * THREADS, origin + begins * stride, rows * UNITS, last > 0, false);
#endif
    __syncthreads();
    cluster_arrive();
    cluster_wait();

    for (int turn = 0; turn < (last + BACK) * SETS; ++turn) {
        const int step = turn / SETS, set = turn % SETS, top = set * half;
        const int height_here = min(half, rows - top);
        if (height_here <= 0) continue;
        const i64 time = begins + (i64)way * step, now = origin + time * stride + (i64)top * size;
        const int items = height_here * UNITS;
        const int buffer = BUFFERS == 2 ? step & 1 : 0, next = BUFFERS == 2 ? buffer ^ 1 : 0;
        const bool more = step + 1 + EARLY < last;
#if AHEAD
        float ahead[ITEMS][READ];
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) read(ahead[i], threadIdx.x + i * THREADS, now + move, items, step + 1 < last, more);
#else
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) read(x[i], threadIdx.x + i * THREADS, now, items, step < last, more);
#endif
        const Entry* old = state + buffer * buffer_size + set * BLOCKS * slab;
#if BLOCKS > 1
        if (step > 0) await(&boxes[buffer * SETS + set], BUFFERS == 2 ? (step - 1) >> 1 & 1 : (step - 1) & 1);
#endif
#if BACK
        if (step > 0)  // there is no adjoint yet
#endif
            matrix.times(
                old, UNITS, height_here, pre + at.part * half * RESULTS, RESULTS, at, zero, [](int o) { return o; });
        __syncthreads();
#if BUFFERS == 1
        cluster_arrive();  // the old state is read no more
        cluster_wait();
#endif

        Entry* mine = state + next * buffer_size + (set * BLOCKS + rank) * slab;
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const u32 item = threadIdx.x + i * THREADS, of = item % UNITS;
            if (item >= items) continue;
            const i64 place = now + spot(item);
            const u32 slot = item - of + swap(of, item / UNITS);
            const int length = ragged ? lengths[first + top + item / UNITS] : steps;
            const bool inside = of < whole, runs = inside && time < length && step < last;
            float p[GATES];
#pragma unroll
            for (int g = 0; g < GATES; ++g) {
                p[g] = pre[item / UNITS * RESULTS + g * UNITS + of];
#pragma unroll
                for (int k = 1; k < WARPS_K; ++k) p[g] += pre[(k * half + item / UNITS) * RESULTS + g * UNITS + of];
            }
#if BACK
            const bool ran = inside && step > 0 && time - way < length;
            const float carried = ran ? p[0] : held[set * slab + item];
            const float adjoint = runs ? (carried + x[i][0]) * slope_at(x[i][1], slope) : 0.0f;
            if (runs) store(output, place, adjoint);
            held[set * slab + item] = carried;
            mine[slot] = entry(adjoint);
#else
            float h = value_of(old[rank * slab + slot]);
            if (runs) {
#if CELL == 0
                const float sum = p[0] + x[i][0];
                h = activate(sum, slope);
#if KEEP && KIND == 4
                store(extra, place, sum);
#endif
#elif CELL == 1
                const float r = sigmoid(x[i][0] + p[0]), z = sigmoid(x[i][1] + p[1]), q = p[2] + load(bias, rank * UNITS + of);
                const float n = tanhf(x[i][2] + r * q);
                h = n + z * (h - n);
#if KEEP
                const i64 gate = GATES * (place - of - rank * UNITS) + rank * UNITS + of;
                store(gates, gate, r), store(gates, gate + size, z), store(gates, gate + 2 * size, n);
                store(extra, place, q);
#endif
#else
                const float in = sigmoid(x[i][0] + p[0]), f = sigmoid(x[i][1] + p[1]);
                const float g = tanhf(x[i][2] + p[2]), o = sigmoid(x[i][3] + p[3]);
                const float c = f * held[set * slab + item] + in * g;
                held[set * slab + item] = c;
                h = o * tanhf(c);
#if KEEP
                const i64 gate = GATES * (place - of - rank * UNITS) + rank * UNITS + of;
                store(gates, gate, in), store(gates, gate + size, f);
                store(gates, gate + 2 * size, g), store(gates, gate + 3 * size, o);
                store(extra, place, c);
#endif
#endif
                store(output, place, h);
            }
            mine[slot] = entry(h);
#endif
        }
#if AHEAD
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
#pragma unroll
            for (int g = 0; g < READ; ++g) x[i][g] = ahead[i][g];
        }
#endif
#if BLOCKS > 1
        publish();
        __syncthreads();
        if (step + 1 < last + BACK) {
            const u32 bytes = items * sizeof(Entry);
            u64* box = &boxes[next * SETS + set];
            if (threadIdx.x == 0) expect(box, (BLOCKS - 1) * bytes);
            if (threadIdx.x < BLOCKS && threadIdx.x != rank) send(box, mine, mine, bytes, threadIdx.x);
        }
#else
        __syncthreads();
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
