"""The slot: read as a weight, assigned as one, evaluated once where requested."""

import pytest
import torch

from steadyrnn.constraints import Constraint, HouseholderOrthogonal, Spectral, SpectralBall
from steadyrnn.constraints.slot import Slot, cached
from steadyrnn.errors import ConstraintError, ShapeError
from tests.constraints.cases import CASES, INVERTIBLE, member, rounding


@pytest.mark.parametrize("name", INVERTIBLE)
def test_an_assigned_matrix_is_read_back(name: str) -> None:
    slot = Slot(CASES[name](), 6, 6, dtype=torch.float64)
    for seed, determinant in ((0, 1), (1, -1)):
        matrix = member(name, 6, seed, determinant)
        slot.assign(matrix)
        hard = float(torch.linalg.cond(torch.eye(6) + matrix)) if name == "cayley" else 16.0
        assert torch.linalg.matrix_norm(slot.weight() - matrix, 2) <= hard * rounding(6)


@pytest.mark.parametrize("name", ["ornn", "exp", "exp-lie", "spectral", "polar"])
def test_a_refused_matrix_changes_nothing(name: str) -> None:
    slot = Slot(CASES[name](), 4, 4)
    before = slot.weight()
    with pytest.raises(ConstraintError):
        slot.assign(3 * torch.eye(4))
    with pytest.raises(ShapeError):
        slot.assign(torch.eye(5))
    assert torch.equal(slot.weight(), before)


def test_a_float64_matrix_goes_into_a_float32_slot() -> None:
    slot = Slot(CASES["exp-lie"](), 4, 4)
    matrix = member("exp-lie", 4, 0, -1)
    slot.assign(matrix)
    assert slot.weight().dtype == torch.float32
    torch.testing.assert_close(slot.weight().double(), matrix, rtol=0, atol=rounding(4, torch.float32))


def test_reset_draws_afresh_and_forgets_the_sign() -> None:
    slot = Slot(HouseholderOrthogonal(), 4, 4)
    fresh = int(torch.linalg.slogdet(slot.weight()).sign)
    slot.assign(member("ornn", 4, 0, -fresh, torch.float32))
    slot.reset()
    assert int(torch.linalg.slogdet(slot.weight()).sign) == fresh


def test_an_empty_raw_tensor_wants_no_gradient() -> None:
    slot = Slot(Spectral(reflectors=(2, 0)), 4, 4)
    assert [parameter.requires_grad for parameter in slot.parameters()] == [True, False, True]


def test_a_slot_can_be_made_without_memory() -> None:
    slot = Slot(SpectralBall(), 4, 4, device="meta")
    assert slot.raw0.is_meta


def test_the_factored_form_is_handed_on_in_the_dtype_of_the_slot() -> None:
    slot = Slot(HouseholderOrthogonal(reflectors=1), 6, 6, dtype=torch.bfloat16)
    operator = slot.operator()
    assert operator is not None
    assert operator.left.dtype == torch.bfloat16
    gap = operator.dense().float() - slot.weight().float()
    assert torch.linalg.matrix_norm(gap, 2) <= rounding(6, torch.bfloat16)


class Counted(Constraint):
    """Counts its evaluations."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def raw(self, rows: int, columns: int) -> tuple[torch.Tensor, ...]:
        self.fix_shape(rows, columns)
        return (torch.eye(rows),)

    def forward(self, *raw: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return 2 * raw[0]

    def invert(self, matrix: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (matrix / 2,)

    def violation(self, matrix: torch.Tensor) -> torch.Tensor:
        return matrix.new_zeros(())


def test_inside_the_cache_a_weight_is_computed_once() -> None:
    slot = Slot(Counted(), 3, 3)
    with cached(), cached():
        first = slot.weight()
        assert slot.weight() is first
    assert slot.constraint.count == 1
    slot.weight()
    assert slot.constraint.count == 2


def test_inside_the_cache_a_changed_raw_tensor_is_seen() -> None:
    slot = Slot(Counted(), 3, 3)
    with cached():
        slot.weight()
        slot.assign(torch.ones(3, 3))
        assert torch.equal(slot.weight(), torch.ones(3, 3))
        with torch.no_grad():
            assert not slot.weight().requires_grad
        assert slot.weight().requires_grad


def test_the_constraint_of_a_slot_is_a_copy() -> None:
    template = Counted()
    slot = Slot(template, 3, 3)
    assert slot.constraint is not template
    assert template.rows == 0
