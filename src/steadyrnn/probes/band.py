"""The certified band that measured gradient norms lie in, lag by lag."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steadyrnn.activations import Activation
from steadyrnn.bounds.norms import ROUND_OFF, above, below, power_above, product_above, spectral_norm_bound
from steadyrnn.bounds.sandwich import gradient_sandwich, singular_enclosure
from steadyrnn.certificates.certify import read_layers
from steadyrnn.certificates.layer import Weights
from steadyrnn.errors import CertificateError

from .adjoint import matrix_norms
from .losses import Partials
from .unrolled import Unrolled

__all__ = ["Band", "certified_band"]

SANDWICH = "Theorem 1 of Lin and Wang, with singular values (docs/notes/mathematics.md, 3.3)"
_TINY = 2.0**-1022  # the smallest number that float64 holds to full precision


@dataclass(frozen=True)
class Band:
    """Bounds on spectral and Frobenius norm at every lag, rows first low then high, shape (2, N) each; and their proof."""

    spectral: Tensor
    frobenius: Tensor
    source: str


@dataclass(frozen=True)
class StepBounds:
    """Bounds on the Jacobian of many steps, shape (N,) each, lag by lag.

    ``low`` and ``high`` enclose its spectral norm, and times the root of its size its Frobenius norm; ``least`` is below
    its smallest singular value; ``entry`` is above the norm of its product with the derivative by the first input.
    """

    low: Tensor
    high: Tensor
    least: Tensor
    entry: Tensor
    source: str


def certified_band(run: Unrolled, partials: Partials | None, wrt: str) -> Band:
    """Return bounds on what :func:`~steadyrnn.probes.adjoint.walk_back` measures, NaN where no theorem gives any.

    Args:
        run: The network on its input, all layers.
        partials: Derivatives of a loss, or None.
        wrt: ``"state"`` or ``"input"``.
    """
    count = run.steps + (wrt == "state")
    try:
        bounds = _step_bounds(run, count)
        if wrt == "input":
            _check_direct(run, partials)
    except CertificateError as error:
        nothing = torch.full((2, count), torch.nan, dtype=torch.float64, device="cpu")
        return Band(nothing, nothing.clone(), f"no certified band: {error}")
    high = bounds.high if wrt == "state" else bounds.entry
    if partials is None:
        band = torch.stack([bounds.low if wrt == "state" else torch.zeros_like(high), high])
        size = run.weights[-1].size * run.weights[-1].cell.states
        rank = size if wrt == "state" else min(size, run.inputs.shape[2])
        widths = torch.tensor([[below(math.sqrt(rank))], [above(math.sqrt(rank))]], dtype=torch.float64, device="cpu")
        return Band(band, band * widths, bounds.source)
    least = bounds.least if wrt == "state" else torch.zeros_like(high)
    band = _of_losses(least, high, partials) if partials.per_step else _of_loss(least, high, partials)
    return Band(band, band, bounds.source)


def _check_direct(run: Unrolled, partials: Partials | None) -> None:
    """Refuse a way from the input that no theorem here follows."""
    if len(run.weights) > 1:
        raise CertificateError("the derivative by the input goes through every layer of the stack")
    if partials is not None and bool(partials.inputs.any()):
        raise CertificateError("the readout sees the input past the recurrence (`skip`)")


def _step_bounds(run: Unrolled, count: int) -> StepBounds:
    """Return bounds on the Jacobian of 0 to ``count - 1`` steps of the top layer."""
    top = run.weights[-1]
    activation = top.cell.record.activation
    if activation is not None:
        return _of_rnn(top, activation, count)
    longest = float(torch.linalg.vector_norm(run.inputs.double(), dim=-1).max())
    longest = above(longest, 16 + run.inputs.shape[2])
    layer = read_layers(run.rnn, longest)[-1]
    found = layer.best
    if not math.isfinite(found.rate):
        raise CertificateError(f"{found.theorem} gives no finite rate")
    powers = [power_above(found.rate, lag) for lag in range(count)]
    high = [1.0, *(product_above(power, found.norm.condition) for power in powers[1:])]
    entry = [product_above(power, above(layer.tier.input_gain / found.norm.lower)) for power in powers]
    least = [1.0] + [0.0] * (count - 1)
    source = f"{found.theorem}: rate {found.rate:.6g} in the {found.norm.name}, inputs of norm up to {longest:.6g}"
    return StepBounds(_as_tensor(least), _as_tensor(high), _as_tensor(least), _as_tensor(entry), source)


def _of_rnn(weights: Weights, activation: Activation, count: int) -> StepBounds:
    """Return the sandwich of an Elman layer."""
    steepness: tuple[float, float] = activation.steepness
    if not activation.elementwise:
        if weights.theta is None or not math.isfinite(activation.slope_bounds(weights.theta)[1]):
            raise CertificateError(f"{activation.name} with a positive shift is not Lipschitz (docs/notes/mathematics.md, 3.9)")
        steepness = (0.0, steepness[1])
    values = singular_enclosure(weights.weight_hh)
    weakest = replace(values, mean=values.smallest)  # with all singular values so small, the norm is the smallest one
    low, high = zip(*(gradient_sandwich(values, steepness, lag) for lag in range(count)), strict=True)
    least = [gradient_sandwich(weakest, steepness, lag)[0] for lag in range(count)]
    gain = above(steepness[1] * spectral_norm_bound(weights.weight_ih))
    entry = [product_above(number, gain) for number in high]
    step = gradient_sandwich(values, steepness, 1)
    source = f"{SANDWICH}: a step multiplies the norm by {step[0]:.6g} to {step[1]:.6g}"
    return StepBounds(_as_tensor(low), _as_tensor(high), _as_tensor(least), _as_tensor(entry), source)


def _as_tensor(numbers: Sequence[float]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64, device="cpu")


def _of_loss(least: Tensor, high: Tensor, partials: Partials) -> Tensor:
    r"""Return the band of one loss's gradient by lag, (2, N): the sum over what it sees at later times.

    .. math:: \Bigl\lVert \frac{dL}{ds_t} \Bigr\rVert \le \sum_{u \ge t} \text{high}(u - t)
        \Bigl\lVert \frac{\partial L}{\partial h_u} \Bigr\rVert

    A lower bound is known where the loss sees the last output only: a vector shrinks at most by the least singular value.
    """
    sizes = _sizes(partials)  # (T, B)
    steps, count = len(sizes), len(high)
    highs = torch.zeros(count, dtype=torch.float64, device="cpu")
    for lag in range(count):
        first = max(steps - lag, 1)  # at time 0 the loss sees nothing
        seen = sizes[first - 1 :]
        weights = high[first - (steps - lag) : lag + 1].unsqueeze(-1)
        highs[lag] = torch.where(seen == 0, 0.0, weights * seen).sum(0).max()
    last = sizes[-1].min() if not bool(sizes[:-1].any()) else torch.zeros((), device="cpu").double()
    roundings = torch.full((count,), steps + partials.states.shape[-1], device="cpu")
    return torch.stack([_round_down(least * last, roundings), _round_up(highs, roundings)])


def _of_losses(least: Tensor, high: Tensor, partials: Partials) -> Tensor:
    """Return the band of the gradients of one loss per step, by distance."""
    sizes, roundings = _sizes(partials), torch.full(high.shape, partials.states.shape[-1], device="cpu")
    largest = sizes.max()
    highs = high * largest if largest > 0 else torch.zeros_like(high)
    return torch.stack([_round_down(least * sizes.min(), roundings), _round_up(highs, roundings)])


def _sizes(partials: Partials) -> Tensor:
    """Return the 2-norm of what the loss sees at every time and row, (T, B), float64, on the CPU."""
    steps, rows, size = partials.states.shape
    return matrix_norms(partials.states.reshape(-1, 1, size))[0].view(steps, rows).cpu()


def _round_up(values: Tensor, roundings: Tensor) -> Tensor:
    """Return numbers above what that many roundings, and 64 more, have made of ``values``; never 0 by underflow."""
    return (values * (1 + (roundings + 64) * ROUND_OFF)).clamp(min=_TINY)


def _round_down(values: Tensor, roundings: Tensor) -> Tensor:
    """Return numbers below what that many roundings, and 64 more, have made of ``values``; 0 where precision is lost."""
    return torch.where(values > 2 * _TINY, values * (1 - (roundings + 64) * ROUND_OFF), 0.0)
