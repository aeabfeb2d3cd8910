// One product per step: results (rows, O) of vectors (rows, K) in shared memory with a matrix (O, K) that stays on the chip.
//
// A lane holds EACH results by DEPTH entries of the matrix in registers; SPLIT lanes share a result, and WARPS_K warps. A number
// read from shared memory is used EACH times, which is what the bandwidth of shared memory asks for. Partial sums of SPLIT
// lanes are added by halving: in each round a lane gives away half of its results. Entry j of lane s is result j ^ turned(s),
// its bits reversed, so that what is given away always lies in the upper half.
//
// Of the matrix, the first tile stays in registers; TILES more, of EACH_LATER results per lane, are read from shared memory.
//
// Defined by the caller: SPLIT, DEPTH (a multiple of 4), EACH, EACH_LATER, TILES, WARPS_K, WARPS_O, WARPS_R.

#define LANES_O (32 / SPLIT)
#define FIRST_O (LANES_O * EACH)        // results of a warp in the first tile
#define LATER_O (LANES_O * EACH_LATER)  // and in each later one
#define RESULTS (WARPS_O * (FIRST_O + TILES * LATER_O))  // of a block; where fewer are wanted, the rest are 0
#define LATER_BYTES (TILES * WARPS_O * WARPS_K * EACH_LATER * DEPTH * 32 * 4)

typedef float Entry;

__device__ __forceinline__ Entry entry(float v) { return v; }
__device__ __forceinline__ float value_of(Entry e) { return e; }
__device__ __forceinline__ int swap(int k, int row) { return k; }

__device__ __forceinline__ int turned(int lane, int each) {
    int result = 0;
    for (int bit = 1, to = each / 2; to > 0; bit *= 2, to /= 2) result |= lane & bit ? to : 0;
    return result;
}

struct Place {
    int lane, split, group;        // group: which results of the warp
    int part, results, row;        // of the warp: part of K, place among results, first row
    int offset[DEPTH / 4];         // of the lane's numbers in a vector

    // `stride`: how far pieces of `piece` entries of a vector lie from each other
    __device__ __forceinline__ Place(int piece, int stride, int depth) {
        lane = threadIdx.x % 32;
        split = lane % SPLIT;
        group = lane / SPLIT;
        const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);  // so that the compiler sees one number per warp
        part = WARPS_K == 1 ? 0 : warp % WARPS_K;
        results = warp / WARPS_K % WARPS_O;
        row = WARPS_R == 1 ? 0 : warp / (WARPS_K * WARPS_O);
#pragma unroll
        for (int j = 0; j < DEPTH / 4; ++j) {
            const int k = ((part * (DEPTH / 4) + j) * SPLIT + split) * 4;
            offset[j] = k < depth ? k / piece * stride + k % piece : 0;  // beyond, the matrix is 0
        }
    }
};

// Result and entry of the matrix that a lane holds as [e][4 * j + i] of a tile of `each`, whose first result is `first`.
__device__ __forceinline__ int result_of(const Place& at, int first, int each, int e) {
    return first + at.group * each + (e ^ turned(at.split, each));
}
__device__ __forceinline__ int entry_of(const Place& at, int j) { return ((at.part * (DEPTH / 4) + j) * SPLIT + at.split) * 4; }

// One round of adding up the sums of SPLIT lanes, of log2(SPLIT) rounds.
template <int each>
__device__ __forceinline__ void add_up(float (&sum)[each], int round, u32 clamp = 0x1f) {
    const int far = 1 << round, width = each >> (round + 1);
    if (far >= SPLIT) return;
    if (width == 0) sum[0] += shuffle_xor(sum[0], far, clamp);
#pragma unroll
    for (int i = 0; i < each / 2; ++i)
        if (i < width) sum[i] += shuffle_xor(sum[i + width], far, clamp);
}

template <int each>
__device__ __forceinline__ void add_product(float (&sum)[each], const float (&w)[each][DEPTH], float4 v, int j) {
#pragma unroll
    for (int e = 0; e < each; ++e) sum[e] = fmaf(w[e][4 * j], v.x, sum[e]);
#pragma unroll
    for (int e = 0; e < each; ++e) sum[e] = fmaf(w[e][4 * j + 1], v.y, sum[e]);
#pragma unroll
    for (int e = 0; e < each; ++e) sum[e] = fmaf(w[e][4 * j + 2], v.z, sum[e]);
#pragma unroll
    for (int e = 0; e < each; ++e) sum[e] = fmaf(w[e][4 * j + 3], v.w, sum[e]);
}

// Writes result o of row r to out[place(o) + r * stride_out]; `first` is the first of the warp's results in this tile. Two
// rows at once; the sums of the two before are added up meanwhile. `zero` is 0, which the compiler does not know: a round of
// adding up is made to wait for numbers just read, else all rounds would come first, with nothing to hide them.
template <int stride, int each, class PlaceOf>
__device__ __forceinline__ void multiply(
    const float (&w)[each][DEPTH], const float* vectors, int rows, float* out, int stride_out, const Place& at, int first,
    u32 zero, PlaceOf place) {
    out += place(result_of(at, first, each, 0));
    const bool writes = at.split < each;
    const auto finish = [&](float (&one)[each], float (&two)[each], int row, int from) {
#pragma unroll
        for (int round = from; round < 5; ++round) add_up(one, round), add_up(two, round);
        if (writes) out[row * stride_out] = one[0], out[(row + WARPS_R) * stride_out] = two[0];
    };
    constexpr int next = WARPS_R * stride * 4;  // bytes from one row of the warp to its next
    u32 from[DEPTH / 4];
#pragma unroll
    for (int j = 0; j < DEPTH / 4; ++j) from[j] = shared_address(vectors) + 4 * (at.row * stride + at.offset[j]);
    const auto advance = [&](float (&one)[each], float (&two)[each], float (&before)[each], float (&before_too)[each], int row) {
#pragma unroll
        for (int e = 0; e < each; ++e) one[e] = two[e] = 0.0f;
#pragma unroll
        for (int j = 0; j < DEPTH / 4; ++j) {
            const float4 v = load_shared<0>(from[j]), u = load_shared<next>(from[j]);
            from[j] += 2 * next;
            const u32 clamp = 0x1f | (__float_as_uint(u.x) & zero);
            add_up(before, j, clamp), add_up(before_too, j, clamp);
            add_product(one, w, v, j), add_product(two, w, u, j);
        }
        finish(before, before_too, row - 2 * WARPS_R, DEPTH / 4);
    };
    int row = at.row;
    if (row + WARPS_R < rows) {
        float a[each] = {}, b[each] = {}, c[each], d[each];
#pragma unroll
        for (int j = 0; j < DEPTH / 4; ++j) {
            add_product(a, w, load_shared<0>(from[j]), j), add_product(b, w, load_shared<next>(from[j]), j);
            from[j] += 2 * next;
        }
        row += 2 * WARPS_R;
        while (true) {
            if (row + WARPS_R >= rows) {
                finish(a, b, row - 2 * WARPS_R, 0);
                break;
            }
            advance(c, d, a, b, row);
            row += 2 * WARPS_R;
            if (row + WARPS_R >= rows) {
                finish(c, d, row - 2 * WARPS_R, 0);
                break;
            }
            advance(a, b, c, d, row);
            row += 2 * WARPS_R;
        }
    }
    if (row < rows) {
        float one[each] = {};
#pragma unroll
        for (int j = 0; j < DEPTH / 4; ++j) add_product(one, w, load_shared<0>(from[j]), j);
#pragma unroll
        for (int round = 0; round < 5; ++round) add_up(one, round);
        if (writes) out[row * stride_out] = one[0];
    }
}

struct Matrix {
    float w[EACH][DEPTH];
    float* later;  // (TILES, WARPS_O, WARPS_K, EACH_LATER, DEPTH / 4, 32, 4) in shared memory

    // value(o, k): the entry of the matrix, 0 beyond it
    template <class Value>
    __device__ __forceinline__ Matrix(float* shared, const Place& at, Value value) : later(shared) {
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
#pragma unroll
            for (int k = 0; k < DEPTH; ++k)
                w[e][k] = value(result_of(at, at.results * FIRST_O, EACH, e), entry_of(at, k / 4) + k % 4);
        }
        for (int tile = 0; tile < TILES; ++tile) {
            for (int k = 0; k < EACH_LATER * DEPTH; ++k) {
                const int e = k / DEPTH, j = k % DEPTH / 4;
                slot(tile, e, j, at)[k % 4] = value(result_of(at, first_of(tile, at), EACH_LATER, e), entry_of(at, j) + k % 4);
            }
        }
    }

    __device__ __forceinline__ int first_of(int tile, const Place& at) const {
        return WARPS_O * FIRST_O + (tile * WARPS_O + at.results) * LATER_O;
    }

    __device__ __forceinline__ float* slot(int tile, int e, int j, const Place& at) const {
        return later + ((((tile * WARPS_O + at.results) * WARPS_K + at.part) * EACH_LATER + e) * (DEPTH / 4) + j) * 128 + at.lane * 4;
    }

    template <int stride, class PlaceOf>
    __device__ __forceinline__ void times(
        const float* vectors, int rows, float* out, int stride_out, const Place& at, u32 zero, PlaceOf place) const {
        multiply<stride>(w, vectors, rows, out, stride_out, at, at.results * FIRST_O, zero, place);
#pragma unroll 1
        for (int tile = 0; tile < TILES; ++tile) {
            float v[EACH_LATER][DEPTH];
#pragma unroll
            for (int e = 0; e < EACH_LATER; ++e) {
#pragma unroll
                for (int j = 0; j < DEPTH / 4; ++j) {
                    const float4 q = load_vector<float4>(slot(tile, e, j, at));
                    v[e][4 * j] = q.x, v[e][4 * j + 1] = q.y, v[e][4 * j + 2] = q.z, v[e][4 * j + 3] = q.w;
                }
            }
            multiply<stride>(v, vectors, rows, out, stride_out, at, first_of(tile, at), zero, place);
        }
    }
};
