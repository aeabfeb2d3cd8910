"""How far back a contracting network remembers (MATH 4.1), with products and powers that are rounded up."""

import math
from collections.abc import Callable

from steadyrnn.checks import check_count, check_number
from steadyrnn.errors import ArgumentError, CertificateError

from .norms import above

__all__ = [
    "first_step",
    "horizon",
    "power_above",
    "product_above",
    "state_radius",
    "truncation_error",
]

_TINY = 2.0**-1022  # below it a product loses its relative precision
_EXACT = 2**53  # above it an integer is rounded on its way to float64


def product_above(*factors: float) -> float:
    """Return a number that is not below the product of a few numbers from 0 on; a factor 0 wins over infinity.

    What underflows is replaced by the smallest normal number, so that the product of what is not zero never is.

    Example:
        >>> product_above(2.0, 3.0) >= 6.0, product_above(1e-200, 1e-200) > 0, product_above(0.0, math.inf)
        (True, True, 0.0)
    """
    if 0 in factors:
        return 0.0
    product = 1.0
    for factor in factors:
        product = max(product * factor, _TINY)
    return above(product)


def power_above(base: float, exponent: int) -> float:
    """Return a number that is not below the power of a number from 0 on.

    Example:
        >>> power_above(0.5, 3) >= 0.125, power_above(0.5, 10**6) > 0, power_above(2.0, 10**6), power_above(3.0, 0)
        (True, True, inf, 1.0)
    """
    if exponent == 0 or base == 1:
        return 1.0
    if base == 0:
        return 0.0
    try:
        value = base ** min(exponent, 2**1000)
    except OverflowError:
        return math.inf
    # rounding the exponent changes a power that neither under- nor overflows by a factor of exp(745 u) at most
    return max(above(value, 16 if exponent <= _EXACT else 1024), _TINY)


def first_step(enough: Callable[[int], bool]) -> int:
    """Return the smallest integer from 0 on for which ``enough`` holds, if it holds for all larger ones.

    Example:
        >>> first_step(lambda k: k * k >= 50)
        8
    """
    if enough(0):
        return 0
    low, high = 0, 1
    while not enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def state_radius(rate: float, start: float, initial: float = 0.0) -> float:
    r"""Return a bound on the state at every time (MATH 4.1).

    .. math:: N(h_t) \le R = \max\Bigl(N(h_0), \frac{\sup_x N(\phi(0, x))}{1 - \lambda}\Bigr)

    since :math:`N(h_t) \le N(\phi(h_{t-1}, x_t) - \phi(0, x_t)) + N(\phi(0, x_t)) \le \lambda R + (1 - \lambda) R`.

    Args:
        rate: :math:`\lambda`, by which one step brings two states closer in the norm N.
        start: A bound on :math:`N(\phi(0, x))`, such as :math:`L_x B_x + N(\phi(0, 0))`.
        initial: :math:`N(h_0)`.

    Returns:
        R, rounded up; infinite where the rate is 1 or more (unless nothing enters).

    Example:
        >>> round(state_radius(0.75, 10.0), 9)
        40.0

    References:
        Miller, Hardt. When Recurrent Models Don't Need To Be Recurrent. Lemma 1. https://arxiv.org/abs/1805.10369
    """
    rate, start, initial = check_number("rate", rate), check_number("start", start), check_number("initial", initial)
    if start == 0 and (rate <= 1 or initial == 0):
        return initial
    if rate >= 1:
        return math.inf
    return max(initial, product_above(start, 1 / (1 - rate)))


def truncation_error(rate: float, radius: float, steps: int) -> float:
    r"""Return how far a state is from the one computed from its last inputs only (MATH 4.1).

    .. math:: N(h_t - h_t^k) \le \lambda^k N(h_{t-k}) \le \lambda^k R

    :math:`h_t^k` starts from zero and reads the k inputs :math:`x_{t-k+1}, \dots, x_t`: the two runs are
    :math:`N(h_{t-k})` apart at first, and every step brings them closer by :math:`\lambda`. It is tight: equality holds
    for :math:`W = \lambda v v^\top`, the identity as activation, and a state along v.

    Args:
        rate: :math:`\lambda`.
        radius: R, a bound on the state.
        steps: k.

    Returns:
        The bound, rounded up; it grows with k where the rate is above 1.

    Example:
        >>> truncation_error(0.5, 8.0, 3) >= 1.0
        True
    """
    rate, radius, steps = check_number("rate", rate), check_number("radius", radius), check_count("steps", steps)
    power = power_above(rate, steps)
    if power == _TINY and steps > 1 and 1 < radius < math.inf:  # the power has underflowed, the product need not
        half = steps // 2
        return truncation_error(rate, truncation_error(rate, radius, half), steps - half)
    return radius if steps == 0 else product_above(power, radius)


def horizon(rate: float, radius: float, eps: float, gain: float = 1.0) -> int:
    r"""Return how many inputs it takes to know an output to ``eps`` (MATH 4.1).

    .. math:: k = \Bigl\lceil \ln \frac{L_f R}{\varepsilon} \Big/ \ln \frac1\lambda \Bigr\rceil

    the smallest number with :math:`L_f \lambda^k R \le \varepsilon`, by :func:`truncation_error`, whose rounded value
    is what is compared: k satisfies it and k - 1 does not.

    Args:
        rate: :math:`\lambda < 1`.
        radius: R, a bound on the state.
        eps: :math:`\varepsilon > 0`, the error allowed.
        gain: :math:`L_f`, the Lipschitz constant of what reads the state.

    Returns:
        k, which is 0 where zero is a good enough state.

    Example:
        >>> horizon(0.75, state_radius(0.75, 10.0), eps=1e-3)
        37
    """
    rate, eps = check_number("rate", rate), check_number("eps", eps, finite=True)
    if eps < 4 * _TINY:
        raise ArgumentError(f"`eps` must be a number above zero that float64 holds to full precision, but is {eps}.")
    radius, gain = check_number("radius", radius), check_number("gain", gain)
    reach = radius if gain == 1 else product_above(gain, radius)
    if reach <= eps:
        return 0
    if rate >= 1:
        raise CertificateError(f"`rate` is {rate:.6g}, and only a rate below 1 forgets: no number of steps is proven enough.")
    if math.isinf(reach) and rate > 0:
        raise CertificateError("`radius` times `gain` is infinite: a bound on the states is missing, so on the inputs perhaps.")
    return first_step(lambda steps: truncation_error(rate, reach, steps) <= eps)
