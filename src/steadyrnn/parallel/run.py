"""One layer run in windows: how long they are, when they are good enough, and what is proven then."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from steadyrnn.activations import Sigmoid, Tanh
from steadyrnn.bounds.norms import MaxNorm, above, product_above, state_radius
from steadyrnn.bounds.parallel import required_warmup, rounding_error
from steadyrnn.cells.base import State
from steadyrnn.cells.rnn import RNNStep
from steadyrnn.certificates.largest_norm import LargestNorms, largest_norm
from steadyrnn.certificates.layer import LayerCertificate
from steadyrnn.certificates.rounding import Sizes, local_rounding
from steadyrnn.engines.base import Recurrence
from steadyrnn.engines.cuda.loops.windows import fused_costs, input_part
from steadyrnn.engines.loop.ops import is_kept
from steadyrnn.engines.select import ENGINES, select
from steadyrnn.engines.windows import Windows
from steadyrnn.errors import NotFiniteError

from .gradients import Evidence, Masks, Smooth, frozen, gradient_norms, gradient_warmup, is_kinked
from .plan import OVERHEAD, SETUP, choose_fused, choose_windows
from .report import LayerRun
from .window_run import WindowRun, fuses

__all__ = ["Asked", "Done", "decay_of", "likely_warmup", "run_layer"]

_NOISE = 8
"""Below this many units of rounding of the state, a measured mismatch says nothing: there a warm-up is not cut short."""


class Asked(NamedTuple):
    """What a layer is run for."""

    tol: float  # of its own truncation, in the 2-norm
    chunk: int | None
    gradient_tol: float | None
    refusal: str | None  # why there is no bound on its gradient
    decay: tuple[float, ...] = ()  # how fast powers of its weight shrink
    cold: bool = False  # whether its initial state is known to be zero
    meanwhile: Callable[[], None] | None = None  # what to start on the device before results are waited for


class Done(NamedTuple):
    """What a layer gives."""

    output: Tensor  # (T, B, H)
    state: State  # each (B, H)
    record: LayerRun
    evidence: Evidence


@dataclass
class Bounds:
    """What is known of a layer's states before it runs."""

    norms: LargestNorms  # of the inputs, and of the initial states
    initial: float  # 2-norm of every initial h
    radius: float  # norm of every state, in that of the contraction
    states: float  # 2-norm of every state
    flat: float  # of every computed h, where it is a product of values in [-1, 1]; else 0

    @cached_property
    def inputs(self) -> float:
        """Bound on the 2-norm of every input; asked for late, since it must be waited for."""
        largest = self.norms.value()[0]
        if not math.isfinite(largest):
            raise NotFiniteError("`input` holds NaN or infinity; nothing can be said of it or done with it.")
        return largest


def run_layer(run: Recurrence, requested: str, certificate: LayerCertificate, sizes: Sizes, asked: Asked) -> Done:
    """Run one layer in windows until it is proven to be good enough.

    Args:
        run: The layer with its input and initial state.
        requested: An engine's name or ``"auto"``.
        certificate: Of the layer's weights, with a rate below 1.
        sizes: Of the layer's weights.
        asked: Tolerances.
    """
    gates = input_part(run) if run.input.numel() and fuses(run, requested) else None  # the device is not to wait for plans
    certificate, bounds = choose_tier(run, certificate, asked)
    windows, fused = windows_for(run, certificate, bounds, asked, gates is not None)
    gates = gates if fused else None
    if windows.number == 1:
        choice = select(requested, run)
        output, state = ENGINES[choice.engine].run(run)
        rounding = rounding_of(run, certificate, sizes, bounds, math.inf if bounds.flat else largest_norm(output))[0]
        return Done(
            output, state, record_of(certificate, windows, 0, 0.0, rounding, choice.engine), Evidence(None, asked.refusal)
        )
    kinked = asked.refusal is None and is_kinked(certificate) and is_kept(run.tensors)
    parallel = WindowRun(
        run, requested, windows, certificate.best, bounds.radius, kinked, not bounds.flat, asked.meanwhile, gates
    )
    # Before it is known whether these windows are good enough: that is still on its way, and mostly they are.
    state, rounding = settled(parallel, certificate, sizes, bounds)
    while (truncation := parallel.truncation) > asked.tol:
        parallel.sweep()
    evidence = evidence_of(parallel, certificate, sizes, bounds, asked)
    while kinked and asked.gradient_tol is not None and evidence.worst() > asked.gradient_tol:
        parallel.sweep()
        evidence, truncation = evidence_of(parallel, certificate, sizes, bounds, asked), parallel.truncation
    if parallel.sweeps:
        state, rounding = settled(parallel, certificate, sizes, bounds)
    engine = "" if parallel.choice is None else parallel.choice.engine
    record = record_of(certificate, windows, parallel.sweeps, truncation, rounding, engine)
    return Done(parallel.output(), state, record, evidence)


def settled(parallel: WindowRun, certificate: LayerCertificate, sizes: Sizes, bounds: Bounds) -> tuple[State, float]:
    """Return final states and the bound on rounding, for windows as they are now."""
    if not bounds.flat and not math.isfinite(parallel.largest):
        raise NotFiniteError(
            "`input` holds NaN or infinity, or drives states there; nothing can be said of it or done with it."
        )
    rounding = rounding_of(parallel.recurrence, certificate, sizes, bounds, parallel.largest)[0]
    return parallel.final(parallel.output()), rounding


def record_of(
    certificate: LayerCertificate, windows: Windows, sweeps: int, truncation: float, rounding: float, engine: str
) -> LayerRun:
    """Return the record of a run."""
    best = certificate.best
    k, chunk, number = windows
    depth = windows.depth(sweeps)
    return LayerRun(certificate.name, best.rate, best.norm.name, k, chunk, number, sweeps, depth, truncation, rounding, engine)


def choose_tier(run: Recurrence, certificate: LayerCertificate, asked: Asked) -> tuple[LayerCertificate, Bounds]:
    """Return the certificate with the contraction that needs the shortest warm-up, and bounds in its norm.

    A smaller rate is not always better: its norm may be far from the 2-norm, in which the tolerance is.
    """
    norms = LargestNorms(run.input, *run.state)
    first = certificate.tiers[0]  # a rate that is not below the spectral norm's has nothing for it
    better = [tier for tier in certificate.tiers if tier.contraction.rate < min(first.contraction.rate, 1.0)]
    ways = [certificate.using(tier) for tier in ([first] if first.contraction.stable else []) + better]
    found = [(way, bounds_of(run, way, asked.cold, norms)) for way in ways]
    return found[0] if len(found) == 1 else min(found, key=lambda way: warmup_of(way[0], way[1], asked))


def warmup_of(certificate: LayerCertificate, bounds: Bounds, asked: Asked) -> int:
    """Return the warm-up that is proven to be enough."""
    best = certificate.best
    warmup = required_warmup(best.rate, bounds.radius, asked.tol, gain=above(1 / best.norm.lower))
    if asked.gradient_tol is None:
        return warmup
    norms = gradient_norms(certificate, bounds.radius, bounds.states, bounds.inputs)
    return max(warmup, gradient_warmup(norms, asked.gradient_tol))


@torch.no_grad()
def bounds_of(run: Recurrence, certificate: LayerCertificate, cold: bool, norms: LargestNorms) -> Bounds:
    r"""Return bounds on inputs and states: the certificate's, or what follows from the inputs at hand.

    :math:`N(h_t) \le \max(N(h_0), (N(\varphi(b)) + L_x \sup \lVert x \rVert) / (1 - \lambda))` (MATH 4.1).
    """
    best, cell = certificate.best, certificate.weights.cell
    saturates = flattens(certificate)
    if cold and saturates and certificate.input_bound is None:  # then nothing below depends on the inputs
        flat = above(math.sqrt(certificate.weights.size))
        return Bounds(norms, 0.0, certificate.radius, certificate.state_bound, flat)
    inputs, initial, *others = norms.value()
    if not math.isfinite(inputs + initial + sum(others)):
        raise NotFiniteError("`input` or `hx` holds NaN or infinity; nothing can be said of it or done with it.")
    flat = above(max(math.sqrt(certificate.weights.size), initial))
    if not isinstance(cell, RNNStep):
        return Bounds(norms, initial, certificate.radius, certificate.state_bound, flat)
    weights, norm = certificate.weights, best.norm
    rest = above(float(norm(cell.activation.value(weights.bias, weights.theta))), 64 + 8 * norm.size)
    radius = state_radius(best.rate, above(rest + product_above(certificate.input_gain, inputs)))
    states = above(radius / norm.lower)
    if certificate.input_bound is None or inputs <= certificate.input_bound:
        radius, states = min(radius, certificate.radius), min(states, certificate.state_bound)
    first = product_above(norm.upper, initial)
    if first > radius:  # then it is worth waiting for
        first = above(float(norm(run.state[0]).max()), 64 + 8 * norm.size)
    flat = flat if saturates else 0.0
    return Bounds(norms, initial, max(radius, first), max(states, initial, above(first / norm.lower)), flat)


def flattens(certificate: LayerCertificate) -> bool:
    """Say whether the states of an RNN are values of tanh or sigmoid."""
    cell = certificate.weights.cell
    return isinstance(cell, RNNStep) and isinstance(cell.activation, Tanh | Sigmoid)


def windows_for(
    run: Recurrence, certificate: LayerCertificate, bounds: Bounds, asked: Asked, fuses: bool
) -> tuple[Windows, bool]:
    """Return the windows to run in, and whether one kernel, where it can, is to run them all: the cheaper way, by a model."""
    best, x = certificate.best, run.input
    steps, rows, width = x.shape
    size, gates = run.state[0].shape[-1], len(run.cell.gates)
    warmup = warmup_of(certificate, bounds, asked)
    kind = x.device.type if x.device.type in OVERHEAD else "cuda"
    row_cost = 2 * gates * size * (size + width) / OVERHEAD[kind]
    gamble = asked.gradient_tol is None and asked.tol > _NOISE * torch.finfo(x.dtype).eps / 2 * bounds.states
    likely = likely_warmup(asked.decay, asked.tol * best.norm.lower / (8 * max(bounds.radius, asked.tol)))
    plan = choose_windows(steps, rows, warmup, row_cost, asked.chunk, gamble, SETUP[kind], likely, lanes_of(x))
    if not fuses:
        return plan.windows, False
    lanes, cost, setup = fused_costs(x.device, size)
    other = choose_fused(steps, rows, warmup, lanes, cost, asked.chunk, gamble, setup, likely, is_kept(run.tensors))
    fused = other.windows.number > 1 and (asked.chunk is not None or other.cost < plan.cost)
    return other.windows if fused else plan.windows, fused


def lanes_of(x: Tensor) -> int:
    """Return how many multiprocessors run rows side by side; 1 on a CPU."""
    return torch.cuda.get_device_properties(x.device).multi_processor_count if x.device.type == "cuda" else 1


def decay_of(certificate: LayerCertificate) -> tuple[float, ...]:
    r"""Return :math:`\lVert W^k \rVert_F` for k = 1, 2, 4, ... of an RNN; nothing for a gated layer."""
    weights = certificate.weights
    if not isinstance(weights.cell, RNNStep):
        return ()
    power, found = weights.cell.activation.steepness[1] * weights.weight_hh, []
    for _ in range(12):
        found.append(float(torch.linalg.matrix_norm(power)))
        power = power @ power
    return tuple(found)


def likely_warmup(decay: tuple[float, ...], enough: float) -> int | None:
    r"""Return after how many steps an error has probably shrunk to ``enough`` of itself.

    Nothing is proven by it: a linear network shrinks an error by :math:`\lVert W^k \rVert` in k steps, and others mostly
    faster still. Between powers of two the logarithm is taken for a line. None where it takes longer than is known.

    Example:
        >>> likely_warmup((0.5, 0.25, 0.0625), 0.1)
        4
    """
    for place, norm in enumerate(decay):
        if norm <= enough:
            if place == 0 or norm == 0:
                return int(2**place)
            above_it, low = math.log(decay[place - 1]), math.log(norm)
            part = (above_it - math.log(enough)) / (above_it - low)
            return math.ceil(2.0 ** (place - 1) * (1 + part))
    return None


def rounding_of(
    run: Recurrence, certificate: LayerCertificate, sizes: Sizes, bounds: Bounds, largest: float
) -> tuple[float, float]:
    """Return the bound on rounding in the 2-norm, and that of one step."""
    best, cell = certificate.best, 0.0
    hidden = bounds.flat or max(largest, bounds.initial)
    if isinstance(best.norm, MaxNorm):
        cell = product_above(bounds.radius, float(best.norm.weights.max()))
    local = local_rounding(run, sizes, hidden, bounds.inputs, cell)
    total = product_above(rounding_error(best.rate, product_above(best.norm.upper, local)), 1 / best.norm.lower)
    return min(total, above(2 * bounds.flat)) if bounds.flat else total, local  # two values of tanh are not farther apart


def evidence_of(parallel: WindowRun, certificate: LayerCertificate, sizes: Sizes, bounds: Bounds, asked: Asked) -> Evidence:
    """Return what is known of the gradient of a run."""
    if asked.refusal is not None or not is_kept(parallel.recurrence.tensors):
        return Evidence(None, asked.refusal)
    rounding, local = rounding_of(parallel.recurrence, certificate, sizes, bounds, parallel.largest)
    reached = above(max(parallel.largest, bounds.initial) + parallel.truncation + rounding)
    states = min(bounds.states, reached)
    norms = gradient_norms(certificate, bounds.radius, states, bounds.inputs)
    if is_kinked(certificate):
        return Evidence(Masks(norms, frozen(parallel), rounding, local))
    return Evidence(Smooth(norms, parallel.windows, parallel.sweeps))
