"""Checks of arguments that more than one package needs."""

import math

import pytest
import torch

from steadyrnn.checks import check_finite
from steadyrnn.errors import NotFiniteError


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_is_not_finite_is_refused_wherever_it_is(place: int, value: float, dtype: torch.dtype) -> None:
    tensor = torch.tensor([1.0, -2.0, 3.0], dtype=dtype)
    assert check_finite("weight", tensor) is tensor
    tensor[place] = value
    with pytest.raises(NotFiniteError, match="`weight`"):
        check_finite("weight", tensor)
