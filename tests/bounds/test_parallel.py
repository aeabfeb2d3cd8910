"""Windows of time against the plain recursion: every check figure of Note [mathematics], sections 6.1 to 6.3 and 6.5."""

import math
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from steadyrnn.bounds.gradients import Constants
from steadyrnn.bounds.memory import (
    boundary_errors,
    check_rate,
    required_warmup,
    rounding_error,
    summation_error,
    swept_errors,
    warmup_error,
)
from steadyrnn.bounds.norms import ROUND_OFF, TwoNorm
from steadyrnn.bounds.parallel_gradients import (
    window_gradient_error,
)
from steadyrnn.bounds.quadratic import quadratic_contraction
from steadyrnn.errors import ArgumentError, CertificateError, NotFiniteError
from tests.bounds.windows import (
    CHUNK,
    LAMBDA,
    LINEAR,
    RELU,
    STEPS,
    TANH,
    Activation,
    drawn,
    mismatches,
    noise,
    states,
    swept,
    true_error,
    windows,
)


def positive(n: int) -> Tensor:
    """Return inputs under which W = lambda I is a sum without cancellation."""
    return torch.ones(STEPS, n, dtype=torch.float64)


NETWORKS: dict[str, tuple[Tensor, Tensor, Activation]] = {
    "tanh": (drawn(16, LAMBDA), noise(STEPS, 16), TANH),
    "relu": (drawn(16, LAMBDA), noise(STEPS, 16), RELU),
    "linear": (drawn(16, LAMBDA), noise(STEPS, 16), LINEAR),
    "relu, W = lambda I": (LAMBDA * torch.eye(4, dtype=torch.float64), positive(4), RELU),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("warmup", [0, 16, 64])
def test_true_error_measured_bound_and_a_priori_bound_stand_in_this_order(name: str, warmup: int) -> None:
    w, inputs, act = NETWORKS[name]
    truth, found, norm = states(w, inputs, act), windows(w, inputs, act, warmup), TwoNorm(len(w))
    radius = float(norm(truth).max())
    error, measured = true_error(found, truth, norm), boundary_errors(LAMBDA, CHUNK, mismatches(found, norm))
    posterior = LAMBDA * float(measured.max())
    assert error <= posterior * (1 + 1e-12) + 1e-14
    assert error <= warmup_error(LAMBDA, radius, warmup) + 1e-14
    assert float(measured.max()) <= float(mismatches(found, norm).max()) / (1 - LAMBDA**CHUNK) * (1 + 1e-12)


@pytest.mark.parametrize("name", ["tanh", "relu", "linear"])
def test_of_a_random_network_the_measured_bound_is_orders_below_the_a_priori_one(name: str) -> None:
    w, inputs, act = NETWORKS[name]
    truth, found, norm = states(w, inputs, act), windows(w, inputs, act, 16), TwoNorm(len(w))
    posterior = LAMBDA * float(boundary_errors(LAMBDA, CHUNK, mismatches(found, norm)).max())
    assert posterior < 1e-3 * warmup_error(LAMBDA, float(norm(truth).max()), 16)
    assert posterior < 10 * true_error(found, truth, norm)


@pytest.mark.parametrize("warmup", [16, 64, 128])
def test_both_bounds_are_met_by_a_multiple_of_the_identity(warmup: int) -> None:
    w, inputs, act = NETWORKS["relu, W = lambda I"]
    truth, found, norm = states(w, inputs, act), windows(w, inputs, act, warmup), TwoNorm(len(w))
    error = true_error(found, truth, norm)
    assert error == pytest.approx(warmup_error(LAMBDA, float(norm(truth).max()), warmup), rel=1e-9)
    assert error == pytest.approx(LAMBDA * float(boundary_errors(LAMBDA, CHUNK, mismatches(found, norm)).max()), rel=1e-9)


def test_errors_at_the_warm_ups_of_the_table_are_in_its_ratios() -> None:
    w, inputs, act = NETWORKS["relu, W = lambda I"]
    truth, norm = states(w, inputs, act), TwoNorm(len(w))
    errors = [true_error(windows(w, inputs, act, k), truth, norm) for k in (16, 64, 128)]
    printed = [4.24, 2.69e-2, 3.17e-5]
    assert [e / errors[0] for e in errors] == pytest.approx([p / printed[0] for p in printed], rel=5e-3)


def test_a_sweep_leaves_lambda_to_the_c_of_the_error() -> None:
    w, inputs, act = NETWORKS["relu, W = lambda I"]
    truth, found, norm = states(w, inputs, act), windows(w, inputs, act, 0), TwoNorm(len(w))
    errors, bounds = [true_error(found, truth, norm)], boundary_errors(LAMBDA, CHUNK, mismatches(found, norm))
    for _ in range(4):
        found = swept(w, inputs, act, found)
        bounds = swept_errors(LAMBDA, CHUNK, mismatches(found, norm), bounds)
        errors.append(true_error(found, truth, norm))
        assert errors[-1] == pytest.approx(LAMBDA * float(bounds.max()), rel=1e-2)
    factor = LAMBDA**CHUNK
    assert factor == pytest.approx(1.18e-3, rel=5e-3)
    printed = [23, 2.7e-2, 3.2e-5, 3.7e-8, 4.4e-11]
    assert [e / errors[0] for e in errors] == pytest.approx([p / printed[0] for p in printed], rel=3e-2)
    for s, error in enumerate(errors):
        assert error <= factor**s * errors[0] + 1e-14


@pytest.mark.parametrize("name", ["tanh", "relu", "linear"])
def test_one_sweep_brings_a_random_network_to_rounding(name: str) -> None:
    w, inputs, act = NETWORKS[name]
    truth, norm = states(w, inputs, act), TwoNorm(len(w))
    assert true_error(swept(w, inputs, act, windows(w, inputs, act, 0)), truth, norm) < 1e-12


def test_as_many_sweeps_as_chunks_give_the_sequential_run() -> None:
    w, inputs, act = 0.99 * torch.eye(3, dtype=torch.float64), noise(40, 3).abs(), RELU
    found, norm = windows(w, inputs, act, 0, chunk=8), TwoNorm(3)
    bounds = boundary_errors(0.99, 8, mismatches(found, norm))
    for _ in range(4):
        found = swept(w, inputs, act, found, chunk=8)
        bounds = swept_errors(0.99, 8, mismatches(found, norm), bounds)
    assert true_error(found, states(w, inputs, act), norm, chunk=8) == 0
    assert float(bounds.max()) == 0


@pytest.mark.parametrize("act", [RELU, TANH], ids=["relu", "tanh"])
def test_windows_are_certified_in_a_norm_where_the_spectral_norm_is_above_1(act: Activation) -> None:
    drawn_matrix = drawn(16, 1.0, seed=3)
    found = quadratic_contraction(drawn_matrix, 1.0)
    w = drawn_matrix * (0.9 / found.rate)
    assert torch.linalg.matrix_norm(w, 2) > 1.1
    inputs, rate = noise(512, 16, seed=4), 0.9 * (1 + 1e-12)
    truth, run = states(w, inputs, act), windows(w, inputs, act, 32)
    posterior = rate * float(boundary_errors(rate, CHUNK, mismatches(run, found.norm)).max())
    assert true_error(run, truth, found.norm) <= posterior * (1 + 1e-9) + 1e-14
    assert true_error(run, truth, TwoNorm(16)) <= posterior / found.norm.lower * (1 + 1e-9) + 1e-14


@pytest.mark.parametrize(("rate", "radius", "tol"), [(0.9, 25.4, 1e-6), (0.5, 1.0, 1e-3), (0.99, 11.3, 1e-6), (0.2, 9.0, 5.0)])
def test_the_required_warm_up_is_enough_and_one_less_is_not(rate: float, radius: float, tol: float) -> None:
    k = required_warmup(rate, radius, tol)
    assert warmup_error(rate, radius, k) <= tol
    assert k == 0 or warmup_error(rate, radius, k - 1) > tol
    assert k == max(math.ceil(math.log(radius / tol) / math.log(1 / rate)) - 1, 0)


@pytest.mark.parametrize(("rate", "context"), [(0.9, 155), (0.99, 1617)])
def test_the_context_of_a_tanh_layer_of_128_units(rate: float, context: int) -> None:
    assert required_warmup(rate, math.sqrt(128), 1e-6) + 1 == context


def test_a_readout_lengthens_the_warm_up_by_the_logarithm_of_its_gain() -> None:
    assert required_warmup(0.5, 1.0, 2.0**-10, gain=2.0**7) == required_warmup(0.5, 1.0, 2.0**-10) + 7


@pytest.mark.parametrize("shape", [(5,), (33, 4), (1, 2), (0,)])
def test_boundary_errors_are_the_recursion(shape: tuple[int, ...]) -> None:
    mismatch = torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    errors, carried = boundary_errors(0.8, 3, mismatch), torch.zeros(shape[1:], dtype=torch.float64)
    for m, e in zip(mismatch, errors, strict=True):
        carried = m + 0.8**3 * carried
        assert bool((e >= carried).all())
        assert torch.allclose(e, carried, rtol=1e-12)


def test_a_rate_of_zero_forgets_at_once() -> None:
    assert boundary_errors(0.0, 1, torch.tensor([0.0, 1.0, 0.0])).tolist() == pytest.approx([0, 1, 0], rel=1e-12)
    assert required_warmup(0.0, 5.0, 1e-9) == 0


def test_a_sweep_takes_the_better_of_measured_and_proven() -> None:
    before = torch.tensor([0.0, 1.0, 1.0])
    proven = swept_errors(0.5, 1, torch.tensor([0.0, 9.0, 9.0]), before)
    measured = swept_errors(0.5, 1, torch.tensor([0.0, 0.0, 0.125]), before)
    assert proven.tolist() == pytest.approx([0, 0, 0.5], rel=1e-12)
    assert measured.tolist() == pytest.approx([0, 0, 0.125], rel=1e-12)


# rounding


def test_the_rounding_of_a_sum_grows_with_its_terms_until_nothing_is_left() -> None:
    u = 2.0**-24
    assert summation_error(10, u) >= 10 * u / (1 - 10 * u)
    assert summation_error(10, u) <= 10.001 * u
    assert summation_error(2**24, u) == math.inf


def test_two_runs_differ_by_twice_what_one_step_rounds_over_one_minus_lambda() -> None:
    rate, local = 0.99, 1e-7
    up, down = 0.0, 0.0
    for _ in range(5000):
        up, down = rate * up + local, rate * down - local
    assert up - down <= rounding_error(rate, local)
    assert up - down >= 0.999 * rounding_error(rate, local)


# bad input


@pytest.mark.parametrize("rate", [1.0, 1.5])
def test_a_rate_of_1_or_more_is_refused_by_name(rate: float) -> None:
    for call in (check_rate, lambda r: required_warmup(r, 1.0, 1e-3), lambda r: rounding_error(r, 1e-7)):
        with pytest.raises(CertificateError, match=rf"no certificate found: lambda = {rate:g} >= 1"):
            call(rate)


def test_states_without_a_bound_have_no_warm_up() -> None:
    with pytest.raises(CertificateError, match="infinite"):
        required_warmup(0.9, math.inf, 1e-3)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_mismatch_that_is_not_finite_is_refused(bad: float) -> None:
    with pytest.raises(NotFiniteError, match="`mismatch`"):
        boundary_errors(0.9, 4, torch.tensor([0.0, bad]))


def test_negative_numbers_are_refused() -> None:
    with pytest.raises(ArgumentError, match="`warmup`"):
        warmup_error(0.9, 1.0, -1)
    with pytest.raises(ArgumentError, match="`chunk`"):
        boundary_errors(0.9, 0, torch.zeros(2))
    with pytest.raises(ArgumentError, match="`local`"):
        rounding_error(0.9, -1e-9)
    with pytest.raises(ArgumentError, match="`windows`"):
        window_gradient_error(Constants(0.5, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0), 0, 1, 1, 1.0, 1.0, 0.0)


def test_bounds_are_rounded_up() -> None:
    exact = 3 * 2.0**-10  # a power of two times a small integer: exact in float64
    assert exact <= warmup_error(0.5, 3.0, 9) <= exact * (1 + 128 * ROUND_OFF)


@pytest.mark.parametrize(("rate", "chunk"), [(0.5, 200), (0.5, 60), (0.5, 30), (0.9, 100), (0.25, 7), (1 - 2.0**-20, 3)])
@pytest.mark.parametrize("count", [2, 3, 40])
def test_boundary_errors_are_not_below_the_exact_recursion(rate: float, chunk: int, count: int) -> None:
    """One mismatch, and after it none, or one that is tiny: all that is left is what the first one leaves."""
    mismatch = torch.zeros(count, dtype=torch.float64)
    mismatch[1], mismatch[-1] = 1.0, max(1e-200, float(count == 2))
    exact, factor = Fraction(0), Fraction(rate) ** chunk
    for m, e in zip(mismatch.tolist(), boundary_errors(rate, chunk, mismatch).tolist(), strict=True):
        exact = Fraction(m) + factor * exact
        assert Fraction(e) >= exact


@pytest.mark.parametrize("count", [3, 40])
def test_what_a_sum_loses_is_added_to_boundary_errors(count: int) -> None:
    """A mismatch of 1, and before it one of which less than half a unit of rounding is left."""
    rate, exact = 2.0**-54, Fraction(0)
    for e in boundary_errors(rate, 1, torch.ones(count, dtype=torch.float64)).tolist():
        exact = 1 + Fraction(rate) * exact
        assert exact <= Fraction(e) <= exact * (1 + 512 * Fraction(ROUND_OFF))
