"""Activations and their pullbacks on tiles: one rounding or two from exact, NaN stays NaN."""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl

__all__ = [
    "absolute",
    "identity",
    "leaky_relu",
    "polar",
    "pull_absolute",
    "pull_identity",
    "pull_leaky_relu",
    "pull_relu",
    "pull_sigmoid",
    "pull_tanh",
    "relu",
    "sigmoid",
    "tanh",
]


@triton.jit
def _powers(x):
    r"""Return :math:`2^n` and :math:`e^r - 1` with :math:`e^x = 2^n e^r`, :math:`|r| \le \ln(2) / 2`, for ``x`` not above 0.

    Written out since the hardware's fast exponential errs by a unit of rounding for every unit of x. The series of
    :math:`e^r - 1` is cut where its rest is below a quarter of the last digit of its first term.
    """
    wide: tl.constexpr = x.dtype == tl.float64
    low: tl.constexpr = -708.0 if wide else -87.0  # below, 2^n is no normal number
    x = tl.where(x < low, low, x)
    n = tl.floor(x * 1.4426950408889634 + 0.5)
    if wide:
        r = (x - n * 0.6931471804855391) - n * 7.440617110012397e-11
        p = r * 1.6059043836821613e-10 + 2.08767569878681e-09  # 1/13!, 1/12!
        p = p * r + 2.505210838544172e-08
        p = p * r + 2.755731922398589e-07
        p = p * r + 2.7557319223985893e-06
    else:
        r = (x - n * 0.693145751953125) - n * 1.4286068203094173e-06  # ln 2 in two parts: n times the first is exact
        p = r * 2.7557319223985893e-06  # 1/9!
    p = p * r + 2.48015873015873e-05
    p = p * r + 0.0001984126984126984
    p = p * r + 0.001388888888888889
    p = p * r + 0.008333333333333333
    p = p * r + 0.041666666666666664
    p = p * r + 0.16666666666666666
    p = p * r + 0.5
    p = p * r * r + r
    n = tl.where(n == n, n, 0.0)  # NaN has no integer; it stays in p
    if wide:
        scale = ((n.to(tl.int64) + 1023) << 52).to(tl.float64, bitcast=True)
    else:
        scale = ((n.to(tl.int32) + 127) << 23).to(tl.float32, bitcast=True)
    return scale, p


@triton.jit
def tanh(x, SLOPE: tl.constexpr):
    r"""Return :math:`\pm (1 - e) / (1 + e)` with :math:`e = e^{-2|x|}`, near 1 as :math:`\pm (1 - 2e / (1 + e))`.

    So nothing cancels below, and above an error in e counts as little as e does.
    """
    a = tl.where(x < 0, -x, x)
    scale, p = _powers(-2 * a)
    e = scale * p + scale
    low = a < 0.55  # where both are 1/2
    part = tl.where(low, -(scale * p + (scale - 1)), 2 * e) / (1 + e)
    y = tl.where(low, part, 1 - part)
    return tl.where(x < 0, -y, y)


@triton.jit
def sigmoid(x, SLOPE: tl.constexpr):
    r"""Return :math:`e / (1 + e)` with :math:`e = e^{-|x|}`, or 1 less that where x is not below 0."""
    scale, p = _powers(tl.where(x < 0, x, -x))
    e = scale * p + scale
    part = e / (1 + e)
    return tl.where(x < 0, part, 1 - part)


@triton.jit
def relu(x, SLOPE: tl.constexpr):
    """Return x where it is not below 0, else 0."""
    return tl.where(x < 0, 0.0, x)


@triton.jit
def leaky_relu(x, SLOPE: tl.constexpr):
    """Return x where it is not below 0, else ``SLOPE`` of it."""
    return tl.where(x < 0, x * SLOPE, x)


@triton.jit
def absolute(x, SLOPE: tl.constexpr):
    """Return the absolute value."""
    return tl.where(x < 0, -x, x)


@triton.jit
def identity(x, SLOPE: tl.constexpr):
    """Return x."""
    return x


@triton.jit
def pull_tanh(grad, y, SLOPE: tl.constexpr):
    """Pull ``grad`` back through tanh, from its output."""
    return grad * (1 - y * y)


@triton.jit
def pull_sigmoid(grad, y, SLOPE: tl.constexpr):
    """Pull ``grad`` back through the logistic function, from its output."""
    return grad * (y * (1 - y))


@triton.jit
def pull_relu(grad, y, SLOPE: tl.constexpr):
    """Pull ``grad`` back through relu, from its output."""
    return tl.where(y > 0, grad, 0.0)


@triton.jit
def pull_leaky_relu(grad, y, SLOPE: tl.constexpr):
    """Pull ``grad`` back through leaky relu, from its output."""
    return tl.where(y > 0, grad, grad * SLOPE)


@triton.jit
def pull_absolute(grad, x, SLOPE: tl.constexpr):
    """Pull ``grad`` back through the absolute value, from the pre-activation; the slope at 0 is 1."""
    return tl.where(x < 0, -grad, grad)


@triton.jit
def pull_identity(grad, y, SLOPE: tl.constexpr):
    """Return ``grad``."""
    return grad


@triton.jit
def polar(re, im):
    """Return radius and unit vector of pairs, and where they are zero (or denormal); see activations.py for the scaling."""
    tiny: tl.constexpr = 2.2250738585072014e-308 if re.dtype == tl.float64 else 1.1754943508222875e-38
    a, b = absolute(re, 0.0), absolute(im, 0.0)
    scale = tl.where(a < b, b, a)
    zero = (a < tiny) & (b < tiny)
    scale = tl.where(zero, 1.0, scale)
    x, y = tl.where(zero, 1.0, re / scale), tl.where(zero, 1.0, im / scale)
    length = tl.sqrt(x * x + y * y)
    return scale * length, x / length, y / length, zero
