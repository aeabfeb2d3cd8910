"""The numerical radius of a scaled matrix: its estimate, and the descent that lowers it."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steadyrnn.bounds.quadratic import COMPLETE, STAGES, Stage, descend_radius, estimate_radius, smooth_radius
from steadyrnn.bounds.scaling import from_raw, scale_matrix
from tests.linalg.matrices import gaussian, orthogonal

seeds = st.integers(0, 2**31)


@given(n=st.integers(1, 8), seed=seeds)
def test_no_vector_does_more_than_the_radius_and_it_is_at_least_half_the_norm(n: int, seed: int) -> None:
    w = gaussian(n, n, seed=seed)
    x = torch.complex(gaussian(n, 500, seed=seed + 1), gaussian(n, 500, seed=seed + 2))
    x = x / torch.linalg.vector_norm(x, dim=0)
    forms = (x.conj() * (w.to(x.dtype) @ x)).sum(0).abs()
    radius, norm = estimate_radius(w), float(torch.linalg.matrix_norm(w, 2))
    assert float(forms.max()) <= radius * (1 + 1e-4)
    assert norm / 2 * (1 - 1e-4) <= radius <= norm * (1 + 1e-12)


@pytest.mark.parametrize("n", [3, COMPLETE, COMPLETE + 1, 120])
def test_of_a_normal_matrix_it_is_the_norm(n: int) -> None:
    q = orthogonal(n, seed=1)
    symmetric = q @ torch.linspace(-0.7, 1, n, dtype=torch.float64).diag() @ q.mT
    assert estimate_radius(symmetric) == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("n", [2, 8, COMPLETE + 8])
def test_of_a_shift_it_is_a_cosine(n: int) -> None:
    shift = torch.diag(torch.ones(n - 1, dtype=torch.float64), 1)
    assert estimate_radius(shift) == pytest.approx(math.cos(math.pi / (n + 1)), rel=1e-6)


@given(n=st.integers(1, 6), seed=seeds)
def test_the_gradient_is_that_of_the_smooth_radius(n: int, seed: int) -> None:
    w, logs, move = gaussian(n, n, seed=seed), 0.3 * gaussian(n, seed=seed + 1), gaussian(n, seed=seed + 2)
    stage = Stage(8.0, 5, 10)

    def value(t: float) -> float:
        return smooth_radius(scale_matrix(w, (logs + t * move).exp()), stage)[0]

    gradient = smooth_radius(scale_matrix(w, logs.exp()), stage)[1]
    assert float(gradient @ move) == pytest.approx((value(1e-6) - value(-1e-6)) / 2e-6, rel=1e-4, abs=1e-6)


def test_outermost_pairs_give_the_gradient_of_all_where_it_is_sharp() -> None:
    w, n = gaussian(COMPLETE + 20, COMPLETE + 20, seed=5).float(), COMPLETE + 20
    value, gradient = smooth_radius(w, STAGES[2])
    move, step = gaussian(n, seed=6).float(), 1e-3
    ends = [smooth_radius(scale_matrix(w, (sign * step * move).exp()), STAGES[2])[0] for sign in (1, -1)]
    assert float(gradient @ move) == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=2e-2)
    assert value == pytest.approx(math.log(estimate_radius(w)), abs=0.02)


@pytest.mark.parametrize("n", [6, COMPLETE + 8])
def test_the_descent_lowers_the_radius(n: int) -> None:
    w = gaussian(n, n, seed=7)
    raw, limit = torch.zeros(n, dtype=torch.float64), 3.0
    for stage in STAGES[:2]:
        raw = descend_radius(w, raw, limit, stage, 20)
    assert estimate_radius(scale_matrix(w, from_raw(raw.double(), limit))) < 0.99 * estimate_radius(w)


@given(n=st.integers(2, 5), seed=seeds, share=st.floats(0.1, 0.9))
def test_its_logarithm_is_convex_in_the_logarithms_of_the_weights(n: int, seed: int, share: float) -> None:
    w, (a, b) = gaussian(n, n, seed=seed), gaussian(2, n, seed=seed + 1)
    at = [math.log(estimate_radius(scale_matrix(w, logs.exp()))) for logs in (a, b, share * a + (1 - share) * b)]
    assert at[2] <= share * at[0] + (1 - share) * at[1] + 1e-6


@pytest.mark.parametrize("n", [1, 3, 5, 7])
def test_an_eigenvalue_of_zero_leaves_the_gradient_finite(n: int) -> None:
    matrix = gaussian(n, n, seed=n)
    singular = torch.outer(matrix[0], matrix[-1])  # all but one or two eigenvalues of its Hermitian parts are 0
    turning = matrix - matrix.mT + (n == 1)  # of odd size: one is 0 at a quarter of a turn
    for found in (singular, turning):
        assert bool(smooth_radius(found, STAGES[0])[1].isfinite().all())
