"""Orthogonal dilations: they contain the matrix, are orthogonal, and no larger than need be."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from steadyrnn.errors import ConstraintError, NotFiniteError, ShapeError
from steadyrnn.linalg.dilation import defect_rank, dilation_tolerance, monomial_scaling, orthogonal_dilation
from tests.linalg.matrices import distance, gaussian, orthogonal, orthogonality


def contraction(n: int, norm: float, seed: int = 0) -> Tensor:
    w = gaussian(n, n, seed=seed)
    return w * (norm / torch.linalg.matrix_norm(w, 2))


def with_values(values: list[float], seed: int = 0) -> Tensor:
    n = len(values)
    return orthogonal(n, seed=seed) @ torch.tensor(values, dtype=torch.float64).diag() @ orthogonal(n, seed=seed + 1).mT


def scaled(w: Tensor, d: Tensor) -> Tensor:
    return d.unsqueeze(1) * w / d


def monomial(permutation: list[int], gains: list[float]) -> Tensor:
    """Return the matrix with entry ``gains[j]`` in column j and row ``permutation[j]``."""
    w = torch.zeros(len(gains), len(gains), dtype=torch.float64)
    w[permutation, range(len(gains))] = torch.tensor(gains, dtype=torch.float64)
    return w


def cycles(permutation: list[int]) -> list[list[int]]:
    left, found = set(range(len(permutation))), []
    while left:
        cycle = [min(left)]
        while permutation[cycle[-1]] != cycle[0]:
            cycle.append(permutation[cycle[-1]])
        left -= set(cycle)
        found.append(cycle)
    return found


@pytest.mark.parametrize(("n", "norm"), [(4, 0.9), (16, 0.99), (64, 0.9999)])
def test_the_dilation_of_a_contraction_is_orthogonal_to_the_last_digits(n: int, norm: float) -> None:
    w = contraction(n, norm)
    q = orthogonal_dilation(w)
    excess = q.mT @ q - torch.eye(2 * n, dtype=torch.float64)
    assert q.shape == (2 * n, 2 * n)
    assert float(excess.abs().max()) <= 64 * 2.0**-53  # 4e-16 to 1.3e-15 measured in Note [mathematics], section 1.2
    assert orthogonality(q) <= 30
    assert torch.equal(q[:n, :n], w)


@given(values=st.lists(st.sampled_from([0.0, 0.3, 0.999, 1.0]), min_size=1, max_size=9), seed=st.integers(0, 2**31))
def test_the_dilation_has_one_unit_more_for_each_singular_value_below_one(values: list[float], seed: int) -> None:
    w = with_values(values, seed)
    q, extra = orthogonal_dilation(w), sum(value < 1 for value in values)
    assert q.shape == (len(values) + extra, len(values) + extra)
    assert extra == defect_rank(w)
    assert extra == int(torch.linalg.matrix_rank(torch.eye(len(w), dtype=torch.float64) - w.mT @ w, atol=1e-9))
    assert torch.equal(q[: len(w), : len(w)], w)
    assert orthogonality(q) <= 30


@pytest.mark.parametrize("n", [1, 2, 5])
def test_an_orthogonal_matrix_is_its_own_dilation(n: int) -> None:
    w = orthogonal(n)
    assert torch.equal(orthogonal_dilation(w), w)


def test_the_dilation_of_zero_exchanges_two_halves() -> None:
    q = orthogonal_dilation(torch.zeros(3, 3))
    assert torch.equal(q[:3, :3], torch.zeros(3, 3, dtype=torch.float64))
    assert torch.equal(q[3:, 3:].abs(), torch.zeros(3, 3, dtype=torch.float64))
    assert orthogonality(q) <= 30


def test_the_dilation_is_the_square_root_form_up_to_a_rotation_of_the_extra_units() -> None:
    n, w = 5, contraction(5, 0.8)
    p, s, qt = torch.linalg.svd(w)
    c = (1 - s * s).sqrt()
    left, right = p @ c.diag() @ p.mT, qt.mT @ c.diag() @ qt  # square roots of I - WW' and I - W'W
    halmos = torch.cat([torch.cat([w, left], 1), torch.cat([right, -w.mT], 1)])
    eye = torch.eye(n, dtype=torch.float64)
    rotated = torch.block_diag(eye, qt) @ halmos @ torch.block_diag(eye, p)
    assert distance(orthogonal_dilation(w), rotated) <= 1e-14


@pytest.mark.parametrize("seed", range(4))
def test_the_determinant_is_that_of_the_singular_vectors_and_the_parity_of_the_extra_units(seed: int) -> None:
    w = with_values([0.2, 0.7, 1.0, 0.0, 1.0], seed)
    p, _, qt = torch.linalg.svd(w)
    expected = (-1) ** 3 * torch.linalg.det(p) * torch.linalg.det(qt)
    assert float(torch.linalg.det(orthogonal_dilation(w))) == pytest.approx(float(expected), abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_orthogonal_matrix_that_was_rounded_counts_as_one_within_the_tolerance_of_its_dtype(dtype: torch.dtype) -> None:
    w, unit = orthogonal(32).to(dtype), torch.finfo(dtype).eps / 2
    assert defect_rank(w, dilation_tolerance(32, unit)) == 0
    assert orthogonal_dilation(w, dilation_tolerance(32, unit)).shape == (32, 32)


def test_what_is_below_one_by_more_than_the_tolerance_counts_as_below() -> None:
    w = (1 - 1e-6) * orthogonal(8)
    assert defect_rank(w) == 8
    assert defect_rank(w, 1e-5) == 0


def test_a_norm_above_one_is_refused_with_its_value() -> None:
    with pytest.raises(ConstraintError, match=r"at most 1, but has 1\.001"):
        orthogonal_dilation(contraction(4, 1.001))


def test_the_dilation_of_a_matrix_without_entries_has_none() -> None:
    assert orthogonal_dilation(torch.zeros(0, 0)).shape == (0, 0)


@pytest.mark.parametrize("function", [orthogonal_dilation, defect_rank, monomial_scaling])
def test_bad_matrices_are_refused_by_name(function: object) -> None:
    with pytest.raises(NotFiniteError, match="`matrix`"):
        function(torch.full((2, 2), torch.nan))  # type: ignore[operator]
    with pytest.raises(ShapeError, match="`matrix`"):
        function(torch.zeros(2, 3))  # type: ignore[operator]


# Scalings that make singular values 1.


@pytest.mark.parametrize("n", [2, 3, 8, 31])
def test_a_shift_of_gain_one_half_needs_one_extra_unit_after_scaling_by_powers_of_two(n: int) -> None:
    w = 0.5 * torch.eye(n, dtype=torch.float64).roll(1, dims=0)
    d = monomial_scaling(w)
    assert d is not None
    assert torch.equal(d[1:] / d[:-1], torch.full((n - 1,), 2.0, dtype=torch.float64))
    assert (defect_rank(w), defect_rank(scaled(w, d))) == (n, 1)
    assert float(scaled(w, d).abs().max()) == 1.0


@given(data=st.data(), n=st.integers(1, 12))
def test_a_permutation_times_a_diagonal_needs_one_extra_unit_a_cycle_of_gain_below_one(data: st.DataObject, n: int) -> None:
    permutation = data.draw(st.permutations(range(n)))
    gains = data.draw(st.lists(st.sampled_from([-3.0, -1.0, -0.25, 0.1, 0.5, 0.7, 1.0, 2.0]), min_size=n, max_size=n))
    products = [math.prod(abs(gains[j]) for j in cycle) for cycle in cycles(permutation)]
    for cycle, product in zip(cycles(permutation), products, strict=True):
        if product > 1:  # no scaling brings such a cycle to norm 1
            gains[cycle[0]] /= product
    products = [min(product, 1.0) for product in products]
    w = monomial(permutation, gains)
    d = monomial_scaling(w)
    assert d is not None
    values = torch.linalg.svdvals(scaled(w, d))
    assert float(values[0]) <= 1 + dilation_tolerance(n)
    assert defect_rank(scaled(w, d)) == sum(product < 1 - 1e-9 for product in products)


def test_a_path_leaves_one_singular_value_zero_and_makes_the_others_one() -> None:
    w = torch.zeros(4, 4, dtype=torch.float64)
    w[1, 0], w[2, 1], w[3, 2] = 5.0, -0.3, 7.0
    d = monomial_scaling(w)
    assert d is not None
    assert torch.linalg.svdvals(scaled(w, d)).tolist() == pytest.approx([1.0, 1.0, 1.0, 0.0], abs=1e-15)


def test_the_zero_matrix_needs_no_scaling() -> None:
    d = monomial_scaling(torch.zeros(3, 3))
    assert d is not None
    assert d.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    "w", [torch.ones(2, 2), torch.tensor([[1.0, 1.0], [0.0, 0.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])]
)
def test_two_entries_in_a_row_or_column_have_no_such_scaling(w: Tensor) -> None:
    assert monomial_scaling(w) is None


def test_a_scaling_out_of_range_is_not_given() -> None:
    assert monomial_scaling(1e-60 * torch.eye(30, dtype=torch.float64).roll(1, dims=0)) is None
