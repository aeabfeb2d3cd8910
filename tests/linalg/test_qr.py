"""From matrices to reflectors and back, for every shape, rank and determinant."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from steadyrnn.errors import ArgumentError, NotFiniteError, ShapeError
from steadyrnn.linalg.exponential import exp_skew
from steadyrnn.linalg.householder import householder_product
from steadyrnn.linalg.qr import householder_qr, reflectors_of_matrix, reflectors_of_orthogonal, split_orthogonal
from tests.linalg.matrices import distance, gaussian, orthogonal, rounding, skew

SHAPES = [(1, 1), (2, 2), (5, 5), (3, 7), (7, 3), (1, 4), (4, 1)]


def rebuilt(left: Tensor, sigma: Tensor, right: Tensor, sign: float) -> Tensor:
    signed = sigma.clone()
    signed[-1] *= sign
    r = len(sigma)
    return (householder_product(left)[:, :r] * signed) @ householder_product(right)[:, :r].mT


def with_signed_last_column(columns: Tensor, sign: float) -> Tensor:
    q = householder_product(columns)
    q[:, -1] *= sign
    return q


@pytest.mark.parametrize(("m", "n"), [*SHAPES, (20, 20), (6, 0), (0, 3)])
def test_qr_gives_back_the_matrix(m: int, n: int) -> None:
    a = gaussian(m, n)
    columns, r = householder_qr(a)
    assert columns.shape == (m, min(m, n))
    assert distance(householder_product(columns) @ r, a) <= rounding(m, n)


@given(m=st.integers(1, 8), n=st.integers(1, 8), seed=st.integers(0, 2**31))
def test_the_triangle_is_upper_with_a_diagonal_that_is_not_negative(m: int, n: int, seed: int) -> None:
    _, r = householder_qr(gaussian(m, n, seed=seed))
    assert torch.equal(r, r.triu())
    assert bool((r.diagonal() >= 0).all())


def test_a_column_of_the_reflectors_has_zeros_above_its_place() -> None:
    columns, _ = householder_qr(gaussian(6, 6))
    assert torch.equal(columns, columns.tril())


def test_the_triangle_of_zero_has_a_zero_diagonal_not_a_positive_one() -> None:
    columns, r = householder_qr(torch.zeros(3, 3))
    assert torch.equal(columns, torch.zeros(3, 3))
    assert torch.equal(r, torch.zeros(3, 3))


@pytest.mark.parametrize(("entry", "reflector"), [(2.0, 0.0), (0.0, 0.0), (-2.0, 1.0)])
def test_a_single_entry_is_reflected_only_if_negative(entry: float, reflector: float) -> None:
    columns, r = householder_qr(torch.tensor([[entry]]))
    assert float(columns) == reflector
    assert float(r) == abs(entry)


def test_near_the_identity_the_printed_formula_cancels_and_the_stable_one_does_not() -> None:
    n = 30
    q = exp_skew(1e-9 * skew(n, n**0.5))

    def printed() -> Tensor:
        rest, columns = q.clone(), torch.zeros(n, n, dtype=torch.float64)
        for j in range(n):
            u = rest[j:, j].clone()
            u[0] -= u.norm()
            columns[j:, j] = u
            if u.norm() > 0:
                rest[j:] -= 2 * torch.outer(u, u @ rest[j:]) / (u @ u)
        return householder_product(columns)

    stable = householder_product(householder_qr(q)[0])
    assert distance(stable, q) <= rounding(n)
    assert distance(printed(), q) > 1e-9


@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e150, 1e300])
def test_qr_of_tiny_and_huge_matrices(scale: float) -> None:
    a = gaussian(5, 4)
    columns, r = householder_qr(scale * a)
    assert distance(householder_product(columns) @ (r / scale), a) <= rounding(5, 4)


def test_a_column_with_a_tail_that_almost_vanishes_is_reflected_onto_the_axis() -> None:
    x = torch.tensor([[1.0], [1e-200], [-3e-200]], dtype=torch.float64)
    columns, _ = householder_qr(x)
    assert distance(householder_product(columns).mT @ x, torch.tensor([[1.0], [0.0], [0.0]])) <= rounding(3)


@pytest.mark.parametrize("determinant", [1, -1])
@pytest.mark.parametrize("n", [1, 2, 3, 6, 17, 40])
def test_qr_reaches_orthogonal_matrices_of_both_determinants(n: int, determinant: int) -> None:
    q = orthogonal(n, determinant)
    columns, _ = householder_qr(q)
    nonzero = int((columns != 0).any(dim=0).sum())
    assert distance(householder_product(columns), q) <= rounding(n)
    assert (-1) ** nonzero == determinant


@pytest.mark.parametrize("determinant", [1, -1])
@pytest.mark.parametrize("n", [1, 2, 3, 6, 17, 40])
def test_nonzero_reflectors_and_a_sign_reach_both_determinants(n: int, determinant: int) -> None:
    q = orthogonal(n, determinant)
    columns, sign = reflectors_of_orthogonal(q)
    assert columns.shape == (n, n - 1)
    assert bool((columns != 0).any(dim=0).all())
    assert sign == determinant * (-1) ** (n - 1)
    assert distance(with_signed_last_column(columns, sign), q) <= rounding(n)


@pytest.mark.parametrize("n", [1, 2, 3, 8])
@pytest.mark.parametrize("entry", [1.0, -1.0])
def test_the_identity_and_its_negative_have_nonzero_reflectors(n: int, entry: float) -> None:
    q = entry * torch.eye(n, dtype=torch.float64)
    columns, sign = reflectors_of_orthogonal(q)
    assert bool((columns != 0).any(dim=0).all())
    assert distance(with_signed_last_column(columns, sign), q) <= rounding(n)


def test_a_permutation_has_nonzero_reflectors() -> None:
    q = torch.eye(7, dtype=torch.float64)[[0, 2, 1, 3, 6, 4, 5]]
    columns, sign = reflectors_of_orthogonal(q)
    assert bool((columns != 0).any(dim=0).all())
    assert distance(with_signed_last_column(columns, sign), q) <= rounding(7)


@given(n=st.integers(1, 9), seed=st.integers(0, 2**31))
def test_float32_matrices_come_back_to_float32_accuracy(n: int, seed: int) -> None:
    q = orthogonal(n, seed=seed).float()
    columns, sign = reflectors_of_orthogonal(q)
    assert columns.dtype == torch.float32
    assert distance(with_signed_last_column(columns, sign), q) <= rounding(n, dtype=torch.float32)


@pytest.mark.parametrize(("m", "n"), SHAPES)
def test_any_matrix_comes_back_from_its_reflectors(m: int, n: int) -> None:
    w = gaussian(m, n)
    left, sigma, right, sign = reflectors_of_matrix(w)
    assert left.shape == (m, m - 1 if m <= n else n)
    assert right.shape == (n, n - 1 if n <= m else m)
    assert bool((sigma >= 0).all())
    assert abs(sign) == 1
    assert bool((left != 0).any(dim=0).all())
    assert bool((right != 0).any(dim=0).all())
    assert distance(rebuilt(left, sigma, right, sign), w) <= rounding(m, n)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("n", [1, 2, 5, 6])
def test_square_matrices_of_both_determinants_are_reached(n: int, sign: float) -> None:
    w = gaussian(n, n)
    w[0] *= sign * float(torch.linalg.det(w).sign())
    assert distance(rebuilt(*reflectors_of_matrix(w)), w) <= rounding(n, n)
    assert float(torch.linalg.det(w)) * sign > 0


@pytest.mark.parametrize(
    "w",
    [torch.zeros(4, 4), torch.zeros(2, 5), torch.eye(3), -torch.eye(4), torch.ones(3, 5), torch.ones(3, 3).triu(2)],
    ids=["zero", "wide zero", "identity", "minus identity", "rank one", "nilpotent"],
)
def test_matrices_of_low_rank_come_back_with_nonzero_reflectors(w: Tensor) -> None:
    left, sigma, right, sign = reflectors_of_matrix(w.double())
    assert bool((left != 0).any(dim=0).all())
    assert bool((right != 0).any(dim=0).all())
    assert distance(rebuilt(left, sigma, right, sign), w.double()) <= rounding(*w.shape)


@pytest.mark.parametrize(("m", "n"), [(3, 7), (7, 3), (5, 5)])
def test_one_reflector_fewer_does_not_reach_the_matrix(m: int, n: int) -> None:
    w = gaussian(m, n)
    left, sigma, right, sign = reflectors_of_matrix(w)
    assert distance(rebuilt(left, sigma, right[:, :-1], sign), w) > 0.1


def reachable_directions(m: int, n: int, fewer: int) -> int:
    """Return how many dimensions small changes reach with so many reflectors fewer on the longer side."""
    left, sigma, right, sign = reflectors_of_matrix(gaussian(m, n))
    left, right = (left[:, : left.shape[1] - fewer], right) if m > n else (left, right[:, : right.shape[1] - fewer])

    def matrix(left: Tensor, sigma: Tensor, right: Tensor) -> Tensor:
        return rebuilt(left.tril(), sigma, right.tril(), sign).flatten()

    jacobian = torch.autograd.functional.jacobian(matrix, (left, sigma, right))
    return int(torch.linalg.matrix_rank(torch.cat([part.flatten(1) for part in jacobian], dim=1)))


@pytest.mark.parametrize(("m", "n"), [(3, 7), (7, 3), (5, 5), (1, 4), (4, 1)])
def test_the_reflectors_of_a_shape_reach_every_direction(m: int, n: int) -> None:
    assert reachable_directions(m, n, 0) == m * n


@pytest.mark.parametrize(("m", "n"), [(3, 7), (7, 3), (5, 5), (1, 4), (4, 1)])
def test_with_one_reflector_fewer_on_the_longer_side_some_direction_is_out_of_reach(m: int, n: int) -> None:
    assert reachable_directions(m, n, 1) < m * n


def test_columns_agree_up_to_one_more_than_the_printed_lemma_says() -> None:
    n = 7
    full = gaussian(n, n).tril()  # column n - k holds the reflector of size k
    products = {k: householder_product(full[:, : n - k + 1]) for k in range(1, n + 1)}
    for k1 in range(1, n + 1):
        for k2 in range(1, k1):
            same = (products[k1] - products[k2]).abs().amax(dim=0) <= rounding(n)
            agreeing = int(same.int().cumprod(dim=0).sum())
            assert agreeing == n - max(k1, k2) + 1


def pairs(n: int) -> list[tuple[int, int, int]]:
    return [(n, k1, k2) for k1 in range(1, n + 2) for k2 in range(1, n + 2) if k1 + k2 <= n + 2]


@pytest.mark.parametrize("determinant", [1, -1])
@pytest.mark.parametrize("n", [2, 3, 6, 9])
def test_every_split_of_the_reflectors_gives_the_matrix(n: int, determinant: int) -> None:
    a = orthogonal(n, determinant)
    for _, k1, k2 in pairs(n):
        left, right = split_orthogonal(a, k1, k2)
        assert left.shape == (n, n - k1 + 1)
        assert right.shape == (n, n - k2 + 1)
        assert distance(householder_product(left) @ householder_product(right).mT, a) <= rounding(n)


def test_each_reflector_of_a_split_fits_its_place() -> None:
    for left_or_right in split_orthogonal(orthogonal(6), 4, 3):
        assert torch.equal(left_or_right, left_or_right.tril())


def test_the_printed_range_of_zeros_begins_one_too_early() -> None:
    n, k1, k2 = 6, 4, 4
    a = orthogonal(n, (-1) ** n)  # of this determinant, all n reflectors are needed
    left, right = split_orthogonal(a, k1, k2)
    right[:, : n - (k1 + k2 - 2) + 1] = 0  # zeros from k1 + k2 - 2 on
    assert distance(householder_product(left) @ householder_product(right).mT, a) > 0.1


@pytest.mark.parametrize(("k1", "k2"), [(0, 1), (1, 0), (4, 4)])
def test_a_split_with_too_few_reflectors_is_refused(k1: int, k2: int) -> None:
    with pytest.raises(ArgumentError, match="`k1` and `k2`"):
        split_orthogonal(torch.eye(5), k1, k2)


@pytest.mark.parametrize("function", [householder_qr, reflectors_of_orthogonal, reflectors_of_matrix])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_finite_is_refused(function: Callable[[Tensor], object], bad: float) -> None:
    with pytest.raises(NotFiniteError, match="`matrix`"):
        function(torch.full((2, 2), bad))


def test_an_empty_matrix_has_no_reflectors() -> None:
    with pytest.raises(ShapeError, match="empty"):
        reflectors_of_matrix(torch.zeros(0, 3))
    with pytest.raises(ShapeError, match="empty"):
        reflectors_of_orthogonal(torch.zeros(0, 0))


def test_a_rectangular_matrix_is_not_orthogonal() -> None:
    with pytest.raises(ShapeError, match="square"):
        reflectors_of_orthogonal(torch.zeros(2, 3))
