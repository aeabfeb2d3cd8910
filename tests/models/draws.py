"""What random first weights must look like."""

import math

import pytest
from torch import Tensor

__all__ = ["assert_deviation"]


def assert_deviation(weight: Tensor, expected: float) -> None:
    """Check that Gaussian numbers have a standard deviation, within three standard errors.

    Of n numbers the sample deviation has a relative standard error of 1 / sqrt(2 (n - 1)).
    """
    found = float(weight.detach().double().std())
    assert found == pytest.approx(expected, rel=3 / math.sqrt(2 * (weight.numel() - 1)))
