"""The logarithm of rotations and of unitary matrices, at any angles."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steadyrnn.errors import ConstraintError, NotFiniteError, ShapeError
from steadyrnn.linalg.exponential import exp_skew, log_orthogonal
from tests.linalg.matrices import distance, orthogonal, rotation, rounding, skew, unitary

PI = math.pi

ANGLES = {
    "none": [0.0, 0.0, 0.0],
    "small": [0.1, 0.2, 1e-9],
    "repeated": [1.0, 1.0, 1.0],
    "quarter turns": [PI / 2, PI / 2, PI / 2],
    "large": [3.0, 3.1, 3.14, 3.1415],
    "half turns": [PI, PI, PI, PI],
    "one half turn": [PI, 0.3, 0.3],
    "nearly half turns": [PI - 1e-5, PI - 1e-9, PI - 1e-12, PI, 0.5],
    "half turns up to rounding": [PI - 1e-7, PI - 2e-15, PI - 3e-15, PI - 1e-16],
}


@pytest.mark.parametrize("odd", [0, 1])
@pytest.mark.parametrize("angles", ANGLES.values(), ids=ANGLES)
def test_the_logarithm_of_a_rotation_is_skew_principal_and_exponentiates_back(angles: list[float], odd: int) -> None:
    n = 2 * len(angles) + odd
    q = rotation(angles, n)
    b = log_orthogonal(q)
    assert torch.equal(b, -b.mT)
    assert float(torch.linalg.matrix_norm(b, 2)) <= PI + rounding(n)
    assert distance(exp_skew(b), q) <= rounding(n)


@given(n=st.integers(1, 12), seed=st.integers(0, 2**31))
def test_the_logarithm_undoes_the_exponential_within_half_a_turn(n: int, seed: int) -> None:
    b = skew(n, 3.0, seed=seed) if n > 1 else torch.zeros(1, 1, dtype=torch.float64)
    assert distance(log_orthogonal(exp_skew(b)), b) <= 64 * rounding(n)


@pytest.mark.parametrize("n", [1, 2, 3, 17, 64])
def test_the_logarithm_of_float32_matrices_is_accurate_to_float32(n: int) -> None:
    q = orthogonal(n, 1).float()
    b = log_orthogonal(q)
    assert b.dtype == torch.float32
    assert distance(exp_skew(b), q) <= rounding(n, dtype=torch.float32)


@pytest.mark.parametrize("n", [1, 2, 3, 17])
def test_the_logarithm_of_a_unitary_matrix_is_skew_hermitian_and_exponentiates_back(n: int) -> None:
    z = unitary(n)
    b = log_orthogonal(z)
    assert torch.equal(b, -b.mH)
    assert distance(exp_skew(b), z) <= rounding(n)


def test_a_unitary_matrix_may_have_the_eigenvalue_minus_one_any_number_of_times() -> None:
    z = torch.diag(torch.tensor([-1, -1, -1, 1, 1j], dtype=torch.complex128))
    assert distance(exp_skew(log_orthogonal(z)), z) <= rounding(5)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_matrix_of_determinant_minus_one_has_no_real_logarithm(n: int) -> None:
    with pytest.raises(ConstraintError, match="determinant -1"):
        log_orthogonal(orthogonal(n, -1))


def test_the_logarithm_refuses_what_is_not_orthogonal_and_says_how_far_it_is() -> None:
    with pytest.raises(ConstraintError, match=r"0\.5 away from 1"):
        log_orthogonal(1.5 * torch.eye(3))


def test_the_logarithm_refuses_nan() -> None:
    with pytest.raises(NotFiniteError, match="`matrix`"):
        log_orthogonal(torch.full((2, 2), torch.nan))


def test_the_logarithm_of_a_matrix_without_entries_has_none() -> None:
    assert log_orthogonal(torch.zeros(0, 0)).shape == (0, 0)


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
def test_the_logarithm_refuses_what_is_not_a_square_matrix(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="square"):
        log_orthogonal(torch.zeros(shape))


def test_half_a_turn_is_plus_180_degrees() -> None:
    z = torch.diag(torch.tensor([-1, -1, 1j], dtype=torch.complex128))
    assert log_orthogonal(z).diagonal().imag.tolist() == pytest.approx([PI, PI, PI / 2], rel=1e-15)
