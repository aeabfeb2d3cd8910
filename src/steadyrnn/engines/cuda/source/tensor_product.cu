// product.cu's task for 16-bit numbers, on the tensor cores: results (rows, O) of vectors (rows, K) in shared memory with a
// matrix (O, K) that stays on the chip; sums are float32.
//
// A warp holds FIRST tiles of 16 results by CHUNKS * 32 entries as fragments in registers, and reads those of TILES more from
// shared memory. The order of entries within a chunk is the fragments' own: a lane reads 8 neighbours of a vector at once,
// which serve two products, and its entries of the matrix are the same 8.
//
// Vectors lie in pieces of PIECE entries, a multiple of 32; where it is one of 64, the halves of 64 entries are exchanged in odd
// rows (`swap`), so that rows next to each other are not read from the same banks.
//
// Defined by the caller: NUMBER, PIECE, CHUNKS, FIRST, TILES, WARPS_K, WARPS_O, EIGHTS (of rows, at most).

#define RESULTS (WARPS_O * 16 * (FIRST + TILES))
#define LATER_BYTES (TILES * WARPS_O * WARPS_K * CHUNKS * 2 * 512)

typedef u16 Entry;

__device__ __forceinline__ Entry entry(float v) {
    Number n[1];
    store(n, 0, v);
    return n[0];
}
__device__ __forceinline__ float value_of(Entry e) { return load(&e, 0); }

// Where entry k of row r of a piece lies within the row.
__device__ __forceinline__ int swap(int k, int row) { return PIECE % 64 == 0 ? k ^ (row & 1) << 5 : k; }

struct Place {
    int lane, part, results, stride, begin;

    __device__ __forceinline__ Place(int piece, int stride_, int depth) : stride(stride_) {
        lane = threadIdx.x % 32;
        const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
        part = WARPS_K == 1 ? 0 : warp % WARPS_K;
        results = warp / WARPS_K;
        begin = part * CHUNKS * 32;
    }

    // Of the 8 entries of chunk j that the lane reads, in row lane / 4.
    __device__ __forceinline__ int offset(int j, int row_stride) const {
        const int k = begin + j * 32;
        return k / PIECE * stride + lane / 4 * row_stride + swap(k % PIECE + lane % 4 * 8, lane / 4);
    }
};

__device__ __forceinline__ u32 pair(float low, float high) { return (u32)entry(low) | (u32)entry(high) << 16; }

__device__ __forceinline__ void add_product(float (&c)[4], const uint4& a, u32 b0, u32 b1) {
    if (NUMBER == BFLOAT16)
        mma_bf16(c, a, b0, b1);
    else
        mma_f16(c, a, b0, b1);
}

struct Matrix {
    uint4 w[FIRST][2 * CHUNKS];
    uint4* later;  // (TILES, WARPS_O, WARPS_K, 2 * CHUNKS, 32) in shared memory

    // value(o, k): the entry of the matrix, 0 beyond it
    template <class Value>
    __device__ __forceinline__ Matrix(float* shared, const Place& at, Value value) : later(reinterpret_cast<uint4*>(shared)) {
#pragma unroll
        for (int tile = 0; tile < FIRST; ++tile) {
#pragma unroll
            for (int j = 0; j < 2 * CHUNKS; ++j) w[tile][j] = fragment(at, first_of(tile, at), j, value);
        }
        for (int tile = 0; tile < TILES; ++tile) {
            for (int j = 0; j < 2 * CHUNKS; ++j) *slot(tile, j, at) = fragment(at, first_of(FIRST + tile, at), j, value);
        }
    }

    __device__ __forceinline__ int first_of(int tile, const Place& at) const { return (tile * WARPS_O + at.results) * 16; }

    __device__ __forceinline__ uint4* slot(int tile, int j, const Place& at) const {
        return later + (((tile * WARPS_O + at.results) * WARPS_K + at.part) * 2 * CHUNKS + j) * 32 + at.lane;
    }

    template <class Value>
    __device__ __forceinline__ static uint4 fragment(const Place& at, int first, int j, Value value) {
        const int o = first + at.lane / 4, k = at.begin + j / 2 * 32 + at.lane % 4 * 8 + j % 2 * 4;
        return make_uint4(
            pair(value(o, k), value(o, k + 1)), pair(value(o + 8, k), value(o + 8, k + 1)),
            pair(value(o, k + 2), value(o, k + 3)), pair(value(o + 8, k + 2), value(o + 8, k + 3)));
    }

    template <int stride, class PlaceOf>
    __device__ __forceinline__ void times(
        const Entry* vectors, int rows, float* out, int stride_out, const Place& at, u32 zero, PlaceOf place) const {
        constexpr int WAYS = FIRST * EIGHTS >= 4 ? 1 : FIRST * EIGHTS == 1 ? 4 : 2;  // sums side by side, to hide latency
        float sum[FIRST][EIGHTS][WAYS][4] = {};
#pragma unroll
        for (int j = 0; j < CHUNKS; ++j) {
#pragma unroll
            for (int e = 0; e < EIGHTS; ++e) {
                const uint4 v = load_vector<uint4>(vectors + at.offset(j, stride) + e * 8 * stride);
#pragma unroll
                for (int tile = 0; tile < FIRST; ++tile) {
                    add_product(sum[tile][e][2 * j % WAYS], w[tile][2 * j], v.x, v.y);
                    add_product(sum[tile][e][(2 * j + 1) % WAYS], w[tile][2 * j + 1], v.z, v.w);
                }
            }
        }
#pragma unroll
        for (int tile = 0; tile < FIRST; ++tile) {
#pragma unroll
            for (int e = 0; e < EIGHTS; ++e) {
#pragma unroll
                for (int way = 1; way < WAYS; ++way) {
#pragma unroll
                    for (int i = 0; i < 4; ++i) sum[tile][e][0][i] += sum[tile][e][way][i];
                }
                write(sum[tile][e][0], e, rows, out, stride_out, at, first_of(tile, at), place);
            }
        }
#pragma unroll 1
        for (int tile = 0; tile < TILES; ++tile) {
            float total[EIGHTS][2][4] = {};
#pragma unroll
            for (int j = 0; j < CHUNKS; ++j) {
                const uint4 a = *slot(tile, 2 * j, at), b = *slot(tile, 2 * j + 1, at);
#pragma unroll
                for (int e = 0; e < EIGHTS; ++e) {
                    const uint4 v = load_vector<uint4>(vectors + at.offset(j, stride) + e * 8 * stride);
                    add_product(total[e][0], a, v.x, v.y);
                    add_product(total[e][1], b, v.z, v.w);
                }
            }
#pragma unroll
            for (int e = 0; e < EIGHTS; ++e) {
#pragma unroll
                for (int i = 0; i < 4; ++i) total[e][0][i] += total[e][1][i];
                write(total[e][0], e, rows, out, stride_out, at, first_of(FIRST + tile, at), place);
            }
        }
    }

    template <class PlaceOf>
    __device__ __forceinline__ static void write(
        const float (&sum)[4], int e, int rows, float* out, int stride_out, const Place& at, int first, PlaceOf place) {
        const int o = first + at.lane / 4, row = e * 8 + at.lane % 4 * 2;
        float* low = out + place(o);
        float* high = out + place(o + 8);
        if (row < rows) low[row * stride_out] = sum[0], high[row * stride_out] = sum[2];
        if (row + 1 < rows) low[(row + 1) * stride_out] = sum[1], high[(row + 1) * stride_out] = sum[3];
    }
};
