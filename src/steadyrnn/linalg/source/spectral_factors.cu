// The factors of U Sigma V' with COUNT reflectors per side, and their gradient: see _SpectralFactors in spectral_factors.py, whose
// letters these are. All in double. A cluster of blocks shares the rows out, one per thread; what is a sum over rows is summed by
// each block, and then over blocks, in the same order everywhere.
//
// In shared memory row r of a block has entry k of side s at [s][k][r].

typedef unsigned int u32;
typedef long long i64;

#define BLOCKS 8
#define THREADS 128
#define PITCH (THREADS + 1)
#define PAIRS (COUNT * COUNT)

typedef double Side[COUNT][PITCH];
typedef double Square[COUNT][COUNT];

struct Row {
    int thread, rows, row;  // rows of a block; of the thread, its row among all
    bool there;

    __device__ __forceinline__ Row(int size) {
        thread = threadIdx.x, rows = (size + BLOCKS - 1) / BLOCKS, row = blockIdx.x * rows + thread;
        there = thread < rows && row < size;
    }
};

// Where entry (row, k) of a lower trapezoid lies among its entries, row by row.
__device__ __forceinline__ i64 packed(i64 row, int k) {
    const i64 full = COUNT * (COUNT + 1) / 2;
    return row < COUNT ? row * (row + 1) / 2 + k : full + (row - COUNT) * COUNT + k;
}

__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ __forceinline__ double at_peer(const double* here, u32 peer) {
    u32 there;
    double value;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"((u32)__cvta_generic_to_shared(here)), "r"(peer));
    asm volatile("ld.shared::cluster.f64 %0, [%1];" : "=d"(value) : "r"(there) : "memory");
    return value;
}

// Puts into total[i] the sum of term(i, r) over all rows r of all blocks, i < number; `part` is as large.
template <class Term>
__device__ __forceinline__ void sum_rows(double* total, double* part, int number, int rows, Term term) {
    __syncthreads();
    for (int i = threadIdx.x; i < number; i += THREADS) {
        double even = 0.0, odd = 0.0;
        for (int r = 0; r + 1 < rows; r += 2) even += term(i, r), odd += term(i, r + 1);
        part[i] = even + odd + (rows % 2 ? term(i, rows - 1) : 0.0);
    }
    cluster_sync();
    for (int i = threadIdx.x; i < number; i += THREADS) {
        double sum = 0.0;
        for (u32 peer = 0; peer < BLOCKS; ++peer) sum += at_peer(part + i, peer);
        total[i] = sum;
    }
    cluster_sync();  // `part` is read everywhere, `total` is there
}

extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(THREADS) run_forward(
    const float* __restrict__ left, const float* __restrict__ right,  // packed
    const float* __restrict__ sigma,                                  // (H,)
    float* __restrict__ lower, float* __restrict__ upper,             // (H, 2 * COUNT)
    double* __restrict__ y_kept, double* __restrict__ z_kept,         // (2, COUNT, H)
    double* __restrict__ squares,                                     // lengths (2, COUNT), triangles (2, ..), core
    int size) {
    extern __shared__ __align__(16) double memory[];
    Side* y = reinterpret_cast<Side*>(memory);
    Side* z = y + 2;
    double* scale = reinterpret_cast<double*>(z + 2);        // (PITCH,): sigma
    Square* triangle = reinterpret_cast<Square*>(scale + PITCH);  // two, and the core
    double* part = reinterpret_cast<double*>(triangle + 3);  // (2 * PAIRS)
    double* length = part + 2 * PAIRS;                       // (2 * COUNT)
    const Row me(size);
    const int t = me.thread;
    const double s = me.there ? (double)sigma[me.row] : 0.0;
    scale[t] = s;
#pragma unroll
    for (int k = 0; k < COUNT; ++k) {
        const bool free = me.there && me.row >= k;
        y[0][k][t] = free ? (double)left[packed(me.row, k)] : 0.0;
        y[1][k][t] = free ? (double)right[packed(me.row, k)] : 0.0;
    }
    sum_rows(&triangle[0][0][0], part, 2 * PAIRS, me.rows, [&](int i, int r) {
        const int side = i / PAIRS, j = i % PAIRS / COUNT, k = i % COUNT;
        return k < j ? 0.0 : y[side][j][r] * y[side][k][r];
    });
    for (int i = t; i < 2 * COUNT; i += THREADS) {
        const double square = triangle[i / COUNT][i % COUNT][i % COUNT];
        length[i] = square == 0.0 ? __longlong_as_double(0x7ff0000000000000ll) : sqrt(square);  // NaN stays
    }
    __syncthreads();
    for (int i = t; i < 2 * PAIRS; i += THREADS) {
        const int side = i / PAIRS, j = i % PAIRS / COUNT, k = i % COUNT;
        const double of_j = length[side * COUNT + j], of_k = length[side * COUNT + k];
        double& entry = triangle[side][j][k];
        entry = j == k ? (entry == 0.0 ? 0.5 : -0.5) : -entry / of_j / of_k;
    }
    __syncthreads();
    for (int side = 0; side < 2; ++side) {
#pragma unroll
        for (int k = 0; k < COUNT; ++k) y[side][k][t] /= length[side * COUNT + k];
        for (int k = COUNT - 1; k >= 0; --k) {
            double sum = y[side][k][t];
            for (int l = k + 1; l < COUNT; ++l) sum -= triangle[side][k][l] * z[side][l][t];
            z[side][k][t] = sum / triangle[side][k][k];
        }
    }
    double* core = &triangle[2][0][0];
    sum_rows(core, part, PAIRS, me.rows, [&](int i, int r) { return z[0][i / COUNT][r] * (z[1][i % COUNT][r] * scale[r]); });
    if (blockIdx.x == 0) {
        for (int i = t; i < 2 * COUNT; i += THREADS) squares[i] = length[i];
        for (int i = t; i < 3 * PAIRS; i += THREADS) squares[2 * COUNT + i] = (&triangle[0][0][0])[i];
    }
    if (!me.there) return;
    float* low = lower + (i64)me.row * 2 * COUNT;
    float* up = upper + (i64)me.row * 2 * COUNT;
    for (int k = 0; k < COUNT; ++k) {
        double sum = z[1][k][t] * s;
        for (int j = 0; j < COUNT; ++j) sum += y[0][j][t] * core[j * COUNT + k];
        low[k] = (float)sum, low[COUNT + k] = (float)y[0][k][t];
        up[k] = (float)y[1][k][t], up[COUNT + k] = (float)(z[0][k][t] * s);
    }
    for (int i = 0; i < 2 * COUNT; ++i) {
        const i64 place = (i64)i * size + me.row;
        y_kept[place] = y[i / COUNT][i % COUNT][t], z_kept[place] = z[i / COUNT][i % COUNT][t];
    }
}

extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(THREADS) run_backward(
    const float* __restrict__ g_lower, const float* __restrict__ g_upper,  // (H, 2 * COUNT)
    const float* __restrict__ sigma,                                       // (H,)
    const double* __restrict__ y_kept, const double* __restrict__ z_kept, const double* __restrict__ squares,
    float* __restrict__ g_left, float* __restrict__ g_right,  // packed
    float* __restrict__ g_sigma,                              // (H,)
    int size) {
    extern __shared__ __align__(16) double memory[];
    Side* y = reinterpret_cast<Side*>(memory);
    Side* z = y + 2;
    Side* p = z + 2;    // gradients of B and A, then P of both sides
    Side* g_y = p + 2;
    Square* total = reinterpret_cast<Square*>(g_y + 2);  // two
    double* part = &total[2][0][0];                      // (2 * PAIRS)
    double* kept = part + 2 * PAIRS;                     // as squares
    const Row me(size);
    const int t = me.thread;
    for (int i = t; i < 2 * COUNT + 3 * PAIRS; i += THREADS) kept[i] = squares[i];
    const double* triangle = kept + 2 * COUNT;
    const double* core = triangle + 2 * PAIRS;
    const double s = me.there ? (double)sigma[me.row] : 0.0;
    for (int i = 0; i < 2 * COUNT; ++i) {
        const i64 place = (i64)i * size + me.row;
        y[i / COUNT][i % COUNT][t] = me.there ? y_kept[place] : 0.0;
        z[i / COUNT][i % COUNT][t] = me.there ? z_kept[place] : 0.0;
    }
    const float* low = g_lower + (i64)me.row * 2 * COUNT;
    const float* up = g_upper + (i64)me.row * 2 * COUNT;
    for (int k = 0; k < COUNT; ++k) {
        p[0][k][t] = me.there ? (double)up[COUNT + k] : 0.0, p[1][k][t] = me.there ? (double)low[k] : 0.0;
        g_y[0][k][t] = me.there ? (double)low[COUNT + k] : 0.0, g_y[1][k][t] = me.there ? (double)up[k] : 0.0;
    }
    double* g_core = &total[0][0][0];
    sum_rows(g_core, part, PAIRS, me.rows, [&](int i, int r) { return y[0][i / COUNT][r] * p[1][i % COUNT][r]; });
    for (int j = 0; j < COUNT; ++j) {
        double sum = g_y[0][j][t];
        for (int k = 0; k < COUNT; ++k) sum += p[1][k][t] * core[j * COUNT + k];
        g_y[0][j][t] = sum;
    }
    double of_sigma = 0.0;
    for (int k = 0; k < COUNT; ++k) {
        double sum = p[1][k][t];
        for (int j = 0; j < COUNT; ++j) sum += z[0][j][t] * g_core[j * COUNT + k];
        p[1][k][t] = sum;
        of_sigma += sum * z[1][k][t] + p[0][k][t] * z[0][k][t];
    }
    if (me.there) g_sigma[me.row] = (float)of_sigma;
    for (int j = 0; j < COUNT; ++j) {
        double sum = p[0][j][t];
        for (int k = 0; k < COUNT; ++k) sum += z[1][k][t] * g_core[j * COUNT + k];
        p[0][j][t] = sum;
    }
    for (int side = 0; side < 2; ++side) {
        for (int k = 0; k < COUNT; ++k) {
            double sum = p[side][k][t] * s;
            for (int l = 0; l < k; ++l) sum -= triangle[side * PAIRS + l * COUNT + k] * p[side][l][t];
            p[side][k][t] = sum / triangle[side * PAIRS + k * COUNT + k];
        }
    }
    sum_rows(&total[0][0][0], part, 2 * PAIRS, me.rows, [&](int i, int r) {
        const int side = i / PAIRS, j = i % PAIRS / COUNT, k = i % COUNT;
        return k < j ? 0.0 : p[side][j][r] * z[side][k][r];
    });
    for (int i = 0; i < 2 * COUNT; ++i) {
        const int side = i / COUNT, k = i % COUNT;
        double sum = g_y[side][k][t] + p[side][k][t];
        for (int j = 0; j < COUNT; ++j) sum += y[side][j][t] * (total[side][j][k] + total[side][k][j]);
        g_y[side][k][t] = sum;
    }
    double* along = &total[0][0][0];
    sum_rows(along, part, 2 * COUNT, me.rows, [&](int i, int r) {
        return g_y[i / COUNT][i % COUNT][r] * y[i / COUNT][i % COUNT][r];
    });
    if (!me.there) return;
    for (int i = 0; i < 2 * COUNT; ++i) {
        const int side = i / COUNT, k = i % COUNT;
        if (me.row < k) continue;
        const double found = (g_y[side][k][t] - along[i] * y[side][k][t]) / kept[i];
        (side ? g_right : g_left)[packed(me.row, k)] = (float)found;
    }
}
