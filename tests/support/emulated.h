// What the source of a kernel needs to run on a CPU. Threads are fibers: one runs until it waits for others, at a barrier or to
// exchange a number, and then another does, in an order that is drawn anew each time. Blocks of a cluster run together.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>
#include <ucontext.h>

#define __device__
#define __global__
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(n) __attribute__((aligned(n)))

using std::max;
using std::min;

struct alignas(8) float2 {
    float x, y;
};
static float2 make_float2(float x, float y) { return {x, y}; }
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

static bool misaligned;  // some memory was read or written by more bytes at once than its place allows

enum FiberState { READY, DONE, AT_WARP, AT_BLOCK, AT_CLUSTER, AT_MBARRIER };

static constexpr size_t STACK = 1 << 16;
struct Fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    FiberState state;
    unsigned thread, block;
    unsigned arrivals;  // at barriers of the cluster
    double sent;
    std::array<unsigned, 6> fragments;
};

static std::vector<Fiber> fibers;
static std::vector<std::vector<char>> memories;  // shared memory of each block that runs
static Fiber* current;
static ucontext_t home;
static unsigned first_block, together_now, dynamic_bytes, threads_now;
static unsigned late;  // a block that waits until the others cannot go on without it
static std::vector<unsigned> arrivals;  // of each block's threads, at barriers of the cluster
static std::mt19937* dice;
static unsigned named_bytes;
static std::map<std::string, unsigned> named;  // where arrays of shared memory with a name lie, behind what has none
static void (*body)();

struct Index {
    unsigned Fiber::*which;
    operator unsigned() const { return current->*which; }
};
static struct {
    Index x{&Fiber::thread};
} threadIdx;
static struct {
    Index x{&Fiber::block};
} blockIdx;

static void wait_as(FiberState state) {
    current->state = state;
    swapcontext(&current->context, &home);
}

static void __syncthreads() { wait_as(AT_BLOCK); }

template <class Value>
static Value __shfl_xor_sync(unsigned, Value value, int far) {
    current->sent = value;
    wait_as(AT_WARP);
    const Value there = fibers[(current - fibers.data()) ^ far].sent;
    wait_as(AT_WARP);
    return there;
}

static float __uint_as_float(unsigned bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

// The nearest float that is not farther from 0: the tensor cores cut off what their sums have no place for.
static float cut_off(double sum) {
    const float nearest = (float)sum;
    return std::fabs((double)nearest) > std::fabs(sum) ? std::nextafter(nearest, 0.0f) : nearest;
}

// m16n8k16 of bfloat16: lane 4 g + t holds rows g and g + 8 of the matrix, column g of the vectors, and of each the entries
// 2 t, 2 t + 1, 2 t + 8, 2 t + 9; it gets results 2 t and 2 t + 1 of its two rows.
static void multiply_fragments(float (&c)[4], const uint4& a, unsigned b0, unsigned b1) {
    current->fragments = {a.x, a.y, a.z, a.w, b0, b1};
    wait_as(AT_WARP);
    const size_t me = current - fibers.data(), first = me / 32 * 32, group = me % 32 / 4, turn = me % 4;
    const auto number = [&](size_t lane, int which, int k) {
        const unsigned both = fibers[first + lane].fragments[which];
        return __uint_as_float(k % 2 ? both & 0xffff0000u : both << 16);
    };
    for (int i = 0; i < 4; ++i) {
        const size_t result = 2 * turn + i % 2;
        double sum = c[i];
        for (int k = 0; k < 16; ++k)
            sum += (double)number(group * 4 + k % 8 / 2, i / 2 + k / 8 * 2, k) * number(result * 4 + k % 8 / 2, 4 + k / 8, k);
        c[i] = cut_off(sum);
    }
    wait_as(AT_WARP);
}

[[noreturn]] static void __trap() { std::abort(); }

static double __longlong_as_double(long long bits) {
    double value;
    std::memcpy(&value, &bits, 8);
    return value;
}

static float __fdividef(float a, float b) { return a / b; }

static unsigned __float_as_uint(float value) {
    unsigned bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}

static int __shfl_sync(unsigned, int value, int) { return value; }  // of a number that a warp has in common

static char* shared_memory(unsigned block) { return memories[block - first_block].data(); }

static char* named_memory(const char* name, unsigned bytes) {
    if (!named.count(name)) {
        named[name] = (dynamic_bytes + named_bytes + 127) / 128 * 128;
        named_bytes += (bytes + 127) / 128 * 128;
    }
    return shared_memory(current->block) + named[name];
}

// Addresses: the block of a cluster in the upper bits. Of an mbarrier, what is still to come, in arrivals and bytes. Numbers on
// their way arrive in any order, and when the scheduler likes.
struct Barrier {
    int arrivals = 1;
    long bytes = 0;
    unsigned phase = 0;
    void look() {
        if (arrivals == 0 && bytes == 0) phase ^= 1, arrivals = 1;
    }
};
struct Flying {
    unsigned to, barrier, from, bytes;  // of a number, which is no memory's, `bytes` is 0
    float value;
    const char* device = nullptr;  // where it comes from, if not from shared memory
};
static std::map<unsigned, Barrier> barriers;
static std::vector<Flying> flying;

static unsigned block_of_cluster() { return current->block - first_block; }
static char* at(unsigned place) { return memories[place >> 24].data() + (place & 0xffffff); }
static unsigned starved;  // a block to which memory is sent last of all
static bool land_some(std::mt19937& drawn, bool last) {
    std::shuffle(flying.begin(), flying.end(), drawn);
    const auto waits = [&](const Flying& one) { return !last && one.bytes && one.to >> 24 == starved; };
    const size_t kept = std::partition(flying.begin(), flying.end(), waits) - flying.begin();
    if (last) starved = drawn() % together_now;
    const size_t left = kept + (flying.size() - kept) / 2;
    const bool any = flying.size() > left;
    for (; flying.size() > left; flying.pop_back()) {
        const Flying& one = flying.back();
        const unsigned bytes = one.bytes ? one.bytes : 4;
        const char* from = one.device ? one.device : one.bytes ? at(one.from) : (const char*)&one.value;
        std::memmove(at(one.to), from, bytes);
        barriers[one.barrier].bytes -= bytes, barriers[one.barrier].look();
    }
    return any;
}

static void start() {
    body();
    wait_as(DONE);
}

// Lets those go on that have all come to the same barrier.
static bool release(FiberState state, size_t together) {
    bool any = false;
    for (size_t first = 0; first < fibers.size(); first += together) {
        bool all = true;
        for (size_t i = first; i < first + together; ++i) all &= fibers[i].state == state;
        for (size_t i = first; all && i < first + together; ++i) fibers[i].state = READY;
        any |= all;
    }
    return any;
}

// Lets those go on that wait for arrivals of which there are now as many by all threads.
static bool release_cluster() {
    bool any = false;
    unsigned least = fibers[0].arrivals;
    for (const Fiber& fiber : fibers) least = min(least, fiber.arrivals);
    for (Fiber& fiber : fibers)
        if (fiber.state == AT_CLUSTER && fiber.arrivals <= least) fiber.state = READY, any = true;
    return any;
}

// Returns 0, 1 where threads wait for others that never come, 2 where nobody waited for a message, 3 where memory is misaligned.
static int run_together(unsigned blocks, unsigned threads, unsigned shared, std::mt19937& drawn) {
    fibers.resize(blocks * threads);
    memories.assign(blocks, std::vector<char>(shared + (1 << 16), (char)0xff));  // NaN
    together_now = blocks, threads_now = threads, dynamic_bytes = shared, dice = &drawn;
    arrivals.assign(blocks, 0);
    misaligned = false;
    named.clear(), named_bytes = 0, barriers.clear(), flying.clear();
    std::vector<size_t> order;
    for (size_t i = 0; i < fibers.size(); ++i) {
        Fiber& fiber = fibers[i];
        if (!fiber.stack) fiber.stack.reset(new char[STACK]);  // of which only what is used takes memory
        fiber.state = READY, fiber.arrivals = 0, fiber.thread = i % threads, fiber.block = first_block + i / threads;
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.get(), fiber.context.uc_stack.ss_size = STACK;
        makecontext(&fiber.context, start, 0);
        order.push_back(i);
    }
    for (late = drawn() % blocks;;) {
        std::shuffle(order.begin(), order.end(), drawn);
        const auto go_on = [&](bool all) {
            bool any = false;
            for (size_t i : order) {
                current = &fibers[i];
                if (current->state != READY || (!all && current->block - first_block == late)) continue;
                swapcontext(&home, &current->context);
                any = true;
            }
            return any;
        };
        if (!go_on(blocks == 1)) go_on(true), late = drawn() % blocks;
        const bool gone = std::all_of(fibers.begin(), fibers.end(), [](const Fiber& f) { return f.state == DONE; });
        if (gone) return misaligned ? 3 : flying.empty() ? 0 : 2;
        const bool warps = release(AT_WARP, 32), each = release(AT_BLOCK, threads), all = release_cluster();
        const auto is_ready = [](const Fiber& f) { return f.state == READY; };
        const bool idle = std::none_of(fibers.begin(), fibers.end(), is_ready);
        const bool some = land_some(drawn, false) || (idle && land_some(drawn, true));
        for (Fiber& fiber : fibers)
            if (some && fiber.state == AT_MBARRIER) fiber.state = READY;
        const bool ready = std::any_of(fibers.begin(), fibers.end(), is_ready);
        if (!warps && !each && !all && !some && !ready) return 1;
    }
}

static unsigned long long* words;

template <class... Types, size_t... places>
static void call(void (*kernel)(Types...), std::index_sequence<places...>) {
    kernel(*reinterpret_cast<std::remove_reference_t<Types>*>(words + places)...);
}

template <class... Types>
static void call(void (*kernel)(Types...)) {
    call(kernel, std::index_sequence_for<Types...>());
}

#define EMULATED(kernel, together)                                                                                      \
    extern "C" int emulate(unsigned blocks, unsigned threads, unsigned shared, unsigned long long* given, unsigned seed) { \
        std::mt19937 drawn(seed);                                                                                       \
        words = given;                                                                                                  \
        body = [] { call(kernel); };                                                                                    \
        int wrong = 0;                                                                                                  \
        for (first_block = 0; first_block < blocks && !wrong; first_block += together)                                  \
            wrong = run_together(together, threads, shared, drawn);                                                     \
        fibers.clear(), memories.clear();  /* other libraries of the process have their own */                         \
        return wrong;                                                                                                   \
    }
