"""How far back a contraction remembers: the bounds are above the exact numbers, close to them, and met by networks."""

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from steadyrnn.bounds.memory import first_step, horizon, truncation_error
from steadyrnn.bounds.norms import power_above, product_above, state_radius
from steadyrnn.checks import check_count
from steadyrnn.errors import ArgumentError, ArgumentTypeError, CertificateError, NotFiniteError

CLOSE = 1 + Fraction(1, 10**12)
rates = st.floats(0, 1, exclude_max=True)
sizes = st.floats(0, 1e12)


def run(weight: Tensor, inputs: Tensor, start: Tensor, activation: Callable[[Tensor], Tensor] = torch.tanh) -> Tensor:
    h = start
    for x in inputs:
        h = activation(weight @ h + x)
    return h


@given(rate=rates, start=sizes, initial=sizes)
def test_the_radius_is_above_the_exact_number_and_close(rate: float, start: float, initial: float) -> None:
    exact = max(Fraction(initial), Fraction(start) / (1 - Fraction(rate)))
    found = state_radius(rate, start, initial)
    assert found == math.inf or exact <= Fraction(found) <= exact * CLOSE + Fraction(1, 10**300)


@given(rate=rates, radius=sizes, steps=st.integers(0, 60))
def test_the_truncation_error_is_above_the_exact_number_and_close(rate: float, radius: float, steps: int) -> None:
    exact = Fraction(radius) * Fraction(rate) ** steps
    assert exact <= Fraction(truncation_error(rate, radius, steps)) <= exact * CLOSE + Fraction(1, 10**295)


@given(rate=st.floats(0.01, 0.99), radius=st.floats(1e-6, 1e6), eps=st.floats(1e-9, 1e3), gain=st.floats(1e-3, 1e3))
def test_the_horizon_is_enough_and_one_step_less_is_not(rate: float, radius: float, eps: float, gain: float) -> None:
    steps = horizon(rate, radius, eps, gain)
    error = [Fraction(gain) * Fraction(radius) * Fraction(rate) ** k for k in (steps, steps - 1)]
    assert error[0] <= Fraction(eps)
    assert steps == 0 or error[1] * CLOSE > Fraction(eps)


@pytest.mark.parametrize(
    ("rate", "start", "steps", "bare"),
    [(0.75, 10.0, 37, 10.6), (0.99, 1.0, 1146, 11.5), (0.99, 10.0, 1375, 13.8)],
)
def test_the_horizon_is_the_logarithm_over_that_of_the_rate(rate: float, start: float, steps: int, bare: float) -> None:
    radius = state_radius(rate, start)
    assert horizon(rate, radius, eps=1e-3) == steps
    assert math.log(radius / 1e-3) == pytest.approx(bare, abs=0.05)  # what the paper's O(log) suggests


def test_a_readout_lengthens_the_horizon_by_its_gain() -> None:
    assert horizon(0.5, 1.0, eps=2.0**-10 * 1.01, gain=8.0) == horizon(0.5, 8.0, eps=2.0**-10 * 1.01) == 13


@pytest.mark.parametrize("rate", [0.5, 0.9, 0.99])
def test_aligned_inputs_meet_the_bound(rate: float) -> None:
    v = torch.tensor([0.6, 0.8], dtype=torch.float64)
    weight, time, steps = rate * torch.outer(v, v), 4000, 20
    inputs = v.expand(time, 2)
    zero = torch.zeros(2, dtype=torch.float64)
    full, short = (run(weight, x, zero, lambda a: a) for x in (inputs, inputs[-steps:]))
    measured, bound = float((full - short).norm()), truncation_error(rate, state_radius(rate, 1.0), steps)
    assert 0.9999 * bound < measured <= bound + 4 * 2.0**-53 * float(full.norm())  # the run itself is rounded


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("steps", [0, 1, 5, 30])
def test_random_networks_stay_within_the_bound(seed: int, steps: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    weight *= 0.9 / torch.linalg.matrix_norm(weight, 2)
    inputs = torch.randn(60, 6, generator=generator, dtype=torch.float64)
    zero, rate = torch.zeros(6, dtype=torch.float64), float(torch.linalg.matrix_norm(weight, 2)) * (1 + 1e-14)
    radius = state_radius(rate, float(inputs.norm(dim=1).max()))
    full, short = run(weight, inputs, zero), run(weight, inputs[len(inputs) - steps :], zero)
    assert float(full.norm()) <= radius
    assert float((full - short).norm()) <= truncation_error(rate, radius, steps)


def test_what_a_zero_state_and_zero_input_give_must_be_counted() -> None:
    h = 0.0
    for _ in range(100):
        h = 0.5 * h + 1.0  # a bias of 1 and no input
    assert h > state_radius(0.5, start=0.0)
    assert h <= state_radius(0.5, start=1.0)


def test_a_large_initial_state_must_be_counted() -> None:
    assert state_radius(0.5, 1.0, initial=10.0) == 10.0


def test_an_unstable_system_is_arbitrarily_far_from_its_truncation() -> None:
    """Proposition 3 of Miller and Hardt: an impulse at time 1 is h_t = 2^(t-1), and no window from k + 1 on sees it."""
    h, window = 0.0, 5
    for time in range(1, 40):
        h = 2 * h + (time == 1)
        seen = 2.0 ** (time - 1) if time <= window else 0.0
        assert h == 2.0 ** (time - 1)
        assert h - seen == (0 if time <= window else 2.0 ** (time - 1))
    assert state_radius(2.0, 1.0) == math.inf
    assert truncation_error(2.0, 1.0, window) >= 2.0**window  # the state left out is 2^(t-1-k)


@pytest.mark.parametrize("rate", [1.0, 1.5, math.inf])
def test_without_a_contraction_the_radius_is_infinite(rate: float) -> None:
    assert state_radius(rate, 1.0) == math.inf


@pytest.mark.parametrize(("rate", "initial"), [(1.0, 3.0), (0.5, 3.0), (7.0, 0.0), (math.inf, 0.0)])
def test_where_nothing_enters_the_state_does_not_grow(rate: float, initial: float) -> None:
    assert state_radius(rate, 0.0, initial) == initial


def test_what_underflows_is_not_called_zero() -> None:
    assert 0 < truncation_error(0.5, 1.0, 5000) < 1e-300
    assert truncation_error(0.5, 0.0, 5) == truncation_error(0.0, 5.0, 1) == truncation_error(0.0, math.inf, 1) == 0


def test_a_large_radius_is_weighed_against_an_underflowing_power() -> None:
    exact = Fraction(10) ** 300 * Fraction(1, 2**1500)
    assert exact <= Fraction(truncation_error(0.5, 1e300, 1500)) <= exact * CLOSE


@pytest.mark.parametrize("steps", [10**6, 2**60, 10**400])
def test_any_number_of_steps_is_taken(steps: int) -> None:
    assert truncation_error(0.9, 1.0, steps) < 1e-300
    assert truncation_error(1.0, 3.0, steps) >= 3.0
    assert truncation_error(1.1, 1.0, steps) == math.inf


def test_a_rate_next_to_one_has_a_horizon() -> None:
    rate = 1 - 2.0**-53
    steps = horizon(rate, 1.0, eps=1e-3)
    assert steps == pytest.approx(math.log(1e3) * 2.0**53, rel=1e-9)


@pytest.mark.parametrize("rate", [0.5, 1.0, 2.0, math.inf])
def test_a_small_radius_needs_no_steps(rate: float) -> None:
    assert horizon(rate, 1e-3, eps=1e-3) == 0


def test_a_network_without_memory_needs_one_step() -> None:
    assert horizon(0.0, math.inf, eps=1e-3) == 1


@pytest.mark.parametrize(
    ("rate", "radius", "match"),
    [(1.0, 1.0, "`rate` is 1"), (1.25, 1.0, "`rate` is 1.25"), (0.5, math.inf, "`radius` times `gain` is infinite")],
)
def test_what_a_horizon_lacks_is_named(rate: float, radius: float, match: str) -> None:
    with pytest.raises(CertificateError, match=match):
        horizon(rate, radius, eps=1e-3)


@pytest.mark.parametrize("name", ["rate", "start", "initial"])
@pytest.mark.parametrize(
    ("bad", "error"), [(math.nan, NotFiniteError), (-0.1, ArgumentError), ("1", ArgumentTypeError), (True, ArgumentTypeError)]
)
def test_a_number_that_is_no_bound_is_refused_by_name(name: str, bad: float, error: type[Exception]) -> None:
    numbers = {"rate": 0.5, "start": 1.0, "initial": 0.0, name: bad}
    with pytest.raises(error, match=f"`{name}`"):
        state_radius(**numbers)


@pytest.mark.parametrize(("eps", "error"), [(0.0, ArgumentError), (1e-310, ArgumentError), (math.inf, NotFiniteError)])
def test_an_error_that_no_window_reaches_is_refused(eps: float, error: type[Exception]) -> None:
    with pytest.raises(error, match="`eps`"):
        horizon(0.5, 1.0, eps)


@pytest.mark.parametrize(("steps", "error"), [(-1, ArgumentError), (1.0, ArgumentTypeError), (True, ArgumentTypeError)])
def test_steps_are_an_integer_from_zero_on(steps: int, error: type[Exception]) -> None:
    with pytest.raises(error, match="`steps`"):
        truncation_error(0.5, 1.0, steps)


def test_an_integer_beyond_float64_counts_as_infinite() -> None:
    assert state_radius(0.5, 10**400) == math.inf


@given(factors=st.lists(st.floats(0, 1e300), max_size=6))
def test_a_product_is_above_the_exact_one(factors: list[float]) -> None:
    exact = math.prod(map(Fraction, factors), start=Fraction(1))
    found = product_above(*factors)
    assert found == math.inf or Fraction(found) >= exact
    assert (found == 0) == (exact == 0)


@given(base=st.floats(0, 3), exponent=st.integers(0, 200))
def test_a_power_is_above_the_exact_one_and_close(base: float, exponent: int) -> None:
    exact = Fraction(base) ** exponent
    assert exact <= Fraction(power_above(base, exponent)) <= exact * CLOSE + Fraction(1, 10**300)


@given(threshold=st.integers(0, 10**9))
def test_the_first_step_is_found(threshold: int) -> None:
    assert first_step(lambda steps: steps >= threshold) == threshold


def test_a_count_may_have_a_least_value() -> None:
    with pytest.raises(ArgumentError, match="`samples` must be an integer of at least 2, but is 1"):
        check_count("samples", 1, low=2)
