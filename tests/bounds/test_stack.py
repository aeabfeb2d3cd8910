"""Stacks: the recursion of errors through the layers, exact and measured, and the window it asks for."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from steadyrnn.bounds.memory import horizon
from steadyrnn.bounds.norms import state_radius
from steadyrnn.bounds.stack import stack_errors, stack_horizon
from steadyrnn.errors import ArgumentError, ArgumentTypeError, CertificateError, NotFiniteError, ShapeError

layers = st.lists(st.tuples(st.floats(0, 0.999), st.floats(1e-3, 1e3), st.floats(0, 5)), min_size=1, max_size=4)


def exact_errors(rates: list[float], radii: list[float], gains: list[float], steps: int) -> list[Fraction]:
    """The sum form of Note [mathematics], section 5.4, in rational numbers."""
    below = [Fraction(0)] * (steps + 1)
    ends = []
    for rate, radius, gain in zip(map(Fraction, rates), map(Fraction, radii), map(Fraction, gains), strict=True):
        sums = [sum((rate ** (i - j) * below[j] for j in range(1, i + 1)), start=Fraction(0)) for i in range(steps + 1)]
        below = [rate**i * radius + gain * sums[i] for i in range(steps + 1)]
        ends.append(below[steps])
    return ends


@given(numbers=layers, steps=st.integers(0, 12))
def test_the_errors_are_above_the_exact_recursion_and_close(numbers: list[tuple[float, float, float]], steps: int) -> None:
    rates, radii, gains = (list(column) for column in zip(*numbers, strict=True))
    exact = exact_errors(rates, radii, gains, steps)
    found = map(Fraction, stack_errors(rates, radii, gains, steps))
    for value, truth in zip(found, exact, strict=True):
        assert truth <= value <= truth * (1 + Fraction(1, 10**11)) + Fraction(1, 10**280)


def test_two_layers_are_the_formula_stated() -> None:
    a, b, first, second, gain, steps = 0.7, 0.9, 3.0, 5.0, 2.0, 15
    formula = b**steps * second + gain * first * sum(b ** (steps - j) * a**j for j in range(1, steps + 1))
    assert stack_errors([a, b], [first, second], [1.0, gain], steps)[1] == pytest.approx(formula, rel=1e-12)


def test_coinciding_rates_cost_a_factor_of_the_steps() -> None:
    steps = 1000
    errors = stack_errors([0.99] * 3, [1.0] * 3, [1.0] * 3, steps)
    single = 0.99**steps
    assert errors[1] == pytest.approx(single * (1 + steps), rel=1e-9)
    assert errors[2] == pytest.approx(single * (1 + steps + steps * (steps + 1) / 2), rel=1e-9)


class Stack:
    """A random stack of contracting tanh layers."""

    def __init__(self, seed: int, depth: int) -> None:
        generator = torch.Generator().manual_seed(seed)

        def draw(norm: float) -> Tensor:
            matrix = torch.randn(4, 4, generator=generator, dtype=torch.float64)
            return norm * matrix / torch.linalg.matrix_norm(matrix, 2)

        self.rates, self.gains = [0.85] * depth, [1.5] * depth
        self.weights = [(draw(0.85 * (1 - 1e-12)), draw(1.5 * (1 - 1e-12))) for _ in range(depth)]
        self.x = torch.randn(80, 4, generator=generator, dtype=torch.float64)
        bound, self.radii = float(self.x.norm(dim=1).max()) * (1 + 1e-12), []
        for rate, gain in zip(self.rates, self.gains, strict=True):
            bound = min(state_radius(rate, gain * bound), 2.0)  # tanh keeps four units below 2
            self.radii.append(bound)

    def run(self, steps: int) -> list[Tensor]:
        states = [torch.zeros(4, dtype=torch.float64) for _ in self.weights]
        for x in self.x[len(self.x) - steps :]:
            for place, (weight, input_weight) in enumerate(self.weights):
                x = states[place] = torch.tanh(weight @ states[place] + input_weight @ x)
        return states


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("steps", [0, 1, 5, 20])
def test_every_layer_of_a_truncated_stack_is_within_its_bound(seed: int, depth: int, steps: int) -> None:
    stack = Stack(seed, depth)
    bounds = stack_errors(stack.rates, stack.radii, stack.gains, steps)
    for full, short, bound in zip(stack.run(len(stack.x)), stack.run(steps), bounds, strict=True):
        assert float((full - short).norm()) <= bound


def test_a_linear_stack_of_scalars_meets_the_bound() -> None:
    """With constant input every layer's states start at their radius, and every error has the same sign."""
    rate, gain, steps, depth = 0.5, 2.0, 12, 3
    radii = [1 / (1 - rate)]
    for _ in range(depth - 1):
        radii.append(gain * radii[-1] / (1 - rate))
    full, short = list(radii), [0.0] * depth
    for _ in range(steps):
        for states in (full, short):
            x = 1.0
            for place in range(depth):
                x = states[place] = rate * states[place] + (gain if place else 1.0) * x
    bounds = stack_errors([rate] * depth, radii, [1.0] + [gain] * (depth - 1), steps)
    for a, b, bound in zip(full, short, bounds, strict=True):
        assert a - b == pytest.approx(bound, rel=1e-11)


@given(rate=st.floats(0.1, 0.99), radius=st.floats(1e-2, 1e4), eps=st.floats(1e-6, 1.0))
def test_one_layer_is_the_plain_horizon(rate: float, radius: float, eps: float) -> None:
    assert abs(stack_horizon([rate], [radius], [1.0], eps) - horizon(rate, radius, eps)) <= (
        0 if abs(math.log(radius / eps) / math.log(1 / rate) % 1 - 0.5) < 0.499 else 1  # at a tie rounding decides
    )


@pytest.mark.parametrize(
    ("rates", "gains", "steps"), [([0.75], [1.0], 37), ([0.75, 0.75], [1.0, 1.0], 51), ([0.5, 0.75], [1.0, 1.0], 41)]
)
def test_the_window_of_a_stack_is_found(rates: list[float], gains: list[float], steps: int) -> None:
    radii = [40.0] * len(rates)
    assert stack_horizon(rates, radii, gains, eps=1e-3) == steps
    exact = [exact_errors(rates, radii, gains, k)[-1] for k in (steps - 1, steps)]
    assert exact[0] > Fraction(1e-3) >= exact[1]


@given(numbers=layers, eps=st.floats(1e-6, 10.0))
def test_every_longer_window_is_good_too(numbers: list[tuple[float, float, float]], eps: float) -> None:
    rates, radii, gains = (list(column) for column in zip(*numbers, strict=True))
    steps = stack_horizon(rates, radii, gains, eps)
    assert all(stack_errors(rates, radii, gains, k)[-1] <= eps for k in (*range(steps, steps + 20), 2 * steps, 10 * steps))


def test_a_window_that_is_good_at_first_only_is_not_taken() -> None:
    """A large error below arrives later: an upper layer may start within eps and leave it."""
    rates, radii, gains, eps = [0.9, 0.9], [10.0, 0.1], [1.0, 1.0], 0.5
    assert stack_errors(rates, radii, gains, 0)[-1] <= eps < stack_errors(rates, radii, gains, 10)[-1]
    steps = stack_horizon(rates, radii, gains, eps)
    assert steps > 10
    assert stack_errors(rates, radii, gains, steps)[-1] <= eps < stack_errors(rates, radii, gains, steps - 1)[-1]


def test_a_layer_that_has_long_forgotten_does_not_hold_up_a_slow_one() -> None:
    """The first two have underflowed where the third, which does not look down, is good."""
    assert stack_horizon([0.5, 0.0, 0.999], [1.0, 1.0, 1.0], [0.0, 2.0, 0.0], eps=0.5) == 693


def test_a_layer_that_does_not_look_down_does_not_wait() -> None:
    assert stack_errors([0.9, 0.5], [math.inf, 1.0], [1.0, 0.0], 3)[1] == pytest.approx(0.125)


@pytest.mark.parametrize(
    ("rates", "radii", "gains", "match"),
    [
        ([0.5, 1.0], [1.0, 1.0], [1.0, 1.0], "the rate of layer 1 is 1"),
        ([math.inf], [1.0], [1.0], "the rate of layer 0 is inf"),
        ([0.5], [math.inf], [1.0], "the radius of layer 0"),
        ([0.5, 0.5], [1.0, 1.0], [1.0, math.inf], "a gain is infinite"),
    ],
)
def test_what_a_stack_lacks_is_named(rates: list[float], radii: list[float], gains: list[float], match: str) -> None:
    with pytest.raises(CertificateError, match=match):
        stack_horizon(rates, radii, gains, eps=1e-3)


@pytest.mark.parametrize(("rates", "gains"), [([0.5, 1 - 2.0**-53], [1.0, 1.0]), ([0.5, 0.5, 0.5], [1e200, 1e200, 1e200])])
def test_what_float64_cannot_follow_is_said(rates: list[float], gains: list[float]) -> None:
    with pytest.raises(CertificateError, match="than float64 can follow"):
        stack_horizon(rates, [1.0] * len(rates), gains, eps=1e-3)


@pytest.mark.parametrize("numbers", [([], [], []), ([0.5], [1.0, 1.0], [1.0]), ([0.5, 0.5], [1.0, 1.0], [1.0])])
def test_there_is_one_number_a_layer(numbers: tuple[list[float], list[float], list[float]]) -> None:
    with pytest.raises(ShapeError, match="`rates`, `radii` and `gains` must hold one number a layer"):
        stack_errors(*numbers, steps=1)


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize(("bad", "error"), [(math.nan, NotFiniteError), (-1.0, ArgumentError), (None, ArgumentTypeError)])
def test_a_number_that_is_no_bound_is_refused_by_name(place: int, bad: float, error: type[Exception]) -> None:
    numbers = [[0.5], [1.0], [1.0]]
    numbers[place] = [bad]
    with pytest.raises(error, match=f"`{['rates', 'radii', 'gains'][place]}`"):
        stack_errors(*numbers, steps=1)


@pytest.mark.parametrize(("eps", "error"), [(0.0, ArgumentError), (math.nan, NotFiniteError)])
def test_an_error_that_no_window_reaches_is_refused(eps: float, error: type[Exception]) -> None:
    with pytest.raises(error, match="`eps`"):
        stack_horizon([0.5], [1.0], [1.0], eps)
