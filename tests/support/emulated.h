// What the source of a kernel needs to run on a CPU. Threads are fibers: one runs until it waits for others, at a barrier or to
// exchange a number, and then another does, in an order that is drawn anew each time. Blocks of a cluster run together.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
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
#define __shared__ static  // for blocks that run alone

using std::max;
using std::min;

struct float4 {
    float x, y, z, w;
};

enum State { READY, DONE, AT_WARP, AT_BLOCK, AT_CLUSTER };

struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    State state;
    unsigned thread, block;
    float sent;
};

static std::vector<Fiber> fibers;
static std::vector<std::vector<char>> memories;  // shared memory of each block that runs
static Fiber* current;
static ucontext_t home;
static unsigned threads_of_block, first_block;
static void (*body)();

struct Place {
    unsigned Fiber::*which;
    operator unsigned() const { return current->*which; }
};
static struct {
    Place x{&Fiber::thread};
} threadIdx;
static struct {
    Place x{&Fiber::block};
} blockIdx;

static void wait_as(State state) {
    current->state = state;
    swapcontext(&current->context, &home);
}

static void __syncthreads() { wait_as(AT_BLOCK); }

static float __shfl_xor_sync(unsigned, float value, int far) {
    current->sent = value;
    wait_as(AT_WARP);
    const float there = fibers[(current - fibers.data()) ^ far].sent;
    wait_as(AT_WARP);
    return there;
}

static float __uint_as_float(unsigned bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

static double __longlong_as_double(long long bits) {
    double value;
    std::memcpy(&value, &bits, 8);
    return value;
}

static float __fdividef(float a, float b) { return a / b; }

static char* shared_memory(unsigned block) { return memories[block - first_block].data(); }

static void start() {
    body();
    wait_as(DONE);
}

// Lets those go on that have all come to the same barrier.
static bool release(State state, size_t together) {
    bool any = false;
    for (size_t first = 0; first < fibers.size(); first += together) {
        bool all = true;
        for (size_t i = first; i < first + together; ++i) all &= fibers[i].state == state;
        for (size_t i = first; all && i < first + together; ++i) fibers[i].state = READY;
        any |= all;
    }
    return any;
}

// Returns 0, or 1 where threads wait for others that never come.
static int run_together(unsigned blocks, unsigned threads, unsigned shared, std::mt19937& drawn) {
    fibers.resize(blocks * threads);
    memories.assign(blocks, std::vector<char>(shared, (char)0xff));  // NaN
    threads_of_block = threads;
    std::vector<size_t> order;
    for (size_t i = 0; i < fibers.size(); ++i) {
        Fiber& fiber = fibers[i];
        fiber.stack.resize(1 << 16);
        fiber.state = READY, fiber.thread = i % threads, fiber.block = first_block + i / threads;
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.data(), fiber.context.uc_stack.ss_size = fiber.stack.size();
        makecontext(&fiber.context, start, 0);
        order.push_back(i);
    }
    while (true) {
        std::shuffle(order.begin(), order.end(), drawn);
        for (size_t i : order) {
            current = &fibers[i];
            if (current->state == READY) swapcontext(&home, &current->context);
        }
        const bool gone = std::all_of(fibers.begin(), fibers.end(), [](const Fiber& f) { return f.state == DONE; });
        if (gone) return 0;
        const bool warps = release(AT_WARP, 32), each = release(AT_BLOCK, threads), all = release(AT_CLUSTER, fibers.size());
        if (!warps && !each && !all) return 1;
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
        for (first_block = 0; first_block < blocks; first_block += together)                                            \
            if (run_together(together, threads, shared, drawn)) return 1;                                               \
        return 0;                                                                                                       \
    }
