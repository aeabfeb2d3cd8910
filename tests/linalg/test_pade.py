"""The exponential by products: as accurate as that by eigenvectors, orthogonal, and only where the norm is proven moderate."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from steadyrnn.linalg import pade
from steadyrnn.linalg.exponential import _ExpSkew, exp_packed, exp_skew, skew_part
from steadyrnn.linalg.packing import pack_difference, pack_skew
from steadyrnn.linalg.pade import exp_by_products
from tests.linalg.matrices import distance, gaussian, orthogonal, orthogonality, relative, skew
from tests.support.operations import Operations

SIZES = [2, 3, 17, 128]
NORMS = [1e-30, 1e-3, 1.0, 2.3, 3.1, 3.8]


def test_the_quotient_and_its_inverse_are_as_close_as_stated() -> None:
    theta = torch.linspace(0, 3.9, 4001, dtype=torch.float64)
    x = -theta.square()
    d = pade._D[0] * x.square() + pade._D[1] * x
    u = pade._U[0] * d.square() + pade._U[1] * x
    even, r, odd = 1 + pade._TABLE.double() @ torch.stack([x, d, u])
    p = torch.complex(even, theta * odd / 2)
    errors = (p / p.conj() * torch.exp(-1j * theta)).angle()
    assert float(errors.abs().max()) <= 4e-9
    assert float((errors.diff() / theta.diff()).abs().max()) <= 6e-8
    assert float((r * p.abs().square() - 1).abs().max()) <= 7e-9
    assert 1 <= float(p.abs().square().max()) < 1.4


def turning(n: int, angle: float) -> Tensor:
    """Return a dense skew matrix with one angle only."""
    b = torch.zeros(n, n, dtype=torch.float64)
    b.diagonal(-1)[::2] = angle
    basis = orthogonal(n)
    return skew_part(basis @ (b - b.mT) @ basis.mT)


def by_products(b: Tensor) -> Tensor | None:
    return exp_by_products(pack_difference(b) / 2, len(b))


def both(b: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """Return the value and the gradient by products."""
    leaf = b.float().requires_grad_()
    value = by_products(leaf)
    assert value is not None
    return value.detach(), torch.autograd.grad(value, leaf, g.float())[0]


def by_eigenvectors(b: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    leaf = b.clone().requires_grad_()
    value = _ExpSkew.apply(leaf)[0]
    return value.detach(), torch.autograd.grad(value, leaf, g)[0]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", SIZES)
def test_value_and_gradient_are_as_close_to_float64_as_those_by_eigenvectors(n: int, norm: float) -> None:
    b = skew(n, norm).float().double()
    g = gaussian(n, n, seed=1).float().double()
    truth, slope = by_eigenvectors(b, g)
    other = by_eigenvectors(b.float(), g.float())
    value, gradient = both(b, g)
    eps = torch.finfo(torch.float32).eps
    assert distance(value.double(), truth) <= 2 * max(distance(other[0].double(), truth), 8 * eps)
    assert relative(gradient.double(), slope) <= 2 * max(relative(other[1].double(), slope), 8 * eps)


@pytest.mark.parametrize("n", [2, 3, 17, 128, 300])
@pytest.mark.parametrize("norm", [*NORMS, math.pi])
def test_it_is_orthogonal_with_determinant_one(n: int, norm: float) -> None:
    value = by_products(skew(n, norm).float())
    assert value is not None
    assert orthogonality(value) <= 30  # so the determinant is 1 or -1 up to that
    assert float(torch.linalg.slogdet(value.double()).sign) == 1.0


@pytest.mark.parametrize("n", [64, 512])
def test_many_half_turns_are_within_reach(n: int) -> None:
    value = by_products(turning(n, math.pi).float())
    assert value is not None
    assert distance(value.double(), -torch.eye(n, dtype=torch.float64)) <= 1e-5


@given(n=st.integers(2, 40), norm=st.floats(0.0, 20.0), seed=st.integers(0, 2**31))
def test_a_norm_beyond_the_reach_is_never_taken(n: int, norm: float, seed: int) -> None:
    taken = by_products(skew(n, norm, seed=seed).float()) is not None
    if norm > 3.9001:
        assert not taken
    if norm < 3.5:
        assert taken


@pytest.mark.parametrize("n", [4, 100])
def test_all_angles_just_beyond_the_reach_are_not_taken(n: int) -> None:
    assert by_products(turning(n, 3.92).float()) is None


@pytest.mark.parametrize("entry", [math.nan, math.inf, 1e20])
def test_what_is_not_finite_or_overflows_is_left_to_the_other_way(entry: float) -> None:
    b = skew(5, 1.0).float()
    b[1, 0], b[0, 1] = entry, -entry
    assert by_products(b) is None
    assert bool(exp_skew(b).isfinite().all()) == math.isfinite(entry)


def test_the_exponential_of_zero_is_the_identity() -> None:
    assert torch.equal(exp_packed(torch.zeros(15), 6), torch.eye(6))


def test_the_gradient_of_several_cotangents_at_once_is_that_of_each() -> None:
    b, g = skew(6, 2.0).float().requires_grad_(), gaussian(3, 6, 6).float()
    value = exp_skew(b)
    (together,) = torch.autograd.grad(value, b, g, is_grads_batched=True, retain_graph=True)
    each = torch.stack([torch.autograd.grad(value, b, one, retain_graph=True)[0] for one in g])
    torch.testing.assert_close(together, each, rtol=0, atol=1e-6)


def test_its_second_derivative_is_that_in_float64() -> None:
    def second(dtype: torch.dtype) -> Tensor:
        b, g = skew(6, 2.0).to(dtype).requires_grad_(), gaussian(6, 6, seed=1).to(dtype)
        (first,) = torch.autograd.grad(exp_skew(b), b, g, create_graph=True)
        return torch.autograd.grad(first, b, gaussian(6, 6, seed=2).to(dtype))[0]

    assert relative(skew_part(second(torch.float32)).double(), skew_part(second(torch.float64))) <= 1e-5


def test_moderate_angles_need_no_eigenvectors_and_large_ones_do() -> None:
    for norm, expected in ((3.0, False), (30.0, True)):
        b = skew(8, norm).float().requires_grad_()
        with Operations() as operations:
            exp_skew(b).sum().backward()
        assert ("_linalg_eigh" in operations.names) == expected


@pytest.mark.parametrize(("norm", "eigenvectors"), [(3.0, False), (30.0, True)])
def test_packed_entries_give_the_same_as_the_matrix_without_a_look_at_its_other_half(norm: float, eigenvectors: bool) -> None:
    b, g = skew(8, norm).float(), gaussian(8, 8).float()
    leaf, packed = b.clone().requires_grad_(), torch.nn.Parameter(pack_skew(b))
    with Operations() as operations:
        value = exp_packed(packed, 8)
        (slope,) = torch.autograd.grad(value, packed, g)
    assert ("_linalg_eigh" in operations.names) == eigenvectors
    assert "equal" not in operations.names
    assert torch.equal(value, exp_skew(leaf))
    torch.testing.assert_close(slope, pack_difference(torch.autograd.grad(exp_skew(leaf), leaf, g)[0]))


def test_autocast_does_not_touch_it() -> None:
    b, g = skew(8, 2.0), gaussian(8, 8)
    expected = both(b, g)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = both(b, g)
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))


@pytest.mark.parametrize("matrix", [[[0.0, 0.0], [1.0, 0.0]], [[0.5]], [[0.0, -1.0], [1.0, 0.25]]])
def test_what_is_not_skew_is_left_to_the_method_that_reads_one_triangle(matrix: list[list[float]]) -> None:
    given = torch.tensor(matrix)
    torch.testing.assert_close(exp_skew(given), exp_skew(given.double()).float())
