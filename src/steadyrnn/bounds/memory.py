"""What a contracting network forgets: how far back it remembers, and how far a run in windows of time is from the sequential.

Note [mathematics], sections 4.1, 6.1 to 6.3, and 6.5: what rounding adds.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from steadyrnn.checks import check_count, check_finite, check_number
from steadyrnn.errors import ArgumentError, CertificateError

from .norms import ROUND_OFF, TINY, above, power_above, product_above, state_radius

__all__ = [
    "boundary_errors",
    "check_rate",
    "first_step",
    "geometric_sums",
    "horizon",
    "required_warmup",
    "rounding_error",
    "state_radius",
    "summation_error",
    "swept_errors",
    "truncation_error",
    "warmup_error",
]

_NEGLIGIBLE = 2.0**-60  # from here on the rest of a geometric sum is bounded by one number


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


def check_rate(rate: float) -> float:
    """Return a rate of contraction if it is one: from 0 on and below 1.

    Example:
        >>> check_rate(0.9)
        0.9
    """
    if not check_number("rate", rate) < 1:
        raise CertificateError(f"no certificate found: lambda = {rate:.6g} >= 1, and only what contracts forgets its start.")
    return rate


def warmup_error(rate: float, radius: float, warmup: int, position: int = 1) -> float:
    r"""Return the a-priori error of a window that was started from zero, in the norm of the contraction.

    Note [mathematics], section 6.1.

    .. math:: N(\text{error}) \le \lambda^{k+i} R

    The window's state and the true one are :math:`N(h) \le R` apart at its start, and come closer by :math:`\lambda` each
    of the :math:`k + i` steps until position i behind the warm-up.

    Args:
        rate: :math:`\lambda`.
        radius: :math:`R = \sup_t N(h_t)`.
        warmup: k, the steps whose outputs are thrown away.
        position: i, from 1 for the first output that counts.

    Example:
        >>> round(warmup_error(0.9, 10.0, warmup=16), 4)
        1.6677

    References:
        Miller, Hardt. Stable Recurrent Models (Lemma 1). ICLR 2019. https://arxiv.org/abs/1805.10369
    """
    return truncation_error(rate, radius, check_count("warmup", warmup) + check_count("position", position))


@lru_cache(1024)  # asked again on every call of a layer
def required_warmup(rate: float, radius: float, tol: float, gain: float = 1.0) -> int:
    r"""Return the shortest warm-up for which every output that counts is within ``tol`` (Note [mathematics], section 6.1).

    .. math:: k = \left\lceil \frac{\ln(L_f R / \varepsilon)}{\ln(1 / \lambda)} \right\rceil - 1,

    the smallest with :math:`L_f \lambda^{k+1} R \le \varepsilon`, and 0 where that already holds.

    Args:
        rate: :math:`\lambda < 1`.
        radius: :math:`R`, finite.
        tol: :math:`\varepsilon > 0`.
        gain: :math:`L_f`, of a readout, or from the norm of the contraction to that of ``tol``.

    Example:
        >>> required_warmup(0.9, math.sqrt(128), 1e-6)
        154
    """
    return max(horizon(check_rate(rate), radius, tol, gain) - 1, 0)


def boundary_errors(rate: float, chunk: int, mismatch: Tensor) -> Tensor:
    r"""Return a bound on the error of every window's start state, from what the windows disagree by.

    Note [mathematics], section 6.2.

    .. math:: e_j = m_j + \lambda^C e_{j-1}, \quad e_0 = 0, \qquad m_j = N(E_{j-1} - b_j)

    Window j starts from :math:`b_j`; window j - 1 ends in :math:`E_{j-1}` at the same time, and its own error has
    shrunk by :math:`\lambda^C` until then. At position i of window j the error is at most :math:`\lambda^i e_j`.
    Nothing is assumed of inputs or states. The sum is computed by doubling, in :math:`\log_2 J` steps.

    Args:
        rate: :math:`\lambda`.
        chunk: C.
        mismatch: :math:`m_j`, shape ``(J, ...)``; that of window 0, which starts from the true state, is 0.

    Returns:
        :math:`e_j`, shape ``(J, ...)``, float64, rounded up.

    Example:
        >>> boundary_errors(0.5, 1, torch.tensor([0.0, 1.0, 1.0, 0.0])).round(decimals=6)
        tensor([0.0000, 1.0000, 1.5000, 0.7500], dtype=torch.float64)
    """
    factor = power_above(check_rate(rate), check_count("chunk", chunk, low=1))
    return geometric_sums(factor, check_finite("mismatch", mismatch).detach().double())


def geometric_sums(factor: float, terms: Tensor) -> Tensor:
    r"""Return :math:`s_j = m_j + f s_{j-1}` for all j, rounded up, by doubling.

    Args:
        factor: :math:`f < 1`.
        terms: :math:`m_j \ge 0`, float64, shape ``(J, ...)``.

    Example:
        >>> geometric_sums(0.5, torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64))
        tensor([1.0000, 1.5000, 0.7500], dtype=torch.float64)
    """
    sums, shift = terms, 1
    while shift < len(sums) and factor > _NEGLIGIBLE:
        before, sums = sums, sums.clone()
        sums[shift:].add_(before[:-shift], alpha=factor)
        shift, factor = 2 * shift, product_above(factor, factor)
    if shift < len(sums):  # what is left of the sum, all at once
        sums = torch.cat([sums[:shift], sums[shift:] + 2 * factor * sums.amax(dim=0)])
    return sums * (1 + 256 * ROUND_OFF)


def swept_errors(rate: float, chunk: int, mismatch: Tensor, before: Tensor) -> Tensor:
    r"""Return the errors of the start states after a sweep: the better of what is measured and of what follows.

    Note [mathematics], section 6.3.

    .. math:: e_j^{(s)} \le \min\bigl( m_j + \lambda^C e_{j-1}^{(s)}, \; \lambda^C e_{j-1}^{(s-1)} \bigr)

    A sweep starts window j from where window j - 1 ended, whose error is its start state's, shrunk by
    :math:`\lambda^C`. The second term goes on shrinking where the first has met the rounding of the states; it also makes
    window j exact after j sweeps.

    Args:
        rate: :math:`\lambda`.
        chunk: C.
        mismatch: :math:`m_j` after the sweep, shape ``(J, ...)``.
        before: :math:`e_j^{(s-1)}`, shape ``(J, ...)``.

    Example:
        >>> swept_errors(0.5, 1, torch.tensor([0.0, 3.0, 3.0]), torch.tensor([0.0, 4.0, 4.0])).round(decimals=6)
        tensor([0., 0., 2.], dtype=torch.float64)
    """
    follows = torch.zeros_like(before, dtype=torch.float64)
    follows[1:] = above(power_above(check_rate(rate), chunk)) * check_finite("before", before)[:-1].double()
    return boundary_errors(rate, chunk, mismatch).minimum(follows)


def summation_error(terms: int, round_off: float) -> float:
    r"""Return :math:`\gamma_m = m u / (1 - m u)`: the relative error of a sum of m products, in any order.

    Note [mathematics], section 6.5.

    Infinite where :math:`m u \ge 1`.

    Example:
        >>> round(summation_error(100, 2.0**-24) / 2.0**-24, 3)
        100.001

    References:
        Higham. Accuracy and Stability of Numerical Algorithms, section 3.1. SIAM 2002.
    """
    product = check_count("terms", terms) * check_number("round_off", round_off)
    return above(product / (1 - product)) if product < 1 else math.inf


def rounding_error(rate: float, local: float) -> float:
    r"""Return by how much two computed runs of the same recurrence can differ by rounding alone.

    Note [mathematics], section 6.5.

    .. math:: \frac{2 \delta}{1 - \lambda}

    Each step adds at most :math:`\delta` to either run's distance from the exact one, which shrinks by :math:`\lambda`.

    Args:
        rate: :math:`\lambda`.
        local: :math:`\delta`, the error of one computed step in the norm of the contraction.

    Example:
        >>> round(rounding_error(0.5, 1e-7), 10)
        4e-07
    """
    return product_above(2.0, check_number("local", local), 1 / (1 - check_rate(rate)))
