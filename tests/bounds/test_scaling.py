"""Contraction in the 2-norm and in weighted 2-norms (Note [mathematics], sections 5.1, 5.2)."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from steadyrnn.activations import Absolute, Activation, Identity, LeakyReLU, ReLU, Sigmoid, Tanh
from steadyrnn.bounds.norms import Ellipsoid, TwoNorm
from steadyrnn.bounds.scaling import (
    DIAGONAL_SCALING,
    SPECTRAL_NORM,
    Powers,
    best_scaling,
    diagonal_contraction,
    scaled_rate,
    spectral_contraction,
)
from steadyrnn.errors import ArgumentError, ArgumentTypeError, NotFiniteError, ShapeError
from tests.linalg.matrices import gaussian, orthogonal

SHEAR = torch.tensor([[0.5, 10.0], [0.0, 0.4]], dtype=torch.float64)
PAIR = torch.tensor([[-0.51, 0.75], [-0.37, 0.44]], dtype=torch.float64)
ACTIVATIONS: list[Activation] = [Tanh(), ReLU(), LeakyReLU(0.1), Absolute(), Identity(), Sigmoid()]
seeds = st.integers(0, 2**31)


def norm(w: Tensor) -> float:
    return float(torch.linalg.matrix_norm(w.double(), 2))


def scaled(w: Tensor, d: Tensor) -> Tensor:
    return d.unsqueeze(1) * w / d


def perron_root(w: Tensor) -> float:
    return float(torch.linalg.eigvals(w.abs()).abs().max())


def matrix(kind: str, n: int, seed: int = 5) -> Tensor:
    w = gaussian(n, n, seed=seed)
    kinds = {
        "gaussian": w,
        "rows of many sizes": w * gaussian(n, 1, seed=seed + 1).mul(2).exp(),
        "triangular": w.triu(),
        "positive": w.abs(),
        "orthogonal": orthogonal(n, seed=seed),
        "cyclic": torch.eye(n, dtype=torch.float64).roll(1, 0) * (1 + torch.arange(n)),
        "in two parts": torch.block_diag(w[: n // 2, : n // 2], 5 * w[n // 2 :, n // 2 :]),
        "of rank one": w[:, :1] @ w[:1],
        "nilpotent": w.triu(1),
        "zero": 0 * w,
    }
    return kinds[kind]


KINDS = [
    *("gaussian", "rows of many sizes", "triangular", "positive", "orthogonal", "cyclic"),
    *("in two parts", "of rank one", "nilpotent", "zero"),
]


def test_a_shear_has_a_large_norm_and_contracts_all_the_same() -> None:
    assert spectral_contraction(SHEAR, 1.0).rate == pytest.approx(10.02, abs=5e-3)
    assert diagonal_contraction(SHEAR, 1.0).rate == pytest.approx(0.5, abs=5e-5)


def test_the_best_diagonal_of_a_hard_pair_is_not_enough() -> None:
    assert spectral_contraction(PAIR, 1.0).rate == pytest.approx(1.073, abs=5e-4)
    assert diagonal_contraction(PAIR, 1.0).rate == pytest.approx(1.003, abs=5e-4)


@pytest.mark.parametrize(("kind", "share"), [("gaussian", 0.95), ("rows of many sizes", 0.6), ("triangular", 0.35)])
def test_weights_help_by_a_part_that_depends_on_the_matrix(kind: str, share: float) -> None:
    w = matrix(kind, 64)
    assert diagonal_contraction(w, 1.0).rate <= share * norm(w)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_no_certificate_in_a_weighted_norm_is_better(kind: str, n: int) -> None:
    w = matrix(kind, n)
    rate = scaled_rate(w, best_scaling(w, max_condition=1e30))
    # the best weighted 1-norm and maximum norm both give the Perron root
    assert rate <= min(norm(w), perron_root(w)) * (1 + 1e-5) + 1e-4


@given(n=st.integers(1, 6), seed=seeds)
def test_the_best_weights_are_no_worse_than_any_others(n: int, seed: int) -> None:
    w = gaussian(n, n, seed=seed)
    found = best_scaling(w)
    best, others = scaled_rate(w, found), gaussian(20, n, seed=seed + 1).exp()
    for d in [*others, *(found * others**0.1), *(found * others**0.01)]:
        assert best <= norm(scaled(w, d)) * (1 + 1e-3)


@given(n=st.integers(1, 6), seed=seeds)
def test_the_logarithm_of_the_rate_is_convex_in_the_logarithm_of_the_weights(n: int, seed: int) -> None:
    w = gaussian(n, n, seed=seed)
    a, b = gaussian(2, n, seed=seed + 1)
    ends = [math.log(norm(scaled(w, x.exp()))) for x in (a, b)]
    assert math.log(norm(scaled(w, ((a + b) / 2).exp()))) <= sum(ends) / 2 + 1e-12


@given(n=st.integers(1, 7), squarings=st.integers(0, 6), seed=seeds)
def test_the_smooth_norm_is_a_schatten_norm_with_its_gradient(n: int, squarings: int, seed: int) -> None:
    w, order = gaussian(n, n, seed=seed), 2 * (2**squarings + 1)
    logs = gaussian(n, seed=seed + 1).mul(0.3).requires_grad_()
    value = torch.linalg.svdvals(scaled(w, logs.exp())).pow(order).sum().log() / order
    (expected,) = torch.autograd.grad(value, logs)
    powers = Powers.of(scaled(w, logs.detach().exp()), squarings)
    gradient = (powers.row_diagonal() - powers.column_diagonal()) / powers.trace
    assert float(powers.log_norm()) == pytest.approx(float(value.detach()), abs=1e-10)
    assert torch.allclose(gradient, expected, atol=1e-8)
    assert torch.allclose(powers.row_diagonal(), powers.rows().diagonal(), atol=1e-10 * float(powers.trace))
    assert torch.allclose(powers.column_diagonal(), powers.columns().diagonal(), atol=1e-10 * float(powers.trace))


@given(
    entries=st.tuples(st.floats(1e-30, 1e30), st.floats(1e-30, 1e30)),
    weights=st.tuples(st.floats(1e-50, 1e50), st.floats(1e-50, 1e50)),
)
def test_the_rate_is_above_the_exact_norm_and_close(entries: tuple[float, float], weights: tuple[float, float]) -> None:
    (a, b), (p, q) = entries, weights
    w = torch.tensor([[0.0, a], [-b, 0.0]], dtype=torch.float64)
    exact = max(Fraction(a) * Fraction(p) / Fraction(q), Fraction(b) * Fraction(q) / Fraction(p))
    rate = scaled_rate(w, torch.tensor([p, q], dtype=torch.float64))
    assert exact <= Fraction(rate) <= exact * (1 + Fraction(1, 10**6))


@pytest.mark.parametrize("exponent", [-1060, -500, 0, 500, 1015])
def test_tiny_and_huge_weights_neither_under_nor_overflow(exponent: int) -> None:
    w = torch.tensor([[0.0, 2.0], [0.5, 0.0]], dtype=torch.float64) * 2.0 ** (exponent // 2) * 2.0 ** (exponent - exponent // 2)
    rate = diagonal_contraction(w, 1.0).rate
    smallest = 5e-324
    assert 2.0**exponent <= rate <= 2.0**exponent * (1 + 1e-6) + 4 * smallest


def test_a_rate_beyond_the_largest_number_is_infinite() -> None:
    assert scaled_rate(torch.full((4, 4), 1e308, dtype=torch.float64), torch.ones(4)) == math.inf


@pytest.mark.parametrize("kind", ["triangular", "nilpotent"])
@pytest.mark.parametrize("cap", [1.0, 10.0, 1e6, 1e12])
def test_the_weights_are_no_further_apart_than_requested(kind: str, cap: float) -> None:
    w = matrix(kind, 12)
    d = best_scaling(w, max_condition=cap)
    assert float(d.max()) / float(d.min()) <= cap
    assert cap < 1e6 or float(d.max()) / float(d.min()) > 1e4  # it asks for much


def test_more_room_for_the_weights_gives_a_better_rate() -> None:
    w = matrix("triangular", 12)
    rates = [scaled_rate(w, best_scaling(w, max_condition=cap)) for cap in (1.0, 10.0, 1e3, 1e6)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == pytest.approx(norm(w), rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [0, 1, 30])
def test_no_answer_is_worse_than_the_norm(kind: str, steps: int) -> None:
    w = matrix(kind, 8)
    assert scaled_rate(w, best_scaling(w, steps=steps)) <= norm(w) * (1 + 1e-5)


def test_the_perron_start_alone_meets_the_perron_root() -> None:
    w = matrix("positive", 10)
    assert scaled_rate(w, best_scaling(w, steps=0)) <= perron_root(w) * (1 + 1e-5)


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda a: a.name)
@pytest.mark.parametrize("kind", ["gaussian", "triangular", "rows of many sizes"])
@pytest.mark.parametrize("tier", [spectral_contraction, diagonal_contraction])
def test_two_states_never_come_apart_faster_than_the_rate(activation: Activation, kind: str, tier: object) -> None:
    w, slope = matrix(kind, 6), activation.steepness[1]
    found = tier(w, slope)  # type: ignore[operator]
    drive = gaussian(6, seed=9)
    h, other = gaussian(2, 3000, 6, seed=10)
    step = activation.value(h @ w.mT + drive) - activation.value(other @ w.mT + drive)
    assert bool((found.norm(step) <= found.rate * found.norm(h - other) * (1 + 1e-12)).all())


@pytest.mark.parametrize("tier", [spectral_contraction, diagonal_contraction])
def test_a_linear_network_reaches_the_rate(tier: object) -> None:
    w = matrix("gaussian", 6)
    found = tier(w, 1.0)  # type: ignore[operator]
    d = found.norm.matrix if isinstance(found.norm, Ellipsoid) else torch.ones(6, dtype=torch.float64)
    h = torch.linalg.svd(scaled(w, d)).Vh[0] / d
    assert float(found.norm(w @ h) / found.norm(h)) == pytest.approx(found.rate, rel=1e-5)


@pytest.mark.parametrize("tier", [spectral_contraction, diagonal_contraction])
@pytest.mark.parametrize("slope", [0.0, 0.25, 3.0])
def test_the_rate_is_proportional_to_the_slope(tier: object, slope: float) -> None:
    w = matrix("gaussian", 5)
    assert tier(w, slope).rate == pytest.approx(slope * tier(w, 1.0).rate, rel=1e-12)  # type: ignore[operator]


def test_a_constant_activation_has_rate_zero_whatever_the_weight() -> None:
    assert spectral_contraction(torch.full((4, 4), 1e308, dtype=torch.float64), 0.0).rate == 0


def test_a_rate_that_underflows_is_not_zero() -> None:
    assert spectral_contraction(torch.full((1, 1), 1e-300, dtype=torch.float64), 1e-100).rate > 0


def test_certificates_are_found_in_inference_mode() -> None:
    with torch.inference_mode():
        w = gaussian(3, 3)
        assert diagonal_contraction(w, 1.0).rate == diagonal_contraction(w.clone(), 1.0).rate


def test_each_tier_names_its_norm_and_its_theorem() -> None:
    first, second = spectral_contraction(PAIR, 1.0), diagonal_contraction(PAIR, 1.0)
    assert isinstance(first.norm, TwoNorm)
    assert second.norm.name == "weighted 2-norm"
    assert (first.theorem, second.theorem) == (SPECTRAL_NORM, DIAGONAL_SCALING)


def test_the_baselines_in_other_norms_are_not_below_the_gain() -> None:
    w = matrix("gaussian", 6)
    h, other = gaussian(2, 1000, 6, seed=4)
    step, gap = torch.relu(h @ w.mT) - torch.relu(other @ w.mT), h - other
    for p in (1, math.inf):
        rate = float(torch.linalg.matrix_norm(w, p))
        gains = torch.linalg.vector_norm(step, p, dim=-1) / torch.linalg.vector_norm(gap, p, dim=-1)
        assert float(gains.max()) <= rate * (1 + 1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_any_floating_dtype_is_taken_as_stored(dtype: torch.dtype) -> None:
    w = gaussian(5, 5).to(dtype)
    assert diagonal_contraction(w, 1.0).rate == diagonal_contraction(w.double(), 1.0).rate


def test_a_weight_that_is_not_contiguous_or_needs_a_gradient_is_taken() -> None:
    w = gaussian(5, 5).requires_grad_()
    assert diagonal_contraction(w.mT, 1.0).rate == diagonal_contraction(w.detach().mT.contiguous(), 1.0).rate
    assert not best_scaling(w).requires_grad


def test_the_answer_is_the_same_twice() -> None:
    w = gaussian(6, 6)
    assert torch.equal(best_scaling(w), best_scaling(w))


@pytest.mark.parametrize(
    "function", [best_scaling, lambda w: scaled_rate(w, torch.ones(3)), lambda w: spectral_contraction(w, 1.0)]
)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nothing_is_said_of_what_is_not_finite(function: object, bad: float) -> None:
    w = torch.ones(3, 3)
    w[1, 2] = bad
    with pytest.raises(NotFiniteError, match="`weight`"):
        function(w)  # type: ignore[operator]


@pytest.mark.parametrize("shape", [(2, 3), (3,), (0, 0)])
def test_the_weight_is_square_and_not_empty(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="`weight`"):
        diagonal_contraction(torch.ones(shape), 1.0)


def test_an_integer_weight_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="`weight`"):
        best_scaling(torch.ones(2, 2, dtype=torch.int64))


@pytest.mark.parametrize("slope", [-1.0, math.nan, math.inf])
def test_the_slope_is_finite_and_not_negative(slope: float) -> None:
    with pytest.raises(ArgumentError, match="`slope`"):
        spectral_contraction(torch.ones(2, 2), slope)


@pytest.mark.parametrize("scaling", [torch.tensor([1.0, 0.0]), torch.tensor([1.0, -1.0])])
def test_weights_are_positive(scaling: Tensor) -> None:
    with pytest.raises(ArgumentError, match="positive"):
        scaled_rate(torch.ones(2, 2), scaling)


def test_weights_are_finite() -> None:
    with pytest.raises(NotFiniteError, match="`scaling`"):
        scaled_rate(torch.ones(2, 2), torch.tensor([1.0, math.inf]))


def test_weights_are_one_a_unit() -> None:
    with pytest.raises(ShapeError, match=r"`scaling` must have shape \(2,\)"):
        scaled_rate(torch.ones(2, 2), torch.ones(3))


def test_weights_too_far_apart_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"2\*\*400"):
        scaled_rate(torch.ones(2, 2), torch.tensor([1e-100, 1e100], dtype=torch.float64))


@pytest.mark.parametrize("cap", [0.5, math.nan, math.inf])
def test_the_largest_condition_is_a_number_from_one_on(cap: float) -> None:
    with pytest.raises(ArgumentError, match="`max_condition`"):
        best_scaling(torch.ones(2, 2), max_condition=cap)


def test_the_number_of_steps_is_not_negative() -> None:
    with pytest.raises(ArgumentError, match="`steps`"):
        best_scaling(torch.ones(2, 2), steps=-1)
