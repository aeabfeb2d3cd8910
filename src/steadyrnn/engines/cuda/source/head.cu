// What every kernel of a recurrence over time uses: numbers in and out, activations, and messages between the blocks of a
// cluster. A cluster runs a tile of rows; each of its blocks owns UNITS units of every gate.
//
// Where a weight needs more blocks than a cluster has, FAR blocks that run at the same time take its place, and messages go
// by way of device memory (of which little leaves the second-level cache).
//
// Defined by the caller, everywhere: BLOCKS (of a cluster), UNITS (of a block), GATES, THREADS, NUMBER (0 float, 1 bfloat16,
// 2 half: what tensors hold), KIND (of activation), ITEMS (how often a thread finishes entries of the state); where there are
// messages, FAR and POSTED.

#define CLUSTERED (BLOCKS > 1 && !FAR)
#define ALL_THREADS (THREADS + (FAR ? 128 : 0))  // FAR, four more warps: one tells of messages, one fetches them

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;
typedef long long i64;

// A number that is read ahead is kept as it came, and converted where it is used: converting waits for it.
#if NUMBER == 0
typedef float Number;
__device__ __forceinline__ float as_float(Number n) { return n; }
__device__ __forceinline__ void store(Number* p, i64 i, float v) { p[i] = v; }
#elif NUMBER == 1
typedef u16 Number;
__device__ __forceinline__ float as_float(Number n) { return __uint_as_float((u32)n << 16); }
__device__ __forceinline__ void store(Number* p, i64 i, float v) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(p[i]) : "f"(v));
}
#else
typedef u16 Number;
__device__ __forceinline__ float as_float(Number n) {
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(n));
    return v;
}
__device__ __forceinline__ void store(Number* p, i64 i, float v) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(p[i]) : "f"(v)); }
#endif
__device__ __forceinline__ float load(const Number* p, i64 i) { return as_float(p[i]); }

// Asks for a line of memory some steps before it is read: on its way from device memory it takes longer than a short step.
__device__ __forceinline__ void ask_for(const Number* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }

// Both branches at once, since lanes differ: an odd polynomial (best for the relative error below 0.6), or by exp. Errs by less
// than 2 units in the last place.
__device__ __forceinline__ float hyperbolic_tangent(float x) {
    const float t = x * x;
    float p = fmaf(-0.005895155947655439f, t, 0.020795969292521477f);
    p = fmaf(p, t, -0.053783830255270004f);
    p = fmaf(p, t, 0.13331924378871918f);
    p = fmaf(p, t, -0.33333298563957214f);
    const float a = fabsf(x), low = fmaf(x * t, p, x);
    float e;
    asm("ex2.approx.f32 %0, %1;" : "=f"(e) : "f"(a * 2.885390081777927f));
    const float high = copysignf(fmaf(-2.0f, __fdividef(1.0f, e + 1.0f), 1.0f), x);
    return a < 0.6f ? low : high;  // NaN stays
}

__device__ __forceinline__ float activate(float x, float slope) {
#if KIND == 0
    return hyperbolic_tangent(x);
#elif KIND == 1
    return sigmoid(x);
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

// The derivative, from the output where it tells, else from the input.
__device__ __forceinline__ float slope_at(float y, float slope) {
#if KIND == 0
    return 1.0f - y * y;
#elif KIND == 1
    return y * (1.0f - y);
#elif KIND == 2
    const float s = y > 0.0f ? 1.0f : 0.0f;
    return y == y ? s : y;  // NaN stays
#elif KIND == 3
    const float s = y > 0.0f ? 1.0f : slope;
    return y == y ? s : y;
#elif KIND == 4
    const float s = y < 0.0f ? -1.0f : 1.0f;
    return y == y ? s : y;
#else
    return 1.0f;
#endif
}

__device__ __forceinline__ u32 address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void wait_for_all() {  // that compute
#if FAR
    asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
#else
    __syncthreads();
#endif
}

__device__ __forceinline__ u32 block_rank() { return blockIdx.x % BLOCKS; }

__device__ __forceinline__ void cluster_arrive() {
#if CLUSTERED
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}

// Where only shared memory is meant, of which everything read has been used: does not wait for stores on their way.
__device__ __forceinline__ void cluster_arrive_lightly() {
#if CLUSTERED
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ void cluster_wait() {
#if CLUSTERED
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// Messages: every block sends `bytes` from its own shared memory to the same place in each other block's; a block may read
// them after `await`. One thread announces what it expects, BLOCKS threads send. POSTED, what is sent lies in device memory,
// too, and one thread sends it to all: it is read once for all, and more arrives at a time than from block to block.
__device__ __forceinline__ void open_mailbox(u64* box) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(box)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ u32 at_peer(u32 here, u32 peer) {
    u32 there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(peer));
    return there;
}

__device__ __forceinline__ void arrive(u64* box) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(box)) : "memory");
}

__device__ __forceinline__ void expect(u64* box, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(box)), "r"(bytes) : "memory");
}

__device__ __forceinline__ void send(u64* box, void* to, const void* from, u32 bytes, u32 peer) {
    asm volatile(
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            at_peer(address(to), peer)),
        "r"(address(from)), "r"(bytes), "r"(at_peer(address(box), peer))
        : "memory");
}

__device__ __forceinline__ void send_to_all(u64* box, void* to, const void* from, u32 bytes, u32 rank) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(
            address(to)),
        "l"(from), "r"(bytes), "r"(address(box)), "h"((u16)(((1u << BLOCKS % 32) - 1) & ~(1u << rank)))
        : "memory");
}

// Before the one who sends is told of it: what this thread wrote may be sent.
__device__ __forceinline__ void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ void publish_posted() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// Ends the kernel with an error where something has been waited for longer than a minute: an error, not a hang.
__device__ __forceinline__ void lose_patience(u32 tries, u64& since) {
    if ((tries & 0xffff) != 0xffff) return;
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    since = since ? since : now;
    if (now - since > 60000000000ull) __trap();
}

__device__ __forceinline__ void await(u64* box, u32 parity) {
    u32 done = 0;
    u64 since = 0;
    for (u32 tries = 0; !done; ++tries) {
        asm volatile(
            "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
            : "=r"(done)
            : "r"(address(box)), "r"(parity)
            : "memory");
        if (!done) lose_patience(tries, since);
    }
}

// FAR: one thread tells that the block's message lies in device memory, one fetches, once all have told it, all messages. The
// first waits for those that wrote it (which is why it is not one of them: telling takes long), and these do not wait for it.
__device__ __forceinline__ void written(int set) {
    asm volatile("bar.arrive %0, %1;" ::"r"(2 + set), "n"(THREADS + 32) : "memory");
}

__device__ __forceinline__ void await_written(int set) {
    asm volatile("bar.sync %0, %1;" ::"r"(2 + set), "n"(THREADS + 32) : "memory");
}

__device__ __forceinline__ void tell(u32* told) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(told) : "memory");
}

__device__ __forceinline__ void fetch(u64* box, void* to, const void* from, u32 bytes, const u32* told, u32 all) {
    u32 count = 0;
    u64 since = 0;
    for (u32 tries = 0; count < all; ++tries) {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(told) : "memory");
        if (count < all) lose_patience(tries, since);
    }
    asm volatile("fence.proxy.async;" ::: "memory");
    expect(box, bytes);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(address(to)),
                 "l"(from), "r"(bytes), "r"(address(box))
                 : "memory");
}

// FAR: warps that only wait give their registers to those that compute (by fours: 128 x 24 + 256 x 240 of 64 K).
__device__ __forceinline__ void give_registers() {
#if FAR
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
#endif
}

__device__ __forceinline__ void take_registers() {
#if FAR
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
#endif
}
