// A recurrence whose step multiplies the whole state: every block holds the state of all units of its rows (in two buffers,
// where they fit), multiplies it with the rows of the weight that belong to its own units, and sends what becomes of them
// to the others. FORWARD of all cells, and the adjoint of the Elman cell, whose "state" is the adjoint of pre-activations.
//
// Beside head.cu's and product.cu's: CELL (0 Elman, 1 GRU, 2 LSTM), BACK, KEEP (what the adjoint wants), BUFFERS (1 or 2).

#define WIDE (BLOCKS * UNITS)

extern "C" __global__ void
#if BLOCKS > 1
    __cluster_dims__(BLOCKS, 1, 1)
#endif
        __launch_bounds__(THREADS, 1) run_gather(
            Number* __restrict__ gates,         // (T, B, G * H): parts of the input; with KEEP, gates take their place. BACK: gradient of the output
            const float* __restrict__ packed,   // (BLOCKS, ...): the weight, as product.cu reads it
            const Number* __restrict__ bias,    // (H,): GRU, of the candidate's product
            const Number* __restrict__ begin,   // (B, H): the state before, BACK: gradient of the final one
            const Number* __restrict__ begin_c, // (B, H): LSTM
            Number* __restrict__ output,        // (T, B, H), BACK: adjoints of pre-activations
            Number* __restrict__ extra,         // (T, B, H): LSTM its c, GRU the candidate's product, abs its argument; BACK: what tells the derivative
            Number* __restrict__ end,           // (B, H)
            Number* __restrict__ end_c,         // (B, H)
            const int* __restrict__ lengths,    // (B,), where `ragged`
            double slope_, int steps, int batch, int size, int height, int ragged, int backwards, int given) {
    extern __shared__ __align__(128) float memory[];
    __shared__ __align__(8) u64 boxes[BUFFERS];
    const float slope = (float)slope_;
    const int rank = block_rank();
    const i64 first = (i64)(blockIdx.x / BLOCKS) * height;
    const int rows = (int)(batch - first < height ? batch - first : height);
    const int slab = rows * UNITS;
    float* state = memory;                              // (BUFFERS, BLOCKS, rows, UNITS)
    float* pre = state + BUFFERS * BLOCKS * height * UNITS;  // (WARPS_K, rows, RESULTS)
    float* later = pre + WARPS_K * height * RESULTS;
    const int last = ragged ? lengths[first] : steps;   // rows are sorted, the longest first

    const Place at(UNITS, slab, WIDE);
    const Matrix matrix(packed + (i64)rank * (WARPS_O * WARPS_K * EACH * DEPTH * 32 + TILES * TILE_FLOATS), later, at);

    if (threadIdx.x == 0) {
#pragma unroll
        for (int i = 0; i < BUFFERS; ++i) open_mailbox(&boxes[i]);
    }
    for (int i = threadIdx.x; i < BUFFERS * BLOCKS * slab; i += THREADS) state[i] = 0.0f;
    __syncthreads();
#if !BACK
    for (int i = threadIdx.x; i < BLOCKS * slab; i += THREADS) {
        const int unit = i / slab * UNITS + i % UNITS, row = i % slab / UNITS;
        if (unit < size) state[i] = load(begin, (first + row) * size + unit);
    }
#endif

    // entry i of a thread: row (thread + i * THREADS) / UNITS, unit (thread + i * THREADS) % UNITS of the block
    float h[ITEMS], x[ITEMS][GATES];
#if CELL == 2
    float c[ITEMS];
#endif
#if CELL == 1
    float b[ITEMS];
#endif
#if BACK
    float y[ITEMS];
    bool before[ITEMS];
#endif
    const bool downwards = BACK ? !backwards : backwards;  // in which direction time is walked
    const int begins = downwards ? last - 1 : 0, way = downwards ? -1 : 1;
    const i64 stride = (i64)batch * size;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        const int item = threadIdx.x + i * THREADS, unit = rank * UNITS + item % UNITS;
        const bool live = item < slab && unit < size;
        const i64 row = first + item / UNITS;
        h[i] = live ? load(begin, row * size + unit) : 0.0f;
#if CELL == 2
        c[i] = live ? load(begin_c, row * size + unit) : 0.0f;
#endif
#if CELL == 1
        b[i] = live ? load(bias, unit) : 0.0f;
#endif
#if BACK
        y[i] = live && last > 0 ? load(extra, begins * stride + row * size + unit) : 0.0f;
        before[i] = false;
        x[i][0] = live && given && last > 0 ? load(gates, begins * stride + row * size + unit) : 0.0f;
#else
#pragma unroll
        for (int g = 0; g < GATES; ++g)
            x[i][g] = live && last > 0 ? load(gates, (begins * stride + row * size) * GATES + g * size + unit) : 0.0f;
#endif
    }
    __syncthreads();
    cluster_arrive();
    cluster_wait();

    const auto in_row = [](int o) { return o; };
    for (int step = 0; step < last + BACK; ++step) {
        const i64 time = begins + (i64)way * step;
        const int buffer = BUFFERS == 2 ? step & 1 : 0, next = BUFFERS == 2 ? buffer ^ 1 : 0;
        float ahead[ITEMS][GATES];
#if BACK
        float y_ahead[ITEMS];
#endif
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const int item = threadIdx.x + i * THREADS, unit = rank * UNITS + item % UNITS;
            const bool live = item < slab && unit < size && step + 1 < last;
            const i64 at_next = (time + way) * stride + (first + item / UNITS) * size;
#if BACK
            ahead[i][0] = live && given ? load(gates, at_next + unit) : 0.0f;
            y_ahead[i] = live ? load(extra, at_next + unit) : 0.0f;
#else
#pragma unroll
            for (int g = 0; g < GATES; ++g) ahead[i][g] = live ? load(gates, at_next * GATES + g * size + unit) : 0.0f;
#endif
        }

#if BACK
        if (step > 0)  // there is no adjoint yet
#endif
            matrix.times(
                state + buffer * BLOCKS * slab, UNITS, rows, pre + at.part * rows * RESULTS, RESULTS, at, in_row);
        __syncthreads();
#if BUFFERS == 1
        cluster_arrive();  // the old state is read no more
        cluster_wait();
#endif

        float* mine = state + (next * BLOCKS + rank) * slab;
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const int item = threadIdx.x + i * THREADS, of = item % UNITS, unit = rank * UNITS + of;
            if (item >= slab) continue;
            const i64 row = first + item / UNITS;
            const i64 place = time * stride + row * size + unit;
            const bool runs = unit < size && (!ragged || time < lengths[row]);
            float p[GATES];
#pragma unroll
            for (int g = 0; g < GATES; ++g) {
                p[g] = pre[item / UNITS * RESULTS + g * UNITS + of];
#pragma unroll
                for (int k = 1; k < WARPS_K; ++k) p[g] += pre[(k * rows + item / UNITS) * RESULTS + g * UNITS + of];
            }
#if BACK
            if (before[i]) h[i] = p[0];
            float adjoint = 0.0f;
            if (runs && step < last) {
                adjoint = (h[i] + x[i][0]) * slope_at(y[i], slope);
                store(output, place, adjoint);
            }
            before[i] = runs;
            mine[item] = adjoint;
            y[i] = y_ahead[i];
#elif CELL == 0
            if (runs) {
                const float sum = p[0] + x[i][0];
                h[i] = activate(sum, slope);
                store(output, place, h[i]);
#if KEEP && KIND == 4
                store(extra, place, sum);
#endif
            }
            mine[item] = h[i];
#elif CELL == 1
            if (runs) {
                const float r = sigmoid(x[i][0] + p[0]), z = sigmoid(x[i][1] + p[1]), q = p[2] + b[i];
                const float n = tanhf(x[i][2] + r * q);
                h[i] = n + z * (h[i] - n);
                store(output, place, h[i]);
#if KEEP
                const i64 gate = (time * stride + row * size) * GATES + unit;
                store(gates, gate, r), store(gates, gate + size, z), store(gates, gate + 2 * size, n);
                store(extra, place, q);
#endif
            }
            mine[item] = h[i];
#else
            if (runs) {
                const float in = sigmoid(x[i][0] + p[0]), f = sigmoid(x[i][1] + p[1]);
                const float g = tanhf(x[i][2] + p[2]), o = sigmoid(x[i][3] + p[3]);
                c[i] = f * c[i] + in * g;
                h[i] = o * tanhf(c[i]);
                store(output, place, h[i]);
#if KEEP
                const i64 gate = (time * stride + row * size) * GATES + unit;
                store(gates, gate, in), store(gates, gate + size, f);
                store(gates, gate + 2 * size, g), store(gates, gate + 3 * size, o);
                store(extra, place, c[i]);
#endif
            }
            mine[item] = h[i];
#endif
#pragma unroll
            for (int g = 0; g < GATES; ++g) x[i][g] = ahead[i][g];
        }
#if BLOCKS > 1
        publish();
        __syncthreads();
        if (threadIdx.x == 0) expect(&boxes[next], (BLOCKS - 1) * slab * 4);
        if (threadIdx.x < BLOCKS && threadIdx.x != rank) send(&boxes[next], mine, mine, slab * 4, threadIdx.x);
        await(&boxes[next], BUFFERS == 2 ? step >> 1 & 1 : step & 1);
#else
        __syncthreads();
#endif
    }
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        const int item = threadIdx.x + i * THREADS, unit = rank * UNITS + item % UNITS;
        if (item < slab && unit < size) {
            store(end, (first + item / UNITS) * size + unit, h[i]);
#if CELL == 2
            store(end_c, (first + item / UNITS) * size + unit, c[i]);
#endif
        }
    }
    cluster_arrive();  // a block stays while others may still write to it
    cluster_wait();
}
