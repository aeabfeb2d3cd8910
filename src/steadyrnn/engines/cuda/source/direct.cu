// The Elman cell, and its adjoint, where one block holds the whole weight and runs ROWS rows: a step has one barrier. Beside
// head.cu's and packed.cu's: BACK, KEEP (the arguments of the activation).
//
// What a step reads of device memory is read when the one before has used its own; lines are asked for EARLY steps ahead.

#define EARLY 16

extern "C" __global__ void __launch_bounds__(THREADS, 2) run_direct(
    const Number* __restrict__ gates,   // (T, B, H): parts of the input. BACK: gradient of the output, where
                                        // `given`, else any memory as large
    const Number* __restrict__ weight,  // (H, H)
    const Number* __restrict__ bias,    // (H,), where `biased`: added to the argument
    const Number* __restrict__ begin,   // (B, H): the state before, BACK: gradient of the final one, where `begun`, else 0
    Number* __restrict__ output,        // (T, B, H), BACK: adjoints of pre-activations
    Number* __restrict__ extra,         // (T, B, H): arguments. BACK: what tells the derivative
    Number* __restrict__ end,           // (B, H)
    const int* __restrict__ lengths,    // (B,), where `ragged`
    double slope_, int steps, int batch, int size, int biased, int begun, int ragged, int backwards, int given) {
    __shared__ __align__(16) float state[2][ROWS][WIDE];
    const float slope = (float)slope_;
    const i64 first = (i64)blockIdx.x * ROWS;
    const int last = ragged ? lengths[first] : steps;  // rows are sorted, the longest first
    const Packed matrix([&](int o, int k) {
        return o < size && k < size ? load(weight, BACK ? (i64)k * size + o : (i64)o * size + k) : 0.0f;
    });
    for (int i = threadIdx.x; i < 2 * ROWS * WIDE; i += THREADS) {
        const int row = i / WIDE % ROWS, unit = i % WIDE;
        const bool there = !BACK && begun && i < ROWS * WIDE && unit < size && first + row < batch;
        state[i / (ROWS * WIDE)][row][unit] = there ? load(begin, (first + row) * size + unit) : 0.0f;
    }

    // The entries that this thread finishes; where there is none it reads another, so that nothing branches.
    const int unit = matrix.unit, top = matrix.top;
#if !BACK
    const float more = biased && unit < size ? load(bias, unit) : 0.0f;
#endif
    int spot[ITEMS], length[ITEMS];
    bool mine[ITEMS];
    float kept[ITEMS];  // the state, BACK: the adjoint of the state
    Number x[ITEMS];
#if BACK
    Number y[ITEMS];
#endif
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        const int row = i * PACK + top;
        mine[i] = matrix.finishes && unit < size && first + row < batch;
        spot[i] = mine[i] ? row * size + unit : 0;
        length[i] = ragged ? lengths[first + (mine[i] ? row : 0)] : steps;
        kept[i] = begun ? load(begin, first * size + spot[i]) : 0.0f;
    }
    const bool downwards = BACK ? !backwards : backwards;  // in which direction time is walked
    const int way = downwards ? -1 : 1;
    const i64 move = (i64)way * batch * size;
    int time = downwards ? last - 1 : 0;
    i64 now = ((i64)time * batch + first) * size;
    i64 from = last > 0 ? now : first * size;  // what is read next; there is always something to read, if not to use
    const auto read = [&](bool ahead) {
        const i64 soon = from + (ahead ? EARLY * move : 0);
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            x[i] = gates[from + spot[i]];
            ask_for(gates + soon + spot[i]);
#if BACK
            y[i] = extra[from + spot[i]];
            ask_for(extra + soon + spot[i]);
#endif
        }
    };
    read(last > EARLY);
    __syncthreads();

    for (int step = 0; step < last + BACK; ++step) {
        float(*next)[WIDE] = state[~step & 1];
        const bool runs_any = !BACK || step < last;
        float total[ITEMS], result[ITEMS];
#if !BACK
        float argument[ITEMS];
#endif
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) total[i] = matrix.times(state[step & 1] + i * PACK);
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const bool runs = time < length[i] && runs_any;
#if BACK
            if (step > 0 && time - way < length[i]) kept[i] = total[i];
            const float came = given ? as_float(x[i]) : 0.0f;
            result[i] = runs ? (kept[i] + came) * slope_at(as_float(y[i]), slope) : 0.0f;
            if (mine[i]) next[i * PACK + top][unit] = result[i];
#else
            argument[i] = total[i] + (as_float(x[i]) + more);
            result[i] = activate(argument[i], slope);
            kept[i] = runs ? result[i] : kept[i];
            if (mine[i]) next[i * PACK + top][unit] = kept[i];
#endif
        }
        from += step + 1 < last ? move : 0;
        read(step + 1 + EARLY < last);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            if (!mine[i] || time >= length[i] || !runs_any) continue;
            store(output + now, spot[i], result[i]);
#if KEEP
            store(extra + now, spot[i], argument[i]);
#endif
        }
        now += move, time += way;
    }
#pragma unroll
    for (int i = 0; i < ITEMS; ++i)
        if (mine[i]) store(end, first * size + spot[i], kept[i]);
}
