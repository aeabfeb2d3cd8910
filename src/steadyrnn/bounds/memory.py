"""How far back a contracting network remembers: Note [mathematics], section 4.1."""

import math
from collections.abc import Callable

from steadyrnn.checks import check_count, check_number
from steadyrnn.errors import ArgumentError, CertificateError

from .norms import TINY, power_above, product_above, state_radius

__all__ = ["first_step", "horizon", "state_radius", "truncation_error"]


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


def truncation_error(rate: float, radius: float, steps: int) -> float:
    r"""Return how far a state is from the one computed from its last inputs only (Note [mathematics], section 4.1).

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
    if power == TINY and steps > 1 and 1 < radius < math.inf:  # the power has underflowed, the product need not
        half = steps // 2
        return truncation_error(rate, truncation_error(rate, radius, half), steps - half)
    return radius if steps == 0 else product_above(power, radius)


def horizon(rate: float, radius: float, eps: float, gain: float = 1.0) -> int:
    r"""Return how many inputs it takes to know an output to ``eps`` (Note [mathematics], section 4.1).

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
        >>> horizon(0.75, radius=40.0, eps=1e-3)
        37
    """
    rate, eps = check_number("rate", rate), check_number("eps", eps, finite=True)
    if eps < 4 * TINY:
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
