// What tensors hold, and how it becomes float32, in which every kernel computes.
//
// Defined by the caller: NUMBER (what tensors hold, as below).

#define FLOAT32 0
#define BFLOAT16 1
#define FLOAT16 2

// A number that is read ahead is kept as it came, and converted where it is used: converting waits for it.
#if NUMBER == FLOAT32
typedef float Number;
__device__ __forceinline__ float as_float(Number n) { return n; }
__device__ __forceinline__ void store(Number* p, i64 i, float v) { p[i] = v; }
#elif NUMBER == BFLOAT16
typedef u16 Number;
__device__ __forceinline__ float as_float(Number n) { return __uint_as_float((u32)n << 16); }
__device__ __forceinline__ void store(Number* p, i64 i, float v) { p[i] = to_bf16(v); }
#else
typedef u16 Number;
__device__ __forceinline__ float as_float(Number n) { return from_f16(n); }
__device__ __forceinline__ void store(Number* p, i64 i, float v) { p[i] = to_f16(v); }
#endif
__device__ __forceinline__ float load(const Number* p, i64 i) { return as_float(p[i]); }
