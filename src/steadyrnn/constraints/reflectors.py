"""First reflectors: unit length, because the length of a reflector sets its learning rate."""

import torch
from torch import Tensor

from .base import working_dtype

__all__ = ["unit_reflectors"]


def unit_reflectors(rows: int, count: int) -> Tensor:
    r"""Return random reflectors of unit length as columns, shape ``(rows, count)``; column j starts at row j.

    The gradient of a reflector goes as the inverse of its length (MATH 2.1), so reflectors of length
    :math:`\sqrt{N}` would learn :math:`N` times slower under plain steps.

    Example:
        >>> unit_reflectors(3, 2).norm(dim=0).round(decimals=4)
        tensor([1., 1.])
    """
    columns = torch.randn(rows, count, dtype=working_dtype()).tril()
    length: Tensor = columns.norm(dim=0, keepdim=True)
    return columns / length.clamp(min=torch.finfo(columns.dtype).tiny)
