// A block's rows, units, memory and way through time, for gather.cu, which says what is to be defined.

#define WIDE (BLOCKS * UNITS)
#define ITEMS_OF_ROW (UNITS / VECTOR_IO)
#define EARLY 12  // steps between asking for a line of memory and reading it
#define HELD (BACK || CELL == LSTM)  // whether numbers are carried from step to step beside the state
// FAR, the first turn only sends the initial states: a turn without a product is what the adjoint has, and for a loop that may
// leave the product out the compiler takes the registers that it is given (187 against 165).
#define LEAD (FAR && !BACK)
#define BY_MEMORY (FAR || POSTED)  // whether messages lie in device memory, too
#define READ (BACK ? 2 : GATES)    // numbers of an entry that a step reads
#if BACK || !KEEP || (CELL == ELMAN && ACTIVATION != ABSOLUTE)
#define RESULT 1  // numbers of an entry that go to device memory: output, extra, gates
#elif CELL == ELMAN
#define RESULT 2
#else
#define RESULT (GATES + 2)
#endif

// An index into the weight. One that fits on the chip has less than 2^31 entries, and with 64 bits for all that a thread reads,
// registers would be spilled before the first step. An LSTM with much of its weight in shared memory takes 1.04 of the time with
// 32, as the compiler then lets its product wait for the numbers that are read ahead.
#if CELL == LSTM && AHEAD && TILES > 1
typedef i64 WeightIndex;
#else
typedef int WeightIndex;
#endif

// Arguments of the kernel; see there.
struct Tensors {
    Number* gates;
    const Number *weight, *bias, *begin, *begin_c;
    Number *output, *extra, *end, *end_c;
    const int* lengths;
    Entry* post;
    u32* announced;
};
struct Sizes {
    int steps, batch, size, height, ragged, backwards, given;
};

// What is to be done for a block's rows and units, and where it lies.
struct Block : Tensors, Sizes {
    float slope;
    int rank;
    i64 first;  // row of the batch
    int rows, half, share;  // its rows, those of a set, and the entries of a set that are the block's own
    int slab, buffer_size;  // entries from block to block of a state, and of a state
    int last;  // steps that the longest row runs
    Entry* state;  // (BUFFERS, SETS, BLOCKS, half or more, UNITS)
    float* pre;    // (WARPS_K, half, RESULTS)
    float* held;   // (SETS, half, UNITS): LSTM c, BACK what is carried
    float* later;  // part of the weight

    __device__ __forceinline__ Block(const Tensors& tensors, const Sizes& sizes, float slope, i64 first, float* memory)
        : Tensors(tensors), Sizes(sizes), slope(slope), rank(block_rank()), first(first) {
        rows = (int)(batch - first < height ? batch - first : height);
        half = (height + SETS - 1) / SETS, share = half * UNITS;
#if defined(EIGHTS) && !FAR
        slab = EIGHTS * 8 * UNITS;  // what the tensor cores read: all places of a product are known to the compiler
#else
        slab = share;
#endif
        buffer_size = SETS * BLOCKS * slab;
        state = reinterpret_cast<Entry*>(memory);
        pre = reinterpret_cast<float*>(state + BUFFERS * buffer_size);
        held = pre + WARPS_K * half * RESULTS;
        later = held + (HELD ? SETS * share : 0);
        last = HAS_LENGTHS(ragged) ? lengths[first] : steps;  // rows are sorted, the longest first
        if (BY_MEMORY) post += (i64)(blockIdx.x / BLOCKS) * SETS * 2 * BLOCKS * slab;
        if (FAR) announced += blockIdx.x / BLOCKS * SETS;
    }

    // Entry k of the row of the weight that gives result o of the block; 0 beyond the weight.
    __device__ __forceinline__ float weight_at(int o, int k) const {
        const int unit = rank * UNITS + o % UNITS;
        const bool inside = o < GATES * UNITS && unit < size && k < size;
        return inside ? load(weight, BACK ? k * size + unit : ((WeightIndex)(o / UNITS) * size + unit) * size + k) : 0.0f;
    }

    __device__ __forceinline__ void write_first_states() const {
        for (int i = threadIdx.x; i < BUFFERS * buffer_size; i += THREADS) {
            const int set = i / (BLOCKS * slab) % SETS, unit = i % (BLOCKS * slab) / slab * UNITS + i % UNITS;
            const int of = i % slab / UNITS, row = set * half + of;
            const bool given_here = !BACK && i < buffer_size && unit < size && of < half && row < rows;
            const float start = given_here ? load(begin, (first + row) * size + unit) : 0.0f;
            state[i - i % UNITS + swap(i % UNITS, of)] = entry(start);
        }
        for (int i = threadIdx.x; HELD && i < SETS * share; i += THREADS) {
            const int unit = rank * UNITS + i % UNITS, row = i / UNITS;
            held[i] = unit < size && row < rows ? load(BACK ? begin : begin_c, (first + row) * size + unit) : 0.0f;
        }
    }

    __device__ __forceinline__ void write_last_states() const {
        const Entry* final = state + (BUFFERS == 2 ? last & 1 : 0) * buffer_size + rank * slab;
        for (int i = threadIdx.x; i < rows * UNITS; i += THREADS) {
            const int unit = rank * UNITS + i % UNITS, row = i / UNITS;
            if (unit >= size) continue;
            const i64 place = (first + row) * size + unit;
            const int spot_in = row / half * BLOCKS * slab + row % half * UNITS + swap(i % UNITS, row % half);
            store(end, place, BACK ? held[i] : value_of(final[spot_in]));
            if (CELL == LSTM) store(end_c, place, held[i]);
        }
    }

};

// A block's way through time, and what it reads on it.
struct Walk : Block {
    int begins, way;  // first time, and the direction
    i64 stride, move, origin;  // from time to time, from step to step; of the block's entries at time 0
    int whole;  // units of the block that there are

    __device__ __forceinline__ Walk(const Block& block) : Block(block) {
        const bool downwards = BACK ? !backwards : backwards;
        begins = downwards ? last - 1 : 0, way = downwards ? -1 : 1;
        stride = (i64)batch * size, move = way * stride, origin = first * size + rank * UNITS;
        whole = min(max(size - rank * UNITS, 0), UNITS);
    }

    // Item `item` of a set is VECTOR_IO neighbours of row item / ITEMS_OF_ROW. From the set's first entry it lies `row_offset` +
    // `unit_of` far; where there is no such item, another one is read instead, so that nothing branches.
    __device__ __forceinline__ static u32 row_of(u32 item, u32 items) { return item < items ? item / ITEMS_OF_ROW : 0; }
    __device__ __forceinline__ u32 row_offset(u32 item, u32 items) const { return row_of(item, items) * size; }
    __device__ __forceinline__ int length_of(int row) const { return HAS_LENGTHS(ragged) ? lengths[first + row] : steps; }
    __device__ __forceinline__ u32 unit_of(int i) const {
        const u32 of = (threadIdx.x + i * THREADS) % ITEMS_OF_ROW * VECTOR_IO;
        return of < whole ? of : 0;
    }

    // Reads what a step reads: parts of the input, BACK: gradient and what determines the derivative.
    __device__ __forceinline__ void read(Numbers (&to)[READ], u32 row, u32 unit, i64 from, bool more) const {
#if BACK
        const i64 place = from + row + unit;
        if (more && given) prefetch_l2(gates + place + EARLY * move);
        if (more) prefetch_l2(extra + place + EARLY * move);
        to[0] = given ? load_vector<Numbers>(gates + place) : Numbers{};
        to[1] = load_vector<Numbers>(extra + place);
#else
        const Number* part = gates + GATES * (from - rank * UNITS + row) + (rank * UNITS + unit);
#pragma unroll
        for (int g = 0; g < GATES; ++g) {
            if (more) prefetch_l2(part + GATES * EARLY * move + g * size);
            to[g] = load_vector<Numbers>(part + g * size);
        }
#endif
    }
};
