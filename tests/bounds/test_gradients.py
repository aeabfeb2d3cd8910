"""Gradients of truncated models: the constants of a layer, and the bounds made of them, against autograd."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from steadyrnn.activations import Sigmoid, Tanh
from steadyrnn.bounds.gradients import (
    Constants,
    gradient_smoothness,
    gradient_truncation_error,
    layer_constants,
    squared_loss_constants,
    weight_sensitivity,
)
from steadyrnn.bounds.norms import state_radius
from steadyrnn.errors import ArgumentError, NotFiniteError

ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], float, float]] = {
    "identity": (lambda a: a, 1.0, 0.0),
    "tanh": (torch.tanh, 1.0, Tanh.smoothness),
    "sigmoid": (torch.sigmoid, 0.25, Sigmoid.smoothness),
}


@dataclass
class Problem:
    """A random stable layer with a squared loss at the last time, and all its constants."""

    activation: str
    seed: int
    rate: float = 0.8
    time: int = 40
    units: int = 4
    inputs: int = 3

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(self.seed)

        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.step, self.slope, self.smoothness = ACTIVATIONS[self.activation]
        self.weight = self.clipped(draw(self.units, self.units) * 3)
        self.input_weight = draw(self.units, self.inputs)
        self.bias = 0.1 * draw(self.units)
        self.readout, self.target = draw(2, self.units), draw(2)
        self.x = draw(self.time, self.inputs)
        self.bound_constants(torch.linalg.matrix_norm(self.input_weight, 2) * 1.2)

    def clipped(self, weight: Tensor) -> Tensor:
        return weight * (self.rate / self.slope / float(torch.linalg.matrix_norm(weight, 2))) * (1 - 1e-12)

    def bound_constants(self, input_norm: Tensor) -> None:
        """Constants that hold for every input weight up to this norm and every bias up to 1."""
        self.input_bound = float(self.x.norm(dim=1).max())
        start = self.slope * (float(input_norm) * self.input_bound + 1.0) + 0.5 * math.sqrt(self.units)
        self.state_bound = state_radius(self.rate, start)
        self.constants = layer_constants(
            self.rate, self.smoothness, self.state_bound, self.input_bound, bias=True, slope=self.slope
        )
        readout = float(torch.linalg.matrix_norm(self.readout, 2)) * (1 + 1e-12)
        self.loss = squared_loss_constants(readout, self.state_bound, float(self.target.norm()) * (1 + 1e-12))

    def parameters(self) -> list[Tensor]:
        return [p.clone().requires_grad_() for p in (self.weight, self.input_weight, self.bias)]

    def state(self, parameters: list[Tensor], x: Tensor) -> Tensor:
        weight, input_weight, bias = parameters
        h = torch.zeros(self.units, dtype=torch.float64)
        for row in x:
            h = self.step(weight @ h + input_weight @ row + bias)
        return h

    def gradient(self, parameters: list[Tensor], x: Tensor) -> Tensor:
        loss = (self.readout @ self.state(parameters, x) - self.target).square().sum() / 2
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)])


@pytest.mark.parametrize(("steps", "figure"), [(1, 2.0), (2, 2.0), (3, 1.5), (5, 0.625)])
def test_the_kept_part_of_the_error_is_k_times_the_power_k_minus_one(steps: int, figure: float) -> None:
    """A scalar linear layer with a = 1/2 and constant input meets it; the printed power k is half of it."""
    rate, radius, time = 0.5, 2.0, 200
    full = [0.0]
    for _ in range(time):
        full.append(rate * full[-1] + 1)
    # the truncated run reaches at time t the state that the full one had k - (T - t) steps after its start
    kept = sum(rate ** (time - t) * (full[t - 1] - full[t - 1 - (time - steps)]) for t in range(time - steps + 1, time + 1))
    assert kept == pytest.approx(figure, rel=1e-13)
    assert steps * rate ** (steps - 1) * radius == figure
    assert kept == pytest.approx(2 * steps * rate**steps * radius, rel=1e-13)


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 10])
def test_the_bound_holds_for_the_scalar_layer_that_breaks_the_printed_one(steps: int) -> None:
    a = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)

    def last(length: int) -> Tensor:
        h = torch.zeros((), dtype=torch.float64)
        for _ in range(length):
            h = a * h + 1
        return h

    (full,), (short,) = (torch.autograd.grad(last(length), a) for length in (200, steps))
    linear = Constants(rate=0.5, input_gain=1.0, weight_gain=2.0, b_hh=0.0, b_wh=1.0, b_hw=1.0, b_ww=0.0)
    bound = gradient_truncation_error(linear, steps, state_bound=2.0, loss_gain=1.0, loss_smoothness=0.0)
    assert float(full - short) <= bound * (1 + 1e-13)
    assert float(full - short) >= 0.99 * bound  # the instance meets the bound


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("steps", [0, 1, 4, 12, 25])
def test_the_gradient_of_a_truncated_model_is_within_the_bound(activation: str, steps: int) -> None:
    ratios = []
    for seed in range(4):
        problem = Problem(activation, seed)
        parameters, time = problem.parameters(), problem.time
        full = problem.gradient(parameters, problem.x)
        short = problem.gradient(parameters, problem.x[time - steps :]) if steps else torch.zeros_like(full)
        bound = gradient_truncation_error(problem.constants, steps, problem.state_bound, *problem.loss)
        ratios.append(float((full - short).norm()) / bound)
    assert 0 < max(ratios) <= 1


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("seed", range(4))
def test_states_and_gradients_move_with_the_parameters_no_faster_than_the_bounds(activation: str, seed: int) -> None:
    problem = Problem(activation, seed)
    first = problem.parameters()
    generator = torch.Generator().manual_seed(seed + 100)
    noise = [torch.randn(p.shape, generator=generator, dtype=torch.float64) for p in first]
    second = [(p + 0.01 * n).detach() for p, n in zip(first, noise, strict=True)]
    second = [p.requires_grad_() for p in (problem.clipped(second[0]), *second[1:])]
    distance = math.sqrt(sum(float((p - q).detach().square().sum()) for p, q in zip(first, second, strict=True)))
    states = problem.state(first, problem.x) - problem.state(second, problem.x)
    gradients = problem.gradient(first, problem.x) - problem.gradient(second, problem.x)
    assert 0 < float(states.detach().norm()) <= weight_sensitivity(problem.constants) * distance
    assert 0 < float(gradients.norm()) <= gradient_smoothness(problem.constants, *problem.loss) * distance


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_each_constant_of_a_layer_bounds_what_it_is_named_after(activation: str) -> None:
    problem = Problem(activation, seed=7)
    c, generator = problem.constants, torch.Generator().manual_seed(8)
    x = problem.x[0]

    def step(h: Tensor, parameters: tuple[Tensor, ...]) -> Tensor:
        return problem.step(parameters[0] @ h + parameters[1] @ x + parameters[2])

    def jacobians(h: Tensor, parameters: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        in_h, *in_w = torch.autograd.functional.jacobian(lambda h, *w: step(h, w), (h, *parameters))
        return in_h, torch.cat([j.reshape(problem.units, -1) for j in in_w], dim=1)

    def norm(matrix: Tensor) -> float:
        return float(torch.linalg.matrix_norm(matrix, 2))

    def state() -> Tensor:
        h = torch.randn(problem.units, generator=generator, dtype=torch.float64)
        return h * (min(1.0, problem.state_bound) / h.norm())

    for _ in range(10):
        h, k, w = state(), state(), (problem.weight, problem.input_weight, problem.bias)
        v = (problem.clipped(w[0] + 0.1 * torch.randn(w[0].shape, generator=generator, dtype=torch.float64)), *w[1:])
        moved, dh = float((w[0] - v[0]).norm()), float((h - k).norm())
        (hh, hw), (kh, kw), (vh, vw) = jacobians(h, w), jacobians(k, w), jacobians(h, v)
        assert norm(hh) <= c.rate
        assert norm(hw) <= c.weight_gain
        assert norm(hh - kh) <= c.b_hh * dh + 1e-14
        assert norm(hw - kw) <= c.b_wh * dh + 1e-14
        assert norm(hh - vh) <= c.b_hw * moved + 1e-14
        assert norm(hw - vw) <= c.b_ww * moved + 1e-14


def test_without_its_slope_the_constants_of_a_sigmoid_would_be_too_small() -> None:
    """The second derivative stands beside the norm of W, which is the rate over the slope."""
    right = layer_constants(0.5, Sigmoid.smoothness, 1.0, 1.0, bias=False, slope=0.25)
    assert right.b_hh == pytest.approx(Sigmoid.smoothness * 4, rel=1e-12)  # ||W|| = 2
    assert layer_constants(0.5, Sigmoid.smoothness, 1.0, 1.0, bias=False).b_hh < right.b_hh / 15


@pytest.mark.parametrize(
    ("function", "place", "figure"),
    [(torch.tanh, 0.6585, 4 / (3 * math.sqrt(3))), (torch.sigmoid, 1.3170, 1 / (6 * math.sqrt(3)))],
)
def test_the_second_derivative_is_largest_where_stated(
    function: Callable[[Tensor], Tensor], place: float, figure: float
) -> None:
    x = torch.linspace(-4, 4, 80_001, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    index = int(second.abs().argmax())
    assert float(second.abs()[index]) == pytest.approx(figure, rel=1e-7)
    assert abs(float(x.detach()[index])) == pytest.approx(place, abs=2e-4)
    assert figure == pytest.approx({0.6585: 0.7698, 1.3170: 0.0962}[place], abs=5e-5)


@pytest.mark.parametrize(("bias", "gain"), [(False, 5.0), (True, math.sqrt(26)), (2, math.sqrt(27))])
def test_the_constants_are_those_of_the_table(bias: bool | int, gain: float) -> None:
    found = layer_constants(0.5, 0.75, state_bound=3.0, input_bound=4.0, bias=bias, input_gain=2.0)
    expected = Constants(0.5, 2.0, gain, 0.75 * 0.25, 0.75 * 0.5 * gain + 1, 0.75 * 0.5 * gain + 1, 0.75 * gain**2)
    for name in ("rate", "input_gain", "weight_gain", "b_hh", "b_wh", "b_hw", "b_ww"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-13)


def test_two_biases_move_the_state_more_than_one() -> None:
    """As torch's layers have them: both count among the parameters, and their sum moves twice as far."""
    step, norm = 1e-3, math.sqrt(2) * 1e-3  # the distance of the parameters if both biases move by a step
    moved = 2 * step / (1 - 0.5)  # h = h/2 + b + c, after a long time
    one, two = (layer_constants(0.5, 0.0, state_bound=0.0, input_bound=0.0, bias=count) for count in (1, 2))
    assert weight_sensitivity(one) * norm < moved <= weight_sensitivity(two) * norm * (1 + 1e-15)


def test_a_negative_number_of_biases_is_refused() -> None:
    with pytest.raises(ArgumentError, match="`bias`"):
        layer_constants(0.5, 0.0, 1.0, 1.0, bias=-1)


def test_a_linear_layer_has_no_curvature() -> None:
    linear = layer_constants(0.9, 0.0, state_bound=math.inf, input_bound=1.0, bias=True)
    assert (linear.b_hh, linear.b_ww) == (0.0, 0.0)
    assert linear.b_wh == pytest.approx(1.0, rel=1e-14)


def test_a_kink_makes_the_bounds_infinite() -> None:
    relu = layer_constants(0.5, math.inf, state_bound=1.0, input_bound=1.0, bias=False)
    assert relu.b_hh == relu.b_wh == relu.b_ww == math.inf
    assert gradient_truncation_error(relu, 10, 1.0, 1.0, 1.0) == math.inf
    assert gradient_smoothness(relu, 1.0, 1.0) == math.inf
    assert weight_sensitivity(relu) < math.inf


@pytest.mark.parametrize("rate", [1.0, 1.5, math.inf])
def test_without_a_contraction_the_bounds_are_infinite(rate: float) -> None:
    free = layer_constants(rate, 1.0, state_bound=1.0, input_bound=1.0, bias=False)
    assert gradient_truncation_error(free, 10, 1.0, 1.0, 1.0) == math.inf
    assert gradient_smoothness(free, 1.0, 1.0) == weight_sensitivity(free) == math.inf


numbers = st.floats(0, 1e3)


@given(
    rate=st.floats(0, 0.999), gain=numbers, b=st.tuples(numbers, numbers, numbers, numbers), loss=st.tuples(numbers, numbers)
)
def test_the_smoothness_is_above_the_exact_number_and_close(
    rate: float, gain: float, b: tuple[float, float, float, float], loss: tuple[float, float]
) -> None:
    q, w, (hh, wh, hw, ww), (p, s) = 1 - Fraction(rate), Fraction(gain), map(Fraction, b), map(Fraction, loss)
    exact = s * w * w / q**2 + p * (wh * w / q**2 + ww / q + w * hw / q**2 + w * w * hh / q**3)
    found = Fraction(gradient_smoothness(Constants(rate, 1.0, gain, *b), *loss))
    assert exact <= found <= exact * (1 + Fraction(1, 10**12)) + Fraction(1, 10**280)


@given(rate=st.floats(0, 0.999), steps=st.integers(0, 50), n=st.tuples(*[numbers] * 6))
def test_the_truncation_error_of_the_gradient_is_above_the_exact_number_and_close(
    rate: float, steps: int, n: tuple[float, ...]
) -> None:
    q, (w, hh, wh, radius, p, s) = Fraction(rate), map(Fraction, n)
    exact = q**steps * w / (1 - q) * (p + s * radius)
    if steps:
        exact += steps * q ** (steps - 1) * p * radius * (wh + w * hh / (1 - q))
    constants = Constants(rate, 1.0, n[0], n[1], n[2], 1.0, 1.0)
    found = Fraction(gradient_truncation_error(constants, steps, n[3], n[4], n[5]))
    assert exact <= found <= exact * (1 + Fraction(1, 10**12)) + Fraction(1, 10**270)


@pytest.mark.parametrize("name", ["rate", "input_gain", "weight_gain", "b_hh", "b_wh", "b_hw", "b_ww"])
@pytest.mark.parametrize(("bad", "error"), [(math.nan, NotFiniteError), (-1.0, ArgumentError)])
def test_a_constant_that_is_no_bound_is_refused_by_name(name: str, bad: float, error: type[Exception]) -> None:
    numbers = {"rate": 0.5, "input_gain": 1.0, "weight_gain": 1.0, "b_hh": 0.0, "b_wh": 1.0, "b_hw": 1.0, "b_ww": 0.0}
    with pytest.raises(error, match=f"`{name}`"):
        Constants(**{**numbers, name: bad})


@pytest.mark.parametrize("slope", [0.0, -1.0])
def test_a_slope_is_greater_than_zero(slope: float) -> None:
    with pytest.raises(ArgumentError, match="`slope`"):
        layer_constants(0.5, 1.0, 1.0, 1.0, bias=False, slope=slope)


def test_a_negative_number_of_steps_is_refused() -> None:
    with pytest.raises(ArgumentError, match="`steps`"):
        gradient_truncation_error(layer_constants(0.5, 1.0, 1.0, 1.0, bias=False), -1, 1.0, 1.0, 1.0)
