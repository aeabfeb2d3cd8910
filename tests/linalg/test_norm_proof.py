"""The proof that a norm is below a bound: never of what is false, and of all that is true except for rounding."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from steadyrnn.errors import ArgumentError, NotFiniteError, ShapeError
from steadyrnn.linalg.norm_proof import proves_norm
from steadyrnn.linalg.projections import clip_singular_values
from tests.linalg.matrices import gaussian
from tests.support.operations import Operations

SVD = "linalg_svd"


def hadamard(power: int) -> Tensor:
    """Return the matrix of signs of size 4^power, whose norm is 2^power exactly."""
    signs = torch.ones(1, 1, dtype=torch.float64)
    for _ in range(2 * power):
        signs = torch.cat([torch.cat([signs, signs], 1), torch.cat([signs, -signs], 1)])
    return signs


def full_projection(matrix: Tensor, bound: float) -> Tensor:
    """Return the projection through an SVD, whatever the matrix is."""
    left, sigma, right = torch.linalg.svd(matrix.double(), full_matrices=False)
    margin = (torch.finfo(matrix.dtype).eps + 4 * max(matrix.shape) * 2.0**-52) * float(sigma.clamp(0, bound).norm())
    return ((left * sigma.clamp(0.0, max(bound - margin, bound / 2))) @ right).to(matrix.dtype)


def uses_svd(matrix: Tensor, bound: float) -> bool:
    with Operations() as operations:
        clip_singular_values(matrix, 0.0, bound)
    return any(SVD in name for name in operations.names)


@given(rows=st.integers(1, 12), columns=st.integers(1, 12), seed=st.integers(0, 2**31), share=st.floats(0.5, 2.0))
def test_what_is_proven_is_true(rows: int, columns: int, seed: int, share: float) -> None:
    matrix = gaussian(rows, columns, seed=seed)
    norm = float(torch.linalg.matrix_norm(matrix, 2))
    proven = proves_norm(matrix, share * norm)
    if share < 1 - 1e-13:
        assert not proven
    if share > 1 + 1e-11:
        assert proven


@pytest.mark.parametrize("scale", [2.0**-300, 2.0**-20, 1.0, 2.0**300])
@pytest.mark.parametrize("power", [0, 1, 2, 3])
def test_a_norm_that_is_larger_by_one_rounding_is_not_proven_smaller(power: int, scale: float) -> None:
    matrix, norm = scale * hadamard(power), scale * 2.0**power
    assert not proves_norm(matrix, math.nextafter(norm, 0.0))
    assert proves_norm(matrix, norm * (1 + 1e-10))


@pytest.mark.parametrize("size", [1, 3, 40])
def test_a_diagonal_with_one_entry_above_the_bound_is_not_proven(size: int) -> None:
    matrix = 0.5 * torch.eye(size, dtype=torch.float64)
    matrix[-1, -1] = math.nextafter(0.9, 1.0)
    assert not proves_norm(matrix, 0.9)


@pytest.mark.parametrize(
    ("entry", "bound", "proven"),
    [
        (1e-300, 1.0, True),
        (1e200, 1.0, False),
        (1e300, math.inf, True),
        (0.0, 1.0, True),
        (1.0, 0.0, False),
        (1e-310, 1e-300, False),
    ],
)
def test_numbers_of_any_size_are_decided_or_left_open(entry: float, bound: float, proven: bool) -> None:
    assert proves_norm(torch.full((3, 3), entry, dtype=torch.float64), bound) == proven


def test_a_matrix_without_entries_has_norm_zero() -> None:
    assert proves_norm(torch.empty(0, 3), 0.0)


@pytest.mark.parametrize("bound", [-1.0, math.nan])
def test_a_bound_that_is_none_is_refused(bound: float) -> None:
    with pytest.raises(ArgumentError, match="`bound` must be a number from 0 on"):
        proves_norm(torch.eye(2), bound)


def test_what_is_no_finite_matrix_is_refused() -> None:
    with pytest.raises(NotFiniteError, match="`matrix`"):
        proves_norm(torch.full((2, 2), math.nan), 1.0)
    with pytest.raises(ShapeError, match="`matrix`"):
        proves_norm(torch.ones(2), 1.0)


@pytest.mark.parametrize("size", [2, 17, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_projection_is_bitwise_the_full_one_and_a_member_is_left_alone(size: int, dtype: torch.dtype) -> None:
    outside = gaussian(size, size, seed=size).to(dtype)
    inside = clip_singular_values(outside, 0.0, 0.9)
    assert torch.equal(inside, full_projection(outside, 0.9))
    assert torch.equal(clip_singular_values(inside, 0.0, 0.9), inside)
    assert torch.equal(clip_singular_values(0.999 * inside, 0.0, 0.9), 0.999 * inside)


@pytest.mark.parametrize("size", [2, 17, 64])
def test_only_a_matrix_that_is_not_proven_inside_is_decomposed(size: int) -> None:
    outside = gaussian(size, size, seed=size).float()
    inside = clip_singular_values(outside, 0.0, 0.9)
    assert uses_svd(outside, 0.9)
    assert not uses_svd(inside, 0.9)
    assert not uses_svd(inside.double() * (1 - 1e-9), 0.9)


def test_subnormal_numbers_that_are_read_as_zero_prove_nothing() -> None:
    tiny = torch.full((2, 2), 1e-40)
    torch.set_flush_denormal(True)
    try:
        assert not proves_norm(tiny, 1e-41)
    finally:
        torch.set_flush_denormal(False)
