"""What an equivalent unitary network needs and how far an approximate one is off.

Note [mathematics], sections 1.2, 1.5, 1.6.
"""

import math
from fractions import Fraction

import torch
from torch import Tensor

from steadyrnn.checks import check_finite, check_interval, check_matrix, check_positive_int
from steadyrnn.errors import CertificateError, ShapeError

from .norms import ROUND_OFF, above, below

__all__ = ["dilation_radius", "exact_rank", "sigmoid_dilation_error", "tanh_dilation_error", "unitary_size_bound"]


def dilation_radius(rate: float, drive: float, initial: float = 0.0, horizon: int | None = None) -> float:
    r"""Return a radius that no state leaves, from which the bias of the extra units follows.

    .. math::
        R = \max\Bigl(\lVert h_{-1} \rVert, \frac{s}{1 - \lambda}\Bigr) \quad (\lambda < 1), \qquad
        R = \max(1, \lambda)^T (\lVert h_{-1} \rVert + T s) \quad \text{for } T \text{ steps}

    For :math:`0 \le |\varphi(a)| \le \max(a, 0)` every step has
    :math:`\lVert h_t \rVert \le \lambda \lVert h_{t-1} \rVert + s` with :math:`\lambda = \lVert W \rVert` and
    :math:`s = \lVert F \rVert M + \lVert \max(b, 0) \rVert`; the ball of radius R is mapped into itself in the first case,
    and the second is the sum of T steps (Note [mathematics], section 1.2). The initial state belongs in it: it may be larger
    than all later ones.

    Args:
        rate: :math:`\lambda`.
        drive: s.
        initial: Bound on the norm of the initial state.
        horizon: T, used where the rate is not below 1.

    Returns:
        R, rounded up; infinite where the rate is not below 1 and no horizon is given.

    Example:
        >>> round(dilation_radius(0.9, 1.0), 9), round(dilation_radius(1.0, 1.0, horizon=100), 9)
        (10.0, 100.0)

    References:
        Emami, Sahraee-Ardakan, Fletcher, Rangan. Input-Output Equivalence of Unitary and Contractive RNNs.
        NeurIPS 2019. https://arxiv.org/abs/1910.13672
    """
    for name, value in (("rate", rate), ("drive", drive), ("initial", initial)):
        check_interval(name, value, 0.0, math.inf)
    if rate < 1:
        return max(float(initial), above(drive / below(1 - rate)))
    if horizon is None:
        return math.inf
    steps = check_positive_int("horizon", horizon)
    return _grown(rate, steps, above(initial + steps * drive))


def _grown(rate: float, steps: int, value: float) -> float:
    """Return ``max(1, rate) ** steps * value``, rounded up."""
    if rate <= 1 or value == 0:
        return value
    exponent = above(steps * math.log(rate))
    return above(math.exp(exponent) * value, 64) if exponent < 700 else math.inf


def sigmoid_dilation_error(norm: float, coupling: float, rank: int, silence: float, disturbance: float = 0.0) -> float:
    r"""Return how far the states of an almost silent sigmoid dilation are off.

    .. math:: e \le \frac{\lVert W_2 \rVert \sqrt{r}\, e^{-L} + \delta}{4 (1 - \lVert W \rVert / 4)}

    The bias :math:`b_2 = -L - \lVert \text{row} \rVert_1` keeps the pre-activation of each of the r extra units below
    :math:`-L`, since no state exceeds 1, and so its state below :math:`e^{-L}`. What enters the first n units is at
    most :math:`\lVert W_2 \rVert \sqrt r e^{-L}` a step, and a step contracts by :math:`\lVert W \rVert / 4`.

    Args:
        norm: :math:`\lVert W \rVert`, below 4.
        coupling: :math:`\lVert W_2 \rVert`, of the block from the extra units to the first.
        rank: r.
        silence: L.
        disturbance: :math:`\delta`, what else enters the pre-activation per step: :math:`\lVert F \rVert` times the error
            of the input, in a stack.

    Example:
        >>> 0.03 < sigmoid_dilation_error(0.9, 1.0, 1, silence=2.0) < 0.05
        True

    References:
        Note [mathematics], section 1.6, the converse of Theorem 3.
    """
    if not check_interval("norm", norm, 0.0, math.inf) < 4:
        raise CertificateError(f"A sigmoid network contracts for a spectral norm below 4 only, but `norm` is {norm:.6g}.")
    enters = above(coupling * math.sqrt(rank) * math.exp(-silence) + disturbance)
    return above(enters / below(4 * below(1 - norm / 4)))


def tanh_dilation_error(
    norm: float, coupling: float, rank: int, silence: float, disturbance: float = 0.0, horizon: int | None = None
) -> float:
    r"""Return how far the states of an almost constant tanh dilation are off.

    .. math:: e \le \frac{2 \lVert W_2 \rVert \sqrt{r}\, e^{-2L} + \delta}{1 - \lVert W \rVert}

    The extra units start at -1 and stay within :math:`2 e^{-2L}` of it, by the same bias as the sigmoid's; the constant
    :math:`W_2 (-1, \ldots, -1)` that they send is taken back in the bias of the first n units. For T steps the factor
    :math:`1 / (1 - \lVert W \rVert)` may be replaced by :math:`T \max(1, \lVert W \rVert)^T`.

    Args:
        norm: :math:`\lVert W \rVert`.
        coupling: :math:`\lVert W_2 \rVert`.
        rank: r.
        silence: L.
        disturbance: :math:`\delta`, what else enters the pre-activation per step.
        horizon: T, used where the norm is not below 1.

    Returns:
        The bound; infinite where the norm is not below 1 and no horizon is given (0 where nothing enters).

    Example:
        >>> 0.5 < tanh_dilation_error(0.5, 1.0, 1, silence=1.0) < 0.6
        True

    References:
        Note [mathematics], section 1.6, the converse of Theorem 3.
    """
    enters = above(2 * coupling * math.sqrt(rank) * math.exp(-2 * silence) + disturbance)
    if enters == 0:
        return 0.0
    return dilation_radius(norm, enters, 0.0, horizon)


def unitary_size_bound(weight: Tensor, input_weight: Tensor) -> int:
    r"""Return a number of states below which no unitary ReLU network equals this ReLU network.

    .. math:: n_u \ge n + \dim \ker W \qquad (\operatorname{rank} F = n, \text{ the states themselves are the outputs})

    On an open set of inputs that keep all n units active on two consecutive steps, the other network has fixed masks
    :math:`D_0, D_1`. Let :math:`F F^+ = I` and write F for :math:`F_u F^+`. Equal derivatives are
    :math:`C D_0 F = C D_1 F = I` and :math:`C D_1 W_u D_0 F = W`, so :math:`P = W_u D_0 F - D_1 F W` has
    :math:`C D_1 P = 0`. The range of :math:`D_1 F` has dimension n, and :math:`C D_1` is injective on it: it meets the range
    of P in 0, and :math:`n_u \ge n + \operatorname{rank} P`. On the kernel of W, :math:`P = W_u D_0 F` is injective
    (Note [mathematics], section 1.5).

    Both ranks are those of the numbers as stored, without tolerance (:func:`exact_rank`), so the bound is proven.

    Args:
        weight: :math:`W`, shape ``(H, H)``.
        input_weight: F, shape ``(H, D)``.

    Raises:
        CertificateError: F has rank below n, which the theorem does not cover.

    Example:
        >>> unitary_size_bound(torch.zeros(3, 3), torch.eye(3))
        6

    References:
        Theorem 2 of Emami, Sahraee-Ardakan, Fletcher, Rangan. Input-Output Equivalence of Unitary and Contractive RNNs.
        NeurIPS 2019. https://arxiv.org/abs/1910.13672
    """
    size = len(check_matrix("weight", weight, square=True))
    if len(check_matrix("input_weight", input_weight)) != size:
        raise ShapeError(f"`input_weight` must have {size} rows, as `weight` has, but has shape {tuple(input_weight.shape)}.")
    found = exact_rank(input_weight)
    if found < size:
        raise CertificateError(
            f"Theorem 2 (Emami et al.) is about inputs that reach every unit by itself: `input_weight` must have rank {size}, "
            f"but has {found}."
        )
    return size + size - exact_rank(weight)


@torch.no_grad()
def exact_rank(matrix: Tensor) -> int:
    """Return the rank of a matrix as it is stored: no singular value counts as zero because it is small.

    Zero rows and columns are left out; if the smallest singular value of the rest is above the error of its
    computation, the rank is full. Else fraction-free elimination decides, in integers of growing length: a matter of
    seconds for a hundred rows.

    Args:
        matrix: Shape ``(M, N)``, of any floating dtype.

    Example:
        >>> exact_rank(torch.full((3, 3), 0.1)), exact_rank(torch.diag(torch.tensor([1.0, 1e-30])))
        (1, 2)
    """
    wide = check_finite("matrix", check_matrix("matrix", matrix)).double().cpu()
    links = wide != 0
    wide = wide[links.any(1)][:, links.any(0)]
    if wide.numel() == 0:
        return 0
    values = torch.linalg.svdvals(wide / wide.abs().max())
    if float(values[-1]) > 32 * max(wide.shape) * ROUND_OFF * float(values[0]):
        return min(wide.shape)
    return _rank_by_elimination([_integers(row) for row in wide.tolist()])


def _integers(row: list[float]) -> list[int]:
    """Return a row times the power of two that makes its entries integers."""
    fractions = [Fraction(entry) for entry in row]
    scale = math.lcm(*(fraction.denominator for fraction in fractions))
    return [int(fraction * scale) for fraction in fractions]


def _rank_by_elimination(rows: list[list[int]]) -> int:
    """Return the rank by Bareiss's elimination: each division is exact."""
    rank, before = 0, 1
    for column in range(len(rows[0])):
        pivot = next((i for i in range(rank, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        top, lead = rows[rank], rows[rank][column]
        for i in range(rank + 1, len(rows)):
            factor = rows[i][column]
            rows[i] = [(lead * entry - factor * other) // before for entry, other in zip(rows[i], top, strict=True)]
        rank, before = rank + 1, lead
    return rank
