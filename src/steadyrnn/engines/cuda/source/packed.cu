// One product per step where a block holds the whole matrix in registers, and whoever has added up a result also finishes it.
//
// Defined by the caller, beside THREADS:
//
//   EACH   results of a lane, DEPTH its entries of each of their rows: SPLIT lanes share a result,
//   PACK   rows that are multiplied at once; ITEMS packs are the rows of a block. The EACH * PACK sums of a lane are added up by
//          halving: in each round it gives away half of them, the upper ones. Sum q of lane s is number q ^ t, where t is s
//          with its bits reversed: so the last that is left to it is number t, which is row t / EACH of the pack and
//          result t % EACH.

#define SPLIT 8
#define SUMS (EACH * PACK)
#define WIDE (SPLIT * DEPTH)
#define ROWS (ITEMS * PACK)

__device__ __forceinline__ int turned(int lane) {
    int result = 0;
    for (int bit = 1, to = SUMS / 2; to > 0; bit *= 2, to /= 2) result |= lane & bit ? to : 0;
    return result;
}

__device__ __forceinline__ float added_up(float (&sum)[SUMS]) {
#pragma unroll
    for (int far = 1, width = SUMS / 2; far < SPLIT; far *= 2, width /= 2) {
        if (width == 0) sum[0] += __shfl_xor_sync(0xffffffffu, sum[0], far);
#pragma unroll
        for (int i = 0; i < SUMS / 2; ++i)
            if (i < width) sum[i] += __shfl_xor_sync(0xffffffffu, sum[i + width], far);
    }
    return sum[0];
}

struct Packed {
    float w[EACH][DEPTH];
    int split, turn;
    int unit, top;  // of what this thread finishes: its unit, and its row of a pack
    bool finishes;

    // value(o, k): the entry of the matrix, 0 beyond it
    template <class Value>
    __device__ __forceinline__ Packed(Value value) {
        const int group = threadIdx.x / SPLIT;
        split = threadIdx.x % SPLIT, turn = turned(split);
        unit = group * EACH + turn % EACH, top = turn / EACH, finishes = split < SUMS;
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
#pragma unroll
            for (int k = 0; k < DEPTH; ++k)
                w[e][k] = value(group * EACH + (e ^ turn % EACH), (k / 4 * SPLIT + split) * 4 + k % 4);
        }
    }

    // The number that this thread finishes of a pack, whose vectors are `rows`.
    __device__ __forceinline__ float times(const float (*rows)[WIDE]) const {
        float sum[SUMS] = {};
#pragma unroll
        for (int j = 0; j < DEPTH / 4; ++j) {
#pragma unroll
            for (int p = 0; p < PACK; ++p) {
                const float4 v = load_vector<float4>(rows[p ^ turn / EACH] + split * 4 + j * SPLIT * 4);
#pragma unroll
                for (int e = 0; e < EACH; ++e) {
                    float& s = sum[p * EACH + e];
                    s = fmaf(w[e][4 * j], v.x, s), s = fmaf(w[e][4 * j + 1], v.y, s);
                    s = fmaf(w[e][4 * j + 2], v.z, s), s = fmaf(w[e][4 * j + 3], v.w, s);
                }
            }
        }
        return added_up(sum);
    }
};
