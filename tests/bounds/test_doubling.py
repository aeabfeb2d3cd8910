"""The largest solutions of X + C'X^-1 C = I."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from steadyrnn.bounds.quadratic import solve_by_doubling
from steadyrnn.errors import NotFiniteError, ShapeError
from tests.linalg.matrices import gaussian


def radius(matrix: Tensor) -> float:
    """Return the numerical radius, by all eigenvalues at many angles."""
    angles = torch.linspace(0, math.pi, 721, dtype=torch.float64)
    turned = torch.polar(torch.ones_like(angles), angles).view(-1, 1, 1) * matrix
    return float(torch.linalg.eigvalsh((turned + turned.mH) / 2).abs().max())


@given(n=st.integers(1, 8), seed=st.integers(0, 2**31), share=st.floats(0.0, 0.99))
def test_both_equations_are_solved_by_positive_matrices(n: int, seed: int, share: float) -> None:
    c = gaussian(n, n, seed=seed)
    c = c * (share / 2 / radius(c))
    found = solve_by_doubling(c)
    assert found is not None
    one = torch.eye(n, dtype=torch.float64)
    for x, left, right in ((found[0], c.mT, c), (found[1], c, c.mT)):
        assert float(torch.linalg.eigvalsh((x + x.mT) / 2).min()) > 0
        assert float((x + left @ torch.linalg.solve(x, right) - one).norm()) <= 1e-12 * n / (1 - share)


@given(n=st.integers(1, 8), seed=st.integers(0, 2**31))
def test_the_solution_is_the_largest_one(n: int, seed: int) -> None:
    c = gaussian(n, n, seed=seed)
    c = c * (0.45 / radius(c))
    found = solve_by_doubling(c)
    assert found is not None
    eigenvalues = torch.linalg.eigvals(torch.linalg.solve(found[0], c))  # inside the circle for the largest one only
    assert float(eigenvalues.abs().max()) < 1


@pytest.mark.parametrize("n", [1, 3, 20])
def test_there_is_none_where_the_numerical_radius_is_above_a_half(n: int) -> None:
    c = gaussian(n, n, seed=4)
    assert solve_by_doubling(c * (0.51 / radius(c))) is None


def test_a_matrix_of_zeros_has_the_identity() -> None:
    found = solve_by_doubling(torch.zeros(3, 3))
    assert found is not None
    assert torch.equal(found[0], torch.eye(3))
    assert torch.equal(found[1], torch.eye(3))


def test_bad_matrices_are_refused() -> None:
    with pytest.raises(ShapeError, match="`matrix`"):
        solve_by_doubling(torch.ones(2, 3))
    with pytest.raises(NotFiniteError, match="`matrix`"):
        solve_by_doubling(torch.full((2, 2), math.nan))
