// One product per step where a block holds the whole matrix and multiplies it with ROWS vectors on the tensor cores: matrix and
// vectors in three parts of bfloat16 each (see bf16x3.cu), six products of which are one of float32 except for 2^-23 of the
// largest of sixteen neighbours.
//
// The tensor cores cut off what a sum has no place for, by which a state would shrink in every step. Sixteen of the large
// products, of 16 bits each, mostly leave nothing to cut off, the more so where the first parts of sixteen numbers of the
// matrix are multiples of one number; so they are added to others by float32 additions. To the small ones it does not matter.
//
// A warp has 16 results, of which a lane finishes two neighbours in two rows: two pairs. The larger two parts of the matrix lie
// in registers, the smallest, of which there is one product, in shared memory: so two blocks fit a multiprocessor, and one
// multiplies while the other does the rest. Vectors lie in shared memory by part and row, two entries per word; rows are so far
// apart that neither eight lanes that read 16 bytes each nor 32 that write a word each meet in a bank. The order of entries
// within a chunk of 32 is tensor_product.cu's.
//
// Defined by the caller: THREADS, CHUNKS (of a vector).

#define ROWS 8
#define WORDS (16 * (CHUNKS | 1))
#define PART (ROWS / 2 * (2 * WORDS + 8))
#define FRAGMENTS (THREADS * 2 * CHUNKS)  // of a part of the matrix

typedef u32 Vectors[3][PART];

struct Pair {
    float low, high;
};

__device__ __forceinline__ float low_of(u32 both) { return __uint_as_float(both << 16); }
__device__ __forceinline__ float high_of(u32 both) { return __uint_as_float(both & 0xffff0000u); }

// Infinity becomes infinity and NaN. The first part is that of `first`, which is `left` or near it.
__device__ __forceinline__ void take_apart(Pair left, const Pair& first, u32 (&part)[3]) {
    part[0] = to_bf16x2(first.low, first.high);
#pragma unroll
    for (int p = 1; p < 3; ++p) {
        left.low -= low_of(part[p - 1]), left.high -= high_of(part[p - 1]);
        part[p] = to_bf16x2(left.low, left.high);
    }
}

// The smallest number that is not 0, and the largest, of sixteen that four lanes have.
struct Spread {
    float least = __uint_as_float(0x7f800000u), most = 0.0f;

    __device__ __forceinline__ void take(float v) {
        most = fmaxf(most, fabsf(v)), least = v == 0.0f ? least : fminf(least, fabsf(v));
    }
    __device__ __forceinline__ void of_all() {
#pragma unroll
        for (int far = 1; far < 4; far *= 2) {
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, far));
            least = fminf(least, __shfl_xor_sync(0xffffffffu, least, far));
        }
    }
    // What to add to a number, and to take off again, to round it to the last of 8 bits of the largest; 0 where the smallest
    // would lose too much by it, or a sum overflow.
    __device__ __forceinline__ float coarse() const {
        const float power = __uint_as_float(__float_as_uint(most) & 0x7f800000u);
        return power <= 256.0f * least && power < 1e26f ? 98304.0f * power : 0.0f;  // 3 * 2^15
    }
};

__device__ __forceinline__ int row_at(int row) { return row / 2 * (2 * WORDS + 8) + row % 2 * WORDS; }

struct BF16x3Matrix {
    uint4 w[2][2 * CHUNKS];
    uint4* smallest;
    int lane, unit;  // the first of its units

    // value(o, k): the entry of the matrix, 0 beyond it
    template <class Value>
    __device__ __forceinline__ BF16x3Matrix(uint4* shared, Value value) : smallest(shared + threadIdx.x) {
        lane = threadIdx.x % 32, unit = threadIdx.x / 32 * 16 + lane / 4 * 2;
#pragma unroll
        for (int j = 0; j < 2 * CHUNKS; ++j) {
            const int k = j / 2 * 32 + lane % 4 * 8 + j % 2 * 4;
            u32 part[4][3];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                float v[4];
                Spread spread;
#pragma unroll
                for (int e = 0; e < 4; ++e) v[e] = value(unit + i, k + e), spread.take(v[e]);
                spread.of_all();
                const float coarse = spread.coarse();
#pragma unroll
                for (int e = 0; e < 4; e += 2)
                    take_apart({v[e], v[e + 1]}, {(v[e] + coarse) - coarse, (v[e + 1] + coarse) - coarse}, part[i + e]);
            }
#pragma unroll
            for (int p = 0; p < 2; ++p) w[p][j] = make_uint4(part[0][p], part[1][p], part[2][p], part[3][p]);
            smallest[j * THREADS] = make_uint4(part[0][2], part[1][2], part[2][2], part[3][2]);
        }
    }

    // Of pair i.
    __device__ __forceinline__ int row(int i) const { return lane % 4 * 2 + i; }

    __device__ __forceinline__ void write(Vectors& to, int i, const Pair& value) const {
        u32 part[3];
        take_apart(value, value, part);
#pragma unroll
        for (int p = 0; p < 3; ++p) to[p][row_at(row(i)) + unit / 2] = part[p];
    }

    __device__ __forceinline__ void times(const Vectors& vectors, Pair (&result)[2]) const {
        float sum[3][4] = {};  // of large, small and smallest products
#pragma unroll
        for (int j = 0; j < CHUNKS; ++j) {
#pragma unroll
            for (int q = 2; q >= 0; --q) {
                const uint4 v = load_vector<uint4>(&vectors[q][row_at(lane / 4) + j * 16 + lane % 4 * 4]);
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const u32 b0 = half ? v.z : v.x, b1 = half ? v.w : v.y;
                    const int at = 2 * j + half;
                    if (q == 0) mma_bf16(sum[2], smallest[at * THREADS], b0, b1);
                    if (q < 2) mma_bf16(sum[1 + q], w[1][at], b0, b1);
                    if (q > 0) {
                        mma_bf16(sum[q], w[0][at], b0, b1);
                        continue;
                    }
                    float large[4] = {};
                    mma_bf16(large, w[0][at], b0, b1);
#pragma unroll
                    for (int i = 0; i < 4; ++i) sum[0][i] += large[i];
                }
            }
        }
        const auto total = [&](int c) { return sum[0][c] + (sum[1][c] + sum[2][c]); };
#pragma unroll
        for (int i = 0; i < 2; ++i) result[i] = {total(i), total(2 + i)};
    }
};
