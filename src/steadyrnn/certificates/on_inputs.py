"""A certificate for given inputs: the slopes met on their trajectories take the place of the steepest there are."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from steadyrnn.activations import Activation
from steadyrnn.bounds.norms import ROUND_OFF, Ellipsoid, Norm, above, below
from steadyrnn.checks import check_finite, check_positive_int
from steadyrnn.errors import ArgumentError, ArgumentTypeError, CertificateError, ShapeError

from .base import BaseCertificate, Claim, contraction_in_words
from .certificate import Certificate, check_eps
from .elman import activation_of
from .layer import LayerCertificate, Weights
from .theories import THEORIES

__all__ = ["DataCertificate", "certify_on"]

MET_SLOPES = "diagonal scaling with the slopes met (docs/notes/mathematics.md, 5.2)"
LEVELS, FACTOR = 6, 2.0**-6
"""How many sizes of error the slopes are bounded for, and how much of the one before each is."""
MOST = 4096
"""Matrices whose norms are computed; beyond, several steps share the steepest slopes of all of them."""
LONGEST = 4096
"""Windows whose error is followed step by step."""
WORK = 4e10
"""Operations spent on running windows from zero, and as many on products of Jacobians."""


@dataclass(frozen=True)
class DataCertificate(BaseCertificate):
    """What is proven of one layer for given inputs only.

    Args:
        general: The certificate for every admissible input.
        valid_for: Which inputs.
        steps: Their length: a window that reaches back to the start loses nothing.
        rate: Bound on the rate of one step for states close to those met.
        errors: Bound on the 2-norm of the truncation error, by the length of the window.
        gains: Bound on the spectral norm of the Jacobian, by lag.
        floors: Lower bound on it, by lag.
        reached: The largest 2-norm of a state met.
        own_norm: The norm of ``rate``.
    """

    general: Certificate
    valid_for: str
    steps: int
    rate: float
    errors: Tensor
    gains: Tensor
    floors: Tensor
    reached: float
    own_norm: str

    @property
    def contraction(self) -> float:
        """The rate of one step for states close to those met, or the general one if it is smaller."""
        return min(self.rate, self.general.contraction)

    @property
    def norm(self) -> str:
        """The norm of :attr:`contraction`."""
        return self.own_norm if self.rate <= self.general.contraction else self.general.norm

    @property
    def state_bound(self) -> float:
        """Bound on the 2-norm of every state on these inputs."""
        return self.reached

    @property
    def regime(self) -> str:
        """That of the general certificate: what is met on some inputs says nothing of others."""
        return self.general.regime

    @property
    def left_out(self) -> tuple[str, ...]:
        """The general certificate's."""
        return self.general.left_out

    @property
    def input_bound(self) -> float | None:  # type: ignore[override]
        """The general certificate's."""
        return self.general.input_bound

    @property
    def module(self) -> str:  # type: ignore[override]
        """The module's class."""
        return self.general.module

    @property
    def digest(self) -> str:  # type: ignore[override]
        """The checksum of the weights."""
        return self.general.digest

    @property
    def readout_gain(self) -> float:  # type: ignore[override]
        """The general certificate's."""
        return self.general.readout_gain

    def truncation_error(self, k: int) -> float:
        """Return a bound on the 2-norm of every output's change, on these inputs, for a start from zero ``k`` steps before."""
        if k != 0:
            check_positive_int("k", k)
        if k >= self.steps:
            return 0.0
        last = len(self.errors) - 1
        if k > last:  # not followed so far
            return self.general.truncation_error(k)
        return min(float(self.errors[k]), self.general.truncation_error(k))

    def horizon(self, eps: float) -> int:
        """Return the smallest proven k from which on the truncation error is at most ``eps`` on these inputs."""
        check_eps(eps)
        above_eps = [k for k in range(len(self.errors)) if self.truncation_error(k) > eps]
        k = above_eps[-1] + 1 if above_eps else 0
        if k < len(self.errors) or self.truncation_error(k) <= eps:
            return k
        return min(self.steps, self.general.horizon(eps)) if self.general.stable else self.steps

    def gradient_bounds(self, lag: int, norm: str = "spectral") -> tuple[float, float]:
        """Return bounds on the norm of the Jacobian over ``lag`` steps, along the trajectories of these inputs."""
        if lag > self.steps:
            raise CertificateError(f"These inputs have {self.steps} steps, so there is no lag of {lag} on them.")
        low, high = self.general.gradient_bounds(lag, norm)
        scale = math.sqrt(self.general.layers[0].weights.size) if norm == "frobenius" else 1.0
        if lag >= len(self.gains):
            return low, high
        return max(low, scale * float(self.floors[lag])), min(high, scale * float(self.gains[lag]))

    def gradient_truncation_error(self, k: int, loss_gain: float, loss_smoothness: float) -> float:
        """Return the general bound, which holds for these inputs too."""
        return self.general.gradient_truncation_error(k, loss_gain, loss_smoothness)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The contraction met, and the general claims."""
        own = Claim("contraction on these inputs", self.rate, self.own_norm, (self.valid_for,), MET_SLOPES)
        return own, *self.general.claims

    def to_dict(self) -> dict[str, Any]:
        """Return everything that is claimed, as JSON can hold it."""
        claims = [claim.to_dict() for claim in self.claims]
        own = {"valid_for": self.valid_for, "contraction": self.contraction, "stable": self.stable, "claims": claims}
        return self.general.to_dict() | own

    def __str__(self) -> str:
        """Return the tables, the data's claim first."""
        return f"{self.valid_for}: {contraction_in_words(self.contraction)}\n{self.general}"


def certify_on(general: object, module: nn.Module, inputs: Tensor) -> Certificate | DataCertificate:
    """Return a certificate for ``inputs`` only.

    Of an RNN by the slopes met on its trajectories; of an LSTM or GRU by the box of the largest entry met.
    """
    if not isinstance(general, Certificate) or len(general.layers) != 1:
        raise CertificateError("`inputs` is for one layer in one direction; certify the layers of a stack one by one.")
    layer = general.layers[0]
    x = as_time_first(inputs, module, layer.weights)
    longest = float(torch.linalg.vector_norm(x, dim=-1).max()) if x.numel() else 0.0
    if general.input_bound is not None and longest > above(general.input_bound):  # the norm itself is rounded
        raise ArgumentError(
            f"`inputs` must have vectors of 2-norm up to `input_bound`, {general.input_bound:g}, but the longest has "
            f"{longest:.9g}."
        )
    label = f"these inputs only ({x.shape[1]} rows of {x.shape[0]} steps)"
    theory = THEORIES[layer.weights.cell.record.theorem]
    if theory.needs_inputs:
        most = above(longest)
        entry = float(x.abs().max()) if x.numel() else 0.0
        own = theory.certify(layer.weights, most, entry, "auto")
        return replace(general, layers=(own,), input_bound=most, valid_for=label)
    if not activation_of(layer.weights).elementwise:
        raise CertificateError(
            "modReLU is not elementwise with fixed slopes: none can be met (docs/notes/mathematics.md, 3.9)."
        )
    return along(general, layer, x, label)


def as_time_first(inputs: Tensor, module: nn.Module, weights: Weights) -> Tensor:
    """Return inputs as (T, B, D) in float64 on the CPU."""
    if not isinstance(inputs, Tensor):
        raise ArgumentTypeError(f"`inputs` must be a tensor, but is of type {type(inputs).__name__}.")
    size = weights.weight_ih.shape[1]
    if inputs.dim() not in (2, 3) or inputs.shape[-1] != size:
        raise ShapeError(f"`inputs` must have shape (T, B, {size}) or (T, {size}), but has {tuple(inputs.shape)}.")
    x = check_finite("inputs", inputs.detach()).double().cpu()
    x = x.unsqueeze(1) if x.dim() == 2 else x
    return x.transpose(0, 1) if getattr(module, "batch_first", False) and inputs.dim() == 3 else x


def trajectory(weights: Weights, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return states (T + 1, B, H), the initial one first, and pre-activations (T, B, H)."""
    driven = x @ weights.weight_ih.mT + weights.bias
    state = x.new_zeros(x.shape[1], weights.size) + (weights.initial[0] if weights.initial else 0.0)
    states, before = [state], []
    for step in driven:
        before.append(step + state @ weights.weight_hh.mT)
        state = activation_of(weights).value(before[-1], weights.theta)
        states.append(state)
    empty = x.new_zeros(0, x.shape[1], weights.size)
    return torch.stack(states), torch.stack(before) if before else empty


def along(general: Certificate, layer: LayerCertificate, x: Tensor, label: str) -> DataCertificate:
    r"""Follow the error of every window: run from zero for some steps, then by the norm of each step's matrix.

    Of two runs that are known, the distance is known too. From there on it shrinks by the norm of
    :math:`\operatorname{diag}(s_t) W`, with slopes bounded around the trajectory, the closer the smaller the distance.
    """
    weights, (states, before) = layer.weights, trajectory(layer.weights, x)
    if not before.numel():
        nothing = torch.zeros(x.shape[0] + 1, dtype=torch.float64, device="cpu")
        return DataCertificate(general, label, x.shape[0], 0.0, nothing, nothing + 1, nothing + 1, 0.0, "2-norm")
    norms = [tier.contraction.norm for tier in layer.tiers]
    norm = [n for n in norms if not isinstance(n, Ellipsoid) or n.matrix.dim() == 1][-1]  # slopes commute with a diagonal
    scaling = norm.matrix if isinstance(norm, Ellipsoid) else torch.ones(weights.size, dtype=torch.float64, device="cpu")
    own, slack = own_rounding(weights, x, states, norm), above(weights.slack * norm.condition)

    def rates_at(error: float) -> Tensor:
        return step_rates(weights, scaling, before, error) + slack

    drift = trajectory_error(rates_at, own, above(1e-6 * max(1.0, float(norm(states).max()))))
    errors, left = measured_errors(weights, x, states, norm, (float(rates_at(math.inf).max()), own, drift))
    levels = [math.inf, *(above(float(left.max()) * FACTOR**level + drift) for level in range(LEVELS)), drift]
    rates = torch.stack([rates_at(level) for level in levels])  # (levels, T, B)
    errors = torch.cat([errors, window_errors(left, rates, levels, len(errors))])
    reached = above(float(torch.linalg.vector_norm(states, dim=-1).max()) * (1 + 1e-12) + drift / norm.lower)
    gains, floors = jacobian_bounds(weights, before, rates[-1], norm, drift * row_norms(weights, scaling))
    rate = float(rates[-1].max())
    return DataCertificate(general, label, x.shape[0], rate, errors * above(1 / norm.lower), gains, floors, reached, norm.name)


def own_rounding(weights: Weights, x: Tensor, states: Tensor, norm: Norm) -> float:
    """Return a bound on the rounding of one step in float64, in the norm."""
    size, width = weights.size, x.shape[2]
    largest = float(torch.linalg.vector_norm(states, dim=-1).max()) + float(torch.linalg.vector_norm(x, dim=-1).max())
    weight = float(weights.weight_hh.norm() + weights.weight_ih.norm()) + 1
    return 4 * ROUND_OFF * norm.upper * ((size + width + 4) * largest * weight + float(weights.bias.norm()) + math.sqrt(size))


def trajectory_error(rates_at: Callable[[float], Tensor], own: float, most: float) -> float:
    """Return a bound on how far the computed trajectory is from the exact one.

    As long as it is below ``most``, each step multiplies it by that step's rate for errors of this size, and adds its own.

    Raises:
        CertificateError: It grows beyond: the network expands, and nothing is known of the exact trajectory.
    """
    error = torch.zeros(rates_at(most).shape[1], dtype=torch.float64, device="cpu")
    worst = 0.0
    for rate in rates_at(most):
        error = (rate * error + own) * (1 + 1e-12)
        worst = max(worst, float(error.max()))
    if not worst <= most:
        raise CertificateError(
            "The network expands on these inputs so much that rounding may have taken its computed trajectory far from the "
            "exact one: nothing is proven of it. Certify it without `inputs`, or on a shorter piece."
        )
    return above(worst)


def measured_errors(
    weights: Weights, x: Tensor, states: Tensor, norm: Norm, noise: tuple[float, float, float]
) -> tuple[Tensor, Tensor]:
    """Run a window from zero at every time, together, and measure how far it is from the trajectory.

    Args:
        weights: The layer's.
        x: Inputs (T, B, D).
        states: Of the trajectory, (T + 1, B, H).
        norm: What to measure in.
        noise: By what an error grows in a step at most, a step's own rounding, and the trajectory's.

    Returns:
        The largest distance by the length of the window, from 0 on, and that of each window after the last of these
        steps, shape (windows, B). Both with what rounding may have added.
    """
    (steps, rows, width), size, (growth, own, drift) = x.shape, weights.size, noise
    count = max(1, min(steps, 256, int(WORK / max(1, 2 * steps * rows * size * (size + width)))))
    error = norm(states[:steps]) + drift  # (T, B)
    first = float(norm(states[1:]).max()) + drift  # a window of no steps gives zero, at every step
    found, rounding, window = [above(first)], 0.0, torch.zeros_like(states[:steps])
    driven = x @ weights.weight_ih.mT + weights.bias
    for length in range(1, count):
        window = activation_of(weights).value(
            driven[length - 1 :] + window[: steps - length + 1] @ weights.weight_hh.mT, weights.theta
        )
        rounding = above(growth * rounding + own)
        error = norm(states[length : steps + 1] - window) + (rounding + drift)
        found.append(above(float(error.max())))
        if found[-1] < 1e-6 * found[0]:
            break
    return torch.tensor(found, dtype=torch.float64, device="cpu"), error


def row_norms(weights: Weights, scaling: Tensor) -> Tensor:
    """Return by how much each pre-activation moves at most for states 1 apart in the norm, (H,)."""
    norms: Tensor = torch.linalg.vector_norm(weights.weight_hh / scaling, dim=1)
    return norms * (1 + 1e-12)


def step_rates(weights: Weights, scaling: Tensor, before: Tensor, error: float) -> Tensor:
    r"""Return :math:`\lVert \operatorname{diag}(s_t) D W D^{-1} \rVert` at each step and row, shape (T, B).

    ``error`` bounds the distance of two states in the norm of D, so a unit's pre-activations differ by at most that
    times the norm of its row.
    """
    matrix = scaling.unsqueeze(1) * weights.weight_hh / scaling
    rows = row_norms(weights, scaling)
    reach = torch.where(rows > 0, rows * error, 0.0)
    slopes = activation_of(weights).steepest_near(before, reach)  # (T, B, H)
    flat = slopes.reshape(-1, weights.size)
    group = -(-len(flat) // MOST)
    padded = torch.cat([flat, flat.new_zeros(-len(flat) % group if group else 0, weights.size)])
    shared = padded.view(-1, max(group, 1), weights.size).amax(1)
    norms = [torch.linalg.matrix_norm(part.unsqueeze(-1) * matrix, ord=2) for part in shared.split(256)]
    each = torch.cat(norms) if norms else flat.new_zeros(0)
    return (each.repeat_interleave(max(group, 1))[: len(flat)] * (1 + 1e-10)).view(before.shape[:2])


def window_errors(error: Tensor, rates: Tensor, levels: list[float], begin: int) -> Tensor:
    """Return the largest error of all windows by their length, from ``begin`` on.

    Args:
        error: Of the window that starts at each time, after ``begin - 1`` steps, shape (windows, B).
        rates: Bounds on each step's rate, by size of the error, shape (levels, T, B).
        levels: These sizes, falling, an infinite one first.
        begin: The first length to give.
    """
    steps, found = rates.shape[1], []
    limits = torch.tensor(levels, dtype=torch.float64, device="cpu")
    for length in range(begin, min(steps, LONGEST + 1)):
        running = error[: steps - length + 1]
        level = (torch.bucketize(-running, -limits, right=True) - 1).clamp(0, len(levels) - 2)
        error = running * rates[:, length - 1 :].gather(0, level.unsqueeze(0)).squeeze(0) * (1 + 1e-12)
        found.append(float(error.max()))
    return torch.tensor(found, dtype=torch.float64, device="cpu")


def jacobian_bounds(weights: Weights, before: Tensor, rates: Tensor, norm: Norm, reach: Tensor) -> tuple[Tensor, Tensor]:
    """Return bounds on the Jacobian's spectral norm by lag.

    The Jacobians themselves are multiplied for as many lags as the work allows, with what their slopes may be off by;
    beyond, norms are. The lower bound is the product of geometric means of slopes (Note [mathematics], section 3.3).

    Args:
        weights: The layer's.
        before: Pre-activations met, (T, B, H).
        rates: Bounds on each step's rate on the exact trajectory, (T, B).
        norm: Of the rates.
        reach: How far each pre-activation may be from the exact one, (H,).
    """
    activation, size, steps = activation_of(weights), weights.size, before.shape[0]
    met = activation.derivative(activation.value(before) if activation.from_output else before)  # (T, B, H)
    off = doubt_of(activation, before, reach)
    determinant = torch.linalg.slogdet(weights.weight_hh).logabsdet / size
    sure = (met.abs() - off).clamp(min=0)
    floor = below(1.0, 64 * size**2) * (determinant + sure.log().mean(-1)).exp() if weights.slack == 0 else 0 * rates
    exact = min(steps, 64, int(WORK / max(1, 3 * met.numel() * size**2))) if weights.slack == 0 else 0
    blurred = rates + off.amax(-1) * float(weights.weight_hh.norm()) * norm.condition + 8 * size**1.5 * ROUND_OFF * rates
    high, blur, low = torch.ones_like(rates), torch.ones_like(rates), torch.ones_like(rates)
    jacobian, gains, floors = torch.eye(size, dtype=torch.float64, device="cpu"), [1.0], [1.0]
    for lag in range(1, min(steps, LONGEST) + 1):
        left = slice(steps - lag + 1)
        high, blur, low = high[left] * rates[lag - 1 :], blur[left] * blurred[lag - 1 :], low[left] * floor[lag - 1 :]
        gains.append(above(norm.condition * float(high.max()), 16 + lag))
        floors.append(below(float(low.min()), 16 + lag))
        if lag <= exact:
            jacobian = met[lag - 1 :].unsqueeze(-1) * (weights.weight_hh @ (jacobian[left] if lag > 1 else jacobian))
            size_of = torch.linalg.matrix_norm(jacobian, ord=2) + norm.condition * (blur - high)
            gains[-1] = min(gains[-1], above(float(size_of.max()) * (1 + 1e-10)))
    return torch.tensor(gains, dtype=torch.float64, device="cpu"), torch.tensor(floors, dtype=torch.float64, device="cpu")


def doubt_of(activation: Activation, before: Tensor, reach: Tensor) -> Tensor:
    """Return how far a slope may be from the one at a pre-activation that may be off by ``reach``; as ``before``."""
    if math.isfinite(activation.smoothness):
        return (activation.smoothness * reach + 4 * ROUND_OFF).expand_as(before)
    low, high = activation.slopes
    return torch.where(before.abs() <= reach, high - low, 4 * ROUND_OFF)
