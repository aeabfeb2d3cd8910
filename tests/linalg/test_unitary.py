"""Complex matrices in real form, and unitary matrices of cheap factors."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from steadyrnn.errors import ArgumentTypeError, ShapeError
from steadyrnn.linalg.unitary import complexify, realify, restricted_unitary
from tests.linalg.matrices import distance, gaussian, gaussian_complex, orthogonality, rounding, unitary


def parameters(m: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    permutation = torch.randperm(m, generator=torch.Generator().manual_seed(seed))
    return gaussian(3, m, seed=seed), gaussian_complex(2, m, seed=seed + 1), permutation


def written_out(phases: Tensor, reflectors: Tensor, permutation: Tensor) -> Tensor:
    """Multiply the seven factors as matrices."""
    m = phases.shape[1]
    index = torch.arange(m, dtype=torch.float64)
    fourier = torch.exp(-2j * math.pi * torch.outer(index, index) / m) / m**0.5
    d1, d2, d3 = (torch.diag(torch.exp(1j * phi)) for phi in phases)
    r1, r2 = (torch.eye(m, dtype=torch.complex128) - 2 * torch.outer(v, v.conj()) / v.abs().square().sum() for v in reflectors)
    shuffle = torch.eye(m, dtype=torch.complex128)[permutation]
    return d3 @ r2 @ fourier.mH @ d2 @ shuffle @ r1 @ fourier @ d1


@given(m=st.integers(0, 5), seed=st.integers(0, 2**31))
def test_complexify_undoes_realify(m: int, seed: int) -> None:
    z = gaussian_complex(m, m, seed=seed)
    assert torch.equal(complexify(realify(z)), z)


def test_the_real_form_of_a_product_is_the_product_of_the_real_forms() -> None:
    a, b = gaussian_complex(3, 3), gaussian_complex(3, 3, seed=5)
    assert distance(realify(a @ b), realify(a) @ realify(b)) <= rounding(3, 3)


def test_the_real_form_acts_on_real_and_imaginary_parts() -> None:
    a, z = gaussian_complex(3, 3), gaussian_complex(3, seed=5)
    image = a @ z
    assert distance(realify(a) @ torch.cat([z.real, z.imag]), torch.cat([image.real, image.imag])) <= rounding(3)


@pytest.mark.parametrize("m", [1, 2, 8])
def test_the_real_form_is_orthogonal_exactly_if_the_matrix_is_unitary(m: int) -> None:
    z = unitary(m)
    assert orthogonality(realify(z)) <= 30
    assert orthogonality(realify(1.01 * z)) > 30


def test_complexify_reads_off_the_nearest_complex_matrix() -> None:
    w, other = gaussian(6, 6), realify(gaussian_complex(3, 3, seed=3))
    rest = w - realify(complexify(w))
    assert abs(float((rest * other).sum())) <= rounding(6, 6)


def test_the_real_form_has_a_gradient() -> None:
    z = gaussian_complex(3, 3).requires_grad_()
    assert gradcheck(realify, z)
    assert gradcheck(complexify, gaussian(4, 4).requires_grad_())


@pytest.mark.parametrize("m", [1, 2, 3, 8])
def test_the_restricted_matrix_is_the_product_of_its_factors(m: int) -> None:
    case = parameters(m)
    assert distance(complexify(restricted_unitary(*case)), written_out(*case)) <= rounding(m, m)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("m", [1, 2, 3, 8, 65])
def test_the_restricted_matrix_is_orthogonal_of_the_complex_form(m: int, dtype: torch.dtype) -> None:
    phases, reflectors, permutation = parameters(m)
    parts = torch.stack([reflectors.real, reflectors.imag], dim=1).to(dtype)
    w = restricted_unitary(phases.to(dtype), parts, permutation)
    assert w.shape == (2 * m, 2 * m)
    assert w.dtype == dtype
    assert orthogonality(w) <= 30
    assert torch.equal(realify(complexify(w)), w)


def test_reflectors_may_be_complex_or_split_into_parts() -> None:
    phases, reflectors, permutation = parameters(4)
    parts = torch.stack([reflectors.real, reflectors.imag], dim=1)
    assert torch.equal(restricted_unitary(phases, parts, permutation), restricted_unitary(phases, reflectors, permutation))


def test_there_are_seven_real_parameters_a_complex_unit() -> None:
    phases, reflectors, _ = parameters(5)
    assert phases.numel() + torch.view_as_real(reflectors).numel() == 7 * 5


@pytest.mark.parametrize("length", [1e-160, 1e160])
def test_the_length_of_a_complex_reflector_does_not_count(length: float) -> None:
    phases, reflectors, permutation = parameters(4)
    scaled = restricted_unitary(phases, length * reflectors, permutation)
    assert distance(scaled, restricted_unitary(phases, reflectors, permutation)) <= rounding(4)


def test_a_zero_reflector_is_the_identity_with_a_zero_gradient() -> None:
    phases, _, permutation = parameters(4)
    zero = torch.zeros(2, 2, 4, dtype=torch.float64, requires_grad=True)
    w = restricted_unitary(phases, zero, permutation)
    (grad,) = torch.autograd.grad(w.pow(3).sum(), zero)
    assert orthogonality(w.detach()) <= 30
    assert torch.equal(grad, torch.zeros_like(zero))


@pytest.mark.parametrize("m", [1, 3])
def test_the_restricted_matrix_has_first_and_second_derivatives(m: int) -> None:
    phases, reflectors, permutation = parameters(m)
    leaves = phases.requires_grad_(), reflectors.requires_grad_()
    assert gradcheck(lambda p, r: restricted_unitary(p, r, permutation), leaves)
    assert gradgradcheck(lambda p, r: restricted_unitary(p, r, permutation), leaves)


def test_realify_refuses_real_matrices_and_vectors() -> None:
    with pytest.raises(ArgumentTypeError, match="complex"):
        realify(torch.zeros(2, 2))
    with pytest.raises(ShapeError, match="`matrix`"):
        realify(torch.zeros(2, dtype=torch.complex64))


@pytest.mark.parametrize("shape", [(3, 4), (4, 3)])
def test_complexify_refuses_odd_sizes(shape: tuple[int, int]) -> None:
    with pytest.raises(ShapeError, match="even"):
        complexify(torch.zeros(shape))


@pytest.mark.parametrize(
    ("phases", "reflectors", "permutation", "name"),
    [
        ((2, 4), (2, 2, 4), 4, "phases"),
        ((3, 0), (2, 2, 0), 0, "phases"),
        ((3, 4), (2, 4), 4, "reflectors"),
        ((3, 4), (2, 2, 5), 4, "reflectors"),
        ((3, 4), (2, 2, 4), 5, "permutation"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    phases: tuple[int, ...], reflectors: tuple[int, ...], permutation: int, name: str
) -> None:
    with pytest.raises(ShapeError, match=f"`{name}`"):
        restricted_unitary(torch.zeros(phases), torch.zeros(reflectors), torch.arange(permutation))
