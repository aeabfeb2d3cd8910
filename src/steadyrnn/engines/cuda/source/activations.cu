// Activations and their derivatives.
//
// Defined by the caller: ACTIVATION, and in sources of several cells CELL, as below.

#define TANH 0
#define SIGMOID 1
#define RELU 2
#define LEAKY_RELU 3
#define ABSOLUTE 4
#define IDENTITY 5

#define ELMAN 0
#define GRU 1
#define LSTM 2

__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }

// Both branches at once, since lanes differ: an odd polynomial (best for the relative error below 0.6), or by exp. The error is
// less than 2 units in the last place.
__device__ __forceinline__ float hyperbolic_tangent(float x) {
    const float t = x * x;
    float p = fmaf(-0.005895155947655439f, t, 0.020795969292521477f);
    p = fmaf(p, t, -0.053783830255270004f);
    p = fmaf(p, t, 0.13331924378871918f);
    p = fmaf(p, t, -0.33333298563957214f);
    const float a = fabsf(x), low = fmaf(x * t, p, x);
    const float e = exp2_approx(a * 2.885390081777927f);
    const float high = copysignf(fmaf(-2.0f, __fdividef(1.0f, e + 1.0f), 1.0f), x);
    return a < 0.6f ? low : high;  // NaN stays
}

__device__ __forceinline__ float activate(float x, float slope) {
#if ACTIVATION == TANH
    return hyperbolic_tangent(x);
#elif ACTIVATION == SIGMOID
    return sigmoid(x);
#elif ACTIVATION == RELU
    return x < 0.0f ? 0.0f : x;  // NaN stays
#elif ACTIVATION == LEAKY_RELU
    return x < 0.0f ? slope * x : x;
#elif ACTIVATION == ABSOLUTE
    return fabsf(x);
#else
    return x;
#endif
}

// The derivative, from the output where that is enough, else from the input.
__device__ __forceinline__ float slope_at(float y, float slope) {
#if ACTIVATION == TANH
    return 1.0f - y * y;
#elif ACTIVATION == SIGMOID
    return y * (1.0f - y);
#elif ACTIVATION == RELU
    const float s = y > 0.0f ? 1.0f : 0.0f;
    return y == y ? s : y;  // NaN stays
#elif ACTIVATION == LEAKY_RELU
    const float s = y > 0.0f ? 1.0f : slope;
    return y == y ? s : y;
#elif ACTIVATION == ABSOLUTE
    const float s = y < 0.0f ? -1.0f : 1.0f;
    return y == y ? s : y;
#else
    return 1.0f;
#endif
}
