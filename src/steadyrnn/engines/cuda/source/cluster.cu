// Messages between the blocks that share a weight: those of a thread-block cluster or, where a weight needs more blocks than a
// cluster has, FAR blocks that run at the same time. Messages of the latter go by way of device memory, of which little leaves
// the L2 cache.
//
// Every block sends bytes from its own shared memory to the same place in each other block's, which may read them once the
// mbarrier there has completed its phase. One thread announces what it expects, BLOCKS threads send. POSTED, what is sent lies
// in device memory, too, and one thread sends it to all: it is read once for all, and more arrives at a time than from block
// to block.
//
// Defined by the caller: BLOCKS (that share a weight), THREADS (of a block, those that compute), FAR; of a recurrence with a dense
// weight RAGGED, whether rows have lengths of their own: 0, 1, or UNKNOWN, where an argument says it.

#define UNKNOWN 2
#if RAGGED == UNKNOWN
#define HAS_LENGTHS(ragged) (ragged)
#else
#define HAS_LENGTHS(ragged) RAGGED
#endif

#define CLUSTERED (BLOCKS > 1 && !FAR)
#define ALL_THREADS (THREADS + (FAR ? 128 : 0))  // FAR, four more warps: one announces messages, one fetches them
#if CLUSTERED
#define CLUSTER_DIMS __cluster_dims__(BLOCKS, 1, 1)
#else
#define CLUSTER_DIMS
#endif

__device__ __forceinline__ u32 block_rank() { return blockIdx.x % BLOCKS; }

__device__ __forceinline__ void sync_computing_threads() {
    if (FAR)
        named_barrier_sync<THREADS>(1);
    else
        __syncthreads();
}

__device__ __forceinline__ void cluster_arrive() {
    if (CLUSTERED) cluster_arrive_release();
}

// Where only shared memory is meant, of which everything read has been used: does not wait for stores on their way.
__device__ __forceinline__ void cluster_arrive_lightly() {
    if (CLUSTERED) cluster_arrive_relaxed();
}

__device__ __forceinline__ void cluster_wait() {
    if (CLUSTERED) cluster_wait_acquire();
}

__device__ __forceinline__ void copy_to_all_peers(u64* barrier, void* to, const void* from, u32 bytes, u32 rank) {
    copy_to_peers(barrier, to, from, bytes, (u16)(((1u << BLOCKS % 32) - 1) & ~(1u << rank)));
}

// Ends the kernel with an error where something has been waited for longer than a minute: an error, not a hang.
__device__ __forceinline__ void check_patience(u32 tries, u64& since) {
    if ((tries & 0xffff) != 0xffff) return;
    const u64 now = nanoseconds();
    since = since ? since : now;
    if (now - since > 60000000000ull) __trap();
}

__device__ __forceinline__ void wait_for_phase(u64* barrier, u32 parity) {
    u32 done = 0;
    u64 since = 0;
    for (u32 tries = 0; !done; ++tries) {
        done = mbarrier_try_wait(barrier, parity);
        if (!done) check_patience(tries, since);
    }
}

// FAR: one thread announces that the block's message lies in device memory, one fetches, once all have announced theirs, all
// messages. The first waits for those that wrote it (which is why it is not one of them: announcing takes long), and these do
// not wait for it.
__device__ __forceinline__ void mark_written(int set) { named_barrier_arrive<THREADS + 32>(2 + set); }

__device__ __forceinline__ void wait_until_written(int set) { named_barrier_sync<THREADS + 32>(2 + set); }

__device__ __forceinline__ void fetch(u64* barrier, void* to, const void* from, u32 bytes, const u32* announced, u32 all) {
    u32 count = 0;
    u64 since = 0;
    for (u32 tries = 0; count < all; ++tries) {
        count = load_acquire(announced);
        if (count < all) check_patience(tries, since);
    }
    fence_async_global();
    mbarrier_expect(barrier, bytes);
    copy_to_shared(barrier, to, from, bytes);
}
