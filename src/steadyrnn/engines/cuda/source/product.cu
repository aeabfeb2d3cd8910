// One product a step: results (rows, O) of vectors (rows, K) in shared memory with a matrix (O, K) that stays on the chip.
//
// A lane holds EACH results by DEPTH entries of the matrix in registers; SPLIT lanes share a result, and WARPS_K warps. A number
// read from shared memory is used EACH times, which is what the bandwidth of shared memory asks for. Partial sums of SPLIT
// lanes are added by halving: in each round a lane gives away half of its results. Entry j of lane s is result j ^ turned(s),
// its bits reversed, so that what is given away always lies in the upper half.
//
// Of the matrix, the first tile stays in registers; TILES more, of EACH_LATER results a lane, are read from shared memory.
//
// Defined by the caller: SPLIT, DEPTH (a multiple of 4), EACH, EACH_LATER, TILES, WARPS_K, WARPS_O, WARPS_R.

#define LANES_O (32 / SPLIT)
#define FIRST_O (LANES_O * EACH)        // results of a warp in the first tile
#define LATER_O (LANES_O * EACH_LATER)  // and in each later one
#define RESULTS (WARPS_O * (FIRST_O + TILES * LATER_O))  // of a block; where fewer are wanted, the rest are 0
#define TILE_FLOATS (WARPS_O * WARPS_K * EACH_LATER * DEPTH * 32)

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
        const int warp = threadIdx.x / 32;
        part = warp % WARPS_K;
        results = warp / WARPS_K % WARPS_O;
        row = warp / (WARPS_K * WARPS_O);
#pragma unroll
        for (int j = 0; j < DEPTH / 4; ++j) {
            const int k = ((part * (DEPTH / 4) + j) * SPLIT + split) * 4;
            offset[j] = k < depth ? k / piece * stride + k % piece : 0;  // beyond, the matrix is 0
        }
    }
};

// Tiles lie in the order in which lanes read them: (WARPS_O, WARPS_K, EACH, DEPTH / 4, 32, 4).
template <int each>
__device__ __forceinline__ void read_tile(float (&w)[each][DEPTH], const float* tile, const Place& at) {
    const float4* from = reinterpret_cast<const float4*>(tile) + (at.results * WARPS_K + at.part) * (each * (DEPTH / 4) * 32);
#pragma unroll
    for (int e = 0; e < each; ++e) {
#pragma unroll
        for (int j = 0; j < DEPTH / 4; ++j) {
            const float4 v = from[(e * (DEPTH / 4) + j) * 32 + at.lane];
            w[e][4 * j] = v.x, w[e][4 * j + 1] = v.y, w[e][4 * j + 2] = v.z, w[e][4 * j + 3] = v.w;
        }
    }
}

template <int each>
__device__ __forceinline__ float add_up(float (&sum)[each]) {
    int far = 1;
#pragma unroll
    for (int width = each / 2; width > 0; width /= 2, far *= 2) {
#pragma unroll
        for (int i = 0; i < each / 2; ++i)
            if (i < width) sum[i] += __shfl_xor_sync(0xffffffffu, sum[i + width], far);
    }
#pragma unroll
    for (; far < SPLIT; far *= 2) sum[0] += __shfl_xor_sync(0xffffffffu, sum[0], far);
    return sum[0];
}

template <int each>
__device__ __forceinline__ void dot(float (&sum)[each], const float (&w)[each][DEPTH], const float* vector, const Place& at) {
#pragma unroll
    for (int j = 0; j < DEPTH / 4; ++j) {
        const float4 v = *reinterpret_cast<const float4*>(vector + at.offset[j]);
#pragma unroll
        for (int e = 0; e < each; ++e) {
            sum[e] = fmaf(w[e][4 * j], v.x, sum[e]);
            sum[e] = fmaf(w[e][4 * j + 1], v.y, sum[e]);
            sum[e] = fmaf(w[e][4 * j + 2], v.z, sum[e]);
            sum[e] = fmaf(w[e][4 * j + 3], v.w, sum[e]);
        }
    }
}

// Writes result o of row r to out[place(o) + r * stride_out]; `first` is the first of the warp's results in this tile.
template <int each, class PlaceOf>
__device__ __forceinline__ void multiply(
    const float (&w)[each][DEPTH], const float* vectors, int stride, int rows, float* out, int stride_out, const Place& at,
    int first, PlaceOf place) {
    out += place(first + at.group * each + turned(at.split, each));
    const bool writes = at.split < each;
    int row = at.row;
    for (; row + WARPS_R < rows; row += 2 * WARPS_R) {  // two at once: one's sums are added up while the other multiplies
        float one[each] = {}, two[each] = {};
        dot(one, w, vectors + row * stride, at);
        dot(two, w, vectors + (row + WARPS_R) * stride, at);
        const float a = add_up(one), b = add_up(two);
        if (writes) out[row * stride_out] = a, out[(row + WARPS_R) * stride_out] = b;
    }
    if (row < rows) {
        float one[each] = {};
        dot(one, w, vectors + row * stride, at);
        const float a = add_up(one);
        if (writes) out[row * stride_out] = a;
    }
}

struct Matrix {
    float w[EACH][DEPTH];
    const float* later;  // in shared memory

    __device__ __forceinline__ Matrix(const float* packed, float* shared, const Place& at) : later(shared) {
        read_tile(w, packed, at);
#if TILES > 0
        const float4* from = reinterpret_cast<const float4*>(packed + WARPS_O * WARPS_K * EACH * DEPTH * 32);
        for (int i = threadIdx.x; i < TILE_FLOATS / 4 * TILES; i += THREADS) reinterpret_cast<float4*>(shared)[i] = from[i];
#endif
    }

    template <class PlaceOf>
    __device__ __forceinline__ void times(
        const float* vectors, int stride, int rows, float* out, int stride_out, const Place& at, PlaceOf place) const {
        multiply(w, vectors, stride, rows, out, stride_out, at, at.results * FIRST_O, place);
#pragma unroll 1
        for (int tile = 0; tile < TILES; ++tile) {
            float v[EACH_LATER][DEPTH];
            read_tile(v, later + tile * TILE_FLOATS, at);
            const int first = WARPS_O * FIRST_O + (tile * WARPS_O + at.results) * LATER_O;
            multiply(v, vectors, stride, rows, out, stride_out, at, first, place);
        }
    }
};
