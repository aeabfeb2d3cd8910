// Every machine instruction that CUDA C++ has no function for, each behind a name, and what else differs on a CPU: shared memory
// and vectorized access. No other source has inline PTX. The tests put a file of the same names in the place of this one, and
// so run kernels on a CPU.

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;
typedef long long i64;

// ---- Shared memory. These are macros, since no function can declare it; `shape` may be empty.

#define SHARED(type, name, shape) __shared__ __align__(16) type name shape
#define DYNAMIC_SHARED(type, name) extern __shared__ __align__(128) type name[]

__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

template <int offset>  // in bytes
__device__ __forceinline__ float4 load_shared(u32 from) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4 + %5];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(from), "n"(offset)
                 : "memory");
    return v;
}

// ---- Vectorized access: several neighbours at once, which lie at a multiple of their size.

template <class Vector>
__device__ __forceinline__ const Vector& load_vector(const void* from) {
    return *reinterpret_cast<const Vector*>(from);
}

template <class Vector>
__device__ __forceinline__ void store_vector(void* to, const Vector& v) {
    *reinterpret_cast<Vector*>(to) = v;
}

// Asks for a line of device memory before it is read, so that it is in the L2 cache then.
__device__ __forceinline__ void prefetch_l2(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

// ---- Conversions. Those of two numbers put the first into the low half.

__device__ __forceinline__ u16 to_bf16(float v) {
    u16 bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(v));
    return bits;
}

__device__ __forceinline__ u32 to_bf16x2(float low, float high) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ __forceinline__ u16 to_f16(float v) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(v));
    return bits;
}

__device__ __forceinline__ u32 to_f16x2(float low, float high) {
    u32 both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ __forceinline__ float from_f16(u16 bits) {
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(bits));
    return v;
}

// ---- Arithmetic.

__device__ __forceinline__ float exp2_approx(float x) {
    float e;
    asm("ex2.approx.f32 %0, %1;" : "=f"(e) : "f"(x));
    return e;
}

// A number of the lane whose index differs by the bits of `far`. `clamp` is 0x1f; the compiler need not know it.
__device__ __forceinline__ float shuffle_xor(float v, int far, u32 clamp) {
    float there;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, %3, 0xffffffff;" : "=f"(there) : "f"(v), "r"(far), "r"(clamp));
    return there;
}

// c += a b on the tensor cores, for a (16, 16) and b (16, 8) as fragments in the registers of a warp.
__device__ __forceinline__ void mma_bf16(float (&c)[4], const uint4& a, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void mma_f16(float (&c)[4], const uint4& a, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

// ---- Barriers within a block, of some of its threads: `id` is 1 to 15.

template <int threads>
__device__ __forceinline__ void named_barrier_sync(int id) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(threads) : "memory");
}

template <int threads>
__device__ __forceinline__ void named_barrier_arrive(int id) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(threads) : "memory");
}

// ---- Thread-block clusters: their barrier, and memory of a peer.

__device__ __forceinline__ void cluster_arrive_release() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }

__device__ __forceinline__ void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }

__device__ __forceinline__ void cluster_wait_acquire() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// Where a peer has what lies at this address of shared memory here.
__device__ __forceinline__ u32 peer_address(u32 here, u32 peer) {
    u32 there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(peer));
    return there;
}

__device__ __forceinline__ double load_from_peer(const double* here, u32 peer) {
    double value;
    asm volatile("ld.shared::cluster.f64 %0, [%1];" : "=d"(value) : "r"(peer_address(shared_address(here), peer)) : "memory");
    return value;
}

// ---- mbarriers: they complete a phase when all arrivals and all bytes expected in it have come.

__device__ __forceinline__ void mbarrier_init(u64* barrier) {  // for one arrival per phase
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(u64* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void mbarrier_expect(u64* barrier, u32 bytes) {  // arrives, too
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}

// Whether the phase of a parity is complete, after waiting for it for a while.
__device__ __forceinline__ u32 mbarrier_try_wait(u64* barrier, u32 parity) {
    u32 done;
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");
    return done;
}

// ---- Async copies, by multiples of 16 bytes. The mbarrier at the receiver is told how many bytes came.

// From shared memory here to the same place in a peer's.
__device__ __forceinline__ void copy_to_peer(u64* barrier, void* to, const void* from, u32 bytes, u32 peer) {
    asm volatile(
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            peer_address(shared_address(to), peer)),
        "r"(shared_address(from)), "r"(bytes), "r"(peer_address(shared_address(barrier), peer))
        : "memory");
}

// From device memory to the same place in the shared memory of each peer whose bit is set.
__device__ __forceinline__ void copy_to_peers(u64* barrier, void* to, const void* from, u32 bytes, u16 peers) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(
            shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(barrier)), "h"(peers)
        : "memory");
}

// From device memory to shared memory.
__device__ __forceinline__ void copy_to_shared(u64* barrier, void* to, const void* from, u32 bytes) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

// One number to an address in a peer's shared memory.
__device__ __forceinline__ void store_async(u32 to, float v, u32 barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
                 "r"(__float_as_uint(v)), "r"(barrier)
                 : "memory");
}

// ---- Order of memory. The fences let async copies see what this thread wrote: to shared memory or to device memory.

__device__ __forceinline__ void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

__device__ __forceinline__ void increment_release(u32* count) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(count) : "memory");
}

__device__ __forceinline__ u32 load_acquire(const u32* count) {
    u32 value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(count) : "memory");
    return value;
}

// ---- Time, and registers that warps give each other.

__device__ __forceinline__ u64 nanoseconds() {
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

template <int registers>
__device__ __forceinline__ void give_registers() {  // all but so many
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

template <int registers>
__device__ __forceinline__ void take_registers() {  // up to so many
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
