"""The error of a long run whose parts were computed apart (Note [mathematics], section 6.7)."""

from collections.abc import Sequence
from typing import NamedTuple

from .memory import check_rate
from .norms import above, power_above, product_above

__all__ = ["Part", "carried_errors", "part_errors", "part_tolerance"]


class Part(NamedTuple):
    """One part of a run; all errors are in the norm of the contraction.

    Args:
        steps: T, its steps.
        repeated: k, how many of them ran again from where the part before ended.
        jump: m, how far the two runs are apart behind step k; 0 where k is T.
        change: d, how far the end of the part before has moved since this part started from it.
        own: Bound on the error of the part's first run against the exact one from the same start; its jump included.
    """

    steps: int
    repeated: int
    jump: float
    change: float
    own: float


def part_errors(rate: float, parts: Sequence[Part]) -> list[float]:
    r"""Return a bound on the error of every state of each part (Note [mathematics], section 6.7).

    .. math::
        a_r = d_r + \eta_{r-1}, \quad a_0 = 0, \qquad
        \eta_r = \lambda^{T_r - k_r} (m_r + \lambda^{k_r} a_r) + o_r

    :math:`a_r` bounds the error of the state that part r starts from, :math:`\eta_r` that of the state it ends in. At
    position i up to :math:`k_r` the error is at most :math:`\lambda^i a_r`, behind it at most
    :math:`\lambda^{i - k_r} (m_r + \lambda^{k_r} a_r) + o_r`. Where :math:`k_r = T_r` nothing is left of the first run, and
    :math:`\eta_r = \lambda^{T_r} a_r`.

    Args:
        rate: :math:`\lambda`.
        parts: In order of time. The first starts from the true state: k, m and d are 0.

    Returns:
        One bound per part, rounded up.

    Example:
        >>> [round(error, 6) for error in part_errors(0.5, [Part(3, 0, 0.0, 0.0, 1.0), Part(3, 1, 2.0, 0.0, 0.0)])]
        [1.0, 1.25]
    """
    check_rate(rate)
    found, behind = [], 0.0
    for part in parts:
        start = above(part.change + behind)
        first = product_above(rate, start) if part.repeated else 0.0
        if part.repeated < part.steps:
            there = above(part.jump + product_above(power_above(rate, part.repeated), start))
            later = above(product_above(rate, there) + part.own)
            behind = above(product_above(power_above(rate, part.steps - part.repeated), there) + part.own)
        else:
            later, behind = 0.0, product_above(power_above(rate, part.steps), start)
        found.append(max(first, later))
    return found


def carried_errors(rate: float, steps: Sequence[int]) -> float:
    r"""Return how many errors of one part add up at the start of a later one, at most.

    .. math:: s_{r+1} = 1 + \lambda^{T_r} s_r, \quad s_0 = 0

    Parts that are longer than the memory give 1, parts of no steps as many as there are.

    Args:
        rate: :math:`\lambda`.
        steps: :math:`T_r` of every part.

    Example:
        >>> [round(carried_errors(0.5, steps), 6) for steps in ([0, 0, 0], [9, 1, 9])]
        [2.0, 1.5]
    """
    check_rate(rate)
    total = worst = 0.0
    for number in steps[:-1]:
        total = above(1.0 + product_above(power_above(rate, number), total)) if total else 1.0
        worst = max(worst, total)
    return worst


def part_tolerance(tol: float, rate: float, steps: Sequence[int]) -> float:
    r"""Return how large o and m of every part may be, so that no error is above ``tol`` once no end state moves any more.

    With d = 0, o and m at most p, and what arose of o before step k added to m, :func:`part_errors` gives at most
    :math:`p (3 + 3 s)`, s being :func:`carried_errors`.

    Args:
        tol: In any norm.
        rate: :math:`\lambda`.
        steps: :math:`T_r` of every part.

    Example:
        >>> round(part_tolerance(6.0, 0.5, [9, 9]), 5)
        1.0
    """
    return tol / (3 * (1 + carried_errors(rate, steps))) * (1 - 2.0**-20)
