"""Projections: they land in the set, as stored; they leave members alone; and nothing in the set is closer."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from steadyrnn.errors import ArgumentError, NotFiniteError, ShapeError
from steadyrnn.linalg.exponential import exp_skew
from steadyrnn.linalg.projections import clip_singular_values, polar_factor, project_rows_l1
from tests.linalg.matrices import distance, gaussian, orthogonal, orthogonality, root_mean_defect, rounding, skew

DTYPES = [torch.float32, torch.float64]


def singular_values(w: Tensor) -> Tensor:
    return torch.linalg.svdvals(w.double())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 17, 128])
def test_the_polar_factor_is_orthogonal(n: int, dtype: torch.dtype) -> None:
    assert orthogonality(polar_factor(gaussian(n, n, dtype=dtype))) <= 30


@pytest.mark.parametrize(("m", "n"), [(7, 3), (3, 7), (1, 4), (4, 1), (5, 0)])
def test_the_polar_factor_of_a_rectangle_has_orthonormal_columns_or_rows(m: int, n: int) -> None:
    x = polar_factor(gaussian(m, n))
    assert x.shape == (m, n)
    assert distance(torch.linalg.svdvals(x), torch.ones(min(m, n), dtype=torch.float64)) <= rounding(m, n)


@given(n=st.integers(1, 8), size=st.sampled_from([1e-6, 1e-2, 0.1, 1.0]), seed=st.integers(0, 2**31))
def test_the_polar_factor_is_the_same_near_the_set_and_far_from_it(n: int, size: float, seed: int) -> None:
    w = orthogonal(n, seed=seed) + size * gaussian(n, n, seed=seed + 1)
    left, sigma, right = torch.linalg.svd(w)
    assert distance(polar_factor(w), left @ right) <= rounding(n, n) * max(1.0, 1 / float(sigma[-1]))


@pytest.mark.parametrize("power", [-1000, -300, 300, 520, 1000, 1020])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (5, 3), (3, 5), (8, 8)])
def test_the_polar_factor_has_no_scale(m: int, n: int, power: int) -> None:
    w = gaussian(m, n)
    x = polar_factor(w.ldexp(torch.tensor(power, dtype=torch.float64)))  # exact, as a power of two is
    smallest = float(torch.linalg.svdvals(w)[-1] / torch.linalg.matrix_norm(w, 2))
    assert distance(x, polar_factor(w)) <= rounding(m, n) / smallest


def test_the_polar_factor_of_the_largest_numbers_is_orthogonal() -> None:
    largest = torch.finfo(torch.float64).max
    assert orthogonality(polar_factor(gaussian(6, 6).sign() * largest)) <= 30
    assert orthogonality(polar_factor(torch.full((3, 3), largest, dtype=torch.float64))) <= 30


def test_no_orthogonal_matrix_is_closer_than_the_polar_factor() -> None:
    w = gaussian(5, 5)
    nearest = float((w - polar_factor(w)).norm())
    assert all(float((w - orthogonal(5, seed=seed)).norm()) > nearest for seed in range(50))


@pytest.mark.parametrize("w", [torch.zeros(3, 3), torch.ones(3, 3)], ids=["zero", "rank one"])
def test_a_matrix_of_low_rank_has_a_polar_factor_too(w: Tensor) -> None:
    assert orthogonality(polar_factor(w)) <= 30


def test_the_polar_factor_fixes_members_to_the_last_digit_but_one() -> None:
    q = exp_skew(skew(16, 2.0).float())
    assert distance(polar_factor(polar_factor(q)), polar_factor(q)) <= torch.finfo(torch.float32).eps


def test_the_polar_factor_removes_the_drift_of_many_multiplications() -> None:
    step = exp_skew(skew(128, 1.0).float())
    w = torch.eye(128)
    for _ in range(300):
        w = step @ w
    assert root_mean_defect(polar_factor(w)) <= 3.2e-7 < root_mean_defect(w)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 3, 64, 256])
def test_clipped_singular_values_are_inside_as_stored(n: int, dtype: torch.dtype) -> None:
    sigma = singular_values(clip_singular_values(gaussian(n, n, dtype=dtype), 0.5, 0.99))
    assert 0.5 <= float(sigma.min()) <= float(sigma.max()) <= 0.99


def test_plain_clipping_in_float32_overshoots() -> None:
    left, sigma, right = torch.linalg.svd(gaussian(256, 256, dtype=torch.float32))
    plain = (left * sigma.clamp(max=0.99)) @ right
    assert 0 < float(singular_values(plain).max()) - 0.99 <= 2e-5  # the least margin for float32 weights


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("low", "high"), [(0.0, 0.99), (0.9, 1.1), (0.0, 0.0), (1.0, 1.0)])
def test_clipping_moves_singular_values_to_the_nearest_in_the_interval(low: float, high: float, dtype: torch.dtype) -> None:
    w = gaussian(5, 8, dtype=dtype)
    left, sigma, right = torch.linalg.svd(w.double(), full_matrices=False)
    expected = (left * sigma.clamp(low, high)) @ right
    assert distance(clip_singular_values(w, low, high).double(), expected) <= rounding(5, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@given(m=st.integers(1, 6), n=st.integers(1, 6), seed=st.integers(0, 2**31))
def test_clipping_twice_changes_nothing(dtype: torch.dtype, m: int, n: int, seed: int) -> None:
    once = clip_singular_values(gaussian(m, n, seed=seed, dtype=dtype), 0.25, 0.75)
    assert torch.equal(clip_singular_values(once, 0.25, 0.75), once)


def test_a_member_comes_back_as_it_is() -> None:
    w = 0.5 * orthogonal(6).float()
    assert torch.equal(clip_singular_values(w, 0.0, 0.99), w)


@given(seed=st.integers(0, 2**31))
def test_clipping_from_above_does_not_expand(seed: int) -> None:
    a, b = gaussian(5, 5, seed=seed), gaussian(5, 5, seed=seed + 1)
    images = clip_singular_values(a, 0.0, 0.99) - clip_singular_values(b, 0.0, 0.99)
    assert float(images.norm()) <= float((a - b).norm()) + rounding(5)


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_a_matrix_without_entries_is_clipped_to_itself(shape: tuple[int, int]) -> None:
    assert clip_singular_values(torch.zeros(shape), 0.0, 1.0).shape == shape


@pytest.mark.parametrize(("low", "high"), [(-0.1, 1.0), (1.0, 0.5), (float("nan"), 1.0)])
def test_an_interval_that_is_none_is_refused(low: float, high: float) -> None:
    with pytest.raises(ArgumentError, match="`low` and `high`"):
        clip_singular_values(torch.ones(2, 2), low, high)


@pytest.mark.parametrize("dtype", DTYPES)
@given(m=st.integers(1, 4), n=st.integers(1, 9), seed=st.integers(0, 2**31))
def test_projected_rows_are_inside_as_stored_and_twice_changes_nothing(dtype: torch.dtype, m: int, n: int, seed: int) -> None:
    rows = project_rows_l1(gaussian(m, n, seed=seed, dtype=dtype), 0.7)
    assert float(rows.double().abs().sum(dim=1).max()) <= 0.7
    assert torch.equal(project_rows_l1(rows, 0.7), rows)


@given(seed=st.integers(0, 2**31), radius=st.floats(0, 4))
def test_nothing_in_the_ball_is_on_the_far_side_of_a_projected_row(seed: int, radius: float) -> None:
    w = gaussian(1, 6, seed=seed)
    p = project_rows_l1(w, radius)
    corners = torch.cat([torch.eye(6), -torch.eye(6)]).double() * radius  # a linear function is largest at a corner
    assert float(((w - p) * (corners - p)).sum(dim=1).max()) <= rounding(6, 6)


def test_a_radius_for_each_row() -> None:
    rows = project_rows_l1(torch.tensor([[2.0, 1.0], [2.0, 1.0]]), torch.tensor([1.0, 5.0]))
    assert distance(rows, torch.tensor([[1.0, 0.0], [2.0, 1.0]])) <= rounding(2, dtype=torch.float32)


def test_rows_on_a_ball_of_radius_zero_vanish() -> None:
    assert torch.equal(project_rows_l1(gaussian(2, 3), 0.0), torch.zeros(2, 3, dtype=torch.float64))


def test_entries_of_equal_size_are_shrunk_alike() -> None:
    expected = torch.tensor([[0.25, -0.25, 0.25, 0.25]])
    got = project_rows_l1(torch.tensor([[3.0, -3.0, 3.0, 3.0]]), 1.0)
    assert distance(got, expected) <= rounding(4, dtype=torch.float32)


@pytest.mark.parametrize("radius", [-1.0, float("nan")])
def test_a_negative_radius_is_refused(radius: float) -> None:
    with pytest.raises(ArgumentError, match="`radius`"):
        project_rows_l1(torch.ones(2, 2), radius)


def test_radii_that_do_not_match_the_rows_are_refused() -> None:
    with pytest.raises(ShapeError, match="`radius`"):
        project_rows_l1(torch.ones(2, 2), torch.ones(3))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_nothing_is_projected_that_is_not_finite(bad: float) -> None:
    w = torch.full((2, 2), bad)
    for project in (polar_factor, lambda w: clip_singular_values(w, 0.0, 1.0), lambda w: project_rows_l1(w, 1.0)):
        with pytest.raises(NotFiniteError):
            project(w)
