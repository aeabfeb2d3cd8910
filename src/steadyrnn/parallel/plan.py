"""Plan the run of one layer: bounds on its states, the warm-up that is enough, and the windows that cost least."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from steadyrnn.bounds.memory import required_warmup, rounding_error
from steadyrnn.bounds.norms import MaxNorm, above, product_above, state_radius
from steadyrnn.certificates.layer import LayerCertificate
from steadyrnn.certificates.rounding import LargestNorms, Sizes, local_rounding
from steadyrnn.engines.base import Recurrence, Windows
from steadyrnn.engines.cuda.loops.windows import fused_costs
from steadyrnn.engines.loop.ops import is_kept
from steadyrnn.errors import NotFiniteError

from .gradients import gradient_norms, gradient_warmup

__all__ = [
    "OVERHEAD",
    "SETUP",
    "Bounds",
    "Plan",
    "Request",
    "choose_fused",
    "choose_windows",
    "likely_warmup",
    "list_ways",
    "measure_decay",
    "plan_windows",
    "rounding_of",
    "share_tolerance",
    "stack_gain",
    "warmups_of",
]

OVERHEAD = {"cpu": 2**18, "cuda": 3 * 2**19}
"""What a step costs however few rows it has, in floating-point operations of its products."""
SETUP = {"cpu": 64, "cuda": 4096}
"""What windows cost however many steps they have, in steps of few rows."""

_HALF = 0.7
"""What a step of a kernel costs with at most half of its rows, relative to all of them."""
_NOISE = 8
"""Below this many units of rounding of the state, a measured mismatch says nothing: there a warm-up is not cut short."""


class Request(NamedTuple):
    """What a layer is run for."""

    tol: float  # of its own truncation, in the 2-norm
    chunk: int | None
    gradient_tol: float | None
    refusal: str | None  # why there is no bound on its gradient
    decay: tuple[float, ...] = ()  # how fast powers of its weight shrink
    cold: bool = False  # whether its initial state is known to be zero
    meanwhile: Callable[[], None] | None = None  # what to start on the device before results are waited for
    linked: bool = False  # whether its states are compared with another run's: see Note [mathematics], section 6.7


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
        """Bound on the 2-norm of every input. It is read late, because reading it waits for the device."""
        largest = self.norms.value()[0]
        if not math.isfinite(largest):
            raise NotFiniteError("`input` holds NaN or infinity, of which nothing can be proven.")
        return largest

    def with_inputs(self, inputs: float) -> "Bounds":
        """Return the same with another bound on the inputs."""
        found = replace(self)
        found.__dict__["inputs"] = inputs
        return found


def stack_gain(certificate: LayerCertificate) -> float:
    """Return what an error of a layer's input, in the 2-norm, becomes at its output; Note [mathematics], section 5.4."""
    tiers = [tier for tier in certificate.tiers if tier.contraction.stable]
    return min(
        product_above(tier.input_gain, 1 / (1 - tier.contraction.rate), 1 / tier.contraction.norm.lower) for tier in tiers
    )


def share_tolerance(tol: float, gains: Sequence[float], place: int) -> float:
    """Return the truncation allowed to a layer, so that with what layers above make of it none exceeds ``tol``."""
    worst, product = 1.0, 1.0
    for gain in gains[place + 1 :]:
        product = product_above(product, gain)
        worst = max(worst, product)
    return tol / len(gains) / worst * (1 - 2.0**-40)


def list_ways(run: Recurrence, certificate: LayerCertificate, request: Request) -> list[tuple[LayerCertificate, Bounds]]:
    """Return the certificate with each contraction that may need the shortest warm-up, and bounds in its norm."""
    norms = LargestNorms(run.input, *run.state)
    first = certificate.tiers[0]  # a rate that is not below the spectral norm's has no advantage
    better = [tier for tier in certificate.tiers if tier.contraction.rate < min(first.contraction.rate, 1.0)]
    ways = [certificate.using(tier) for tier in ([first] if first.contraction.stable else []) + better]
    return [(way, bounds_of(run, way, request.cold, norms)) for way in ways]


def warmups_of(ways: Sequence[tuple[LayerCertificate, Bounds]], request: Request) -> list[int]:
    """Return the warm-up that each way needs; where there is one way, that is not computed.

    The shortest is not always that of the smallest rate: its norm may be far from the 2-norm, in which the tolerance is.
    """
    return [required_steps(*way, request) for way in ways] if len(ways) > 1 else [0]


@torch.no_grad()
def bounds_of(run: Recurrence, certificate: LayerCertificate, cold: bool, norms: LargestNorms) -> Bounds:
    r"""Return bounds on inputs and states: the certificate's, or what follows from the inputs at hand.

    :math:`N(h_t) \le \max(N(h_0), (N(\varphi(b)) + L_x \sup \lVert x \rVert) / (1 - \lambda))`;
    Note [mathematics], section 4.1.
    """
    tier, weights = certificate.tier, certificate.weights
    activation = weights.cell.record.activation
    # of a user's own function, a computed value may be larger than the bound by rounding
    saturates = activation is not None and activation.kernel is not None and activation.bounded_by <= 1
    if cold and saturates and certificate.input_bound is None:  # then nothing below depends on the inputs
        return Bounds(norms, 0.0, tier.radius, certificate.state_bound, above(math.sqrt(weights.size)))
    inputs, initial, *others = norms.value()
    if not math.isfinite(inputs + initial + sum(others)):
        raise NotFiniteError("`input` or `hx` holds NaN or infinity, of which nothing can be proven.")
    flat = above(max(math.sqrt(weights.size), initial))
    if activation is None:
        return Bounds(norms, initial, tier.radius, certificate.state_bound, flat)
    norm = tier.contraction.norm
    rest = above(float(norm(activation.value(weights.bias, weights.theta))), 64 + 8 * norm.size)
    radius = state_radius(tier.contraction.rate, above(rest + product_above(tier.input_gain, inputs)))
    states = above(radius / norm.lower)
    if certificate.input_bound is None or inputs <= certificate.input_bound:
        radius, states = min(radius, tier.radius), min(states, certificate.state_bound)
    first = product_above(norm.upper, initial)
    if first > radius:  # then it is worth waiting for
        first = above(float(norm(run.state[0]).max()), 64 + 8 * norm.size)
    flat = flat if saturates else 0.0
    return Bounds(norms, initial, max(radius, first), max(states, initial, above(first / norm.lower)), flat)


def rounding_of(
    run: Recurrence, certificate: LayerCertificate, sizes: Sizes, bounds: Bounds, largest: float
) -> tuple[float, float]:
    """Return the bound on rounding in the 2-norm, and that of one step, for outputs of 2-norm up to ``largest``."""
    best, cell = certificate.best, 0.0
    hidden = bounds.flat or max(largest, bounds.initial)
    if isinstance(best.norm, MaxNorm):
        cell = product_above(bounds.radius, float(best.norm.weights.max()))
    local = local_rounding(run, sizes, hidden, bounds.inputs, cell)
    total = product_above(rounding_error(best.rate, product_above(best.norm.upper, local)), 1 / best.norm.lower)
    return min(total, above(2 * bounds.flat)) if bounds.flat else total, local  # two values of tanh are not farther apart


def required_steps(certificate: LayerCertificate, bounds: Bounds, request: Request) -> int:
    """Return the warm-up that is proven to be enough."""
    best = certificate.best
    warmup = required_warmup(best.rate, bounds.radius, request.tol, gain=above(1 / best.norm.lower))
    if request.gradient_tol is None:
        return warmup
    norms = gradient_norms(certificate, bounds.radius, bounds.states, bounds.inputs)
    return max(warmup, gradient_warmup(norms, request.gradient_tol))


def plan_windows(
    run: Recurrence, certificate: LayerCertificate, bounds: Bounds, request: Request, fuses: bool
) -> tuple[Windows, bool]:
    """Return the windows to run in, and whether one kernel is to run them all: the cheaper way, by a model of their cost.

    Args:
        run: The layer with its input.
        certificate: With the contraction that counts.
        bounds: On its states.
        request: Tolerances.
        fuses: Whether there is a kernel that runs all windows.
    """
    best, x = certificate.best, run.input
    steps, rows, width = x.shape
    size, gates = run.state[0].shape[-1], len(run.cell.record.gates)
    warmup = required_steps(certificate, bounds, request)
    kind = x.device.type if x.device.type in OVERHEAD else "cuda"
    row_cost = 2 * gates * size * (size + width) / OVERHEAD[kind]
    gamble = request.gradient_tol is None and request.tol > _NOISE * torch.finfo(x.dtype).eps / 2 * bounds.states
    likely = likely_warmup(request.decay, request.tol * best.norm.lower / (8 * max(bounds.radius, request.tol)))
    plan = choose_windows(steps, rows, warmup, row_cost, request.chunk, gamble, SETUP[kind], likely, lanes_of(x))
    if not fuses:
        return plan.windows, False
    lanes, cost, setup = fused_costs(x.device, size)
    other = choose_fused(steps, rows, warmup, lanes, cost, request.chunk, gamble, setup, likely, is_kept(run.tensors))
    fused = other.windows.number > 1 and (request.chunk is not None or other.cost < plan.cost)
    return other.windows if fused else plan.windows, fused


def lanes_of(x: Tensor) -> int:
    """Return how many multiprocessors run rows side by side; 1 on a CPU."""
    return torch.cuda.get_device_properties(x.device).multi_processor_count if x.device.type == "cuda" else 1


def measure_decay(certificate: LayerCertificate) -> tuple[float, ...]:
    r"""Return :math:`\gamma^k \lVert W^k \rVert_F` for k = 1, 2, 4, ... of an RNN; nothing for a gated layer."""
    activation = certificate.weights.cell.record.activation
    if activation is None:
        return ()
    power, found = activation.steepness[1] * certificate.weights.weight_hh, []
    for _ in range(12):
        found.append(float(torch.linalg.matrix_norm(power)))
        power = power @ power
    return tuple(found)


def likely_warmup(decay: tuple[float, ...], enough: float) -> int | None:
    r"""Return after how many steps an error has probably shrunk to ``enough`` of itself.

    Nothing is proven by it: a linear network shrinks an error by :math:`\lVert W^k \rVert` in k steps, and others mostly
    faster still. Between powers of two the logarithm is interpolated. None where ``decay`` does not reach that far.

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


class Plan(NamedTuple):
    """Windows and what they are expected to cost, in units of a step of few rows."""

    windows: Windows
    cost: float


@lru_cache(1024)  # called again on every call of a layer
def choose_windows(
    steps: int,
    rows: int,
    warmup: int,
    row_cost: float,
    chunk: int | None = None,
    gamble: bool = True,
    setup: int = 0,
    likely: int | None = None,
    lanes: int = 1,
) -> Plan:
    r"""Choose windows by a model of their cost.

    A step with r rows costs :math:`1 + c r`, in units of what it costs with none. Windows of C steps behind k of warm-up
    then cost :math:`(C + k)(1 + c B T / C)`, which is least for :math:`C = \sqrt{c k B T}`. C is kept at k or more, so that
    work and memory at most double. A warm-up that is sure to be enough is seldom needed: a shorter one that is likely to be
    is taken instead, and where none is known a quarter of the sure one, if that is longer than a quarter of C; sweeps
    repair what it lacks, if anything. Where the sequential run costs no more than windows would, a sweep included if one
    may be needed, there is one window. The number of windows and the warm-up are adjusted, so that the last window is whole.

    Args:
        steps: T.
        rows: B.
        warmup: The warm-up that is sure to be enough.
        row_cost: c.
        chunk: C, if it is not to be chosen.
        gamble: Whether a shorter warm-up may be tried.
        setup: What windows cost beside their steps.
        likely: A warm-up that will probably be enough, if one is known.
        lanes: How many rows the device runs at the price of one; their number is made a multiple of it, or a bit less.

    Example:
        >>> choose_windows(100_000, 1, warmup=155, row_cost=0.1).windows
        Windows(warmup=160, chunk=1248, number=80)
        >>> choose_windows(100, 1, warmup=155, row_cost=0.1).windows
        Windows(warmup=0, chunk=100, number=1)
    """
    work, sweeps = row_cost * rows, 0
    best = _best_chunk(steps, warmup, work) if chunk is None else chunk
    if gamble and (likely is None or likely >= warmup) and 4 * warmup > best:
        likely = -(-warmup // 4)
    if gamble and likely is not None and likely < warmup:
        warmup, sweeps = likely, 1
        best = _best_chunk(steps, warmup, work) if chunk is None else chunk
    sequential = Plan(Windows(0, steps, 1), steps * (1 + work))
    if warmup + best >= steps or rows == 0:
        return sequential
    number = -(-(steps - warmup) // best)
    if chunk is not None:
        return Plan(Windows(warmup, best, number), 0.0)
    full = number * rows // lanes * lanes // rows  # 0 where not even one round of lanes is filled
    chosen = _whole_windows(steps, warmup, full or number, lanes if full else 1)
    costs = setup + chosen.depth(sweeps) * (1 + work * chosen.number)
    return Plan(chosen, costs) if costs < sequential.cost else sequential


@lru_cache(1024)
def choose_fused(
    steps: int, rows: int, warmup: int, lanes: int, step_cost: float, chunk: int | None = None, gamble: bool = True,
    setup: int = 0, likely: int | None = None, sparing: bool = False,
) -> Plan:  # fmt: skip
    """Choose windows for a kernel that runs ``lanes`` rows side by side, each step of them at one price.

    The last window may be cut off: the kernel stops at the end of time. Arguments are those of :func:`choose_windows`, with

    Args:
        steps: T.
        rows: B, above 0.
        warmup: The warm-up that is sure to be enough.
        lanes: Rows that run side by side.
        step_cost: What a step of them costs, in units of a step of few rows; of half as many, seven tenths of it.
        chunk: C, if it is not to be chosen.
        gamble: Whether a shorter warm-up may be tried.
        setup: What windows cost beside their steps.
        likely: A warm-up that will probably be enough, if one is known.
        sparing: Whether windows are to be no shorter than warm-ups, so that memory for all steps at most doubles.

    Example:
        >>> choose_fused(100_000, 1, warmup=155, lanes=200, step_cost=2.0).windows
        Windows(warmup=155, chunk=500, number=200)
    """
    sweeps = 0
    if gamble and likely is not None and likely < warmup:
        warmup, sweeps = likely, 1
    best = Plan(Windows(0, steps, 1), math.inf)
    for halves in (1, 2, 4, 6, 8):
        size = max(-(-(steps - warmup) // max(halves * lanes // (2 * rows), 2)), warmup if sparing else 0)
        size = size if chunk is None else chunk
        number = 0 if size < 1 else -(-(steps - warmup) // size)
        if number < 2:
            continue
        found = Windows(warmup, size, number)
        passes = _HALF if 2 * number * rows <= lanes else -(-number * rows // lanes)
        best = min(best, Plan(found, setup + found.depth(sweeps) * step_cost * passes), key=lambda plan: plan.cost)
    return best


def _best_chunk(steps: int, warmup: int, work: float) -> int:
    return max(math.isqrt(math.ceil(work * warmup * steps)), warmup, 1)


def _whole_windows(steps: int, warmup: int, number: int, lanes: int) -> Windows:
    """Return about ``number`` windows without a rest behind the last one; the warm-up is made longer by it."""
    spread = min(number // 8, 32)
    near = range(max(2, number - spread), number + (spread if lanes == 1 else 0) + 1)
    best = min(near, key=lambda count: (max((steps - warmup) % count - warmup // 4, 0), abs(count - number)))
    return Windows(warmup + (steps - warmup) % best, (steps - warmup) // best, best)
