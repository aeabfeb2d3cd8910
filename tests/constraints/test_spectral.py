"""Singular values in an interval: the map, clipping, the penalty (Note [mathematics], section 2.6)."""

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from steadyrnn.constraints import Spectral
from steadyrnn.constraints.base import distance_from_interval
from steadyrnn.constraints.optimizer import attach_projection, penalty
from steadyrnn.constraints.slot import Slot
from steadyrnn.constraints.spectral import from_interval, into_interval
from steadyrnn.errors import ArgumentError, ArgumentTypeError
from steadyrnn.linalg.householder import householder_product
from steadyrnn.linalg.packing import pack
from tests.constraints.cases import DTYPES, gaussian_like, rounding
from tests.support.operations import Operations

INTERVALS = [(1.0, 0.0), (1.0, 0.01), (1.0, 0.5), (0.5, 0.45), (2.0, 2.0), (0.0, 0.0), (0.0, 0.1), (0.0, 3.0)]


def singular_values(matrix: Tensor) -> numpy.ndarray:
    """Return the singular values by numpy in float64."""
    return numpy.linalg.svd(matrix.detach().double().numpy(), compute_uv=False)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("center", "radius"), INTERVALS)
@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4), (64, 64)], ids=str)
def test_singular_values_lie_in_the_interval(
    shape: tuple[int, int],
    center: float,
    radius: float,
    dtype: torch.dtype,
) -> None:
    constraint = Spectral(center=center, radius=radius)
    raw = gaussian_like(constraint.raw(*shape), 3, scale=5.0, dtype=dtype)
    sigma = singular_values(constraint(*raw))
    allowed = rounding(max(shape), dtype) * max(center + radius, 1)
    assert sigma.min() >= (center - radius if center else 0) - allowed
    assert sigma.max() <= center + radius + allowed
    expected = constraint.singular_values(raw[2]).double().numpy()
    numpy.testing.assert_allclose(sigma, -numpy.sort(-expected), rtol=0, atol=allowed)


@pytest.mark.parametrize("size", [16, 64, 256])
def test_the_norm_exceeds_the_largest_singular_value_by_rounding_only(size: int) -> None:
    constraint = Spectral(radius=0.3)
    raw = gaussian_like(constraint.raw(size, size), size, dtype=torch.float32)
    excess = singular_values(constraint(*raw)).max() - float(constraint.singular_values(raw[2]).max())
    assert abs(excess) <= 1e-6  # Note [mathematics], section 2.6: between -3.4e-7 and 1.1e-7


def test_a_contraction_is_one_by_construction() -> None:
    constraint = Spectral(center=0.5, radius=0.4)
    raw = constraint.raw(32, 32)
    for seed in range(20):
        assert singular_values(constraint(*gaussian_like(raw, seed, scale=100.0))).max() <= 0.9 + rounding(32)


def test_the_map_has_the_slope_and_middle_it_should() -> None:
    free = torch.linspace(-40, 40, 801, dtype=torch.float64, requires_grad=True)
    sigma = into_interval(free, 1.0, 0.1)
    (slope,) = torch.autograd.grad(sigma.sum(), free)
    assert float(into_interval(torch.zeros(()), 1.0, 0.1)) == 1.0
    assert float(slope.max()) == pytest.approx(0.1 / 2)
    assert float(sigma.detach().min()) >= 0.9
    assert float(sigma.detach().max()) <= 1.1


def test_the_interval_is_closed_in_float32() -> None:
    assert float(torch.tensor(17.0).sigmoid()) == 1.0
    assert float(torch.tensor(16.0).sigmoid()) < 1.0
    assert float(into_interval(torch.tensor(17.0), 1.0, 0.5)) == 1.5


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@given(share=st.floats(0, 1))
def test_free_numbers_of_a_value_give_it_back(dtype: torch.dtype, share: float) -> None:
    sigma = torch.tensor([0.75 + share], dtype=dtype)
    back = into_interval(from_interval(sigma, 1.25, 0.5), 1.25, 0.5)
    assert (back - sigma).abs() <= rounding(1, dtype)


def test_values_on_and_beyond_the_border_have_finite_free_numbers() -> None:
    free = from_interval(torch.tensor([0.5, 1.5, 1.5 + 1e-7, 0.5 - 1e-7]), 1.0, 0.5)
    assert free.isfinite().all()


@pytest.mark.parametrize(
    ("sigma", "low", "high", "distance"),
    [
        ((2.0, 1.0), 0.5, 1.5, 0.5),
        ((1.0, 0.1), 0.5, 1.5, 0.4),
        ((1.0, 0.6), 0.5, 1.5, 0.0),
        ((3.0, 0.0), 1.0, 1.0, 2.0),
    ],
)
def test_the_distance_from_an_interval(sigma: tuple[float, ...], low: float, high: float, distance: float) -> None:
    matrix = torch.tensor(sigma, dtype=torch.float64).diag()
    assert float(distance_from_interval(matrix, low, high)) == pytest.approx(distance, abs=1e-15)


def test_an_empty_matrix_has_no_distance() -> None:
    assert float(distance_from_interval(torch.empty(0, 3), 1.0, 1.0)) == 0.0


class _Model(nn.Module):
    def __init__(self, constraint: Spectral) -> None:
        super().__init__()
        self.slot = Slot(constraint, 6, 6)


def _pull(constraint: Spectral, weight: float) -> _Model:
    """Pull the weight towards ten times the identity, with projection and penalty as requested."""
    model = _Model(constraint)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    attach_projection(optimizer, model)
    for _ in range(100):
        optimizer.zero_grad()
        loss = (model.slot.weight() - 10 * torch.eye(6)).square().sum() + weight * penalty(model)
        loss.backward()
        optimizer.step()
    return model


def test_the_map_keeps_singular_values_inside_while_training() -> None:
    sigma = singular_values(_pull(Spectral(radius=0.2), 0.0).slot.weight())
    assert sigma.max() <= 1.2 + rounding(6, torch.float32)
    assert sigma.min() >= 0.8 - rounding(6, torch.float32)


def test_clipping_keeps_singular_values_inside_while_training() -> None:
    model = _pull(Spectral(radius=0.2, sigma="clip"), 0.0)
    sigma = singular_values(model.slot.weight())
    assert sigma.max() <= 1.2 + rounding(6, torch.float32)
    assert sigma.min() >= 0.8 - rounding(6, torch.float32)
    assert float(model.slot.raw2.detach().max()) == pytest.approx(1.2)


def test_without_clipping_they_leave() -> None:
    slot = Slot(Spectral(radius=0.2, sigma="clip"), 3, 3)
    with torch.no_grad():
        slot.raw2.fill_(5.0)
    assert float(slot.constraint.violation(slot.weight())) == pytest.approx(3.8, abs=1e-5)


@pytest.mark.parametrize(("weight", "expected"), [(0.0, 10.0), (1.0, 5.5), (99.0, 1.09)])
def test_the_penalty_draws_singular_values_to_the_center(weight: float, expected: float) -> None:
    constraint = Spectral(reflectors=0, sigma="penalty")
    model = _Model(constraint)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5 / (1 + weight))
    for _ in range(100):
        optimizer.zero_grad()
        ((model.slot.weight() - 10 * torch.eye(6)).square().sum() + weight * penalty(model)).backward()
        optimizer.step()
    numpy.testing.assert_allclose(singular_values(model.slot.weight()), expected, rtol=1e-5)  # (10 + w) / (1 + w)


def test_only_the_penalty_mode_has_a_penalty() -> None:
    for sigma in ("sigmoid", "clip"):
        constraint = Spectral(sigma=sigma)
        assert constraint.penalty(*constraint.raw(3, 3)) is None
    constraint = Spectral(center=2.0, sigma="penalty")
    raw = constraint.raw(3, 3)
    assert float(constraint.penalty(*raw)) == 0.0  # type: ignore[arg-type]
    assert float(constraint.penalty(*raw[:2], raw[2] + 1)) == 3.0  # type: ignore[arg-type]


@pytest.mark.parametrize("reflectors", [0, 1, 2, (3, 1), (0, 2)])
def test_the_factored_form_is_the_matrix(reflectors: int | tuple[int, int]) -> None:
    constraint = Spectral(reflectors=reflectors, radius=0.5)
    raw = gaussian_like(constraint.raw(12, 12), 0)
    operator = constraint.operator(*raw)
    assert operator is not None
    torch.testing.assert_close(operator.dense(), constraint(*raw), rtol=0, atol=rounding(12))


def test_the_factored_form_takes_few_operations() -> None:
    constraint = Spectral(reflectors=8)
    raw = [tensor.requires_grad_() for tensor in constraint.raw(64, 64)]
    with Operations() as forward:
        operator = constraint.operator(*raw)
    assert operator is not None
    with Operations() as backward:
        torch.autograd.grad(operator, raw, [tensor.detach() for tensor in operator])
    assert forward.names.total() <= 20, forward.names
    assert backward.names.total() <= 25, backward.names


@pytest.mark.parametrize("shape", [(12, 12), (5, 3), (3, 3)])
def test_the_sign_is_that_of_the_last_singular_value(shape: tuple[int, int]) -> None:
    constraint = Spectral(reflectors=2, radius=0.5)
    raw = gaussian_like(constraint.raw(*shape), 0)
    plus = constraint.signed_diagonal(raw[2])
    assert torch.equal(plus, constraint.singular_values(raw[2]))
    constraint.sign.fill_(-1)
    minus = constraint.signed_diagonal(raw[2])
    assert torch.equal(minus[:-1], plus[:-1])
    assert torch.equal(minus[-1], -plus[-1])


@pytest.mark.parametrize(("rows", "columns"), [(2, 5), (5, 2), (4, 4)])
def test_it_is_invertible_with_as_many_reflectors_as_the_shape_needs(rows: int, columns: int) -> None:
    rank = min(rows, columns)
    full, fewer = Spectral(reflectors=(rank, rank)), Spectral(reflectors=(rank, rank - 2))
    full.raw(rows, columns)
    fewer.raw(rows, columns)
    assert full.invertible
    assert not fewer.invertible


@pytest.mark.parametrize("reflectors", [None, 2, (1, 1)])
def test_invertible_can_be_asked_before_the_shape_is_known(reflectors: int | tuple[int, int] | None) -> None:
    assert Spectral(reflectors).invertible == (reflectors is None)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"sigma": "soft"}, ArgumentError, "`sigma` must be one of sigmoid, clip, penalty, but is 'soft'"),
        ({"reflectors": -1}, ArgumentError, "`reflectors` must not be negative"),
        ({"reflectors": (1, 2, 3)}, ArgumentTypeError, "`reflectors` must be a number, a pair of numbers or None"),
        ({"reflectors": (1.0, 2)}, ArgumentTypeError, "`reflectors` must be a number, a pair of numbers or None"),
        ({"center": -1.0}, ArgumentError, "`center` must be a number from 0.0"),
        ({"radius": 2.0}, ArgumentError, "`radius` must be a number from 0.0 to 1.0, but is 2.0"),
        ({"radius": float("nan")}, ArgumentError, "`radius` must be a number"),
        ({"center": 0.5, "radius": 0.6}, ArgumentError, r"`radius` must be a number from 0.0 to 0.5.* take `center=0.0`"),
        ({"center": 0.0, "radius": -0.1}, ArgumentError, "`radius` must be a number from 0.0"),
        ({"center": "one"}, ArgumentTypeError, "`center` must be a number, but is of type str"),
    ],
)
def test_a_bad_argument_is_refused(arguments: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Spectral(**arguments)  # type: ignore[arg-type]


def test_more_reflectors_than_the_shape_has_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"at most \(3, 4\) .* but is \(4, 4\)"):
        Spectral(reflectors=4).raw(3, 4)


@pytest.mark.parametrize("shape", [(7, 3), (3, 7), (5, 1), (1, 5)])
def test_the_longer_side_of_a_rectangular_matrix_is_applied_as_if_multiplied_out(shape: tuple[int, int]) -> None:
    constraint = Spectral(radius=0.5)
    raw = [torch.randn_like(tensor, dtype=torch.float64) for tensor in constraint.raw(*shape)]
    left, right, sigma = constraint.parts(*raw)
    u, v = (householder_product(side)[:, : len(sigma)] for side in (left, right))
    torch.testing.assert_close(constraint(*raw), (u * sigma) @ v.mT, rtol=0, atol=64 * torch.finfo(torch.float64).eps)


def test_a_very_tall_matrix_needs_no_square_of_its_height() -> None:
    constraint = Spectral()
    raw = [tensor.requires_grad_() for tensor in constraint.raw(30_000, 4)]
    constraint(*raw).sum().backward()  # the square would take 3.6 GB
    assert all(bool(tensor.grad.isfinite().all()) for tensor in raw)


@pytest.mark.parametrize("spread", [0.0, 1e-4, 1.0])
def test_the_factored_form_is_orthogonal_even_for_nearly_parallel_reflectors(spread: float) -> None:
    size, count = 128, 16
    constraint = Spectral(reflectors=count, radius=0.0)
    _, _, free = constraint.raw(size, size)
    base = torch.randn(size, 1)
    columns = (base + spread * torch.randn(size, count)).tril()
    near = pack(columns)
    operator = constraint.operator(near, near, free)
    assert operator is not None
    q = operator.dense().double()
    ratio = torch.linalg.matrix_norm(torch.eye(size) - q.mT @ q, 1) / (size * torch.finfo(torch.float32).eps / 2)
    assert float(ratio) <= 30


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_sample_is_drawn_as_a_fresh_weight_is_whatever_was_assigned(size: int) -> None:
    """The product of so many reflections has one sign of the determinant, so a fresh weight has one sign too."""
    constraint = Spectral()
    fresh = torch.linalg.det(constraint.sample(size, size)).sign()
    other = torch.eye(size)
    other[0, 0] = -float(fresh)
    constraint.raw(size, size)
    constraint.right_inverse(other)
    assert float(constraint.sign) == -1
    assert torch.linalg.det(constraint.sample(size, size)).sign() == fresh
