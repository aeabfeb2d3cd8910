"""Single reflections and their gradients, and what the source prints of them."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from steadyrnn.errors import ShapeError
from tests.linalg.matrices import distance, gaussian, orthogonal, rounding
from tests.support.reflections import (
    hgrad,
    hgrad_from_output,
    hprod,
    reflect,
    svd_product,
    svd_product_gradient,
)


def embedded(u: Tensor, n: int) -> Tensor:
    """Return the matrix that reflects the last coordinates of ``n``, from its definition."""
    tail = torch.cat([torch.zeros(n - len(u), dtype=u.dtype), u])
    return torch.eye(n, dtype=u.dtype) - 2 * torch.outer(tail, tail) / (u @ u)


def by_autograd(loss: Callable[..., Tensor], *tensors: Tensor) -> tuple[Tensor, ...]:
    leaves = [t.clone().requires_grad_() for t in tensors]
    return torch.autograd.grad(loss(*leaves), leaves)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_hprod_reflects_the_last_coordinates_of_every_row(k: int) -> None:
    h, u = gaussian(3, 2, 5), gaussian(k, seed=1)
    assert distance(hprod(h, u), h @ embedded(u, 5)) <= rounding(5)


def test_hprod_by_zero_is_the_identity() -> None:
    h = gaussian(4, 5)
    assert torch.equal(hprod(h, torch.zeros(3, dtype=torch.float64)), h)


def test_hprod_is_its_own_inverse() -> None:
    h, u = gaussian(4, 5), gaussian(3, seed=1)
    assert distance(hprod(hprod(h, u), u), h) <= rounding(5)


@pytest.mark.parametrize("length", [1e-160, 1e160])
def test_hprod_depends_on_the_direction_only(length: float) -> None:
    h, u = gaussian(4, 5), gaussian(3, seed=1)
    assert distance(hprod(h, length * u), hprod(h, u)) <= rounding(5)


def test_reflect_multiplies_rows_from_the_right_in_order() -> None:
    x, us = gaussian(3, 5), gaussian(4, 5, seed=1)
    expected = x
    for u in us:
        expected = expected @ embedded(u, 5)
    assert distance(reflect(x, us), expected) <= rounding(5)


@given(k=st.integers(1, 6), seed=st.integers(0, 2**31))
def test_hgrad_is_the_gradient_of_hprod(k: int, seed: int) -> None:
    h, u, g = gaussian(3, 6, seed=seed), gaussian(k, seed=seed + 1), gaussian(3, 6, seed=seed + 2)
    expected = by_autograd(lambda h, u: (hprod(h, u) * g).sum(), h, u)
    for got, grad in zip(hgrad(h, u, g), expected, strict=True):
        assert distance(got, grad) <= rounding(6, 6) * max(1.0, float(grad.abs().max()))


def test_the_gradient_from_the_output_is_that_from_the_input() -> None:
    h, u, g = gaussian(3, 6), gaussian(4, seed=1), gaussian(3, 6, seed=2)
    assert distance(hgrad_from_output(hprod(h, u), u, g), hgrad(h, u, g)[1]) <= rounding(6)


def test_the_gradient_from_input_and_its_gradient_has_two_terms_too() -> None:
    h, u, g = gaussian(6), gaussian(6, seed=1), gaussian(6, seed=2)
    grad_h, grad_u = hgrad(h, u, g)
    assert distance(2 * ((u @ grad_h) * h - (u @ h) * grad_h) / (u @ u), grad_u) <= rounding(6)


def test_the_printed_middle_line_of_equation_6_is_wrong_and_the_corrected_one_right() -> None:
    h, u, g = gaussian(6), gaussian(6, seed=1), gaussian(6, seed=2)
    square, identity = u @ u, torch.eye(6, dtype=torch.float64)

    def middle_line(factor: float) -> Tensor:
        last = factor * (u @ h) / square**2 * torch.outer(u, u)
        return -2 * ((u @ h) / square * identity + torch.outer(h, u) / square + last) @ g

    expected = hgrad(h, u, g)[1]
    assert distance(middle_line(-2), expected) <= rounding(6)
    assert distance(middle_line(1), expected) > 0.1


def test_the_gradient_of_a_reflector_of_one_entry_is_zero() -> None:
    h, u, g = gaussian(3, 6), gaussian(1, seed=1), gaussian(3, 6, seed=2)
    assert float(hgrad(h, u, g)[1].abs()) <= rounding(6)
    assert torch.equal(hprod(h, u)[..., -1], -h[..., -1])


def test_the_gradient_of_a_zero_reflector_is_zero() -> None:
    h, g = gaussian(3, 6), gaussian(3, 6, seed=1)
    zero = torch.zeros(4, dtype=torch.float64)
    grad_h, grad_u = hgrad(h, zero, g)
    assert torch.equal(grad_h, g)
    assert torch.equal(grad_u, zero)
    assert torch.equal(hgrad_from_output(h, zero, g), zero)


@pytest.mark.parametrize("length", [1.0, 1e-3, 1e-6, 1e-9, 1e-12])
def test_gradient_times_length_is_the_same_for_every_length(length: float) -> None:
    h, u, g = gaussian(3, 6), gaussian(6, seed=1), gaussian(3, 6, seed=2)
    assert distance(length * hgrad(h, length * u, g)[1], hgrad(h, u, g)[1]) <= rounding(6)


def reflectors(n: int, count: int, seed: int) -> list[Tensor]:
    return [gaussian(n - j, seed=seed + j) for j in range(count)]


@pytest.mark.parametrize(("m1", "m2"), [(5, 5), (2, 3), (0, 1), (4, 0)])
def test_svd_product_multiplies_by_the_matrix_of_its_factors(m1: int, m2: int) -> None:
    n = 5
    us, vs, sigma, h = reflectors(n, m1, 10), reflectors(n, m2, 20), gaussian(n, seed=1).abs(), gaussian(4, n)
    w = torch.eye(n, dtype=torch.float64)
    for u in us:
        w = w @ embedded(u, n)
    w = w @ torch.diag(sigma)
    for v in reversed(vs):
        w = w @ embedded(v, n)
    assert distance(svd_product(h, us, sigma, vs), h @ w.mT) <= rounding(n, n)


@pytest.mark.parametrize(("m1", "m2"), [(5, 5), (2, 3), (0, 1), (4, 0)])
def test_the_corrected_algorithm_1_agrees_with_autograd(m1: int, m2: int) -> None:
    n = 5
    us, vs, sigma = reflectors(n, m1, 10), reflectors(n, m2, 20), gaussian(n, seed=1).abs()
    h, g = gaussian(4, n), gaussian(4, n, seed=2)
    expected = by_autograd(lambda h, sigma, *uv: (svd_product(h, uv[:m1], sigma, uv[m1:]) * g).sum(), h, sigma, *us, *vs)
    grad_h, grad_us, grad_sigma, grad_vs = svd_product_gradient(h, us, sigma, vs, g)
    for got, grad in zip([grad_h, grad_sigma, *grad_us, *grad_vs], expected, strict=True):
        assert distance(got, grad) <= rounding(n, n)


def test_algorithm_1_as_printed_gives_wrong_gradients_for_both_sets_of_reflectors() -> None:
    n = 5
    us, vs, sigma = reflectors(n, n, 10), reflectors(n, n, 20), gaussian(n, seed=1).abs()
    h, g = gaussian(n), gaussian(n, seed=2)
    _, grad_us, _, grad_vs = svd_product_gradient(h, us, sigma, vs, g)

    state = h
    for v in vs:
        state = hprod(state, v)
    outer = [sigma * state]
    for u in reversed(us):
        outer.append(hprod(outer[-1], u))
    step, wrong_u, wrong_v = g, [], []
    for u, output in zip(us, reversed(outer[1:]), strict=True):  # printed: the output, not the input
        step, grad = hgrad(output, u, step)
        wrong_u.append(grad)
    step = sigma * step
    for v, output in zip(reversed(vs), outer[1:], strict=True):  # printed: states of the other loop
        step, grad = hgrad(output, v, step)
        wrong_v.append(grad)
    assert max(distance(a, b) for a, b in zip(wrong_u, grad_us, strict=True)) > 1
    assert max(distance(a, b) for a, b in zip(reversed(wrong_v), grad_vs, strict=True)) > 1


def test_the_gradient_of_the_right_reflectors_which_is_printed_for_both_is_not_that_of_the_left_ones() -> None:
    n = 5
    us, vs, sigma = reflectors(n, n, 10), reflectors(n, n, 20), gaussian(n, seed=1).abs()
    _, grad_us, _, grad_vs = svd_product_gradient(gaussian(n), us, sigma, vs, gaussian(n, seed=2))
    assert max(distance(a, b) for a, b in zip(grad_us, grad_vs, strict=True)) > 0.1


@pytest.mark.parametrize(("n", "determinant"), [(5, -1), (6, 1)])
def test_two_hundred_full_sets_of_nonzero_reflectors_have_one_determinant(n: int, determinant: int) -> None:
    identity = torch.eye(n, dtype=torch.float64)
    for seed in range(200):
        q = identity
        for u in reflectors(n, n, 1000 + 10 * seed):
            q = hprod(q, u)
        assert round(float(torch.linalg.det(q))) == determinant


def test_two_hundred_full_svd_forms_of_nonzero_reflectors_have_a_positive_determinant() -> None:
    n, identity = 6, torch.eye(6, dtype=torch.float64)
    for seed in range(200):
        us, vs = reflectors(n, n, 20 * seed), reflectors(n, n, 20 * seed + 10)
        sigma = gaussian(n, seed=seed).abs() + 0.1
        assert float(torch.linalg.det(svd_product(identity, us, sigma, vs))) > 0


def test_the_singular_values_are_those_given() -> None:
    n, sigma = 6, torch.linspace(2, 1, 6, dtype=torch.float64)
    w = svd_product(orthogonal(n), reflectors(n, 3, 10), sigma, reflectors(n, 4, 20))
    assert distance(torch.linalg.svdvals(w), sigma) <= rounding(n, n)


@pytest.mark.parametrize("u", [torch.zeros(6), torch.zeros(2, 2)])
def test_a_reflector_longer_than_a_row_or_not_a_vector_is_refused(u: Tensor) -> None:
    with pytest.raises(ShapeError, match="`u`"):
        hprod(torch.zeros(3, 5), u)
