"""Polar factors of many matrices at once: each is its own."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steadyrnn.errors import NotFiniteError, ShapeError
from steadyrnn.linalg.polar_stack import polar_factors
from steadyrnn.linalg.projections import polar_factor
from tests.support.errors import assert_equal_up_to_rounding


@given(rows=st.integers(1, 6), columns=st.integers(1, 6), seed=st.integers(0, 2**32 - 1))
def test_each_is_the_polar_factor_of_its_matrix(rows: int, columns: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    near = torch.nn.init.orthogonal_(torch.empty(rows, columns, dtype=torch.float64), generator=generator)
    noise = torch.randn(4, rows, columns, generator=generator, dtype=torch.float64)
    matrices = near + noise * torch.tensor([0.0, 1e-3, 0.05, 3.0], dtype=torch.float64).view(-1, 1, 1)  # done, near, far
    found = polar_factors(matrices)
    assert found.shape == matrices.shape
    # the factor of a matrix moves with it by up to 2 / (its two smallest singular values together), so that much rounding
    for place, matrix in enumerate(matrices):
        scale = float(torch.linalg.svdvals(matrix)[0] / torch.linalg.svdvals(matrix)[-1])
        assert_equal_up_to_rounding(found[place], polar_factor(matrix), rows * columns * (1 + int(scale)))


def test_float32_is_rounded_once() -> None:
    matrices = torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(0))
    assert polar_factors(matrices).dtype == torch.float32
    assert torch.equal(polar_factors(matrices), polar_factors(matrices.double()).float())


def test_bad_matrices_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"`matrices` must have shape \(R, M, N\), but has \(2, 2\)"):
        polar_factors(torch.eye(2))
    with pytest.raises(NotFiniteError, match="`matrices`"):
        polar_factors(torch.full((2, 2, 2), torch.nan))
