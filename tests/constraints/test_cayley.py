"""Cayley transforms: rotations without half turns, and two of them around singular values (Note [mathematics], section 3.9)."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steadyrnn.constraints import CayleyOrthogonal, CayleySpectral
from steadyrnn.constraints.cayley_spectral import _away_from_half_turns
from steadyrnn.errors import ArgumentError, ConstraintError
from tests.constraints.cases import gaussian_like, orthogonal, rounding


@given(size=st.integers(1, 9), seed=st.integers(0, 2**32 - 1))
def test_a_cayley_transform_is_a_rotation_without_the_eigenvalue_minus_one(size: int, seed: int) -> None:
    constraint = CayleyOrthogonal()
    matrix = constraint(*gaussian_like(constraint.raw(size, size), seed))
    assert float(torch.linalg.det(matrix)) == pytest.approx(1.0)
    assert torch.linalg.svdvals(torch.eye(size) + matrix).min() > 1e-6


@pytest.mark.parametrize("flipped", [2, 4])
def test_a_half_turn_is_refused(flipped: int) -> None:
    matrix = torch.eye(5)
    matrix[range(flipped), range(flipped)] = -1.0
    with pytest.raises(ConstraintError, match="-1"):
        CayleyOrthogonal().right_inverse(matrix)


def test_a_determinant_of_minus_one_is_two_away() -> None:
    constraint = CayleyOrthogonal()
    assert float(constraint.violation(orthogonal(5, 0, -1))) == pytest.approx(2.0)
    with pytest.raises(ConstraintError, match="violation 2, "):
        constraint.right_inverse(orthogonal(5, 0, -1))


def test_a_determinant_of_minus_one_is_projected_where_requested() -> None:
    constraint = CayleyOrthogonal(project=True)
    matrix = constraint(*constraint.right_inverse(orthogonal(5, 0, -1) * 1.1))
    assert constraint.violation(matrix) <= 1e3 * rounding(5)


@pytest.mark.parametrize("size", [2, 5, 64])
def test_fresh_entries_are_at_most_one(size: int) -> None:
    constraint = CayleyOrthogonal()
    (raw,) = constraint.raw(size, size)
    assert raw.abs().max() <= 1
    assert int((raw != 0).sum()) == size // 2


@given(size=st.integers(1, 12), seed=st.integers(0, 999), determinant=st.sampled_from([1, -1]))
def test_signs_keep_an_orthogonal_matrix_away_from_half_turns(size: int, seed: int, determinant: int) -> None:
    matrix = orthogonal(size, seed, determinant)
    signs = _away_from_half_turns(matrix)
    assert torch.equal(signs.abs(), torch.ones(size, dtype=torch.float64))
    # the product of pivots, each at least 1, is the determinant
    assert torch.linalg.det(torch.eye(size) + matrix * signs) >= 1 - 1e-9


@pytest.mark.parametrize("name", ["exact", "lie"])
@pytest.mark.parametrize(
    "matrix",
    [
        -torch.eye(4),
        torch.eye(4),
        torch.eye(4).flip(0),
        torch.diag(torch.tensor([-1.0, 1.0, -1.0, -1.0])),
        torch.roll(torch.eye(5), 1, 0),
    ],
    ids=["minus one", "one", "reversal", "signs", "shift"],
)
def test_matrices_full_of_half_turns_are_reached_between_two_transforms(name: str, matrix: torch.Tensor) -> None:
    constraint = CayleySpectral(gradient=name)
    matrix = matrix.double()
    back = constraint(*constraint.right_inverse(matrix))
    assert torch.linalg.matrix_norm(back - matrix, 2) <= 16 * rounding(5)


@pytest.mark.parametrize("name", ["exact", "lie"])
def test_singular_values_stay_in_their_interval_while_both_factors_turn(name: str) -> None:
    constraint = CayleySpectral(center=1.0, radius=0.2, gradient=name)
    raw = constraint.raw(8, 8)
    start = constraint(*raw)
    for _ in range(50):
        raw = tuple(tensor.detach().requires_grad_() for tensor in raw)
        loss = (constraint(*raw) - 3 * torch.eye(8)).square().sum()
        raw = tuple(r.detach() - 0.02 * g for r, g in zip(raw, torch.autograd.grad(loss, raw), strict=True))
        raw = constraint.after_step(*raw) or raw
        assert constraint.violation(constraint(*raw)) <= rounding(8, torch.float32)
    assert (constraint(*raw) - 3 * torch.eye(8)).norm() < (start - 3 * torch.eye(8)).norm()


def test_the_geodesic_step_is_a_cayley_transform_of_the_gradient() -> None:
    constraint = CayleySpectral(radius=0.0, gradient="lie")
    raw = tuple(tensor.double().requires_grad_() for tensor in constraint.raw(5, 5))
    g = gaussian_like((torch.empty(5, 5),), 1)[0]
    u, v = constraint.left.matrix(raw[0].detach()), constraint.right.matrix(raw[1].detach())
    gradient = torch.autograd.grad((constraint(*raw) * g).sum(), raw)
    new = constraint.after_step(*(r.detach() - 0.1 * step for r, step in zip(raw, gradient, strict=True)))
    assert new is not None
    skew = (g @ v) @ u.mT - u @ (g @ v).mT  # of the loss in U, with V and the singular values fixed
    eye = torch.eye(5, dtype=torch.float64)
    step = torch.linalg.solve(eye + 0.2 * skew, eye - 0.2 * skew)
    torch.testing.assert_close(constraint.left.matrix(new[0]), step @ u, rtol=0, atol=16 * rounding(5))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gradient": "printed"}, "`gradient` must be one of exact, lie, but is 'printed'"),
        ({"radius": 1.5}, "`radius` must be a number from 0.0 to 1.0"),
        ({"center": -0.5}, "`center` must be a number from 0.0"),
    ],
)
def test_a_bad_argument_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        CayleySpectral(**arguments)  # type: ignore[arg-type]
