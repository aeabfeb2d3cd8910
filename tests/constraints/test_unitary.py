"""Complex unitary matrices as real ones (Note [mathematics], section 3.9)."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steadyrnn.activations import ModReLU
from steadyrnn.constraints import FullUnitary, RestrictedUnitary
from steadyrnn.constraints.slot import Slot
from steadyrnn.errors import ConstraintError, ShapeError
from tests.constraints.cases import gaussian_like, member, orthogonal, rounding

BOTH = [RestrictedUnitary, FullUnitary]


@pytest.mark.parametrize("make", BOTH)
@given(half=st.integers(1, 6), seed=st.integers(0, 2**32 - 1))
def test_the_matrix_has_the_complex_form_and_determinant_one(make: type, half: int, seed: int) -> None:
    constraint = make()
    matrix = constraint(*gaussian_like(constraint.raw(2 * half, 2 * half), seed))
    a, b = matrix[:half, :half], matrix[half:, :half]
    assert torch.equal(matrix[half:, half:], a)
    assert torch.equal(matrix[:half, half:], -b)
    z = torch.complex(a, b)
    gap = z.mH @ z - torch.eye(half)
    assert torch.linalg.matrix_norm(gap, 2) <= rounding(half)
    assert float(torch.linalg.det(matrix)) == pytest.approx(1.0)


@pytest.mark.parametrize("make", BOTH)
@pytest.mark.parametrize("size", [1, 3, 7])
def test_an_odd_size_is_refused(make: type, size: int) -> None:
    with pytest.raises(ShapeError, match="needs an even size"):
        make().raw(size, size)


def test_an_orthogonal_matrix_of_another_form_is_outside() -> None:
    constraint = FullUnitary()
    matrix = orthogonal(6, 0, 1)
    assert float(constraint.violation(matrix)) > 0.5
    with pytest.raises(ConstraintError, match="violation"):
        constraint.right_inverse(matrix)


def test_the_violation_sees_the_form_and_the_orthogonality() -> None:
    constraint = FullUnitary()
    inside = member("unitary-full", 4, 0)
    bent = inside.clone()
    bent[0, 0] += 0.01
    assert constraint.violation(inside) <= rounding(4)
    assert 0.007 <= float(constraint.violation(bent)) <= 0.02
    assert float(constraint.violation(1.25 * inside)) == pytest.approx(0.25)


def test_a_zero_reflector_is_the_identity() -> None:
    constraint = RestrictedUnitary()
    phases, reflectors = constraint.raw(6, 6)
    matrix = constraint(torch.zeros_like(phases), torch.zeros_like(reflectors))
    assert constraint.violation(matrix) <= rounding(6, torch.float32)


def test_fresh_raw_tensors_have_unit_reflectors_and_all_phases() -> None:
    phases, reflectors = RestrictedUnitary().raw(200, 200)
    torch.testing.assert_close(reflectors.square().sum(dim=(1, 2)), torch.ones(2))
    assert phases.abs().max() <= torch.pi
    assert phases.abs().max() > 3


def test_the_permutation_is_saved_with_the_weights() -> None:
    first, second = RestrictedUnitary(), RestrictedUnitary()
    raw = first.raw(12, 12)
    second.raw(12, 12)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(*raw), second(*raw))


def test_the_restricted_set_has_fewer_dimensions_than_the_full_one() -> None:
    half = 9  # 7 m < m^2 from 8 on
    constraint = RestrictedUnitary()
    raw = gaussian_like(constraint.raw(2 * half, 2 * half), 0)
    jacobian = torch.autograd.functional.jacobian(constraint, raw)
    rank = torch.linalg.matrix_rank(torch.cat([part.flatten(0, 1).flatten(1) for part in jacobian], dim=1))
    assert rank <= 7 * half < half**2


@given(half=st.integers(1, 6), seed=st.integers(0, 999))
def test_every_unitary_matrix_is_reached_by_the_full_one(half: int, seed: int) -> None:
    constraint, matrix = FullUnitary(), member("unitary-full", 2 * half, seed)
    assert torch.linalg.matrix_norm(constraint(*constraint.right_inverse(matrix)) - matrix, 2) <= rounding(2 * half)


@pytest.mark.parametrize("phase", [1, -1, 1j, -1j])
def test_scalar_phases_are_reached(phase: complex) -> None:
    z = phase * torch.eye(3, dtype=torch.complex128)
    matrix = torch.cat([torch.cat([z.real, -z.imag], dim=1), torch.cat([z.imag, z.real], dim=1)])
    constraint = FullUnitary()
    assert torch.linalg.matrix_norm(constraint(*constraint.right_inverse(matrix)) - matrix, 2) <= rounding(6)


@pytest.mark.parametrize("make", BOTH)
@given(shift=st.floats(-2, 0), seed=st.integers(0, 2**32 - 1))
def test_a_unitary_step_under_modrelu_is_not_expansive_with_a_shift_up_to_zero(make: type, shift: float, seed: int) -> None:
    constraint = make()
    w = constraint(*gaussian_like(constraint.raw(6, 6), seed))
    points = gaussian_like((torch.empty(2, 6),), seed)[0]
    theta = torch.full((3,), shift, dtype=torch.float64)
    first, second = ModReLU().value(points @ w.mT, theta)
    assert (first - second).norm() <= (points[0] - points[1]).norm() * (1 + rounding(6))


@pytest.mark.parametrize("make", BOTH)
def test_a_unitary_step_under_modrelu_tears_the_neighbours_of_zero_apart_with_a_positive_shift(make: type) -> None:
    constraint, shift, small = make(), 0.5, 1e-3
    w = constraint(*gaussian_like(constraint.raw(2, 2), 0))
    points = torch.tensor([[small, 0.0], [-small, 0.0]], dtype=torch.float64)
    first, second = ModReLU().value(points @ w.mT, torch.full((1,), shift, dtype=torch.float64))
    assert float((first - second).norm()) == pytest.approx(2 * (small + shift), rel=rounding(2))


CASTS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", CASTS, ids=str)
def test_no_cast_changes_the_permutation(dtype: torch.dtype) -> None:
    slot = Slot(RestrictedUnitary(), 600, 600)  # bfloat16 holds whole numbers up to 256 only
    before = slot.constraint.permutation.clone()
    for cast in (slot.type, slot.to):
        cast(dtype)
        assert slot.constraint.permutation.dtype == torch.int64
        assert torch.equal(slot.constraint.permutation, before)
    assert slot.weight().dtype == dtype


@pytest.mark.parametrize("assign", [False, True], ids=["copied", "assigned"])
@pytest.mark.parametrize("dtype", CASTS, ids=str)
def test_a_permutation_that_was_cast_with_its_state_dict_is_read_back(dtype: torch.dtype, assign: bool) -> None:
    source, slot = Slot(RestrictedUnitary(), 8, 8), Slot(RestrictedUnitary(), 8, 8)
    state = {key: tensor.to(dtype) for key, tensor in source.state_dict().items()}
    slot.load_state_dict(state, assign=assign)
    assert torch.equal(slot.constraint.permutation, source.constraint.permutation)
    assert slot.constraint.permutation.dtype == torch.int64
    assert state["constraint.permutation"].dtype == dtype


@pytest.mark.parametrize("assign", [False, True], ids=["copied", "assigned"])
def test_a_permutation_that_was_rounded_is_refused_by_its_name(assign: bool) -> None:
    source, slot = Slot(RestrictedUnitary(), 600, 600), Slot(RestrictedUnitary(), 600, 600)
    before = slot.constraint.permutation.clone()
    state = {key: tensor.to(torch.bfloat16) for key, tensor in source.state_dict().items()}
    with pytest.raises(RuntimeError, match=r"`constraint\.permutation` must hold each number from 0 to 299 once"):
        slot.load_state_dict(state, assign=assign)
    assert torch.equal(slot.constraint.permutation, before)
    assert slot.constraint.violation(slot.weight()) <= rounding(600, torch.bfloat16)
