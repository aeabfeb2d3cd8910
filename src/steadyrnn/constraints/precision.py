"""Half precision: what is stored in it is computed in float32."""

import torch
from torch import Tensor

__all__ = ["DTYPES", "widened", "working_dtype"]

_HALF = (torch.float16, torch.bfloat16)
DTYPES = (*_HALF, torch.float32, torch.float64)
"""What a constrained weight may be stored in."""


def working_dtype() -> torch.dtype:
    """Return the dtype to draw fresh raw tensors in: torch's default one, float32 where that is a half precision.

    Example:
        >>> working_dtype()
        torch.float32
    """
    usual = torch.get_default_dtype()
    return torch.float32 if usual in _HALF else usual


def widened(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Return the tensors, in float32 where they are stored in half precision: there is no linear algebra in it.

    Example:
        >>> widened(torch.ones(1, dtype=torch.bfloat16))
        (tensor([1.]),)
    """
    return tuple(tensor.float() if tensor.dtype in _HALF else tensor for tensor in tensors)
