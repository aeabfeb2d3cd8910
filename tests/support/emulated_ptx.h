// Takes the place of gpu/source/ptx.cu where a kernel runs on a CPU: the same names, by what emulated.h has.

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;
typedef long long i64;

#define SHARED(type, name, shape) auto& name = *(type(*) shape)named_memory(#name, sizeof(type shape))
#define DYNAMIC_SHARED(type, name) type* name = (type*)shared_memory(blockIdx.x)

static u32 shared_address(const void* p) { return block_of_cluster() << 24 | (u32)((const char*)p - shared_memory(blockIdx.x)); }

template <int offset>
static float4 load_shared(u32 from) {
    return *(const float4*)at(from + offset);
}

template <class Vector>
static Vector* aligned(const void* place) {
    static std::remove_const_t<Vector> elsewhere;
    if ((size_t)place % alignof(Vector) == 0) return (Vector*)place;
    misaligned = true;
    return &elsewhere;
}

template <class Vector>
static const Vector& load_vector(const void* from) {
    return *aligned<const Vector>(from);
}

template <class Vector>
static void store_vector(void* to, const Vector& v) {
    *aligned<Vector>(to) = v;
}

static void prefetch_l2(const void*) {}

static u16 to_bf16(float value) {
    const u32 bits = __float_as_uint(value);
    return std::isnan(value) ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static u32 to_bf16x2(float low, float high) { return to_bf16(low) | (u32)to_bf16(high) << 16; }

static u16 to_f16(float value) {
    const _Float16 half = value;
    u16 bits;
    std::memcpy(&bits, &half, 2);
    return bits;
}

static u32 to_f16x2(float low, float high) { return to_f16(low) | (u32)to_f16(high) << 16; }

static float from_f16(u16 bits) {
    _Float16 half;
    std::memcpy(&half, &bits, 2);
    return half;
}

static float exp2_approx(float x) { return exp2f(x); }

static float shuffle_xor(float v, int far, u32) { return __shfl_xor_sync(0, v, far); }

static void mma_bf16(float (&c)[4], const uint4& a, u32 b0, u32 b1) { multiply_fragments(c, a, b0, b1); }

// What is left out is only used by kernels whose blocks are more than a cluster, which are not run here, and for float16.
static void leave_out() { std::abort(); }

static void mma_f16(float (&c)[4], const uint4& a, u32 b0, u32 b1) { leave_out(); }

template <int threads>
static void named_barrier_sync(int id) {
    leave_out();
}

template <int threads>
static void named_barrier_arrive(int id) {
    leave_out();
}

static void cluster_arrive_release() {
    if (together_now == 1) return;
    const unsigned rank = block_of_cluster();
    current->arrivals += 1, arrivals[rank] += 1;
    if (arrivals[rank] % threads_now == 0 && (*dice)() % 2) late = rank;  // the others need not wait for it from here on
    wait_as(READY);
}

static void cluster_arrive_relaxed() { cluster_arrive_release(); }

static void cluster_wait_acquire() {
    if (together_now > 1) wait_as(AT_CLUSTER);
}

static u32 peer_address(u32 here, u32 peer) { return (here & 0xffffff) | peer << 24; }

static double load_from_peer(const double* here, u32 peer) { return *(const double*)at(peer_address(shared_address(here), peer)); }

static void mbarrier_init(u64* barrier) { barriers[shared_address(barrier)] = Barrier(); }

static void mbarrier_arrive(u64* barrier) {
    Barrier& mine = barriers[shared_address(barrier)];
    mine.arrivals -= 1, mine.look();
}

static void mbarrier_expect(u64* barrier, u32 bytes) {
    Barrier& mine = barriers[shared_address(barrier)];
    mine.arrivals -= 1, mine.bytes += bytes, mine.look();
}

static u32 mbarrier_try_wait(u64* barrier, u32 parity) {
    if (barriers[shared_address(barrier)].phase == parity) wait_as(AT_MBARRIER);
    return barriers[shared_address(barrier)].phase != parity;
}

static void copy_to_peer(u64* barrier, void* to, const void* from, u32 bytes, u32 peer) {
    const u32 there = peer_address(shared_address(barrier), peer);
    flying.push_back({peer_address(shared_address(to), peer), there, shared_address(from), bytes, 0.0f});
}

static void copy_to_peers(u64* barrier, void* to, const void* from, u32 bytes, u16 peers) {
    for (unsigned peer = 0; peer < together_now; ++peer) {
        const u32 there = peer_address(shared_address(barrier), peer);
        if (peers >> peer & 1)
            flying.push_back({peer_address(shared_address(to), peer), there, 0, bytes, 0.0f, (const char*)from});
    }
}

static void copy_to_shared(u64* barrier, void* to, const void* from, u32 bytes) {
    copy_to_peers(barrier, to, from, bytes, 1 << block_of_cluster());
}

static void store_async(u32 to, float v, u32 barrier) { flying.push_back({to, barrier, 0, 0, v}); }

static void fence_async_shared() {}

static void fence_async_global() {}

static void increment_release(u32* count) { *count += 1; }

static u32 load_acquire(const u32* count) { return *count; }

static u64 nanoseconds() { return 0; }

template <int registers>
static void give_registers() {}

template <int registers>
static void take_registers() {}
