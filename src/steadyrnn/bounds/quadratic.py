"""Contraction in a quadratic norm, for activations of slopes from 0 up: MATH 5.3."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from steadyrnn.checks import check_finite, check_positive_int
from steadyrnn.errors import ArgumentError, ShapeError
from steadyrnn.linalg.norms import spectral_norm_bound

from .norms import ROUND_OFF, Contraction, Ellipsoid, above
from .scaling import (
    SQUARINGS,
    UNDERFLOW,
    Powers,
    best_scaling,
    check_recurrent,
    check_scaling,
    check_slope,
    from_raw,
    log_limit,
    normalised,
    raw_slopes,
    scaled,
    scaled_rate,
    times_slope,
    to_raw,
    unscaled,
)

__all__ = ["quadratic_contraction", "quadratic_rate"]

STAGES = (2, 4, 6, 8, 10)
WIDEST = 12.0
"""Largest absolute eigenvalue of M: S stays 1e-5 away from 0 and from 2I, far enough to be told from them."""


@torch.no_grad()
def quadratic_rate(weight: Tensor, root: Tensor, scaling: Tensor) -> float:
    r"""Return a proven rate of :math:`h^+ = \varphi(Wh + v)` in the norm :math:`\lVert R \operatorname{diag}(d) h \rVert`.

    For slopes in :math:`[0, 1]`, and with :math:`D = \operatorname{diag}(d)` and :math:`S = R^\top R \prec 2I`,

    .. math:: \lambda = \bigl\lVert (2I - S)^{-1/2} \, D W D^{-1} R^{-1} \bigr\rVert .

    Why it holds: the change of the state is :math:`\Delta^+ = \Theta W \Delta` with a diagonal
    :math:`0 \le \Theta \le I`, so :math:`(\Delta^+)^\top D^2 (W \Delta - \Delta^+) \ge 0`. The matrix inequality

    .. math::
        \begin{pmatrix} \lambda^2 P & -W^\top D^2 \\ -D^2 W & 2 D^2 - P \end{pmatrix} \succeq 0, \qquad P = D S D,

    says that :math:`\lambda^2 \Delta^\top P \Delta - (\Delta^+)^\top P \Delta^+` is at least twice that number. By a Schur
    complement it is the formula. With :math:`S = I` it is :func:`~steadyrnn.bounds.scaling.scaled_rate`.

    Rounding: for approximate inverses Y of R and Z of a root of :math:`2I - S`, let
    :math:`\lVert I - RY \rVert \le \varepsilon_1 < 1` and :math:`\lVert I - Z(2I - S)Z^\top \rVert \le \varepsilon_2 < 1`, the
    errors of computing both included. Then R is nonsingular, :math:`S \prec 2I`, and
    :math:`\lambda \le \lVert Z D W D^{-1} Y \rVert / ((1 - \varepsilon_1) \sqrt{1 - \varepsilon_2})`. The rate returned also
    holds in the norm of the matrix :math:`RD` as rounded to float64.

    Args:
        weight: :math:`W`, shape ``(H, H)``; times :math:`\gamma` for slopes in :math:`[0, \gamma]`.
        root: :math:`R`, shape ``(H, H)``: the symmetric root of :math:`S`, or any other.
        scaling: :math:`d > 0`, shape ``(H,)``.

    Raises:
        ArgumentError: S is not strictly between 0 and 2I, or too close to either to be told from it.

    Example:
        >>> weight = torch.tensor([[-0.51, 0.75], [-0.37, 0.44]])
        >>> metric = torch.tensor([[1.0, -0.901], [-0.901, 1.0]], dtype=torch.float64)
        >>> values, vectors = torch.linalg.eigh(metric)
        >>> root = vectors @ values.sqrt().diag() @ vectors.T
        >>> round(quadratic_rate(weight, root, torch.tensor([1.0, 1.424])), 3)
        0.533

    References:
        Boyd, El Ghaoui, Feron, Balakrishnan. Linear Matrix Inequalities in System and Control Theory. SIAM 1994
        (the S-procedure).
    """
    wide, exponent = normalised(check_recurrent(weight))
    if root.shape != wide.shape:
        raise ShapeError(f"`root` must have shape {tuple(wide.shape)}, as `weight` has, but has {tuple(root.shape)}.")
    root = check_finite("root", root).detach().double().to(wide.device)
    d = check_scaling(scaling, len(wide)).to(wide.device)
    inverse, first = _inverse(root)
    whitening, second = _whitening(root)
    if exponent is None:
        return 0.0
    middle = scaled(wide, d)
    product = whitening @ middle @ inverse
    sizes = _frobenius(whitening) * _frobenius(middle) * _frobenius(inverse)
    error = above(4 * (len(wide) + 4) * ROUND_OFF * sizes)
    error += UNDERFLOW * (1 + _frobenius(whitening) * _frobenius(inverse))
    bound = above(spectral_norm_bound(product, SQUARINGS) + error)
    stored = 4 * ROUND_OFF * _frobenius(root) * _frobenius(inverse) / (1 - first)  # of rounding RD
    return unscaled(above(bound / ((1 - first) * math.sqrt(1 - second)) * (1 + stored)), exponent)


@torch.no_grad()
def quadratic_contraction(
    weight: Tensor, slope: float, start_scaling: Tensor | None = None, steps: int = 100, max_condition: float = 1e6
) -> Contraction:
    r"""Return the best contraction found of :math:`h^+ = \varphi(Wh + v)` in a quadratic norm.

    The norm is that of :func:`quadratic_rate`. With :math:`S = 2(I + e^{-M})^{-1}` and :math:`D = e^l`, any symmetric M
    and any l give a valid one, and its rate is

    .. math:: \lambda = \tfrac12 \bigl\lVert (I + e^M)^{1/2} \, D W D^{-1} (I + e^{-M})^{1/2} \bigr\rVert .

    Schatten norms of rising order in place of the spectral one are minimised by quasi-Newton steps from the best
    diagonal norm, M = 0; no semidefinite solver is needed. Of all norms met the one of the smallest verified rate is
    returned, the diagonal one (MATH 5.2) included. Costs one symmetric eigendecomposition and some 20 matrix products a
    step.

    Worth it where :func:`~steadyrnn.bounds.scaling.diagonal_contraction` is not enough. Only for activations whose
    slopes are not negative (not the absolute value). The norm is no symmetry of the network: it cannot be scaled away.

    Args:
        weight: :math:`W`, shape ``(H, H)``.
        slope: :math:`\gamma`; all slopes lie in :math:`[0, \gamma]`.
        start_scaling: :math:`d > 0` to start from, shape ``(H,)``; None finds the best one.
        steps: Quasi-Newton steps for each of five Schatten norms.
        max_condition: Largest :math:`d_i / d_j`; that of the root of S is at most 600 besides.

    Example:
        >>> found = quadratic_contraction(torch.tensor([[-0.51, 0.75], [-0.37, 0.44]]), slope=1.0)
        >>> round(found.rate, 3), found.norm.name
        (0.533, 'quadratic norm')
    """
    check_slope(slope)
    check_positive_int("steps", steps)
    d = best_scaling(weight, max_condition) if start_scaling is None else start_scaling
    rate = scaled_rate(weight, d)
    best = Contraction(times_slope(rate, slope), Ellipsoid(d), "MATH 5.2")
    wide, exponent = normalised(check_recurrent(weight))
    limit = log_limit(max_condition)
    if exponent is None:
        return best
    point = _Point(torch.zeros_like(wide), to_raw(check_scaling(d, len(wide)).to(wide.device), limit), limit)
    for order in STAGES:
        found = _descend(wide, point, order, steps)
        root, d = found.root(), from_raw(found.logs, limit)
        verified = _rate_or_infinity(weight, root, d)
        if verified < rate:
            rate, point = verified, found
            best = Contraction(times_slope(rate, slope), Ellipsoid(root * d), "MATH 5.3")
    return best


class _Point(NamedTuple):
    """A free symmetric matrix whose eigenvalues, kept in bounds, are those of M; free numbers for d; and their limit."""

    metric: Tensor
    logs: Tensor
    limit: float

    def spectrum(self) -> tuple[Tensor, Tensor]:
        """Return the eigenvalues of the free matrix over their limit, and its eigenvectors."""
        values, vectors = torch.linalg.eigh((self.metric + self.metric.mT) / (2 * WIDEST))
        return values, vectors

    def root(self) -> Tensor:
        """Return the symmetric root of ``S = 2 (I + exp(-M))^-1``."""
        values, vectors = self.spectrum()
        root: Tensor = (vectors * (2 * (WIDEST * values.tanh()).sigmoid()).sqrt()) @ vectors.mT
        return (root + root.mT) / 2


def _inverse(root: Tensor) -> tuple[Tensor, float]:
    """Return an approximate inverse and a bound on the norm of ``I - R Y``."""
    if float(root.abs().max()) < 2.0**-200:  # squares of its entries might underflow
        raise _outside()
    inverse, failed = torch.linalg.inv_ex(root)
    if int(failed) or not bool(inverse.isfinite().all()):
        raise _outside()
    identity = torch.eye(len(root), dtype=root.dtype, device=root.device)
    error = (len(root) + 4) * ROUND_OFF * (_frobenius(root) * _frobenius(inverse) + len(root))
    return inverse, _below_one(_frobenius(identity - root @ inverse) + error)


def _whitening(root: Tensor) -> tuple[Tensor, float]:
    """Return Z with ``Z (2I - S) Z^T`` about the identity, and a bound on the norm of the difference."""
    size = len(root)
    identity = torch.eye(size, dtype=root.dtype, device=root.device)
    rest = 2 * identity - root.mT @ root
    values, vectors = torch.linalg.eigh((rest + rest.mT) / 2)
    if not float(values.min()) > 0:
        raise _outside()
    whitening = vectors.mT / values.sqrt().unsqueeze(1)
    left = _frobenius(whitening) ** 2
    error = 4 * (size + 4) * ROUND_OFF * (left * (_frobenius(root) ** 2 + 2 * size + _frobenius(rest)) + size)
    return whitening, _below_one(_frobenius(identity - whitening @ rest @ whitening.mT) + error)


def _below_one(error: float) -> float:
    """Return an error, rounded up, that leaves something to divide by."""
    if not error < 0.5:
        raise _outside()
    return above(error)


def _outside() -> ArgumentError:
    return ArgumentError(
        "`root` must have S = root^T root strictly between 0 and 2I, further from both than rounding; "
        "the identity is a valid one."
    )


def _frobenius(matrix: Tensor) -> float:
    """Return a bound on the Frobenius norm."""
    return above(float(matrix.norm()) * (1 + matrix.numel() * ROUND_OFF))


def _rate_or_infinity(weight: Tensor, root: Tensor, d: Tensor) -> float:
    """Return the verified rate, infinite where the rounding of a large matrix does not let it be verified."""
    try:
        return quadratic_rate(weight, root, d)
    except ArgumentError:
        return math.inf


def _descend(wide: Tensor, start: _Point, squarings: int, steps: int) -> _Point:
    """Return the point after quasi-Newton steps on the Schatten norm of order ``2 (2^squarings + 1)``."""
    point = start._replace(metric=start.metric.clone(), logs=start.logs.clone())
    free = [point.metric, point.logs]
    optimizer = torch.optim.LBFGS(free, max_iter=steps, history_size=20, line_search_fn="strong_wolfe")

    @torch.no_grad()
    def closure() -> Tensor:
        value, point.metric.grad, point.logs.grad = _objective(wide, point, squarings)
        return value

    optimizer.step(closure)
    return point


def _objective(wide: Tensor, point: _Point, squarings: int) -> tuple[Tensor, Tensor, Tensor]:
    r"""Return the logarithm of the Schatten norm, and its gradients with respect to the two free tensors.

    In the eigenbasis of M both roots are diagonal, and the derivative of a function of a symmetric matrix multiplies
    its entries by divided differences, so nothing is divided by a gap between eigenvalues.
    """
    values, basis = point.spectrum()
    slopes = 1 - values.tanh().square()
    grown, shrunk = (WIDEST * values.tanh()).exp(), (-WIDEST * values.tanh()).exp()
    left, right = ((1 + grown) / 2).sqrt(), ((1 + shrunk) / 2).sqrt()
    middle = basis.mT @ scaled(wide, from_raw(point.logs, point.limit)) @ basis
    powers = Powers.of(left.unsqueeze(1) * middle * right, squarings)
    rows, columns = powers.rows() / powers.trace, powers.columns() / powers.trace
    up = _divided_differences(WIDEST * values, grown, slopes * grown)
    down = _divided_differences(WIDEST * values, shrunk, -slopes * shrunk)
    inner = (up * rows / (left.unsqueeze(1) * left) + down * columns / (right.unsqueeze(1) * right)) / 4
    logs = _diagonal(basis, rows * left / left.unsqueeze(1)) - _diagonal(basis, columns * right.unsqueeze(1) / right)
    return powers.log_norm(), basis @ inner @ basis.mT, logs * raw_slopes(point.logs, point.limit)


def _divided_differences(x: Tensor, y: Tensor, slopes: Tensor) -> Tensor:
    """Return ``(y_i - y_j) / (x_i - x_j)``, the mean slope where two points are close."""
    gaps = x.unsqueeze(1) - x
    close = gaps.abs() < 1e-5
    mean = (slopes.unsqueeze(1) + slopes) / 2
    return torch.where(close, mean, (y.unsqueeze(1) - y) / torch.where(close, 1.0, gaps))


def _diagonal(basis: Tensor, matrix: Tensor) -> Tensor:
    """Return the diagonal of ``Q A Q^T``."""
    return ((basis @ matrix) * basis).sum(1)
