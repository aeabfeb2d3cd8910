"""The laws of the norms in which networks contract, and of a contraction."""

import json
import math
from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from steadyrnn.bounds.norms import Contraction, Ellipsoid, MaxNorm, Norm, TwoNorm, above, below
from steadyrnn.errors import ArgumentError, NotFiniteError, ShapeError
from tests.linalg.matrices import gaussian

SIZE = 4
NORMS: dict[str, Norm] = {
    "two": TwoNorm(SIZE),
    "diagonal": Ellipsoid(torch.tensor([0.5, -3.0, 1e-3, 2e4])),
    "full": Ellipsoid(gaussian(SIZE, SIZE, seed=3)),
    "ill-conditioned": Ellipsoid(torch.eye(SIZE, dtype=torch.float64) + 1e9 * torch.ones(SIZE, SIZE, dtype=torch.float64)),
    "maximum": MaxNorm(torch.tensor([0.5, 3.0, 1e-3, 2e4])),
}
seeds = st.integers(0, 2**31)


def states(count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(count, SIZE, generator=generator, dtype=torch.float64)
    return normal * torch.randn(count, SIZE, generator=generator, dtype=torch.float64).mul(4).exp()


def extreme(norm: Norm) -> tuple[Tensor, Tensor]:
    """Return a state for which the norm is smallest beside the 2-norm, and one for which it is largest."""
    if isinstance(norm, Ellipsoid):
        matrix = norm.matrix.diag() if norm.matrix.dim() == 1 else norm.matrix
        right = torch.linalg.svd(matrix).Vh
        return right[-1], right[0]
    if isinstance(norm, MaxNorm):
        largest = torch.zeros(SIZE, dtype=torch.float64)
        largest[norm.weights.argmin()] = 1
        return norm.weights, largest
    return torch.ones(SIZE), torch.ones(SIZE)


@pytest.mark.parametrize("name", NORMS)
@given(seed=seeds)
def test_the_conversion_to_the_two_norm_holds(name: str, seed: int) -> None:
    norm, s = NORMS[name], states(50, seed)
    two, value = torch.linalg.vector_norm(s, dim=-1), norm(s)
    assert bool((norm.lower * two <= value * (1 + 1e-13)).all())
    assert bool((value <= norm.upper * two * (1 + 1e-13)).all())


@pytest.mark.parametrize("name", ["two", "diagonal", "full", "maximum"])
def test_both_ends_of_the_conversion_are_reached(name: str) -> None:
    norm = NORMS[name]
    low, high = extreme(norm)
    assert float(norm(low) / low.double().norm()) == pytest.approx(norm.lower, rel=1e-8)
    assert float(norm(high) / high.double().norm()) == pytest.approx(norm.upper, rel=1e-8)


@pytest.mark.parametrize("name", NORMS)
@given(seed=seeds, factor=st.sampled_from([-3.0, 0.0, 1e-5, 7.0]))
def test_it_is_a_norm(name: str, seed: int, factor: float) -> None:
    norm, (s, t) = NORMS[name], states(2, seed)
    assert float(norm(factor * s)) == pytest.approx(abs(factor) * float(norm(s)), rel=1e-9)
    assert float(norm(s + t)) <= (float(norm(s)) + float(norm(t))) * (1 + 1e-9)
    assert float(norm(s)) > 0


@pytest.mark.parametrize("name", NORMS)
def test_the_condition_is_the_quotient_of_both_ends(name: str) -> None:
    norm = NORMS[name]
    assert norm.condition >= norm.upper / norm.lower
    assert norm.condition <= norm.upper / norm.lower * (1 + 1e-14)


def test_the_two_norm_needs_no_conversion() -> None:
    assert TwoNorm(3).lower == TwoNorm(3).upper == TwoNorm(3).condition == 1


@pytest.mark.parametrize("name", NORMS)
def test_any_leading_shape_and_dtype_is_taken_in_float64(name: str) -> None:
    norm = NORMS[name]
    value = norm(torch.ones(2, 3, SIZE))
    assert value.shape == (2, 3)
    assert value.dtype == torch.float64


@pytest.mark.parametrize("name", NORMS)
def test_what_a_norm_is_made_of_survives_json(name: str) -> None:
    norm = NORMS[name]
    found = json.loads(json.dumps(norm.to_dict()))
    build: dict[str, Callable[[], Norm]] = {
        "two": lambda: TwoNorm(found["size"]),
        "ellipsoid": lambda: Ellipsoid(torch.tensor(found["matrix"], dtype=torch.float64)),
        "max": lambda: MaxNorm(torch.tensor(found["weights"], dtype=torch.float64)),
    }
    s = states(5, seed=1)
    assert torch.equal(build[found["kind"]]()(s), norm(s))


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_knows_its_size_and_name(name: str) -> None:
    assert NORMS[name].size == SIZE
    assert "norm" in NORMS[name].name


@pytest.mark.parametrize("matrix", [torch.ones(2, 2), torch.zeros(3), torch.diag(torch.tensor([1.0, 1e-17]))])
def test_a_singular_matrix_makes_no_ellipsoid(matrix: Tensor) -> None:
    with pytest.raises(ArgumentError, match="nonsingular"):
        Ellipsoid(matrix)


@pytest.mark.parametrize("shape", [(2, 3), (2, 2, 2), ()])
def test_an_ellipsoid_is_square(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="`matrix`"):
        Ellipsoid(torch.ones(shape))


@pytest.mark.parametrize("kind", [Ellipsoid, MaxNorm])
def test_a_norm_is_finite(kind: type[Norm]) -> None:
    with pytest.raises(NotFiniteError):
        kind(torch.tensor([1.0, math.nan]))  # type: ignore[call-arg]


@pytest.mark.parametrize("weights", [torch.tensor([1.0, 0.0]), torch.tensor([-1.0]), torch.ones(2, 2)])
def test_the_weights_of_a_maximum_norm_are_positive(weights: Tensor) -> None:
    with pytest.raises(ArgumentError, match="`weights`"):
        MaxNorm(weights)


@given(value=st.floats(1e-200, 1e200), roundings=st.integers(4, 1000))
def test_above_and_below_enclose_what_roundings_may_have_moved(value: float, roundings: int) -> None:
    u, exact = Fraction(1, 2**53), Fraction(value)
    # two roundings are those of the function itself
    assert Fraction(above(value, roundings)) >= exact / (1 - u) ** (roundings - 2)
    assert Fraction(below(value, roundings)) <= exact / (1 + u) ** (roundings - 2)


@pytest.mark.parametrize(("rate", "stable"), [(0.5, True), (1.0, False), (math.inf, False)])
def test_a_contraction_is_stable_below_one(rate: float, stable: bool) -> None:
    assert Contraction(rate, TwoNorm(2), "a theorem").stable is stable


@pytest.mark.parametrize("steps", [1, 2, 10, 1000])
def test_many_steps_cost_the_condition_once(steps: int) -> None:
    contraction = Contraction(0.9, Ellipsoid(torch.tensor([1.0, 3.0])), "a theorem")
    assert contraction.after(steps) >= 3 * 0.9**steps
    assert contraction.after(steps) <= 3 * 0.9**steps * (1 + 1e-12)


def test_no_step_is_the_identity() -> None:
    assert Contraction(0.5, Ellipsoid(torch.tensor([1.0, 3.0])), "a theorem").after(0) == 1


def test_nothing_is_known_after_steps_of_an_infinite_rate() -> None:
    assert Contraction(math.inf, TwoNorm(2), "a theorem").after(3) == math.inf


def test_the_bound_over_many_steps_holds_for_a_matrix_with_a_large_norm() -> None:
    w = torch.tensor([[0.5, 10.0], [0.0, 0.4]], dtype=torch.float64)
    d = torch.tensor([0.05, 1.0], dtype=torch.float64)
    rate = float(torch.linalg.matrix_norm(d.unsqueeze(1) * w / d, 2))
    contraction = Contraction(above(rate), Ellipsoid(d), "a theorem")
    norms = [float(torch.linalg.matrix_norm(torch.linalg.matrix_power(w, k), 2)) for k in range(1, 30)]
    assert max(norms) > 1
    assert all(norm <= contraction.after(k) for k, norm in enumerate(norms, start=1))
