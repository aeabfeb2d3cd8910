"""What becomes of each layer and direction of an RNN that is made unitary, and the layer that comes of it."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from steadyrnn.bounds.norms import above, input_slack
from steadyrnn.certificates.layer import Weights, read_weights
from steadyrnn.checks import check_interval, check_positive_int
from steadyrnn.errors import ArgumentError, ConversionError
from steadyrnn.layers.rnn import RNN
from steadyrnn.linalg.dilation import defect_rank, dilation_tolerance

from .approximate import DILATION_ERRORS, extend_saturating, required_silence, saturating_ball
from .dilate import Ball, Extension, choose_scaling, extend, find_ball, rounding_of_sums, scaled, silent_below
from .rnn import fresh_rnn
from .unitary_rnn import UnitaryPart, UnitaryReport, UnitaryRNN

__all__ = ["Part", "Plan", "Wish", "assemble", "make_plan", "report_on"]

EXACT = "Theorem 1 of Emami et al. (2019)"
ALREADY = "a plain copy: its recurrent weights are orthogonal already"
APPROXIMATE = "the converse of Theorem 3 of Emami et al. (2019) (docs/notes/mathematics.md, 1.6)"


@dataclass(frozen=True)
class Wish:
    """The arguments of a conversion, checked."""

    input_bound: float | None
    horizon: int | None
    approximate: bool
    initial_bound: float
    precision: float

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        bounds = {"input_bound": 0.0 if self.input_bound is None else self.input_bound, "initial_bound": self.initial_bound}
        for name, value in bounds.items():
            if not math.isfinite(check_interval(name, value, 0.0, math.inf)):
                raise ArgumentError(f"`{name}` must be finite, but is infinite.")
        if self.horizon is not None:
            check_positive_int("horizon", self.horizon)
        if not check_interval("precision", self.precision, 0.0, 1.0) > 0:
            raise ArgumentError(f"`precision` must be above 0, but is {self.precision}.")


@dataclass(frozen=True)
class Part:
    """One layer in one direction, before and after."""

    weights: Weights
    scaling: Tensor  # (H,)
    extension: Extension
    ball: Ball | None  # where its states lie; None if nothing depends on it


@dataclass(frozen=True)
class Plan:
    """All layers and directions, and what is promised of them."""

    wish: Wish
    theorem: str
    layers: list[list[Part]]
    error: float = 0.0

    @property
    def parts(self) -> list[Part]:
        """Every layer and direction, in the order of the states."""
        return [part for layer in self.layers for part in layer]

    @property
    def exact(self) -> bool:
        """Whether the outputs are the same in exact arithmetic."""
        return self.theorem != APPROXIMATE

    @property
    def balls(self) -> list[Ball]:
        """Where the states lie, as far as anything depends on it."""
        return [part.ball for part in self.parts if part.ball is not None]

    @property
    def rank(self) -> int:
        """The number of extra units."""
        return max(part.extension.rank for part in self.parts)

    @property
    def horizon(self) -> int | None:
        """The number of steps it holds for; None for any."""
        return min((ball.horizon for ball in self.balls if ball.horizon is not None), default=None)


def make_plan(rnn: RNN, wish: Wish) -> Plan:
    """Decide what is done with each layer and direction."""
    if rnn.weight_ih_l0.dtype not in (torch.float32, torch.float64):
        raise ConversionError(
            f"`rnn` has dtype {rnn.weight_ih_l0.dtype}, in which a contraction cannot be told from an orthogonal matrix: its "
            "rounding is too coarse. Convert the layer to float32 or float64 first."
        )
    activation, layers = rnn.activation, read_weights(rnn)
    if not activation.elementwise or activation.parameter_size(2) is not None:
        raise ConversionError(
            f"`rnn` has the activation {activation.name}, which is not one fixed function of each unit; the theorems "
            "(Emami et al.) are about such. Train with nonlinearity='relu'."
        )
    threshold, tolerance = silent_below(activation), _tolerance(rnn)
    if threshold is not None or all(_is_orthogonal(w.weight_hh, tolerance) for layer in layers for w in layer):
        return _plan_exact(rnn, layers, threshold or 0.0, wish)
    saturates = activation.kernel in DILATION_ERRORS
    if wish.approximate and saturates:
        return _plan_approximate(rnn, layers, wish)
    offer = " Pass `approximate=True` for one that is off by less than `precision`." if saturates else ""
    raise ConversionError(
        f"`rnn` has the activation {activation.name}, but Theorem 1 of Emami et al. (2019) needs one that is 0 below some "
        "threshold and nowhere steeper than 1, as ReLU is. By Theorem 3 of Emami et al. (2019) no unitary network with any "
        f"finite number of units equals every contractive one whose slopes are not 0.{offer}"
    )


def _unit(rnn: RNN) -> float:
    return torch.finfo(rnn.weight_ih_l0.dtype).eps / 2


def _tolerance(rnn: RNN) -> float:
    return dilation_tolerance(rnn.hidden_size, _unit(rnn))


def _is_orthogonal(weight: Tensor, tolerance: float) -> bool:
    values = torch.linalg.svdvals(weight)
    return bool(((values - 1).abs() <= tolerance).all())


def _plan_exact(rnn: RNN, layers: list[list[Weights]], threshold: float, wish: Wish) -> Plan:
    """Plan by Theorem 1: scalings first, then balls from the input upwards."""
    tolerance, homogeneous = _tolerance(rnn), rnn.activation.homogeneous
    limit = float(torch.finfo(rnn.weight_ih_l0.dtype).max) ** (1 / 3)
    scalings = [[choose_scaling(w.weight_hh, homogeneous, tolerance, limit) for w in layer] for layer in layers]
    ranks = [
        [defect_rank(scaled(w.weight_hh, d), tolerance) for w, d in zip(layer, row, strict=True)]
        for layer, row in zip(layers, scalings, strict=True)
    ]
    topmost = max((depth for depth, row in enumerate(ranks) if any(row)), default=-1)
    slack = input_slack(rnn.input_size, rnn.weight_ih_l0.dtype)
    bound = math.inf if wish.input_bound is None else above(wish.input_bound * slack)
    parts: list[list[Part]] = []
    for depth, layer in enumerate(layers):
        row = [
            _exact_part(rnn, w, d, threshold, bound, wish, depth < topmost) for w, d in zip(layer, scalings[depth], strict=True)
        ]
        parts.append(row)
        radii = [math.inf if part.ball is None else part.ball.in_gauge(torch.ones_like(part.scaling)) for part in row]
        bound = above(math.hypot(*radii) / (1 - rnn.dropout if rnn.dropout < 1 else 1.0))
    scales = any(bool((d != 1).any()) for row in scalings for d in row)
    return Plan(wish, EXACT if topmost >= 0 or scales else ALREADY, parts)


def _exact_part(rnn: RNN, weights: Weights, scaling: Tensor, threshold: float, bound: float, wish: Wish, feeds: bool) -> Part:
    """Enlarge one layer in one direction; ``bound`` is that of its input, ``feeds`` whether a later one has extra units."""
    unit, tolerance = _unit(rnn), _tolerance(rnn)
    weight = scaled(weights.weight_hh, scaling)
    rank = defect_rank(weight, tolerance)
    if not (rank or feeds):
        extension = extend(weight, 0.0, threshold, 0.0, tolerance, rnn.weight_ih_l0.dtype)
        return Part(weights, scaling, extension, None)
    initial = above(wish.initial_bound * input_slack(rnn.hidden_size, rnn.weight_ih_l0.dtype))
    ball = find_ball(weights, scaling, bound, initial, threshold, wish.horizon, unit)
    if ball is None:
        if wish.input_bound is None:
            raise ConversionError(
                "`input_bound` is None, but the bias that silences the extra units follows from it (Theorem 1)."
            )
        norm = float(torch.linalg.matrix_norm(weight, 2))
        raise ConversionError(
            f"`rnn` does not contract in {weights.name} beyond rounding (spectral norm {norm:.9g}), so its "
            "states may grow with every step: Theorem 1 of Emami et al. (2019) then needs a `horizon`, the number of steps"
            f"{'' if wish.horizon is None else ', and a smaller one than was given'}."
        )
    gamma = rounding_of_sums(weights, unit)
    extension = extend(weight, ball.in_gauge(scaling), threshold, gamma, tolerance, rnn.weight_ih_l0.dtype)
    return Part(weights, scaling, extension, ball)


def _plan_approximate(rnn: RNN, layers: list[list[Weights]], wish: Wish) -> Plan:
    """Plan by the converse of Theorem 3."""
    tolerance, unit, activation = _tolerance(rnn), _unit(rnn), rnn.activation
    ones = torch.ones(rnn.hidden_size, dtype=torch.float64, device="cpu")
    initial = above(wish.initial_bound * input_slack(rnn.hidden_size, rnn.weight_ih_l0.dtype))
    for layer in layers:
        for weights in layer:
            choose_scaling(weights.weight_hh, False, tolerance, 1.0)  # refuses a norm above 1
    given = (activation, layers, tolerance, wish.precision, rnn.dropout)
    (silence, error), horizon = required_silence(*given, None), None
    if not math.isfinite(silence) and wish.horizon is not None:
        (silence, error), horizon = required_silence(*given, wish.horizon), wish.horizon
    if not math.isfinite(silence):
        raise ConversionError(
            "`rnn` has a recurrent weight of spectral norm 1, under which an error of tanh units may grow with every step: "
            "the converse of Theorem 3 of Emami et al. (2019) then needs a `horizon`, the number of steps."
        )
    parts = []
    for layer in layers:
        row = []
        for weights in layer:
            ball, gamma = saturating_ball(weights, initial, horizon), rounding_of_sums(weights, unit)
            extension = extend_saturating(activation, weights.weight_hh, silence, ball.radius, gamma, tolerance)
            row.append(Part(weights, ones, extension, ball))
        parts.append(row)
    return Plan(wish, APPROXIMATE, parts, error)


def assemble(rnn: RNN, plan: Plan) -> UnitaryRNN:
    """Return the module of a plan; its report is still empty."""
    size, rank = rnn.hidden_size, plan.rank
    starts = any(bool(part.extension.rest.any()) for part in plan.parts)
    bias: bool | Literal["single"] = "single" if rank and rnn.bias is False else rnn.bias
    layer = fresh_rnn(rnn, size + rank, bias, rnn.learn_initial_state or starts)
    for depth, row in enumerate(plan.layers):
        below = plan.layers[depth - 1] if depth else None
        for way, part in enumerate(row):
            _fill(layer, RNN.suffix(depth, way), part, below, rnn.learn_initial_state)
    scaling = torch.stack([part.scaling for part in plan.parts])
    rest = torch.stack([_padded(part.extension.rest, rank) for part in plan.parts])
    balls = [part.ball for part in plan.parts]
    return UnitaryRNN(layer, size, None if bool((scaling == 1).all()) else scaling, rest, balls, report_on(rnn, plan, math.nan))


def _padded(vector: Tensor, size: int, value: float = 0.0) -> Tensor:
    """Lengthen a vector to ``size``."""
    return torch.cat([vector, vector.new_full((size - len(vector),), value)])


def _fill(layer: RNN, end: str, part: Part, below: list[Part] | None, learned: bool) -> None:
    """Write one layer in one direction: original units scaled, extra units, then idle ones up to the common width."""
    w, d, extra, width = part.weights, part.scaling, part.extension, layer.hidden_size
    idle = width - len(extra.weight)
    recurrent = torch.block_diag(extra.weight, torch.eye(idle, dtype=torch.float64, device="cpu"))
    weight = torch.zeros(width, layer._parameters[f"weight_ih{end}"].shape[1], dtype=torch.float64, device="cpu")  # type: ignore[union-attr]
    if below is None:
        weight[: w.size] = d.unsqueeze(1) * w.weight_ih
    else:
        for way, (columns, feeder) in enumerate(zip(w.weight_ih.split(w.size, dim=1), below, strict=True)):
            weight[: w.size, way * width : way * width + w.size] = d.unsqueeze(1) * columns / feeder.scaling
    biases = [torch.zeros(w.size, dtype=torch.float64, device="cpu") if b is None else d * b for b in (w.bias_ih, w.bias_hh)]
    first = _padded(torch.cat([biases[0] + extra.shift, extra.bias]), width, extra.idle)
    values = {"weight_hh": recurrent, "weight_ih": weight, "bias_ih": first, "bias_hh": _padded(biases[1], width)}
    start = w.initial[0] if w.initial else torch.zeros(w.size, dtype=torch.float64, device="cpu")
    values["initial_state"] = _padded(torch.cat([d * start, extra.rest]), width)
    for name, value in values.items():
        parameter = layer._parameters.get(f"{name}{end}")
        if parameter is None:
            continue
        parameter.copy_(value).requires_grad_(learned or name != "initial_state")
        if not bool(parameter.isfinite().all()):
            raise ConversionError(
                f"`{name}{end}` of the unitary network is beyond {parameter.dtype}. Convert to float64 first."
            )


def report_on(rnn: RNN, plan: Plan, self_check: float) -> UnitaryReport:
    """Return the report of a plan."""
    parts = tuple(
        UnitaryPart(
            part.weights.name,
            part.extension.rank,
            float(torch.linalg.matrix_norm(scaled(part.weights.weight_hh, part.scaling), 2)),
            part.ball.in_gauge(part.scaling) if part.ball is not None and plan.exact else None,
            None if bool((part.scaling == 1).all()) else tuple(part.scaling.tolist()),
        )
        for part in plan.parts
    )
    bounded = plan.wish.input_bound if plan.exact and plan.balls else None
    proven = all(ball.proven for ball in plan.balls)
    size = rnn.hidden_size
    return UnitaryReport(plan.theorem, size, size + plan.rank, parts, bounded, plan.horizon, plan.error, proven, self_check)
