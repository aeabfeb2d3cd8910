"""One layer run in windows: how long they are, when they are good enough, and what is proven then."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from steadyrnn.activations import Sigmoid, Tanh
from steadyrnn.bounds.memory import product_above, state_radius
from steadyrnn.bounds.norms import MaxNorm, above
from steadyrnn.bounds.parallel import required_warmup, rounding_error
from steadyrnn.cells.base import State
from steadyrnn.cells.rnn import RNNStep
from steadyrnn.certificates.layer import LayerCertificate
from steadyrnn.engines.base import Recurrence
from steadyrnn.engines.ops import is_kept
from steadyrnn.engines.parallel import OVERHEAD, SETUP, WindowRun, Windows, choose_windows, largest_norm
from steadyrnn.engines.rounding import Sizes, local_rounding
from steadyrnn.engines.select import ENGINES, select
from steadyrnn.errors import NotFiniteError

from .parallel_gradients import Evidence, Masks, Smooth, constants_of, frozen, gradient_warmup, is_kinked
from .parallel_report import LayerRun

__all__ = ["Asked", "Done", "run_layer"]

_NOISE = 8
"""Below this many units of rounding of the state, a measured mismatch says nothing: there a warm-up is not cut short."""


class Asked(NamedTuple):
    """What a layer is run for."""

    tol: float  # of its own truncation, in the 2-norm
    chunk: int | None
    gradient_tol: float | None
    refusal: str | None  # why there is no bound on its gradient


class Done(NamedTuple):
    """What a layer gives."""

    output: Tensor  # (T, B, H)
    state: State  # each (B, H)
    record: LayerRun
    evidence: Evidence


class Bounds(NamedTuple):
    """What is known of a layer's states before it runs."""

    inputs: float  # 2-norm of every input
    initial: float  # of every initial h
    radius: float  # norm of every state, in that of the contraction
    states: float  # 2-norm of every state
    flat: float  # of every computed h, where it is a product of values in [-1, 1]; else 0


def run_layer(run: Recurrence, requested: str, certificate: LayerCertificate, sizes: Sizes, asked: Asked) -> Done:
    """Run one layer in windows until it is proven to be good enough.

    Args:
        run: The layer with its input and initial state.
        requested: An engine's name or ``"auto"``.
        certificate: Of the layer's weights, with a rate below 1.
        sizes: Of the layer's weights.
        asked: Tolerances.
    """
    bounds = bounds_of(run, certificate)
    windows = windows_for(run, certificate, bounds, asked)
    if windows.number == 1:
        choice = select(requested, run)
        output, state = ENGINES[choice.engine].run(run)
        rounding = rounding_of(run, certificate, sizes, bounds, math.inf if bounds.flat else largest_norm(output))[0]
        return Done(
            output, state, record_of(certificate, windows, 0, 0.0, rounding, choice.engine), Evidence(None, asked.refusal)
        )
    kinked = asked.refusal is None and is_kinked(certificate) and is_kept(run.tensors)
    parallel = WindowRun(run, requested, windows, certificate.best, bounds.radius, kinked, measure=not bounds.flat)
    while parallel.truncation > asked.tol:
        parallel.sweep()
    evidence = evidence_of(parallel, certificate, sizes, bounds, asked)
    while kinked and asked.gradient_tol is not None and evidence.worst() > asked.gradient_tol:
        parallel.sweep()
        evidence = evidence_of(parallel, certificate, sizes, bounds, asked)
    output = parallel.output()
    rounding = rounding_of(run, certificate, sizes, bounds, parallel.largest)[0]
    engine = "" if parallel.choice is None else parallel.choice.engine
    record = record_of(certificate, windows, parallel.sweeps, parallel.truncation, rounding, engine)
    return Done(output, parallel.final(output), record, evidence)


def record_of(
    certificate: LayerCertificate, windows: Windows, sweeps: int, truncation: float, rounding: float, engine: str
) -> LayerRun:
    """Return the record of a run."""
    best = certificate.best
    k, chunk, number = windows
    depth = windows.depth(sweeps)
    return LayerRun(certificate.name, best.rate, best.norm.name, k, chunk, number, sweeps, depth, truncation, rounding, engine)


@torch.no_grad()
def bounds_of(run: Recurrence, certificate: LayerCertificate) -> Bounds:
    r"""Return bounds on inputs and states: the certificate's, or what follows from the inputs at hand.

    :math:`N(h_t) \le \max(N(h_0), (N(\varphi(b)) + L_x \sup \lVert x \rVert) / (1 - \lambda))` (MATH 4.1).
    """
    best, cell = certificate.best, certificate.weights.cell
    inputs, (initial, *others) = largest_norm(run.input), [largest_norm(state) for state in run.state]
    if not math.isfinite(inputs + initial + sum(others)):
        raise NotFiniteError("`input` or `hx` holds NaN or infinity; nothing can be said of it or done with it.")
    flat = above(max(math.sqrt(certificate.weights.size), initial))
    if not isinstance(cell, RNNStep):
        return Bounds(inputs, initial, certificate.radius, certificate.state_bound, flat)
    weights, norm = certificate.weights, best.norm
    rest = above(float(norm(cell.activation.value(weights.bias, weights.theta))), 64 + 8 * norm.size)
    radius = state_radius(best.rate, above(rest + product_above(certificate.input_gain, inputs)))
    states = above(radius / norm.lower)
    if certificate.input_bound is None or inputs <= certificate.input_bound:
        radius, states = min(radius, certificate.radius), min(states, certificate.state_bound)
    first = above(float(norm(run.state[0]).max()), 64 + 8 * norm.size) if run.state[0].numel() else 0.0
    flat = flat if isinstance(cell.activation, Tanh | Sigmoid) else 0.0
    return Bounds(inputs, initial, max(radius, first), max(states, initial, above(first / norm.lower)), flat)


def windows_for(run: Recurrence, certificate: LayerCertificate, bounds: Bounds, asked: Asked) -> Windows:
    """Return the windows to run in."""
    best, x = certificate.best, run.input
    steps, rows, width = x.shape
    size, gates = run.state[0].shape[-1], len(run.cell.gates)
    warmup = required_warmup(best.rate, bounds.radius, asked.tol, gain=above(1 / best.norm.lower))
    if asked.gradient_tol is not None:
        constants = constants_of(certificate, bounds.states, bounds.inputs)
        warmup = max(warmup, gradient_warmup(constants, bounds.states, asked.gradient_tol))
    kind = x.device.type if x.device.type in OVERHEAD else "cuda"
    row_cost = 2 * gates * size * (size + width) / OVERHEAD[kind]
    gamble = asked.gradient_tol is None and asked.tol > _NOISE * torch.finfo(x.dtype).eps / 2 * bounds.states
    return choose_windows(steps, rows, warmup, row_cost, asked.chunk, gamble, SETUP[kind])


def rounding_of(
    run: Recurrence, certificate: LayerCertificate, sizes: Sizes, bounds: Bounds, largest: float
) -> tuple[float, float]:
    """Return the bound on rounding in the 2-norm, and that of one step."""
    best, cell = certificate.best, 0.0
    hidden = bounds.flat or max(largest, bounds.initial)
    if isinstance(best.norm, MaxNorm):
        cell = product_above(bounds.radius, float(best.norm.weights.max()))
    local = local_rounding(run, sizes, hidden, bounds.inputs, cell)
    return product_above(rounding_error(best.rate, product_above(best.norm.upper, local)), 1 / best.norm.lower), local


def evidence_of(parallel: WindowRun, certificate: LayerCertificate, sizes: Sizes, bounds: Bounds, asked: Asked) -> Evidence:
    """Return what is known of the gradient of a run."""
    if asked.refusal is not None or not is_kept(parallel.recurrence.tensors):
        return Evidence(None, asked.refusal)
    rounding, local = rounding_of(parallel.recurrence, certificate, sizes, bounds, parallel.largest)
    reached = above(max(parallel.largest, bounds.initial) + parallel.truncation + rounding)
    states = min(bounds.states, reached)
    constants = constants_of(certificate, states, bounds.inputs)
    if is_kinked(certificate):
        return Evidence(Masks(constants, states, frozen(parallel), rounding, local))
    return Evidence(Smooth(constants, states, parallel.windows, parallel.sweeps))
