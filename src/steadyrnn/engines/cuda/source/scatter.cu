// The adjoint of a gated recurrence. A block finds the adjoints of its own units' gates, multiplies them with its own rows of
// the weight, and sends each other block the part of the state's adjoint that belongs there: G times fewer numbers than the
// gates' adjoints would be.
//
// Beside head.cu's and product.cu's: CELL (1 GRU, 2 LSTM), AHEAD (whether numbers are read a step before they are used).

#define WIDE (BLOCKS * UNITS)
#define OWN (GATES * UNITS)
#define EARLY 12  // steps
#define SENT ((RESULTS + UNITS - 1) / UNITS * UNITS)  // results, and those that pad them

extern "C" __global__ void
#if CLUSTERED
    __cluster_dims__(BLOCKS, 1, 1)
#endif
        __launch_bounds__(THREADS, 1) run_scatter(
            const Number* __restrict__ gates,   // (T, B, G * H): what the run kept
            const Number* __restrict__ extra,   // (T, B, H): LSTM its c, GRU the candidate's product
            const Number* __restrict__ weight,  // (G * H, H)
            const Number* __restrict__ states,  // (T, B, H): GRU, the outputs
            const Number* __restrict__ start,   // (B, H): the state before, LSTM its c
            const Number* __restrict__ grad,    // (T, B, H): gradient of the output, where `given`
            const Number* __restrict__ begin,   // (B, H): gradient of the final state
            const Number* __restrict__ begin_c, // (B, H): LSTM
            Number* __restrict__ adjoint,       // (T, B, G * H): of the gates' sums
            Number* __restrict__ inner,         // (T, B, H): GRU, of the candidate's product
            Number* __restrict__ end,           // (B, H)
            Number* __restrict__ end_c,         // (B, H)
            const int* __restrict__ lengths,    // (B,), where `ragged`
            int steps, int batch, int size, int height, int ragged, int backwards, int given, u32 zero) {
    extern __shared__ __align__(128) float memory[];
    __shared__ __align__(8) u64 box;
    const int rank = block_rank();
    const i64 first = (i64)(blockIdx.x / BLOCKS) * height;
    const int rows = (int)(batch - first < height ? batch - first : height);
    const int slab = rows * UNITS;
    float* inbox = memory;                                        // (BLOCKS, rows, UNITS): parts of the state's adjoint
    float* outbox = inbox + (BLOCKS > 1 ? WIDE * height : 0);     // likewise, for the others
    Entry* own = reinterpret_cast<Entry*>(outbox + SENT * height);    // (rows, OWN): adjoints of the own gates
    float* held_h = reinterpret_cast<float*>(own + OWN * height);     // (rows, UNITS): the state's adjoint
    float* held_c = held_h + UNITS * height;                      // LSTM: of c; GRU: what goes past the gates
    float* later = held_c + UNITS * height;
    const int last = ragged ? lengths[first] : steps;

    const Place at(OWN, 0, OWN);
    const Matrix matrix(later, at, [&](int o, int k) {
        const int unit = rank * UNITS + k % UNITS;
        const bool inside = o < size && k < OWN && unit < size;
        return inside ? load(weight, ((i64)(k / UNITS) * size + unit) * size + o) : 0.0f;
    });
    if (threadIdx.x == 0) open_mailbox(&box);
    for (int i = threadIdx.x; i < slab; i += THREADS) {
        const int unit = rank * UNITS + i % UNITS;
        const i64 place = (first + i / UNITS) * size + unit;
        held_h[i] = unit < size ? load(begin, place) : 0.0f;
        held_c[i] = unit < size && CELL == 2 ? load(begin_c, place) : 0.0f;
    }

    const bool downwards = !backwards;
    const int begins = downwards ? last - 1 : 0, way = downwards ? -1 : 1;
    const i64 stride = (i64)batch * size;
    // LSTM: i f g o, c, c before, gradient. GRU: r z n, candidate's product, h before, gradient.
    constexpr int SAVED = GATES + 3;
    const int whole = min(max(size - rank * UNITS, 0), UNITS);  // units of the block that there are
    // Where there is no such entry, another one is read instead, so that nothing branches.
    const auto read = [&](Number (&to)[SAVED], u32 item, i64 time, bool more) {
        const u32 here = item < slab ? item : 0, of = here % UNITS, unit = rank * UNITS + (of < whole ? of : 0);
        const i64 row = first + here / UNITS, place = time * stride + row * size + unit;
        const Number* gate = gates + GATES * (place - unit) + unit;
        const i64 soon = (i64)EARLY * way * stride;
        if (more) {
#pragma unroll
            for (int g = 0; g < GATES; ++g) ask_for(gate + soon * GATES + g * size);
            ask_for(extra + place + soon);
            if (CELL == 1) ask_for(states + place + soon);
            if (given) ask_for(grad + place + soon);
        }
#pragma unroll
        for (int g = 0; g < GATES; ++g) to[g] = gate[g * size];
        to[GATES] = extra[place];
        const i64 earlier = time + way;  // of the run's own order
        const bool from = earlier >= 0 && earlier < (ragged ? lengths[row] : steps);
        to[GATES + 1] = *(from ? (CELL == 2 ? extra : states) + place + way * stride : start + row * size + unit);
        to[GATES + 2] = given ? grad[place] : Number(0);
    };
    Number now[ITEMS][SAVED] = {};
#if AHEAD
    if (last > 0 && whole > 0) {
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) read(now[i], threadIdx.x + i * THREADS, begins, false);
    }
#endif
    __syncthreads();
    cluster_arrive();
    cluster_wait();

    const auto by_owner = [&](int o) { return o / UNITS * slab + o % UNITS; };
    for (int step = 0; step <= last; ++step) {
        const i64 time = begins + (i64)way * step;
        const bool more = step + 1 + EARLY < last;
#if !AHEAD
        if (step < last && whole > 0) {
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) read(now[i], threadIdx.x + i * THREADS, time, more);
        }
#endif
#if BLOCKS > 1
        if (step > 0) await(&box, (step - 1) & 1);
#endif
        float sum[ITEMS];
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const u32 item = threadIdx.x + i * THREADS, here = item < slab ? item : 0;
            sum[i] = outbox[(BLOCKS > 1 ? rank * slab : 0) + here];  // what is its own a block does not send
#pragma unroll
            for (int p = 0; p < BLOCKS; ++p)
                if (BLOCKS > 1) sum[i] += p == rank ? 0.0f : inbox[p * slab + here];
        }
        if (step < last) cluster_arrive();  // what came is read, and so, everywhere, is what was sent
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const u32 item = threadIdx.x + i * THREADS, here = item < slab ? item : 0, of = here % UNITS, unit = rank * UNITS + of;
            const i64 row = first + here / UNITS;
            const int length = ragged ? lengths[row] : steps;
            const bool inside = item < slab && of < whole, runs = inside && step < last && time < length;
            const bool ran = step > 0 && inside && time - way < length;
            const float beside = item < slab ? held_c[here] : 0.0f;
            const float d_h = ran ? (CELL == 2 ? sum[i] : sum[i] + beside) : item < slab ? held_h[here] : 0.0f;
            const float total = d_h + as_float(now[i][GATES + 2]);
            float d[GATES];
#if CELL == 2
            const float in = as_float(now[i][0]), f = as_float(now[i][1]), g = as_float(now[i][2]), o = as_float(now[i][3]);
            const float c = hyperbolic_tangent(as_float(now[i][4]));
            const float d_c = beside + total * o * (1.0f - c * c), held = d_c * f;
            d[0] = d_c * g * in * (1.0f - in);
            d[1] = d_c * as_float(now[i][5]) * f * (1.0f - f);
            d[2] = d_c * in * (1.0f - g * g);
            d[3] = total * c * o * (1.0f - o);
#else
            const float r = as_float(now[i][0]), z = as_float(now[i][1]), n = as_float(now[i][2]), held = total * z;
            const float d_n = total * (1.0f - z) * (1.0f - n * n);
            d[0] = d_n * as_float(now[i][3]) * r * (1.0f - r);
            d[1] = total * (as_float(now[i][4]) - n) * z * (1.0f - z);
            d[2] = d_n * r;
#endif
            if (runs) {
                const i64 place = time * stride + row * size + unit, gate = GATES * (place - unit) + unit;
                held_c[here] = held;
                store(adjoint, gate, d[0]), store(adjoint, gate + size, d[1]);
#if CELL == 2
                store(adjoint, gate + 2 * size, d[2]), store(adjoint, gate + 3 * size, d[3]);
#else
                store(adjoint, gate + 2 * size, d_n), store(inner, place, d[2]);
#endif
            }
            if (item < slab) {
                held_h[here] = d_h;
#pragma unroll
                for (int g = 0; g < GATES; ++g)
                    own[here / UNITS * OWN + swap(g * UNITS + of, here / UNITS)] = entry(runs ? d[g] : 0.0f);
            }
        }
        if (step == last) break;
        __syncthreads();
        cluster_wait();
#if AHEAD
        if (step + 1 < last && whole > 0) {
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) read(now[i], threadIdx.x + i * THREADS, time + way, more);
        }
#endif
        matrix.times<OWN>(own, rows, outbox, UNITS, at, zero, by_owner);
#if BLOCKS > 1
        publish();
        __syncthreads();
        if (threadIdx.x == 0) expect(&box, (BLOCKS - 1) * slab * 4);
        if (threadIdx.x < BLOCKS && threadIdx.x != rank)
            send(&box, inbox + rank * slab, outbox + threadIdx.x * slab, slab * 4, threadIdx.x);
#else
        __syncthreads();
#endif
    }
    __syncthreads();
    for (int i = threadIdx.x; i < slab; i += THREADS) {
        const int unit = rank * UNITS + i % UNITS;
        const i64 place = (first + i / UNITS) * size + unit;
        if (unit >= size) continue;
        store(end, place, held_h[i]);
        if (CELL == 2) store(end_c, place, held_c[i]);
    }
    cluster_arrive();
    cluster_wait();
}
