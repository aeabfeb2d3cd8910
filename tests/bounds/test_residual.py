"""Errors from residuals: the recursion, for any length and rate, and what it bounds."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steadyrnn.bounds.residual import residual_errors
from steadyrnn.errors import CertificateError


@given(steps=st.integers(0, 300), rate=st.floats(0, 1, exclude_max=True), seed=st.integers(0, 99))
def test_errors_are_those_of_the_recursion(steps: int, rate: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    residuals = torch.rand(steps, 3, generator=generator, dtype=torch.float64) ** 8
    errors, error = residual_errors(rate, residuals), torch.zeros(3, dtype=torch.float64)
    assert errors.shape == residuals.shape
    for t in range(steps):
        error = rate * error + residuals[t]
        assert bool((errors[t] >= error * (1 - steps * 2.0**-52)).all())  # the loop itself is rounded
        assert bool((errors[t] <= error * (1 + 1e-9) + 2.0**-58).all())


def test_a_row_does_not_see_another() -> None:
    residuals = torch.zeros(5000, 2, dtype=torch.float64)
    residuals[:, 0], residuals[7, 1] = 1e30, 1.0
    errors = residual_errors(0.5, residuals)
    assert float(errors[:7, 1].max()) < 1e-15
    assert float(errors[7, 1]) == pytest.approx(1.0)
    assert float(errors[4000:, 1].max()) < 1e-15


def test_the_bound_is_met_by_a_state_that_decays_no_faster_than_proven() -> None:
    """h <- h / 2 + 1, and a run that adds 2^-20 to every step."""
    h = other = 0.0
    for _ in range(60):
        h, other = h / 2 + 1, other / 2 + 1 + 2.0**-20
    bound = float(residual_errors(0.5, torch.full((60,), 2.0**-20, dtype=torch.float64))[-1])
    assert other - h <= bound <= (other - h) * (1 + 1e-9)


def test_what_does_not_contract_is_refused_and_what_is_not_finite_stays_so() -> None:
    with pytest.raises(CertificateError, match="lambda = 1 >= 1"):
        residual_errors(1.0, torch.zeros(3))
    for bad in (math.nan, math.inf):
        for steps in (1, 5, 500):
            residuals = torch.zeros(steps, 2)
            residuals[steps // 2, 1] = bad
            errors = residual_errors(0.5, residuals)
            assert not bool(errors[steps // 2 :, 1].isfinite().any())
            assert bool((errors[:, 0] == 0).all())
