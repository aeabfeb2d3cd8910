"""The gradient between two times lies between two powers, and what follows for long times (Note [mathematics], section 3.4).

Note [mathematics], section 3.3.
"""

import math
import sys
from dataclasses import dataclass

import torch
from torch import Tensor

from steadyrnn.checks import check_count, check_finite, check_matrix, check_number
from steadyrnn.errors import ArgumentError, ShapeError

from .norms import ROUND_OFF, above, below, power_above, product_above, spectral_norm_bound

__all__ = ["Enclosure", "gradient_sandwich", "orthogonal_tolerance", "regime", "singular_enclosure"]

_TINY = 2.0**-960  # more than all underflows of a matrix with entries up to 1 together
_NORMAL = sys.float_info.min


@dataclass(frozen=True)
class Enclosure:
    r"""What is proven of the singular values of a matrix as it is stored.

    Args:
        smallest: At most :math:`\sigma_{\min}`; 0 where it cannot be told from zero.
        mean: At most the geometric mean of the singular values, which is :math:`|\det W|^{1/H}` for a square W.
        largest: At least :math:`\sigma_{\max}`.
        frobenius: At least :math:`\lVert W \rVert_F`.
        size: The number of singular values.
    """

    smallest: float
    mean: float
    largest: float
    frobenius: float
    size: int


@torch.no_grad()
def singular_enclosure(matrix: Tensor) -> Enclosure:
    r"""Enclose the singular values of a matrix, rounding included.

    Let U, s, V be its singular value decomposition as computed, :math:`E = W - U \operatorname{diag}(s) V^\top`,
    :math:`\delta_U = \lVert U^\top U - I \rVert_F`, and :math:`\delta_V` likewise; all three are measured, and the
    rounding of measuring them is added. Then

    .. math::
        \sigma_{\max} &\le \sqrt{(1 + \delta_U)(1 + \delta_V)} \, s_{\max} + \lVert E \rVert_F \\
        \sigma_{\min} &\ge \sqrt{(1 - \delta_U)(1 - \delta_V)} \, s_{\min} - \lVert E \rVert_F \\
        \Bigl(\prod_j \sigma_j\Bigr)^{1/H} &\ge \sqrt{(1 - \delta_U)(1 - \delta_V)}
            \, \Bigl(\prod_j s_j\Bigr)^{1/H} \Big/ (1 + \lVert E \rVert_F / \sigma_{\min})

    The first two are the norms of the factors and Weyl's inequality. The last: each :math:`s_j` is at most
    :math:`(\sigma_j + \lVert E \rVert_F) / \sqrt{(1 - \delta_U)(1 - \delta_V)}`. An orthogonal matrix is enclosed to about
    :math:`H^2` roundings, where the bound without an SVD is off by a factor of :math:`H^{1/256}`. Computed in float64 on the
    CPU; costs one SVD and a few products.

    Args:
        matrix: W, shape ``(M, N)``, of any floating dtype.

    Returns:
        The enclosure.

    Example:
        >>> found = singular_enclosure(torch.diag(torch.tensor([4.0, 1.0])))
        >>> round(found.smallest, 9), round(found.mean, 9), round(found.largest, 9)
        (1.0, 2.0, 4.0)
    """
    wide = check_finite("matrix", check_matrix("matrix", matrix)).detach().double().cpu()
    size = min(wide.shape)
    if size == 0:
        raise ShapeError(f"`matrix` must have entries, but has shape {tuple(matrix.shape)}.")
    exponent = math.frexp(float(wide.abs().max()))[1]
    scaled = wide * math.ldexp(1.0, -(exponent // 2)) * math.ldexp(1.0, exponent // 2 - exponent)
    crude = spectral_norm_bound(wide)
    if crude == 0:
        return Enclosure(0.0, 0.0, 0.0, 0.0, size)
    frobenius = _ldexp_up(_frobenius(scaled), exponent)
    try:
        u, s, v = torch.linalg.svd(scaled, full_matrices=False)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        return Enclosure(0.0, 0.0, crude, frobenius, size)
    stretch = above((1 + _defect(u)) * (1 + _defect(v.mT)))
    shrink = below((1 - _defect(u)) * (1 - _defect(v.mT))) if max(_defect(u), _defect(v.mT)) < 1 else 0.0
    error = _residual(scaled, u * s, v)
    largest = above(above(math.sqrt(stretch)) * float(s[0]) + error)
    smallest = below(below(math.sqrt(shrink)) * float(s[-1])) - error
    if not (smallest > 0 and math.isfinite(largest)):
        return Enclosure(0.0, 0.0, min(crude, _ldexp_up(largest, exponent)), frobenius, size)
    mean = below(_geometric_mean(s) * below(math.sqrt(shrink)) / above(1 + above(error / below(smallest))))
    return Enclosure(
        smallest=_ldexp_down(below(smallest), exponent),
        mean=_ldexp_down(mean, exponent),
        largest=min(crude, _ldexp_up(largest, exponent)),
        frobenius=frobenius,
        size=size,
    )


def gradient_sandwich(
    weight: Tensor | Enclosure, steepness: tuple[float, float], lag: int, norm: str = "spectral"
) -> tuple[float, float]:
    r"""Enclose the norm of the Jacobian between two states of a recurrent network (Note [mathematics], section 3.3).

    .. math::
        \lVert I \rVert \bigl( |\det W|^{1/H} \beta \bigr)^L \le
        \Bigl\lVert \frac{\partial h_t}{\partial h_{t-L}} \Bigr\rVert \le \lVert I \rVert (\sigma_{\max} \gamma)^L

    for :math:`\beta \le |\varphi'| \le \gamma`. The Jacobian is a product of L factors
    :math:`\operatorname{diag}(\varphi') W`, so the upper bound is that of norms. Its determinant is at least
    :math:`(|\det W| \beta^H)^L` in absolute value, and the mean of squared singular values is at least the square of their
    geometric mean, which gives the lower one. It holds for every square W. (With eigenvalues in place of singular values,
    as the paper prints it, the upper bound is false unless W is normal; the lower one is true and weaker than this.)

    Args:
        weight: W, shape ``(H, H)``; or its :func:`singular_enclosure`, to ask for many lags at the cost of one.
        steepness: :math:`(\beta, \gamma)`.
        lag: L, from 0 on.
        norm: ``"spectral"``, where :math:`\lVert I \rVert = 1`, or ``"frobenius"``, where it is :math:`\sqrt H`.

    Returns:
        The lower bound, rounded down (0 where W cannot be told from singular), and the upper bound, rounded up.

    Example:
        >>> low, high = gradient_sandwich(torch.eye(100), (1.0, 1.0), lag=30, norm="frobenius")
        >>> f"{low:.6f} {high:.6f}"
        '10.000000 10.000000'

    References:
        Lin, Wang. uRNN: An Approach to Bounded Gradients. Theorem 1.
    """
    beta, gamma = _check_steepness(steepness)
    lag = check_count("lag", lag)
    if norm not in ("spectral", "frobenius"):
        raise ArgumentError(f"`norm` must be 'spectral' or 'frobenius', but is {norm!r}.")
    values = weight if isinstance(weight, Enclosure) else singular_enclosure(check_matrix("weight", weight, square=True))
    identity = math.sqrt(values.size) if norm == "frobenius" else 1.0
    low = below(_power_below(min(below(values.mean * beta), sys.float_info.max), lag) * identity)
    high = product_above(power_above(product_above(values.largest, gamma), lag), identity)
    return min(low, sys.float_info.max), high


def regime(weight: Tensor, steepness: tuple[float, float], dtype: torch.dtype | None = None, weight_error: float = 0.0) -> str:
    r"""Say what becomes of the gradient over long times.

    Note [mathematics], section 3.4: Table 1 of Lin and Wang, with singular values.

    By :func:`gradient_sandwich` the gradient vanishes if :math:`\sigma_{\max} \gamma < 1`; it keeps its norm if
    :math:`\sigma_{\min} \beta = \sigma_{\max} \gamma = 1`; it can explode only if :math:`\sigma_{\max} \gamma > 1` (and
    must, if :math:`\sigma_{\min} \beta > 1`).

    No computed matrix is exactly orthogonal, so equal to 1 means within :func:`orthogonal_tolerance` of it, plus
    ``weight_error`` times :math:`\gamma`. What is proven of a ``"constant"`` gradient over L steps, with this tolerance
    :math:`\tau`, is

    .. math:: (1 - \tau)^L \le \Bigl\lVert \frac{\partial h_t}{\partial h_{t-L}} \Bigr\rVert \le (1 + \tau)^L .

    Args:
        weight: W, shape ``(H, H)``.
        steepness: :math:`(\beta, \gamma)`, the range of :math:`|\varphi'|`.
        dtype: The dtype that W was computed or stored in; None is the weight's own.
        weight_error: Bound on the distance, in spectral norm, of the matrix that is multiplied by from W.

    Returns:
        ``"vanishes"``, ``"constant"``, ``"may explode"``, or ``"unknown"``: it does not explode, and may or may not vanish.

    Example:
        >>> [regime(c * torch.eye(3), (1.0, 1.0)) for c in (0.5, 1.0, 2.0)], regime(torch.eye(3), (0.0, 1.0))
        (['vanishes', 'constant', 'may explode'], 'unknown')

    References:
        Lin, Wang. uRNN: An Approach to Bounded Gradients. Table 1.
    """
    beta, gamma = _check_steepness(steepness)
    values = singular_enclosure(check_matrix("weight", weight, square=True))
    slack = orthogonal_tolerance(values.size, weight.dtype if dtype is None else dtype)
    slack += gamma * check_number("weight_error", weight_error)
    low = below(below(values.smallest - weight_error) * beta)
    high = product_above(above(values.largest + weight_error), gamma)
    if low >= 1 - slack and high <= 1 + slack:
        return "constant"
    if high < 1:
        return "vanishes"
    return "may explode" if high > 1 + slack else "unknown"


def orthogonal_tolerance(size: int, dtype: torch.dtype) -> float:
    r"""Return how far from 1 rounding may leave the singular values of an orthogonal matrix of this size and dtype.

    Three terms. *Computing* it: LAPACK's own tests take a computed Q for orthogonal if
    :math:`\lVert I - Q^\top Q \rVert \le 30 H u`, which leaves the singular values within :math:`15 H u` of 1, to first
    order; constraints compute in float32 at least. *Storing* it in a narrower dtype: each row and column, of norm 1, moves
    by at most its unit round-off u, and a matrix of independent errors has about the norm of a row plus that of a
    column, :math:`2u`. *Proving* it: :math:`8 (H + 3)^2` spacings of float64, for :func:`singular_enclosure`.

    Example:
        >>> f"{orthogonal_tolerance(128, torch.float32):.1e}", f"{orthogonal_tolerance(128, torch.float64):.1e}"
        ('1.1e-04', '3.1e-11')

    References:
        Anderson and others. LAPACK Users' Guide, and its test programs' threshold of 30. SIAM 1999.
    """
    info = torch.finfo(dtype)
    computed = min(info.eps, torch.finfo(torch.float32).eps) / 2
    stored = info.eps / 2 if info.eps > torch.finfo(torch.float32).eps else 0.0
    return 15 * size * computed * (1 + 30 * size * computed) + 2 * stored + 16 * (size + 3) ** 2 * ROUND_OFF


def _check_steepness(steepness: tuple[float, float]) -> tuple[float, float]:
    if not isinstance(steepness, tuple) or len(steepness) != 2:
        raise ArgumentError("`steepness` must be a pair: the smallest and the largest absolute value of the slope.")
    beta, gamma = (check_number("steepness", number, finite=True) for number in steepness)
    if beta > gamma:
        raise ArgumentError(f"`steepness` must be a pair in order, but is ({beta}, {gamma}).")
    return beta, gamma


def _frobenius(matrix: Tensor) -> float:
    """Return a bound on the Frobenius norm of a matrix with entries of moderate size."""
    return above(float(matrix.norm()) * (1 + matrix.numel() * ROUND_OFF) + _TINY)


def _defect(columns: Tensor) -> float:
    """Return a bound on the distance of Q'Q from the identity; sums over M terms round by M + 2 units at most."""
    gram = columns.mT @ columns - torch.eye(columns.shape[1], dtype=columns.dtype, device="cpu")
    return above(_frobenius(gram) + (len(columns) + 2) * ROUND_OFF * _frobenius(columns) ** 2)


def _residual(matrix: Tensor, left: Tensor, right: Tensor) -> float:
    """Return a bound on the distance of ``matrix`` from U diag(s) V', given the factors as computed."""
    terms = left.shape[1] + 4  # the product, the scaling of U, and the difference
    rounded = terms * ROUND_OFF * _frobenius(left) * _frobenius(right)
    return above(_frobenius(matrix - left @ right) + rounded)


def _geometric_mean(values: Tensor) -> float:
    """Return a number not above the geometric mean; a logarithm's rounding is relative to it, and exp makes it so to 1."""
    logs = [math.log(value) for value in values.tolist()]
    return below(math.exp(math.fsum(logs) / len(logs)), 64 + 4 * math.ceil(max(map(abs, logs))))


def _power_below(base: float, exponent: int) -> float:
    """Return a number that is not above the power; 0 where it underflows."""
    if exponent == 0:
        return 1.0
    try:
        value = base ** min(exponent, 2**1000)
    except OverflowError:
        return sys.float_info.max
    return below(value, 16 if exponent <= 2**53 else 1024) if value > _NORMAL else 0.0


def _ldexp_up(value: float, exponent: int) -> float:
    try:
        return max(math.ldexp(value, exponent), _NORMAL)
    except OverflowError:
        return math.inf


def _ldexp_down(value: float, exponent: int) -> float:
    try:
        scaled = math.ldexp(value, exponent)
    except OverflowError:
        return sys.float_info.max
    return scaled if scaled > _NORMAL else 0.0
