"""Contraction in a quadratic norm, for activations of slopes from 0 up: MATH 5.3."""

import math

import torch
from torch import Tensor

from steadyrnn.checks import check_finite, check_positive_int
from steadyrnn.errors import ArgumentError, ShapeError
from steadyrnn.linalg.doubling import doubled_solutions
from steadyrnn.linalg.norms import spectral_norm_bound

from .norms import ROUND_OFF, Contraction, Ellipsoid, above
from .numerical_radius import COMPLETE, STAGES, descend_radius, estimated_radius
from .scaling import (
    SQUARINGS,
    UNDERFLOW,
    best_scaling,
    check_recurrent,
    check_scaling,
    check_slope,
    from_raw,
    log_limit,
    normalised,
    scaled,
    scaled_rate,
    times_slope,
    to_raw,
    unscaled,
)

__all__ = ["quadratic_contraction", "quadratic_rate"]

MARGINS = (1e-5, 3e-4, 1e-2)
"""By how much the rate asked for is above the estimated numerical radius: the next where the one before finds no norm."""


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
    weight: Tensor,
    slope: float,
    start_scaling: Tensor | None = None,
    steps: int = 20,
    max_condition: float = 1e6,
    stages: int = len(STAGES),
) -> Contraction:
    r"""Return the best contraction found of :math:`h^+ = \varphi(Wh + v)` in a quadratic norm.

    The norm is that of :func:`quadratic_rate`. For given d its best rate over all S is a number without S in it:

    .. math:: \min_S \lambda(D, S) = \max_{\lVert x \rVert = 1} \bigl| x^* D W D^{-1} x \bigr| ,

    the numerical radius w of :math:`A = D W D^{-1}`. Why: the matrix inequality of :func:`quadratic_rate` is, with
    :math:`Z = S - I`,

    .. math:: \begin{pmatrix} I + Z & -A^\top / \lambda \\ -A / \lambda & I - Z \end{pmatrix} \succeq 0 ,

    which by Ando's theorem has a solution Z exactly if :math:`w(A) \le \lambda`. So d alone is searched, by quasi-Newton
    steps from the best diagonal norm; :math:`\log w` is convex in :math:`\log d`. Then, for a :math:`\lambda` a little
    above w, the smallest and the largest S are :math:`2(I - X)` and :math:`2Y` for the solutions X, Y of
    :func:`~steadyrnn.linalg.doubling.doubled_solutions` with :math:`C = A / 2\lambda`. Their mean is taken, which is far
    from singular. The search is not exact and need not be: only the rate of the norm found, verified in float64, is returned,
    or that of the diagonal norm (MATH 5.2) if it is smaller.

    Worth it where :func:`~steadyrnn.bounds.scaling.diagonal_contraction` is not enough. Only for activations whose
    slopes are not negative (not the absolute value). The norm is no symmetry of the network: it cannot be scaled away.

    Args:
        weight: :math:`W`, shape ``(H, H)``.
        slope: :math:`\gamma`; all slopes lie in :math:`[0, \gamma]`.
        start_scaling: :math:`d > 0` to start from, shape ``(H,)``; None finds the best one.
        steps: Quasi-Newton steps for each stage.
        max_condition: Largest :math:`d_i / d_j`.
        stages: How many stages of the search, each sharper and some two times as dear as the one before, from 1 to 4.

    Example:
        >>> found = quadratic_contraction(torch.tensor([[-0.51, 0.75], [-0.37, 0.44]]), slope=1.0)
        >>> round(found.rate, 3), found.norm.name
        (0.533, 'quadratic norm')

    References:
        Ando. Structure of operators with numerical radius one. Acta Scientiarum Mathematicarum 34, 1973.
    """
    check_slope(slope)
    check_positive_int("steps", steps)
    if check_positive_int("stages", stages) > len(STAGES):
        raise ArgumentError(f"`stages` must be at most {len(STAGES)}, but is {stages}.")
    d = best_scaling(weight, max_condition) if start_scaling is None else start_scaling
    rate = scaled_rate(weight, d)
    best = Contraction(times_slope(rate, slope), Ellipsoid(d), "MATH 5.2")
    wide, exponent = normalised(check_recurrent(weight))
    if exponent is None:
        return best
    limit = log_limit(max_condition)
    raw = to_raw(check_scaling(d, len(wide)).to(wide.device), limit)
    searched = wide if len(wide) <= COMPLETE else wide.float()
    for stage in STAGES[:stages]:
        raw = descend_radius(searched, raw, limit, stage, steps)
    d = from_raw(raw.double(), limit)
    verified, root = _best_root(weight, scaled(wide, d), d)
    if root is None or not verified < rate:
        return best
    return Contraction(times_slope(verified, slope), Ellipsoid(root * d, d), "MATH 5.3")


def _best_root(weight: Tensor, matrix: Tensor, d: Tensor) -> tuple[float, Tensor | None]:
    """Return the verified rate and the root of a metric S for given weights d, ``matrix`` being ``D W D^-1``."""
    radius = estimated_radius(matrix)
    best: tuple[float, Tensor | None] = (math.inf, None)
    for margin in MARGINS if len(matrix) <= COMPLETE else MARGINS[1:]:
        solutions = doubled_solutions(matrix / (2 * (1 + margin) * radius)) if radius else None
        if solutions is None:
            continue
        metric = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device) + solutions[1] - solutions[0]
        values, vectors = torch.linalg.eigh((metric + metric.mT) / 2)
        root = (vectors * values.clamp(min=0).sqrt()) @ vectors.mT
        root = (root + root.mT) / 2
        verified = _rate_or_infinity(weight, root, d)
        if verified < best[0]:
            best = (verified, root)
        if verified <= (1 + 2 * margin) * radius:
            break
    return best


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
