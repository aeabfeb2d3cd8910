// The time loop of an Elman layer over windows of time, in one launch.
//
// A block runs ROWS rows; row r is window r / batch of batch row r % batch. The weight stays in registers: a thread holds
// EACH of its rows, WIDTH / SPLIT entries of each. The state stays in shared memory, whose bandwidth is the limit: a number
// read from it is used EACH times. A step is ROWS products of which SPLIT threads each have a part, the sum of the parts, and
// the activation.
//
// Defined by the caller: WIDTH (a power of two from 32, at least `size`), ROWS, SPLIT, EACH, BLOCKS (per multiprocessor),
// KIND, MEASURE. THREADS must be a multiple of WIDTH.

#define GROUP (WIDTH / EACH)
#define THREADS (GROUP * SPLIT)
#define DEPTH (WIDTH / SPLIT)
#define OWN (ROWS * WIDTH / THREADS)  // entries of the state that a thread finishes

__device__ __forceinline__ float activate(float x, float slope) {
#if KIND == 0
    return tanhf(x);
#elif KIND == 1
    return 1.0f / (1.0f + expf(-x));
#elif KIND == 2
    return x < 0.0f ? 0.0f : x;  // NaN stays
#elif KIND == 3
    return x < 0.0f ? slope * x : x;
#elif KIND == 4
    return fabsf(x);
#else
    return x;
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) run_windows(
    const float* __restrict__ gates,   // (T, B, H): U x + b
    const float* __restrict__ weight,  // (H, H)
    const float* __restrict__ begin,   // (J * B, H): state before the first step
    float* __restrict__ output,        // (T, B, H): written from step `lead` of a window on, and all of window 0
    float* __restrict__ led,           // (J * B, H): state behind the first `lead` steps, where there are any
    float* __restrict__ end,           // (J * B, H): state behind the last step
    float* __restrict__ most,          // (J * B,): largest sum of squares of a row's states, where MEASURE
    double slope_, int steps, int batch, int size, int number,
    int first,                         // time at which window 0 starts
    int lead,
    int chunk                          // window j starts this much later than window j - 1
) {
    __shared__ __align__(16) float h[ROWS][WIDTH];
    __shared__ float part[SPLIT][ROWS][WIDTH];
    const int thread = threadIdx.x, column = thread % GROUP, slice = thread / GROUP;
    const float slope = (float)slope_;
    const int total = lead + chunk;

    float w[EACH][DEPTH];  // W[column + e * GROUP][slice * DEPTH + k]
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) {
            const int to = column + e * GROUP, from = slice * DEPTH + k;
            w[e][k] = to < size && from < size ? weight[(long long)to * size + from] : 0.0f;
        }
    }

    // What is known of a row, in shared memory, since registers are few.
    __shared__ long long places[ROWS];     // where its first entry lies in gates and output
    __shared__ int lasts[ROWS];            // steps that it runs
    __shared__ int writes[ROWS];           // the step from which its outputs count
    const long long stride = (long long)batch * size;
    if (thread < ROWS) {
        const long long row = (long long)blockIdx.x * ROWS + thread;
        const long long window = row / batch, time = first + window * chunk, rest = (long long)steps - time;
        const bool live = row < (long long)number * batch;
        lasts[thread] = live ? (int)(rest < 0 ? 0 : rest < total ? rest : total) : 0;
        writes[thread] = window == 0 ? 0 : lead;
        places[thread] = (time * batch + row % batch) * size;
    }
    __syncthreads();

    // entry i of a thread: row thread / WIDTH + i * (THREADS / WIDTH), unit thread % WIDTH
    const int unit = thread % WIDTH;
    const bool inside = unit < size;
    float x[OWN];
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
        const int r = thread / WIDTH + i * (THREADS / WIDTH);
        const long long row = (long long)blockIdx.x * ROWS + r;
        h[r][unit] = inside && row < (long long)number * batch ? begin[row * size + unit] : 0.0f;
        x[i] = inside && lasts[r] > 0 ? gates[places[r] + unit] : 0.0f;
    }
    long long shift = unit;  // of this step's entries from a row's first one
#if MEASURE
    const int warp = thread / 32, lane = thread % 32;
    float largest[(ROWS * 32 + THREADS - 1) / THREADS] = {};
#endif
    __syncthreads();

    for (int step = 0; step < total; ++step) {
        float later[OWN];
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
            const int r = thread / WIDTH + i * (THREADS / WIDTH);
            later[i] = inside && step + 1 < lasts[r] ? gates[places[r] + shift + stride] : 0.0f;
        }

        float sum[EACH][ROWS] = {};
#pragma unroll
        for (int k = 0; k < DEPTH; k += 4) {
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const float4 v = *reinterpret_cast<const float4*>(&h[r][slice * DEPTH + k]);
#pragma unroll
                for (int e = 0; e < EACH; ++e) {
                    sum[e][r] = fmaf(w[e][k], v.x, sum[e][r]);
                    sum[e][r] = fmaf(w[e][k + 1], v.y, sum[e][r]);
                    sum[e][r] = fmaf(w[e][k + 2], v.z, sum[e][r]);
                    sum[e][r] = fmaf(w[e][k + 3], v.w, sum[e][r]);
                }
            }
        }
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
#pragma unroll
            for (int r = 0; r < ROWS; ++r) part[slice][r][column + e * GROUP] = sum[e][r];
        }
        __syncthreads();  // parts are whole; the old state is read no more
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
            const int r = thread / WIDTH + i * (THREADS / WIDTH);
            float pre = part[0][r][unit];
#pragma unroll
            for (int s = 1; s < SPLIT; ++s) pre += part[s][r][unit];
            if (inside && step < lasts[r]) {
                const float next = activate(pre + x[i], slope);
                h[r][unit] = next;
                if (step >= writes[r]) output[places[r] + shift] = next;
            }
            if (step == lead - 1 && inside) {
                const long long row = (long long)blockIdx.x * ROWS + r;
                if (row < (long long)number * batch) led[row * size + unit] = h[r][unit];
            }
            x[i] = later[i];
        }
        shift += stride;
        __syncthreads();  // the new state is whole
#if MEASURE
#pragma unroll
        for (int j = 0, r = warp; r < ROWS; ++j, r += THREADS / 32) {
            float square = 0.0f;
#pragma unroll
            for (int u = 0; u < WIDTH; u += 32) square = fmaf(h[r][u + lane], h[r][u + lane], square);
#pragma unroll
            for (int far = 16; far > 0; far /= 2) square += __shfl_xor_sync(0xffffffffu, square, far);
            largest[j] = square <= largest[j] ? largest[j] : square;  // NaN stays, being last
        }
#endif
    }
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
        const int r = thread / WIDTH + i * (THREADS / WIDTH);
        const long long row = (long long)blockIdx.x * ROWS + r;
        if (inside && row < (long long)number * batch) end[row * size + unit] = h[r][unit];
    }
#if MEASURE
#pragma unroll
    for (int j = 0, r = warp; r < ROWS; ++j, r += THREADS / 32) {
        const long long row = (long long)blockIdx.x * ROWS + r;
        if (lane == 0 && row < (long long)number * batch) most[row] = largest[j];
    }
#endif
}
