"""What constraints made of reflectors share: first reflectors, and the signs behind the last ones."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from steadyrnn.checks import check_same_meta

from .base import Constraint, working_dtype

__all__ = ["last_signs", "unit_reflectors"]


def unit_reflectors(rows: int, count: int) -> Tensor:
    r"""Return random reflectors of unit length as columns, shape ``(rows, count)``; column j starts at row j.

    The gradient of a reflector goes as the inverse of its length (Note [mathematics], section 2.1), so reflectors of length
    :math:`\sqrt{N}` would learn :math:`N` times slower under plain steps.

    Example:
        >>> unit_reflectors(3, 2).norm(dim=0).round(decimals=4)
        tensor([1., 1.])
    """
    columns = torch.randn(rows, count, dtype=working_dtype()).tril()
    length: Tensor = columns.norm(dim=0, keepdim=True)
    return columns / length.clamp(min=torch.finfo(columns.dtype).tiny)


def last_signs(members: Sequence[Constraint], raw: Tensor, size: int) -> Tensor:
    """Return the diagonals of signs of R constraints, shape ``(R, size)``: ones, and each member's ``sign`` at the end.

    Args:
        members: Constraints with a buffer ``sign``.
        raw: Raw tensors of all of them, whose dtype and device the result has.
        size: Entries of a diagonal, at least one.

    Example:
        >>> last_signs([sr.HouseholderOrthogonal(3)] * 2, torch.zeros(2, 6), 3)
        tensor([[1., 1., 1.],
                [1., 1., 1.]])
    """
    sign = torch.stack([cast(Tensor, member.sign) for member in members])
    sign = check_same_meta("`sign`", sign, raw).to(raw.dtype)
    return torch.cat([raw.new_ones(len(members), size - 1), sign.unsqueeze(1)], dim=1)
