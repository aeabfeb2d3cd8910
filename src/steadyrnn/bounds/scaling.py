"""Contraction in the 2-norm, and in a 2-norm with one weight per unit: Note [mathematics], sections 5.1 and 5.2."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from steadyrnn.checks import check_finite, check_interval, check_matrix, check_positive_int
from steadyrnn.errors import ArgumentError, ShapeError

from .norms import ROUND_OFF, Contraction, Ellipsoid, TwoNorm, above, spectral_norm_bound

__all__ = ["best_scaling", "diagonal_contraction", "scaled_rate", "spectral_contraction"]

SPECTRAL_NORM = "spectral norm (docs/notes/mathematics.md, 5.1)"
"""The theorem behind :func:`spectral_contraction`."""
DIAGONAL_SCALING = "diagonal scaling (docs/notes/mathematics.md, 5.2)"
"""The theorem behind :func:`diagonal_contraction`."""
SQUARINGS = 20
"""How often the certified norms are squared: what is left of their excess is a factor of n^(1 / 2^22)."""
WIDEST = 2.0**400
"""Largest ratio of two weights: beyond it, underflow could no longer be told from zero."""
UNDERFLOW = 2.0**-600
"""More than what underflow takes from the norm of a scaled matrix with entries up to 1."""
STAGES = (3, 6, 9)
NARROW = 64
"""Up to this width the search is done in float64 and to the end; beyond, in float32, and ends where it stalls."""
STALLED = (1e-9, 1e-5)
"""A change of the logarithm of the norm that ends the search."""


def spectral_contraction(weight: Tensor, slope: float) -> Contraction:
    r"""Return the contraction of :math:`h^+ = \varphi(Wh + v)` in the 2-norm.

    .. math:: \lambda = \gamma \lVert W \rVert

    since :math:`\varphi(a) - \varphi(b) = \Theta (a - b)` with a diagonal :math:`|\Theta| \le \gamma`. The cheapest of
    the certificates, and the only one whose norm needs no conversion.

    Args:
        weight: :math:`W`, shape ``(H, H)``.
        slope: :math:`\gamma`, the largest :math:`|\varphi'|`.

    Example:
        >>> spectral_contraction(torch.tensor([[0.0, 0.5], [0.2, 0.0]]), slope=1.0).stable
        True
    """
    norm = spectral_norm_bound(check_recurrent(weight), SQUARINGS)
    return Contraction(times_slope(norm, slope), TwoNorm(len(weight)), SPECTRAL_NORM)


def diagonal_contraction(weight: Tensor, slope: float, max_condition: float = 1e6) -> Contraction:
    r"""Return the best contraction of :math:`h^+ = \varphi(Wh + v)` in a norm :math:`\lVert \operatorname{diag}(d) h \rVert`.

    .. math:: \lambda = \gamma \lVert \operatorname{diag}(d) W \operatorname{diag}(d)^{-1} \rVert

    The diagonal :math:`\Theta` of :func:`spectral_contraction` commutes with :math:`\operatorname{diag}(d)`, so any
    :math:`d > 0` does, and slopes of either sign are covered. With the best d it is at most each of the certificates
    in a weighted 1-, 2- or maximum norm (Note [mathematics], section 5.2).

    Args:
        weight: :math:`W`, shape ``(H, H)``.
        slope: :math:`\gamma`, the largest :math:`|\varphi'|`.
        max_condition: Largest :math:`d_i / d_j`: a bound in the 2-norm grows by it.

    Example:
        >>> found = diagonal_contraction(torch.tensor([[0.5, 10.0], [0.0, 0.4]]), slope=1.0)
        >>> round(found.rate, 4)
        0.5
    """
    check_slope(slope)
    scaling = best_scaling(weight, max_condition)
    return Contraction(times_slope(scaled_rate(weight, scaling), slope), Ellipsoid(scaling), DIAGONAL_SCALING)


@torch.no_grad()
def scaled_rate(weight: Tensor, scaling: Tensor) -> float:
    r"""Return a proven upper bound on :math:`\lVert \operatorname{diag}(d) W \operatorname{diag}(d)^{-1} \rVert`.

    Each computed entry of the matrix is within :math:`2u` of itself of the true one, which moves the norm by at most
    :math:`2u` of the Frobenius norm; this and what underflows is added to
    :func:`~steadyrnn.bounds.norms.spectral_norm_bound`.

    Args:
        weight: :math:`W`, shape ``(H, H)``.
        scaling: :math:`d > 0`, shape ``(H,)``.

    Example:
        >>> scaled_rate(torch.tensor([[0.0, 4.0], [1.0, 0.0]]), torch.tensor([0.5, 1.0])) - 2.0 < 1e-4
        True
    """
    wide, exponent = normalize(check_recurrent(weight))
    scaling = check_scaling(scaling, len(wide)).to(wide.device)
    if exponent is None:
        return 0.0
    bound = spectral_norm_bound(scale_matrix(wide, scaling), SQUARINGS)
    return undo_normalizing(above(bound * (1 + 4 * math.sqrt(len(wide)) * ROUND_OFF)) + len(wide) * UNDERFLOW, exponent)


@torch.no_grad()
def best_scaling(weight: Tensor, max_condition: float = 1e6, steps: int = 30) -> Tensor:
    r"""Return weights d that make :func:`scaled_rate` small.

    :math:`\log \lVert e^{l} W e^{-l} \rVert` is convex in :math:`l = \log d`. Minimised are Schatten norms of rising
    order in place of the spectral one, which are convex too, and smooth: with :math:`A = e^l W e^{-l}` and
    :math:`P = (A^\top A)^{p-1}`,

    .. math::
        \frac{\partial}{\partial l} \frac{1}{2p} \log \operatorname{tr} (A^\top A)^p
        = \frac{\operatorname{diag}(A P A^\top) - \operatorname{diag}(P A^\top A)}{\operatorname{tr} (A^\top A)^p}.

    Descent starts at the better one of :math:`d = 1` and :math:`d = \sqrt{y/x}`, for the right and left Perron vectors
    x, y of :math:`|W|`: that one is as good as :math:`\rho(|W|)`, by Schur's test. Every d is a certificate; of those
    met, the one of the smallest verified rate is returned, so that no answer is worse than :math:`\lVert W \rVert`.
    Costs about ten matrix products per step.

    Args:
        weight: :math:`W`, shape ``(H, H)``.
        max_condition: Largest :math:`d_i / d_j`, from 1 on. Nearly triangular matrices ask for huge ones.
        steps: Quasi-Newton steps for each of the Schatten norms; 0 keeps the better start.

    Returns:
        d in float64, shape ``(H,)``.

    Example:
        >>> d = best_scaling(torch.tensor([[0.0, 4.0], [1.0, 0.0]]))
        >>> round(float(d[1] / d[0]), 4)
        2.0
    """
    limit = log_limit(max_condition)
    wide, exponent = normalize(check_recurrent(weight))
    if steps != 0:
        check_positive_int("steps", steps)
    ones = torch.ones_like(wide[:, 0])
    if exponent is None or limit == 0:
        return ones
    rate, best = math.inf, ones
    for d in (ones, _perron_start(wide, limit)):
        rate, best = _better(wide, d, rate, best)
    for order in STAGES if steps else ():
        raw = _descend(wide, to_raw(best, limit), limit, order, steps)
        rate, best = _better(wide, from_raw(raw, limit), rate, best)
    return best


class Powers(NamedTuple):
    r"""A matrix A, :math:`A^\top A`, and a multiple of :math:`P = (A^\top A)^{p-1}`, :math:`p - 1` a power of two.

    The Schatten norm of order 2p is the 2p-th root of the trace of :math:`P A^\top A`, and
    :math:`\operatorname{tr}(P\, d(A^\top A))` over twice that trace is the differential of its logarithm.
    """

    matrix: Tensor
    square: Tensor
    power: Tensor
    trace: Tensor
    log_scale: Tensor
    order: int

    @classmethod
    def of(cls, matrix: Tensor, squarings: int) -> "Powers":
        r"""Return the power for :math:`p - 1 = 2^{\text{squarings}}`, divided by its norm again and again."""
        square = matrix.mT @ matrix
        norm = square.norm()
        log_scale, power = norm.log(), square / norm
        for _ in range(squarings):
            power = power @ power
            norm = power.norm()
            log_scale, power = 2 * log_scale + norm.log(), power / norm
        return cls(matrix, square, power, (power * square).sum(), log_scale, 2**squarings + 1)

    def log_norm(self) -> Tensor:
        """Return the logarithm of the Schatten norm."""
        return (self.trace.log() + self.log_scale) / (2 * self.order)

    def rows(self) -> Tensor:
        r"""Return :math:`A P A^\top`, on the scale of the trace."""
        return self.matrix @ self.power @ self.matrix.mT

    def columns(self) -> Tensor:
        r"""Return :math:`P A^\top A`, on the scale of the trace."""
        return self.power @ self.square

    def row_diagonal(self) -> Tensor:
        """Return the diagonal of :meth:`rows`, for one product."""
        return ((self.matrix @ self.power) * self.matrix).sum(1)

    def column_diagonal(self) -> Tensor:
        """Return the diagonal of :meth:`columns`, for none."""
        return (self.power * self.square).sum(1)


def check_recurrent(weight: Tensor) -> Tensor:
    """Return a recurrent weight if it is a finite square matrix with at least one row."""
    if check_matrix("weight", weight, square=True).numel() == 0:
        raise ShapeError("`weight` must have at least one row: there is no norm of states without entries.")
    return check_finite("weight", weight)


def check_slope(slope: float) -> float:
    """Return the largest slope of an activation if it is finite and not negative."""
    if not math.isfinite(check_interval("slope", slope, 0.0, math.inf)):
        raise ArgumentError("`slope` must be finite: nothing contracts under an activation that jumps.")
    return float(slope)


def times_slope(rate: float, slope: float) -> float:
    """Return the rate for an activation of the given largest slope, rounded up; 0 for a constant one."""
    return math.nextafter(above(check_slope(slope) * rate), math.inf) if slope else 0.0


def check_scaling(scaling: Tensor, size: int) -> Tensor:
    """Return the weights of a norm in float64 if they are positive, one per unit, and not too far apart."""
    if scaling.shape != (size,):
        raise ShapeError(f"`scaling` must have shape {(size,)}, one number per unit, but has {tuple(scaling.shape)}.")
    wide = check_finite("scaling", scaling).detach().double()
    if not bool((wide > 0).all()):
        raise ArgumentError("`scaling` must hold positive numbers, else it makes no norm.")
    low, high = math.frexp(float(wide.min()))[1], math.frexp(float(wide.max()))[1]
    if high - low >= math.log2(WIDEST):
        raise ArgumentError(f"`scaling` must not spread over more than a factor of 2**400, but does over 2**{high - low}.")
    return wide


def normalize(weight: Tensor) -> tuple[Tensor, int | None]:
    """Return the matrix in float64 over a power of two, largest entry about 1, and the exponent (None for a zero one)."""
    wide = weight.detach().double()
    largest = float(wide.abs().max())
    if largest == 0:
        return wide, None
    exponent = math.frexp(largest)[1]
    half = exponent // 2
    return wide * math.ldexp(1.0, -half) * math.ldexp(1.0, half - exponent), exponent


def undo_normalizing(bound: float, exponent: int) -> float:
    """Return a bound for the matrix before it was normalised, rounded up, infinite beyond the largest number."""
    try:
        return math.nextafter(above(math.ldexp(bound, exponent)), math.inf)
    except OverflowError:
        return math.inf


def scale_matrix(wide: Tensor, scaling: Tensor) -> Tensor:
    """Return ``diag(d) W diag(d)^-1`` for entries up to 1, each within two roundings and an underflow."""
    d = scaling / 2.0 ** (math.frexp(float(scaling.max()))[1] - 1)  # below 2, and exact
    return d.unsqueeze(1) * wide / d


def log_limit(max_condition: float) -> float:
    """Return the largest absolute logarithm of weights that are no further apart than ``max_condition``."""
    return math.log(check_interval("max_condition", max_condition, 1.0, WIDEST)) / 2 * (1 - 1e-12)


def from_raw(raw: Tensor, limit: float) -> Tensor:
    """Return ``exp(limit * tanh(raw))``: whatever the raw numbers, no two weights are too far apart."""
    return (limit * raw.tanh()).exp()


def to_raw(scaling: Tensor, limit: float) -> Tensor:
    """Return raw numbers for given weights, as near as the limit allows."""
    logs = scaling.log()
    logs = logs - (logs.max() + logs.min()) / 2
    return torch.atanh((logs / limit).clamp(-0.999, 0.999)) if limit else torch.zeros_like(logs)


def raw_slopes(raw: Tensor, limit: float) -> Tensor:
    """Return the derivatives of the logarithm of the weights with respect to the raw numbers."""
    return limit * (1 - raw.tanh().square())


def _better(wide: Tensor, d: Tensor, rate: float, best: Tensor) -> tuple[float, Tensor]:
    """Return the weights of the smaller verified rate, and that rate."""
    new = scaled_rate(wide, d)
    return (new, d) if new < rate else (rate, best)


def _perron_start(wide: Tensor, limit: float) -> Tensor:
    """Return ``sqrt(y / x)`` of the absolute matrix, made positive and aperiodic by a small shift."""
    size = len(wide)
    power = wide.abs() + 1e-8 + torch.eye(size, dtype=wide.dtype, device=wide.device) / 2
    for _ in range(10):
        power = power / power.max()
        power = power @ power
    right, left = power.sum(1), power.sum(0)
    log = (left / right).log() / 2
    log = log - (log.max() + log.min()) / 2
    return log.clamp(-limit, limit).exp()


def _descend(wide: Tensor, raw: Tensor, limit: float, squarings: int, steps: int) -> Tensor:
    """Return raw weights after quasi-Newton steps on the Schatten norm of order ``2 (2^squarings + 1)``."""
    wide = wide if len(wide) <= NARROW else wide.float()  # what is found is verified in float64
    raw = raw.to(wide.dtype).clone()
    optimizer = torch.optim.LBFGS(
        [raw], max_iter=steps, history_size=10, tolerance_change=STALLED[len(wide) > NARROW], line_search_fn="strong_wolfe"
    )

    @torch.no_grad()
    def closure() -> Tensor:
        powers = Powers.of(scale_matrix(wide, from_raw(raw, limit)), squarings)
        gradient = (powers.row_diagonal() - powers.column_diagonal()) / powers.trace
        raw.grad = gradient * raw_slopes(raw, limit)
        return powers.log_norm()

    optimizer.step(closure)
    return raw.double()
