"""Products of reflections: determinants, dead parameters, lengths, the factored form (Note [mathematics], 2.1 and 2.3)."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steadyrnn.constraints import HouseholderOrthogonal, Spectral
from steadyrnn.errors import ArgumentError, ArgumentTypeError, ShapeError
from steadyrnn.linalg.packing import packed_size
from tests.constraints.cases import gaussian_like, orthogonal, rounding, signed_identities


def sign_of_determinant(matrix: torch.Tensor) -> int:
    return int(torch.linalg.slogdet(matrix.double()).sign)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5])
@given(seed=st.integers(0, 2**32 - 1))
def test_few_reflectors_have_a_determinant_of_their_parity(count: int, seed: int) -> None:
    constraint = HouseholderOrthogonal(reflectors=count)
    matrix = constraint(*gaussian_like(constraint.raw(7, 7), seed))
    assert sign_of_determinant(matrix) == (-1) ** count


@pytest.mark.parametrize("size", [5, 6])
def test_as_many_reflectors_as_rows_reach_one_determinant_in_two_hundred_draws(size: int) -> None:
    constraint = HouseholderOrthogonal(reflectors=size)
    raw = constraint.raw(size, size)
    signs = {sign_of_determinant(constraint(*gaussian_like(raw, seed))) for seed in range(200)}
    assert signs == {(-1) ** size}


@pytest.mark.parametrize("counts", [(4, 4), (4, 3), (2, 4), (0, 1)], ids=str)
def test_two_sides_of_reflectors_have_a_determinant_of_their_common_parity(counts: tuple[int, int]) -> None:
    constraint = Spectral(reflectors=counts, center=1.0, radius=0.5)
    raw = constraint.raw(6, 6)
    signs = {sign_of_determinant(constraint(*gaussian_like(raw, seed))) for seed in range(200)}
    assert signs == {(-1) ** sum(counts)}


@pytest.mark.parametrize("determinant", [1, -1])
@pytest.mark.parametrize("size", [1, 2, 3, 6, 40])
def test_both_determinants_are_reached_with_nonzero_reflectors(size: int, determinant: int) -> None:
    constraint, matrix = HouseholderOrthogonal(), orthogonal(size, size, determinant)
    (packed,) = constraint.right_inverse(matrix)
    columns, _ = constraint.columns_and_signs(packed)
    assert (columns.norm(dim=0) > 0).all()
    assert torch.linalg.matrix_norm(constraint(packed) - matrix, 2) <= rounding(size)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_identity_and_sign_changes_of_it_are_reached(size: int) -> None:
    constraint = HouseholderOrthogonal()
    for matrix in signed_identities(size):
        assert torch.linalg.matrix_norm(constraint(*constraint.right_inverse(matrix)) - matrix, 2) <= rounding(size)


def test_training_stays_on_its_side_of_the_determinant() -> None:
    constraint = HouseholderOrthogonal()
    raw = constraint.right_inverse(orthogonal(4, 0, -1))[0].requires_grad_()
    optimizer = torch.optim.SGD([raw], lr=0.1)
    for _ in range(200):
        optimizer.zero_grad()
        (constraint(raw) - torch.eye(4)).square().sum().backward()
        optimizer.step()
    assert sign_of_determinant(constraint(raw)) == -1


@pytest.mark.parametrize(("reflectors", "stored"), [(None, 5), (6, 5), (5, 5), (2, 2), (0, 0)])
def test_the_dead_reflector_is_not_stored(reflectors: int | None, stored: int) -> None:
    constraint = HouseholderOrthogonal(reflectors)
    (raw,) = constraint.raw(6, 6)
    assert raw.shape == (packed_size(6, stored),)
    assert constraint.invertible == (stored == 5)


@pytest.mark.parametrize("make", [HouseholderOrthogonal, Spectral])
def test_no_stored_reflector_is_dead(make: type[HouseholderOrthogonal] | type[Spectral]) -> None:
    constraint = make()
    raw = [tensor.requires_grad_() for tensor in gaussian_like(constraint.raw(6, 6), 1)]
    functional = gaussian_like((torch.empty(6, 6),), 2)[0]
    for gradient in torch.autograd.grad((constraint(*raw) * functional).sum(), raw):
        assert gradient.abs().min() > 1e-6


@pytest.mark.parametrize("size", [2, 17, 128])
def test_fresh_reflectors_have_unit_length(size: int) -> None:
    constraint = HouseholderOrthogonal()
    columns, _ = constraint.columns_and_signs(*constraint.raw(size, size))
    torch.testing.assert_close(columns.norm(dim=0), torch.ones(size - 1))


@pytest.mark.parametrize("length", [1.0, 1e-3, 1e-6, 1e-12])
def test_a_gradient_is_orthogonal_to_its_reflector_and_goes_as_its_inverse_length(length: float) -> None:
    constraint = HouseholderOrthogonal(reflectors=1)
    (unit,) = gaussian_like(constraint.raw(8, 8), 0)
    functional = gaussian_like((torch.empty(8, 8),), 1)[0]

    def gradient(reflector: torch.Tensor) -> torch.Tensor:
        reflector = reflector.clone().requires_grad_()
        (result,) = torch.autograd.grad((constraint(reflector) * functional).sum(), reflector)
        return result

    at_unit, at_length = gradient(unit), gradient(length * unit)
    torch.testing.assert_close(length * at_length, at_unit)
    assert (at_length @ (length * unit)).abs() <= rounding(8) * at_unit.norm() * unit.norm()


def test_under_plain_steps_reflectors_only_grow() -> None:
    constraint = HouseholderOrthogonal(reflectors=2)
    raw = constraint.raw(5, 5)[0].double().requires_grad_()
    lengths = []
    for _ in range(50):
        columns, _ = constraint.columns_and_signs(raw)
        lengths.append(columns.detach().norm(dim=0))
        (gradient,) = torch.autograd.grad((constraint(raw) * torch.arange(25.0).reshape(5, 5)).sum(), raw)
        squares, _ = constraint.columns_and_signs(gradient.square())
        with torch.no_grad():
            raw -= 0.01 * gradient
        expected = lengths[-1].square() + 0.01**2 * squares.sum(dim=0)
        torch.testing.assert_close(constraint.columns_and_signs(raw)[0].detach().square().sum(dim=0), expected)
    assert (torch.stack(lengths).diff(dim=0) > 0).all()


@pytest.mark.parametrize("size", [1, 9, 64])
def test_the_factored_form_is_the_matrix_where_it_is_faster(size: int) -> None:
    constraint = HouseholderOrthogonal(reflectors=min(3, size - 1))
    raw = gaussian_like(constraint.raw(size, size), 0)
    operator = constraint.operator(*raw)
    assert operator is not None
    torch.testing.assert_close(operator.dense(), constraint(*raw), rtol=0, atol=rounding(size))


def test_there_is_no_factored_form_where_it_is_not_faster() -> None:
    constraint = HouseholderOrthogonal(reflectors=4)
    assert constraint.operator(*constraint.raw(8, 8)) is None


def test_the_factored_form_carries_the_gradient() -> None:
    constraint = HouseholderOrthogonal(reflectors=2)
    raw = gaussian_like(constraint.raw(6, 6), 0)[0].requires_grad_()
    x, y = gaussian_like((torch.empty(3, 6), torch.empty(3, 6)), 1)
    operator = constraint.operator(raw)
    assert operator is not None
    factored = torch.autograd.grad((operator.apply(x) * y).sum(), raw)
    dense = torch.autograd.grad((x @ constraint(raw).mT * y).sum(), raw)
    torch.testing.assert_close(factored, dense)


@pytest.mark.parametrize(
    ("reflectors", "error", "message"),
    [
        (-1, ArgumentError, "must not be negative, but is -1"),
        (2.5, ArgumentTypeError, "must be a number or None, but is of type float"),
        (True, ArgumentTypeError, "but is of type bool"),
        ("all", ArgumentTypeError, "but is of type str"),
    ],
)
def test_a_bad_number_of_reflectors_is_refused(reflectors: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"`reflectors`.*{message}"):
        HouseholderOrthogonal(reflectors)  # type: ignore[arg-type]


def test_more_reflectors_than_rows_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"`reflectors` must be at most 4 .* but is 5"):
        HouseholderOrthogonal(5).raw(4, 4)


def test_an_empty_matrix_is_refused() -> None:
    with pytest.raises(ShapeError, match="at least one row"):
        HouseholderOrthogonal().raw(0, 0)
