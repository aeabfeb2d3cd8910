"""The certified bound on the spectral norm: never below, and close."""

import math
from fractions import Fraction

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from steadyrnn.bounds.norms import spectral_norm_bound
from steadyrnn.errors import ArgumentError, NotFiniteError, ShapeError
from tests.linalg.matrices import gaussian, orthogonal


def norm(w: Tensor) -> float:
    return float(torch.linalg.matrix_norm(w.double(), 2))


@given(
    m=st.integers(1, 9),
    n=st.integers(1, 9),
    squarings=st.integers(0, 8),
    exponent=st.integers(-250, 250),
    seed=st.integers(0, 2**31),
)
def test_the_bound_is_above_the_norm_by_at_most_the_factor_stated(
    m: int, n: int, squarings: int, exponent: int, seed: int
) -> None:
    w = gaussian(m, n, seed=seed) * 2.0**exponent
    bound, truth, u = spectral_norm_bound(w, squarings), norm(w), 2.0**-53
    assert bound >= truth * (1 - 4 * (m + n) * u)  # the truth is rounded too
    assert bound <= truth * min(m, n) ** (1 / 2 ** (squarings + 2)) * (1 + 64 * (m + n) ** 2 * u)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 31])
def test_the_bound_is_above_the_exact_norm_of_matrices_that_have_a_known_one(n: int) -> None:
    w = torch.full((n, n), 0.1)  # float32: its norm is n times the stored number, exactly
    exact = n * float(w[0, 0])
    assert exact <= spectral_norm_bound(w, 20) <= exact * (1 + 1000 * n * n * 2.0**-53)


@pytest.mark.parametrize("squarings", [0, 2, 4, 6])
def test_the_bound_is_the_formula_up_to_rounding(squarings: int) -> None:
    w = gaussian(256, 256)
    power = 2 ** (squarings + 2)
    sigma = torch.linalg.svdvals(w)
    formula = float(sigma[0] * (sigma / sigma[0]).pow(power).sum().pow(1 / power))
    assert spectral_norm_bound(w, squarings) == pytest.approx(formula, rel=256**2 * 2.0**-53)


@pytest.mark.parametrize(("squarings", "factor"), [(4, 1.0038), (6, 1.000008)])
def test_few_squarings_come_close_for_a_random_matrix(squarings: int, factor: float) -> None:
    w = gaussian(256, 256, seed=10)
    assert 1 <= spectral_norm_bound(w / norm(w), squarings) <= factor


def test_the_worst_case_is_orthogonal_and_meets_the_factor() -> None:
    n, squarings = 16, 3
    factor = n ** (1 / 2 ** (squarings + 2))
    assert spectral_norm_bound(orthogonal(n), squarings) == pytest.approx(factor, rel=1000 * n * 2.0**-53)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_any_floating_dtype_is_taken_as_stored(dtype: torch.dtype) -> None:
    w = gaussian(5, 4, dtype=dtype)
    assert norm(w) * (1 - 64 * 2.0**-53) <= spectral_norm_bound(w, 10)


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_a_matrix_without_entries_has_norm_zero(shape: tuple[int, int]) -> None:
    assert spectral_norm_bound(torch.zeros(shape)) == 0


def test_the_zero_matrix_has_norm_zero() -> None:
    assert spectral_norm_bound(torch.zeros(3, 4)) == 0


@pytest.mark.parametrize("entry", [5e-324, 1e-310, 1e-200, 1e200, 1e300])
def test_tiny_and_huge_entries_neither_under_nor_overflow(entry: float) -> None:
    w = torch.full((2, 2), entry, dtype=torch.float64)
    assert 2 * entry <= spectral_norm_bound(w) <= max(2 * entry * (1 + 1e-12), 2 * entry + 5e-324)


def test_a_norm_beyond_the_largest_number_is_bounded_by_infinity() -> None:
    assert spectral_norm_bound(torch.full((4, 4), 1e308, dtype=torch.float64)) == math.inf


def test_entries_of_very_different_size_are_all_counted() -> None:
    w = torch.diag(torch.tensor([1e-300, 1.0, 1e-160], dtype=torch.float64))
    assert 1 <= spectral_norm_bound(w) <= 1 + 1e-12


def test_more_squarings_come_closer() -> None:
    w = gaussian(20, 30)
    bounds = [spectral_norm_bound(w, p) for p in range(8)]
    assert bounds == sorted(bounds, reverse=True)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_nothing_is_said_of_what_is_not_finite(bad: float) -> None:
    w = torch.ones(3, 3)
    w[1, 2] = bad
    with pytest.raises(NotFiniteError, match="`matrix`"):
        spectral_norm_bound(w)


def test_a_vector_is_refused() -> None:
    with pytest.raises(ShapeError, match="`matrix`"):
        spectral_norm_bound(torch.ones(3))


@pytest.mark.parametrize("squarings", [-1, 1.5, True])
def test_the_number_of_squarings_is_an_integer_from_zero_on(squarings: int) -> None:
    with pytest.raises(ArgumentError, match="`squarings`"):
        spectral_norm_bound(torch.ones(2, 2), squarings)


@pytest.mark.parametrize("squarings", [0, 1, 6])
@pytest.mark.parametrize("place", [0, 50_000])
def test_the_bound_holds_in_exact_arithmetic_where_sums_lose_what_is_small(squarings: int, place: int) -> None:
    count, small = 100_001, 2.0**-27  # squares of 2^-54, half a unit in the last place of 1: each is lost beside it
    column = torch.full((count, 1), small, dtype=torch.float64)
    column[place] = 1
    exact = 1 + (count - 1) * Fraction(small) ** 2  # the squared norm
    assert Fraction(spectral_norm_bound(column, squarings)) ** 2 >= exact
    assert Fraction(spectral_norm_bound(column.mT, squarings)) ** 2 >= exact


@given(n=st.integers(1, 3), seed=st.integers(0, 2**31), squarings=st.integers(0, 20))
def test_the_bound_is_above_the_exact_norm(n: int, seed: int, squarings: int) -> None:
    matrix = gaussian(n, n, seed=seed)
    with mpmath.workdps(60):
        square = mpmath.matrix(matrix.mT.tolist()) * mpmath.matrix(matrix.tolist())
        exact = mpmath.sqrt(max(mpmath.eigsy(square, eigvals_only=True)))
        assert exact <= spectral_norm_bound(matrix, squarings)
