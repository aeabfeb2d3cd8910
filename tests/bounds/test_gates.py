"""Bounds on gates: outward rounding, and power iteration for the weights of a norm."""

import math
from collections.abc import Callable, Iterator

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from steadyrnn.bounds import gates
from steadyrnn.bounds.norms import MaxNorm
from steadyrnn.errors import ArgumentError, CertificateError, NotFiniteError, ShapeError
from tests.linalg.matrices import gaussian


@pytest.fixture(autouse=True)
def _precise() -> Iterator[None]:
    with mpmath.workdps(60):
        yield


def exact_sigmoid(x: float) -> mpmath.mpf:
    return 1 / (1 + mpmath.exp(-mpmath.mpf(x)))


@given(x=st.floats(-2000, 2000))
def test_the_logistic_function_is_enclosed(x: float) -> None:
    value, exact = torch.tensor([x], dtype=torch.float64), exact_sigmoid(x)
    low, high = float(gates.sigmoid_below(value)), float(gates.sigmoid_above(value))
    assert low <= exact <= high
    assert high - low <= 1e-14 * exact + 1e-300


@given(x=st.floats(0, 1000))
def test_the_hyperbolic_tangent_is_bounded(x: float) -> None:
    high, exact = float(gates.tanh_above(torch.tensor([x], dtype=torch.float64))), mpmath.tanh(mpmath.mpf(x))
    assert exact <= high <= exact * (1 + mpmath.mpf("1e-14")) + mpmath.mpf("1e-300")


@pytest.mark.parametrize("function", [gates.sigmoid_above, gates.tanh_above])
def test_no_gate_is_bounded_above_one(function: Callable[[Tensor], Tensor]) -> None:
    assert float(function(torch.tensor(1e6, dtype=torch.float64))) == 1


@given(seed=st.integers(0, 2**31), scale=st.sampled_from([1e-8, 1.0, 1e8]))
def test_the_range_of_a_pre_activation_holds_in_exact_arithmetic(seed: int, scale: float) -> None:
    w, u, b, h = (gaussian(*shape, seed=seed + k) for k, shape in enumerate([(3, 3), (3, 2), (3,), (3,)]))
    w, hidden = w * scale, h.abs()
    (gate,) = gates.gate_rows(u, w, b, 0.3, 1)
    for j in range(3):
        reach = mpmath.fsum(abs(mpmath.mpf(w[j, k].item())) * hidden[k].item() for k in range(3))
        reach += mpmath.fsum(abs(mpmath.mpf(u[j, k].item())) * mpmath.mpf(0.3) for k in range(2))
        high, low = gate.highest(hidden)[j].item(), gate.lowest(hidden)[j].item()
        assert low <= b[j].item() - reach <= b[j].item() + reach <= high
        assert high - low <= 2 * reach + 1e-14 * (reach + abs(b[j].item()))


def test_underflow_is_counted() -> None:
    tiny = torch.full((1, 1), 1e-200, dtype=torch.float64)
    gate = gates.Gate(tiny, torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
    assert float(gate.highest(tiny[0])) > 0  # the product is 1e-400
    assert float(gates.raised(torch.zeros(1, dtype=torch.float64), 1)) > 0


@given(n=st.integers(1, 6), seed=st.integers(0, 2**31))
def test_power_iteration_finds_the_perron_root(n: int, seed: int) -> None:
    m = gaussian(n, n, seed=seed).abs()
    v = gates.perron_weights(lambda v: m @ v, torch.ones(n))
    root = float(torch.linalg.eigvals(m).abs().max())
    assert bool((v > 0).all())
    assert float((m @ v / v).max()) == pytest.approx(root, rel=1e-6)


@pytest.mark.parametrize(
    ("rows", "root"),
    [([[0.5, 10.0], [0.0, 0.4]], 0.5), ([[0.0, 1.0], [0.0, 0.0]], 0.0), ([[0.2, 0.0], [0.0, 0.9]], 0.9), ([[0.0]], 0.0)],
)
def test_weights_stay_positive_where_parts_do_not_meet(rows: list[list[float]], root: float) -> None:
    m = torch.tensor(rows, dtype=torch.float64)
    v = gates.perron_weights(lambda v: m @ v, m[0])
    assert bool((v > 0).all())
    assert root <= float((m @ v / v).max()) <= root + 1e-4


def test_an_infinite_map_leaves_the_weights_alone() -> None:
    assert torch.equal(gates.perron_weights(lambda v: v / 0, torch.ones(2)), torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize("bound", [-1.0, math.nan])
def test_a_bound_on_inputs_is_not_negative(bound: float) -> None:
    with pytest.raises(ArgumentError, match="`input_bound`"):
        gates.check_input_bound(bound)


def test_unbounded_inputs_have_no_certificate() -> None:
    with pytest.raises(CertificateError, match="`input_bound` must be finite"):
        gates.check_input_bound(math.inf)


@pytest.mark.parametrize("bound", [2, 2.0, torch.tensor(2.0), torch.full((3,), 2.0)])
def test_a_bound_is_a_number_or_one_a_unit(bound: float | Tensor) -> None:
    assert torch.equal(gates.as_bound("initial_bound", bound, torch.ones(3)), torch.full((3,), 2.0, dtype=torch.float64))


def test_a_bound_has_the_shape_of_the_state() -> None:
    with pytest.raises(ShapeError, match=r"`initial_bound` must be a number or have shape \(3,\)"):
        gates.as_bound("initial_bound", torch.ones(2), torch.ones(3))


def test_a_bound_is_not_negative() -> None:
    with pytest.raises(ArgumentError, match="`initial_bound` must not be negative"):
        gates.as_bound("initial_bound", -1.0, torch.ones(3))


def test_a_bound_is_a_number() -> None:
    with pytest.raises(NotFiniteError, match="`initial_bound`"):
        gates.as_bound("initial_bound", math.nan, torch.ones(3))


def test_parts_have_the_shape_of_the_cell() -> None:
    with pytest.raises(ShapeError, match=r"`weight_hh` must have shape \(6, 3\)"):
        gates.absolute_parts("weight_hh", torch.ones(6, 2), 2, 3, 3)
    with pytest.raises(ShapeError, match=r"`weight_ih` must have shape \(6, any\)"):
        gates.absolute_parts("weight_ih", torch.ones(5, 2), 2, 3)


def test_a_norm_weighs_every_entry() -> None:
    with pytest.raises(ShapeError, match=r"3 entries of the state, but has 2 weights"):
        gates.check_norm(MaxNorm(torch.ones(2)), 3, "the state")
