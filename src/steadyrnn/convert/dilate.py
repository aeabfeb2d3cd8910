"""One layer in one direction made unitary, exactly: its scaling, the ball of its states, its silent extra units."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from steadyrnn.activations import Activation
from steadyrnn.bounds.norms import ROUND_OFF, above, spectral_norm_bound
from steadyrnn.bounds.scaling import best_scaling, scaled_rate
from steadyrnn.bounds.unitary import dilation_radius
from steadyrnn.certificates.layer import Weights
from steadyrnn.errors import ConversionError
from steadyrnn.linalg.dilation import defect_rank, monomial_scaling, orthogonal_dilation

__all__ = [
    "SQUARINGS",
    "Ball",
    "Extension",
    "choose_scaling",
    "extend",
    "find_ball",
    "rounding_of_sums",
    "scaled",
    "silent_below",
]

DEEPEST = -32.0
"""How far down a threshold is looked for: where a sigmoid or softplus, which never is 0, does not round to it."""
SQUARINGS = 40
"""How often a norm near 1 is squared: its excess is then below rounding."""
SEARCHED = 256
"""Up to this width a better norm is looked for where it is rounding alone that keeps the others from contracting."""
CONDITIONS = (1e6, 1e12)
"""Largest ratios of a scaling, tried in turn."""


@dataclass(frozen=True)
class Extension:
    """The part that is added to one layer in one direction, in float64."""

    weight: Tensor  # (N + R, N + R), orthogonal
    bias: Tensor  # (R,) of the extra units
    shift: Tensor  # (N,) added to the bias of the first units
    rest: Tensor  # (R,) where the extra units start
    idle: float  # bias of units that only fill a stack up to one width

    @property
    def rank(self) -> int:
        """R."""
        return len(self.bias)


class Ball(NamedTuple):
    """A set that no state leaves: ``order``-norm of ``gauge * h`` at most ``radius``."""

    gauge: Tensor  # (N,)
    radius: float
    initial: float  # in the same norm: up to here a state may start
    horizon: int | None = None  # for so many steps; None: for all
    proven: bool = True  # with the rounding of the layer's own dtype counted in
    order: float = 2.0

    def in_gauge(self, other: Tensor) -> float:
        """Return a bound on the 2-norm of ``other * h`` for every h inside."""
        return above(self.radius * float((other / self.gauge).max()))


def silent_below(activation: Activation) -> float | None:
    r"""Return a :math:`\tau \le 0` below which the activation is 0, or None where there is none or it is steeper than 1.

    ``slopes`` within [0, 1] make it monotone, so that a value of 0 at :math:`\tau` and at the lowest number is 0 in
    between, and :math:`0 \le \varphi(a) \le \max(a - \tau, 0)`: all that Theorem 1 needs of it;
    Note [mathematics], section 1.3.

    Example:
        >>> silent_below(sr.ReLU()), silent_below(sr.LeakyReLU()), silent_below(sr.Sigmoid())
        (0.0, None, None)
    """
    if not activation.elementwise or activation.parameter_size(2) is not None:
        return None
    if activation.slopes[0] < 0 or activation.slopes[1] > 1:
        return None

    def silent(x: float) -> bool:
        return bool(activation.value(torch.tensor([x], dtype=torch.float64, device="cpu")) == 0)

    if not (silent(torch.finfo(torch.float32).min) and silent(DEEPEST)):
        return None
    low, high = DEEPEST, 0.0
    if silent(high):
        low = high
    while high - low > 2.0**-40:
        middle = (low + high) / 2
        low, high = (middle, high) if silent(middle) else (low, middle)
    x = torch.tensor([low - 1], dtype=torch.float64, device="cpu")
    slope = activation.derivative(activation.value(x) if activation.from_output else x)
    return low if bool(slope == 0) else None  # a value may round to 0 where the slope tells that it is not


def scaled(weight: Tensor, scaling: Tensor) -> Tensor:
    """Return ``diag(d) W diag(d)^-1``."""
    return scaling.unsqueeze(1) * weight / scaling


def choose_scaling(weight: Tensor, homogeneous: bool, tolerance: float, limit: float) -> Tensor:
    r"""Return :math:`d > 0` with :math:`\lVert W_d \rVert \le 1` that needs few extra units, 1 where nothing is better.

    A ReLU network is the same network in the states :math:`\operatorname{diag}(d) h`, with
    :math:`W_d = \operatorname{diag}(d) W \operatorname{diag}(d)^{-1}`. Tried are 1, the scaling of
    :func:`~steadyrnn.linalg.dilation.monomial_scaling`, which is best where it exists, and, if neither will do, the one
    of the smallest norm (Note [mathematics], section 1.4), rounded to powers of two if it may be: these change no digit.

    Args:
        weight: :math:`W`, shape ``(H, H)``, float64.
        homogeneous: Whether the activation commutes with positive scalings; else only 1 is tried.
        tolerance: How far above 1 a norm counts as 1.
        limit: Largest ratio of two weights.

    Raises:
        ConversionError: No norm found is at most 1.
    """
    ones = torch.ones(len(weight), dtype=torch.float64, device="cpu")
    candidates = [ones]
    monomial = monomial_scaling(weight) if homogeneous else None
    if monomial is not None and float(monomial.max() / monomial.min()) <= limit:
        candidates.append(monomial)
    norms = [_norm(weight, d) for d in candidates]
    for condition in CONDITIONS if homogeneous else ():
        if min(norms) <= 1 + tolerance:
            break
        best = best_scaling(weight, min(condition, limit))
        candidates += [torch.exp2(best.log2().round()), best]
        norms = [_norm(weight, d) for d in candidates]
    feasible = [d for d, norm in zip(candidates, norms, strict=True) if norm <= 1 + tolerance]
    if not feasible:
        tried = " after the best positive diagonal scaling found" if homogeneous else ""
        raise ConversionError(
            f"The recurrent weight has spectral norm {min(norms):.6g}{tried}, but Theorem 1 of Emami et al. (2019) needs a "
            "norm of at most 1: no orthogonal matrix has a block of larger norm. Train with `transition=sr.SpectralBall()`."
        )
    return min(feasible, key=lambda d: defect_rank(scaled(weight, d), tolerance))


def _norm(weight: Tensor, scaling: Tensor) -> float:
    return float(torch.linalg.matrix_norm(scaled(weight, scaling), 2))


def _rate(weight: Tensor, e: Tensor) -> float:
    """Return a proven bound on the scaled norm: by more squarings where the usual ones leave it near 1."""
    usual = scaled_rate(weight, e)
    if not 1 <= usual < 1.01:
        return usual
    formed = 1 + 4 * math.sqrt(len(weight)) * ROUND_OFF  # the rounding of the scaled entries
    return min(usual, above(spectral_norm_bound(scaled(weight, e), SQUARINGS) * formed + 2.0**-900))


def rounding_of_sums(weights: Weights, unit: float) -> float:
    r"""Return :math:`\gamma = mu/(1 - mu)` for the sums of one enlarged step, far below 1 in float32 and float64.

    m counts the terms of a row of the enlarged layer (at most twice the original's), both biases, the roundings of a
    scaled weight and a few of the activation.
    """
    share = (2 * weights.size + 2 * weights.weight_ih.shape[1] + 12) * unit
    return share / (1 - share)


@dataclass(frozen=True)
class _Step:
    """What bounds the growth of the states of one layer in a norm ``||diag(e) h||``, with rounding ``gamma``."""

    weights: Weights
    input_bound: float
    initial_bound: float
    threshold: float
    gamma: float

    def rate(self, e: Tensor) -> float:
        """Return the largest gain of a step on the state."""
        w = self.weights
        rounding = self.gamma * float(scaled(w.weight_hh, e).norm()) if bool(w.weight_hh.any()) else 0.0
        return above(_rate(w.weight_hh, e) + above(w.slack * float(e.max() / e.min()) + rounding, 8 * w.size**2))

    def drive(self, e: Tensor) -> float:
        """Return what input and bias add to the norm of the state in one step."""
        w, terms = self.weights, 8 * self.weights.weight_ih.numel()
        weight = e.unsqueeze(1) * w.weight_ih
        gain = above(spectral_norm_bound(weight), 64) + above(float(weight.norm()), terms) * self.gamma
        lifted = float(torch.linalg.vector_norm(e * (w.bias - self.threshold).clamp(min=0)))
        biases = [bias.abs() for bias in (w.bias_ih, w.bias_hh) if bias is not None]
        sizes = torch.stack([*biases, torch.full_like(e, abs(self.threshold))]).sum(0)
        rounded = float(torch.linalg.vector_norm(e * sizes)) * self.gamma
        moved = 0.0 if gain == 0 or not bool(weight.any()) else gain * self.input_bound
        return above(above(moved) + above(lifted + rounded, terms))

    def initial(self, e: Tensor) -> float:
        """Return a bound on the norm of the state before the first step."""
        learned = [float(torch.linalg.vector_norm(e * state)) for state in self.weights.initial]
        return above(max([self.initial_bound * float(e.max()), *learned]), 16 + len(e))


def find_ball(
    weights: Weights,
    scaling: Tensor,
    input_bound: float,
    initial_bound: float,
    threshold: float,
    horizon: int | None,
    unit: float,
) -> Ball | None:
    r"""Return a ball that no state leaves, in whichever diagonal norm the layer contracts, or None.

    In :math:`\lVert \operatorname{diag}(e) h \rVert` one step of :math:`0 \le \varphi(a) \le \max(a - \tau, 0)` gives at most

    .. math:: \lVert W_e \rVert \lVert h \rVert_e + \lVert F \rVert_e M + \lVert \max(b - \tau, 0) \rVert_e

    so :func:`~steadyrnn.bounds.unitary.dilation_radius` applies, for any :math:`e > 0`; Note [mathematics],
    section 1.4. Tried are 1, the scaling of the layer and, if neither contracts, the best one. The rounding of the layer's
    own arithmetic is counted in where that still contracts; else for ``horizon`` steps; else the radius without it is
    doubled, and not ``proven``.

    Args:
        weights: The layer in one direction.
        scaling: d, shape ``(H,)``.
        input_bound: M; may be infinite.
        initial_bound: Bound on the 2-norm of an initial state that a user gives.
        threshold: :math:`\tau`.
        horizon: Steps, where nothing contracts; or None.
        unit: Unit round-off of the layer's dtype.
    """
    rounded, exact = (_Step(weights, input_bound, initial_bound, threshold, g) for g in (rounding_of_sums(weights, unit), 0.0))
    gauges = list(_gauges(rounded, exact, scaling))
    balls = [_contracting(rounded, e) for e in gauges]
    if horizon is not None and not any(balls):
        radii = [(e, dilation_radius(max(rounded.rate(e), 1.0), rounded.drive(e), rounded.initial(e), horizon)) for e in gauges]
        balls = [Ball(e, radius, rounded.initial(e), horizon) for e, radius in radii if math.isfinite(radius)]
    if not any(balls):
        found = [_contracting(exact, e) for e in gauges]
        balls = [ball._replace(radius=2 * ball.radius, initial=2 * ball.radius, proven=False) for ball in found if ball]
    return min((ball for ball in balls if ball), key=lambda ball: ball.in_gauge(scaling), default=None)


def _gauges(rounded: _Step, exact: _Step, scaling: Tensor) -> Iterator[Tensor]:
    """Yield the norms worth trying; the one that has to be searched for only if no other contracts."""
    ones, weight = torch.ones_like(scaling), rounded.weights.weight_hh
    known = [ones] if torch.equal(ones, scaling) else [ones, scaling]
    yield from known
    step = rounded if len(ones) <= SEARCHED else exact
    # with an eigenvalue on the unit circle there is no norm in which it contracts
    if all(step.rate(e) >= 1 for e in known) and float(torch.linalg.eigvals(weight).abs().max()) < 1 - 1e-9:
        yield best_scaling(weight)


def _contracting(step: _Step, gauge: Tensor) -> Ball | None:
    """Return the ball of a norm in which the layer contracts, else None."""
    radius = dilation_radius(step.rate(gauge), step.drive(gauge), step.initial(gauge))
    return Ball(gauge, radius, radius) if math.isfinite(radius) else None


def extend(weight: Tensor, radius: float, threshold: float, gamma: float, tolerance: float, dtype: torch.dtype) -> Extension:
    r"""Return the orthogonal weight and the bias that keeps its extra units at 0 for states of norm up to ``radius``.

    .. math:: b_{2,i} = \tau - R \lVert \text{row } i \text{ of } W_u[n{:}, {:}n] \rVert

    The extra units start at 0; then row i sees at most :math:`R \lVert \text{row } i \rVert`, so its pre-activation is at
    most :math:`\tau` and its state 0 again; Note [mathematics], section 1.2. The rows are those that the layer's
    dtype stores, and the bias is lowered by what the sums of that dtype can be off: any lower one will do.

    Args:
        weight: The scaled recurrent weight, shape ``(H, H)``.
        radius: R, bound on the 2-norm of every scaled state.
        threshold: :math:`\tau`.
        gamma: Relative error of the sums.
        tolerance: How far from 1 a singular value counts as 1.
        dtype: The layer's.
    """
    size, full = len(weight), orthogonal_dilation(weight, tolerance)
    rows = full[size:, :size].to(dtype).double()
    reach = torch.linalg.vector_norm(rows, dim=1) * radius
    bias = (threshold - reach) * (1 + 4 * gamma) * (1 + 1e-12)
    if not bool(bias.to(dtype).isfinite().all()):
        raise ConversionError(
            f"The bias that silences the extra units is beyond {dtype}: the states are bounded by {radius:.3g} only. Convert "
            "the layer to float64 first, or give smaller bounds."
        )
    nothing = torch.zeros_like(bias)
    return Extension(full, bias, torch.zeros(size, dtype=torch.float64, device="cpu"), nothing, threshold)
