"""Training a truncated model beside the full one: figures, real descents, divergence.

Note [mathematics], sections 4.5 and 4.6.
"""

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import lambertw
from torch import Tensor

from steadyrnn.bounds.gradients import (
    Constants,
    gradient_smoothness,
    gradient_truncation_error,
    layer_constants,
    squared_loss_constants,
)
from steadyrnn.bounds.norms import state_radius
from steadyrnn.bounds.training import (
    minus_lambert,
    output_divergence,
    steps_for,
    steps_for_closed_form,
    training_divergence,
    training_divergence_harmonic,
)
from steadyrnn.errors import ArgumentError, ArgumentTypeError, CertificateError, NotFiniteError


def test_the_product_form_is_two_hundred_times_below_the_printed_bound() -> None:
    alpha, beta, steps, error = 0.01, 100.0, 200, 1.0  # alpha * beta = 1
    rates = [alpha / i for i in range(1, steps + 1)]
    printed = alpha * error * steps ** (alpha * beta + 1)
    sum_form = alpha * error * steps ** (alpha * beta) * math.fsum(i ** -(alpha * beta + 1) for i in range(1, steps + 1))
    assert printed == pytest.approx(400)
    assert sum_form == pytest.approx(3.28, abs=0.005)
    assert training_divergence(error, beta, rates) == pytest.approx(2.00, rel=1e-11)
    assert training_divergence_harmonic(error, beta, alpha, steps) == pytest.approx((math.e * 200 - 1) / 100)


@given(
    error=st.just(0.0) | st.floats(1e-6, 1e3),
    smoothness=st.just(0.0) | st.floats(1e-6, 1e3),
    rates=st.lists(st.just(0.0) | st.floats(1e-6, 10), max_size=12),
)
def test_the_product_form_is_above_the_exact_number_and_close(error: float, smoothness: float, rates: list[float]) -> None:
    g, b = Fraction(error), Fraction(smoothness)
    product = math.prod((1 + Fraction(a) * b for a in rates), start=Fraction(1))
    exact = g / b * (product - 1) if b else g * sum(map(Fraction, rates))
    found = Fraction(training_divergence(error, smoothness, rates))
    assert exact <= found <= exact * (1 + Fraction(1, 10**12))


@given(error=st.floats(1e-3, 1e3), smoothness=st.floats(0, 50), rate=st.floats(1e-6, 1), steps=st.integers(0, 40))
def test_the_closed_form_is_above_its_exact_value_and_above_the_product(
    error: float, smoothness: float, rate: float, steps: int
) -> None:
    found = training_divergence_harmonic(error, smoothness, rate, steps)
    product = training_divergence(error, smoothness, [rate / i for i in range(1, steps + 1)])
    assert found * (1 + 1e-12) >= product
    if steps and smoothness > 1e-9:
        with mpmath.workdps(60):
            exact = mpmath.mpf(error) / smoothness * ((mpmath.e * steps) ** (mpmath.mpf(rate) * smoothness) - 1)
            assert exact <= mpmath.mpf(found) <= exact * (1 + mpmath.mpf(10) ** -11)


def test_the_closed_form_without_curvature_is_its_limit() -> None:
    limit = training_divergence_harmonic(2.0, 0.0, 0.1, 100)
    assert limit == pytest.approx(2.0 * 0.1 * (1 + math.log(100)), rel=1e-14)
    assert training_divergence_harmonic(2.0, 1e-300, 0.1, 100) == pytest.approx(limit, rel=1e-13)


@pytest.mark.parametrize(("error", "rate", "expected"), [(1.0, 0.1, math.inf), (0.0, 0.1, 0.0), (1.0, 0.0, 0.0)])
def test_infinite_smoothness_gives_an_infinite_bound_unless_nothing_moves(error: float, rate: float, expected: float) -> None:
    assert training_divergence(error, math.inf, [rate] * 3) == expected
    assert training_divergence_harmonic(error, math.inf, rate, 3) == expected


def test_a_bound_beyond_the_largest_number_is_infinite() -> None:
    assert training_divergence(1.0, 1e4, [1.0] * 200) == math.inf
    assert training_divergence_harmonic(1.0, 1e6, 1.0, 200) == math.inf


def test_nothing_diverges_without_a_step() -> None:
    assert training_divergence(1.0, 1.0, []) == training_divergence_harmonic(1.0, 1.0, 1.0, 0) == 0


class Descent:
    """Gradient descent of a small linear network on the last state, with the whole input and with its end."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)

        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.rate, self.time = 0.5, 20
        self.x, self.target = 0.3 * draw(self.time, 2), 0.3 * draw(2)
        self.start = [self.ball(draw(2, 2), self.rate), self.ball(draw(2, 2), 1.0)]
        self.input_bound = float(self.x.norm(dim=1).max()) * (1 + 1e-12)
        self.state_bound = state_radius(self.rate, self.input_bound)  # the input weight stays in the unit ball
        self.constants = layer_constants(self.rate, 0.0, self.state_bound, self.input_bound, bias=False)
        self.loss = squared_loss_constants(1.0, self.state_bound, float(self.target.norm()) * (1 + 1e-12))

    @staticmethod
    def ball(matrix: Tensor, bound: float) -> Tensor:
        u, s, v = torch.linalg.svd(matrix)
        return u @ torch.diag(s.clamp(max=bound * (1 - 1e-12))) @ v

    def state(self, parameters: list[Tensor], steps: int) -> Tensor:
        h = torch.zeros(2, dtype=torch.float64)
        for x in self.x[self.time - steps :]:
            h = parameters[0] @ h + parameters[1] @ x
        return h

    def run(self, steps: int, rates: list[float]) -> list[Tensor]:
        parameters = self.start
        for rate in rates:
            parameters = [p.detach().requires_grad_() for p in parameters]
            loss = (self.state(parameters, steps) - self.target).square().sum() / 2
            moved = [p - rate * g for p, g in zip(parameters, torch.autograd.grad(loss, parameters), strict=True)]
            parameters = [self.ball(moved[0].detach(), self.rate), self.ball(moved[1].detach(), 1.0)]
        return parameters


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("schedule", [lambda i: 0.05 / i, lambda i: 0.02])
@pytest.mark.parametrize("steps", [2, 4, 8])
def test_two_descents_stay_within_the_bound(seed: int, schedule: Callable[[int], float], steps: int) -> None:
    descent, rates = Descent(seed), [schedule(i) for i in range(1, 11)]
    full, short = descent.run(descent.time, rates), descent.run(steps, rates)
    distance = math.sqrt(sum(float((p - q).square().sum()) for p, q in zip(full, short, strict=True)))
    error = gradient_truncation_error(descent.constants, steps, descent.state_bound, *descent.loss)
    bound = training_divergence(error, gradient_smoothness(descent.constants, *descent.loss), rates)
    assert 0 < distance <= bound < math.inf
    outputs = float((descent.state(full, descent.time) - descent.state(short, steps)).norm())
    assert 0 < outputs <= output_divergence(distance, descent.constants, steps, descent.state_bound)


def test_the_output_divergence_is_its_two_parts() -> None:
    constants = Constants(0.5, 1.0, 2.0, 0.0, 1.0, 1.0, 0.0)
    found = output_divergence(0.25, constants, steps=3, state_bound=8.0, gain=3.0)
    assert found == pytest.approx(3 * (2 / 0.5 * 0.25 + 0.125 * 8), rel=1e-13)


@pytest.mark.parametrize(("activation", "smoothness"), [("linear", 0.0), ("tanh", 0.7698003589195011)])
def test_the_paper_s_own_experiment_has_no_bound_worth_its_name(activation: str, smoothness: float) -> None:
    """With explicit constants alpha * beta is far beyond 1, though the gradients differ by next to nothing."""
    generator = torch.Generator().manual_seed(3)

    def draw(*shape: int, deviation: float = 1.0) -> Tensor:
        return deviation * torch.randn(*shape, generator=generator, dtype=torch.float64)

    n, rate, steps, alpha = 32, 0.75, 35, 0.01
    u, s, v = torch.linalg.svd(draw(n, n, deviation=math.sqrt(0.5)))
    weight = (u @ torch.diag(s.clamp(max=rate * (1 - 1e-12))) @ v).requires_grad_()
    input_weight, readout = draw(n, n, deviation=math.sqrt(0.5)).requires_grad_(), draw(n, n)
    x, target = draw(200, n, deviation=2.0), draw(n).clamp(-2, 2)

    def gradient(inputs: Tensor) -> Tensor:
        h = torch.zeros(n, dtype=torch.float64)
        for row in inputs:
            h = weight @ h + input_weight @ row
            h = h.tanh() if smoothness else h
        loss = (readout @ h - target).square().sum() / 2
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, (weight, input_weight))])

    norms = [float(torch.linalg.matrix_norm(m.detach(), 2)) * (1 + 1e-12) for m in (input_weight, readout)]
    input_bound = float(x.norm(dim=1).max())
    radius = state_radius(rate, norms[0] * input_bound)
    radius = min(radius, math.sqrt(n)) if smoothness else radius
    constants = layer_constants(rate, smoothness, radius, input_bound, bias=False)
    loss = squared_loss_constants(norms[1], radius, float(target.norm()))
    full = gradient(x)
    error, beta = float((full - gradient(x[-steps:])).norm()), gradient_smoothness(constants, *loss)
    assert error <= gradient_truncation_error(constants, steps, radius, *loss)
    assert error < 1e-3 * float(full.norm())
    assert alpha * beta > 1e4
    assert training_divergence_harmonic(1.0, beta, alpha, 200) == math.inf


@pytest.mark.parametrize(("rate", "eta", "lambert", "closed"), [(0.9, 1e-8, 227, 387), (0.5, 1e-3, 14, 21)])
def test_the_number_of_steps_is_the_figure_stated(rate: float, eta: float, lambert: int, closed: int) -> None:
    assert steps_for(rate, eta) == lambert
    assert steps_for_closed_form(rate, eta) == closed


@given(rate=st.floats(1e-3, 0.999), eta=st.floats(1e-12, 1e2))
def test_the_steps_found_are_enough_from_there_on_and_no_smaller_number_is(rate: float, eta: float) -> None:
    steps, closed = steps_for(rate, eta), steps_for_closed_form(rate, eta)

    def small(k: int) -> bool:
        with mpmath.workdps(60):
            return bool(k * mpmath.mpf(rate) ** k <= mpmath.mpf(eta))

    assert all(small(k) for first in (steps, closed) for k in (first, first + 1, first + 10, 2 * first))
    crest = 1 / math.log(1 / rate)
    assert steps - 1 <= crest or not small(steps - 1) or (steps - 1) * rate ** (steps - 1) > eta * (1 - 1e-12)


@pytest.mark.parametrize("rate", [0.5, 0.9, 0.99])
def test_where_every_number_will_do_the_first_behind_the_crest_is_returned(rate: float) -> None:
    decay = math.log(1 / rate)
    assert steps_for(rate, 1.001 / (math.e * decay)) == math.ceil(1 / decay)
    assert steps_for(rate, 1e6) == math.ceil(1 / decay)


def test_a_rate_next_to_one_is_solved_for() -> None:
    rate = 1 - 2.0**-53
    for eta in (1e-3, 1e15, 0.999999999999 * 2.0**53 / math.e):
        steps = steps_for(rate, eta)
        assert steps / 2.0**53 - math.log(steps) == pytest.approx(-math.log(eta), rel=1e-9)
        assert steps <= steps_for_closed_form(rate, eta)


@pytest.mark.parametrize("rate", [0.0, 1e-300])
def test_a_network_without_memory_needs_one_step(rate: float) -> None:
    assert steps_for(rate, 1e-8) == steps_for_closed_form(rate, 1e-8) == 1


@given(log=st.floats(-700, -1.0001))
def test_the_lower_branch_of_lambert_s_function_is_the_one_of_scipy(log: float) -> None:
    assert minus_lambert(log) == pytest.approx(-float(lambertw(-math.exp(log), -1).real), rel=1e-7)
    if log < -1.01:
        assert minus_lambert(log) == pytest.approx(-float(lambertw(-math.exp(log), -1).real), rel=1e-12)


def test_the_branch_starts_at_one() -> None:
    assert minus_lambert(-1.0) == 1.0


def test_the_branch_reaches_beyond_the_range_of_its_argument() -> None:
    y = minus_lambert(-1e6)
    assert y - math.log(y) == pytest.approx(1e6, rel=1e-15)


@pytest.mark.parametrize("log", [-0.9, 1.0, math.nan])
def test_the_branch_ends_at_minus_one_over_e(log: float) -> None:
    with pytest.raises(ArgumentError, match="`log`"):
        minus_lambert(log)


@pytest.mark.parametrize("solve", [steps_for, steps_for_closed_form])
@pytest.mark.parametrize(
    ("rate", "eta", "error", "name"),
    [
        (1.0, 1e-3, CertificateError, "rate"),
        (math.inf, 1e-3, CertificateError, "rate"),
        (-0.5, 1e-3, ArgumentError, "rate"),
        (math.nan, 1e-3, NotFiniteError, "rate"),
        (0.5, 0.0, ArgumentError, "eta"),
        (0.5, math.inf, NotFiniteError, "eta"),
        (0.5, "1", ArgumentTypeError, "eta"),
    ],
)
def test_bad_numbers_are_refused_by_name(
    solve: Callable[[float, float], int], rate: float, eta: float, error: type[Exception], name: str
) -> None:
    with pytest.raises(error, match=f"`{name}`"):
        solve(rate, eta)


@pytest.mark.parametrize(("bad", "error"), [(math.nan, NotFiniteError), (-1.0, ArgumentError)])
def test_a_bad_step_size_is_refused(bad: float, error: type[Exception]) -> None:
    with pytest.raises(error, match="`rates`"):
        training_divergence(1.0, 1.0, [0.1, bad])


def last_loss_gradient(a: float, time: int) -> float:
    """Note [mathematics], section 4.6, equation (6): of (h_T - 1)^2 / 2 for h_t = a h_{t-1} + 1."""
    h, slope = 0.0, 0.0
    for _ in range(time):
        h, slope = a * h + 1, h + a * slope
    return (h - 1) * slope


@pytest.mark.parametrize("a", [0.5, 0.9, 1.5, -0.7])
@pytest.mark.parametrize("time", [1, 2, 7, 40])
def test_the_state_and_the_gradient_of_the_scalar_system_are_the_closed_forms(a: float, time: int) -> None:
    """Proposition 4: h_t is the sum of a^i, i below t; equation (6) is its gradient."""
    state = math.fsum(a**i for i in range(time))
    closed = ((1 - a**time) / (1 - a) - 1) * ((1 - a**time) / (1 - a) ** 2 - time * a ** (time - 1) / (1 - a))
    assert (1 - a**time) / (1 - a) == pytest.approx(state, rel=1e-12)
    assert last_loss_gradient(a, time) == pytest.approx(closed, rel=1e-9, abs=1e-12)


def test_the_gradient_of_the_unstable_system_grows_as_corrected() -> None:
    a, time = 1.5, 40
    true = last_loss_gradient(a, time)
    assert true / (time * a ** (2 * time - 3)) == pytest.approx(8.3, abs=0.05)
    assert true / (time * a ** (2 * time - 1) / (a - 1) ** 2) == pytest.approx(0.925, abs=5e-4)


def descend(a: float, time: int, steps: int) -> list[float]:
    """Descend with step sizes 1 / i, and stop where the numbers end."""
    path = [a]
    for i in range(1, steps + 1):
        try:
            path.append(path[-1] - last_loss_gradient(path[-1], time) / i)
        except OverflowError:
            break
        if not math.isfinite(path[-1]) or abs(path[-1]) > 1e100:
            break
    return path


def test_descent_from_an_unstable_start_diverges_with_alternating_sign() -> None:
    path = descend(1.5, time=20, steps=50)
    assert path[1] < -1
    assert path[2] > 1
    assert abs(path[2]) > 1e20


def test_descent_of_two_steps_converges_even_from_an_unstable_start() -> None:
    assert descend(1.5, time=2, steps=3000)[-1] == pytest.approx(0.0, abs=1e-2)


def test_descent_from_a_stable_start_can_diverge() -> None:
    path = descend(0.5, time=20, steps=2)
    assert path[1] == pytest.approx(-3.5, abs=0.05)
    assert path[2] == pytest.approx(8e20, rel=0.1)
