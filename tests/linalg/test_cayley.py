"""The Cayley transform: rotations, back and forth, and the eigenvalue it never reaches."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from steadyrnn.errors import ConstraintError, NotFiniteError, ShapeError
from steadyrnn.linalg.cayley import cayley, cayley_inverse
from steadyrnn.linalg.exponential import skew_part
from tests.linalg.matrices import distance, gaussian, orthogonality, rotation, rounding, skew


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 2, 3, 17, 128])
def test_the_transform_of_a_skew_matrix_is_orthogonal(n: int, dtype: torch.dtype) -> None:
    assert orthogonality(cayley(skew_part(gaussian(n, n, dtype=dtype)))) <= 30


@given(n=st.integers(1, 9), seed=st.integers(0, 2**31))
def test_the_transform_has_determinant_one_and_no_eigenvalue_minus_one(n: int, seed: int) -> None:
    w = cayley(skew_part(gaussian(n, n, seed=seed)))
    assert float(torch.linalg.det(w)) == pytest.approx(1, abs=rounding(n, n))
    assert float(torch.linalg.svdvals(torch.eye(n) + w)[-1]) > 0


@given(n=st.integers(1, 9), seed=st.integers(0, 2**31))
def test_the_inverse_gives_the_skew_matrix_back(n: int, seed: int) -> None:
    a = skew_part(gaussian(n, n, seed=seed))
    size = 1 + float(torch.linalg.matrix_norm(a, 2)) ** 2
    assert distance(cayley_inverse(cayley(a)), a) <= rounding(n) * size


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("angles", [[0.0, 0.0], [1.0, 1.0], [3.0, 0.1]])
def test_the_inverse_of_a_rotation_maps_to_it(angles: list[float], dtype: torch.dtype) -> None:
    w = rotation(angles, 5).to(dtype)
    a = cayley_inverse(w)
    assert torch.equal(a, -a.mT)
    assert distance(cayley(a), w) <= rounding(5, dtype=dtype)


def test_the_transform_has_first_and_second_derivatives() -> None:
    a = gaussian(4, 4).requires_grad_()
    assert gradcheck(lambda a: cayley(skew_part(a)), a)
    assert gradgradcheck(lambda a: cayley(skew_part(a)), a)


def test_the_transform_of_a_large_matrix_has_the_derivatives_of_the_formula() -> None:
    """They are as small as the square of the distance to a half turn, and so are scaled."""

    def scaled(a: Tensor) -> Tensor:
        return 900 * cayley(30 * skew_part(a))

    a = (3 * gaussian(4, 4)).requires_grad_()
    assert 30 * skew_part(a).detach().max() > 16
    assert gradcheck(scaled, a)
    assert gradgradcheck(scaled, a)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [20.0, 1e4, 1e8])
@pytest.mark.parametrize("n", [2, 4, 16])
def test_the_transform_of_a_large_matrix_is_the_nearest_to_the_truth(n: int, scale: float, dtype: torch.dtype) -> None:
    """Eigenvalues of a skew matrix of even size are as large as it is, so that the transform is -1 up to 2 / norm."""
    a = (scale * skew(n, 1.0)).to(dtype)
    angles = torch.linalg.eigvalsh(1j * a.to(torch.complex128)).abs()
    assert distance(cayley(a).double(), -torch.eye(n, dtype=torch.float64)) <= 2 / float(angles.min()) + rounding(
        n, dtype=dtype
    )


def test_the_transform_compiles_as_one_graph() -> None:
    a = skew(5, 1.0)
    compiled = torch.compile(cayley, fullgraph=True, backend="aot_eager", dynamic=False)
    assert distance(compiled(a), cayley(a)) <= rounding(5)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_minus_the_identity_is_refused_with_the_distance(n: int) -> None:
    with pytest.raises(ConstraintError, match="within 0 of it"):
        cayley_inverse(-torch.eye(n))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_half_a_turn_is_refused_though_rounding_has_moved_it(dtype: torch.dtype) -> None:
    with pytest.raises(ConstraintError, match="eigenvalue -1"):
        cayley_inverse(rotation([torch.pi, 0.5], 5).to(dtype))


def test_matrices_without_entries_have_a_transform() -> None:
    none = torch.zeros(0, 0)
    assert cayley(none).shape == cayley_inverse(none).shape == (0, 0)


@pytest.mark.parametrize("function", [cayley, cayley_inverse])
def test_a_rectangular_matrix_is_refused(function: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(ShapeError, match="square"):
        function(torch.zeros(2, 3))


def test_the_inverse_refuses_nan() -> None:
    bad: Tensor = torch.full((2, 2), torch.nan)
    with pytest.raises(NotFiniteError, match="`matrix`"):
        cayley_inverse(bad)
