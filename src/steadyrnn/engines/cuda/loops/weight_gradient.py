"""Weight gradients, sums of products over all time, at float32's accuracy on the tensor cores, from numbers in three parts.

Where the tensor cores add they cut off: after K rows a sum is off by some :math:`2^{-28} K` of itself on an H200. So the
largest of the six terms is summed by parts of 1024 rows, and then it errs as torch's product does. The others are too small
for it to matter.
"""

import torch
from torch import Tensor

from ..kernels.bf16x3 import empty_bf16x3, round_to_eights, split_bf16x3, supports

__all__ = ["is_faster", "sum_outer_products"]

_ROWS = 1024  # of a part
_MEMORY = 2**28  # bytes that hold numbers in bfloat16 at a time


def is_faster(adjoint: Tensor, states: Tensor) -> bool:
    """Say whether :func:`sum_outer_products` is faster for adjoints (T, B, N) and states (T, B, H): many and wide ones.

    Example:
        >>> is_faster(torch.ones(100, 128, 512), torch.ones(100, 128, 512))  # on a CPU
        False
    """
    steps, batch, size = states.shape
    return (steps - 1) * batch >= 8 * _ROWS and size >= 256 and adjoint.shape[2] * size >= 2**18 and supports(adjoint)


def sum_outer_products(left: list[Tensor], right: list[Tensor]) -> Tensor:
    r"""Return :math:`\sum_r a_r b_r^\top`, (M, N), for rows r of the matrices side by side in ``left`` and in ``right``.

    Args:
        left: Each (R, M_i), float32.
        right: Each (R, N_j), likewise.
    """
    rows, heights, widths = left[0].shape[0], sum(t.shape[1] for t in left), sum(t.shape[1] for t in right)
    m, n = round_to_eights(heights), round_to_eights(widths)
    at_once = max(min(_MEMORY // (6 * (m + n) * _ROWS), -(-rows // _ROWS)), 1) * _ROWS
    split = empty_bf16x3(left[0], at_once, heights), empty_bf16x3(left[0], at_once, widths)
    first, second, third = (left[0].new_zeros(m, wide) for wide in (n, 2 * n, n))
    for start in range(0, rows, at_once):
        parts = -(-min(at_once, rows - start) // _ROWS)
        a, b = (side[: parts * _ROWS] for side in split)
        for side, to in ((left, a), (right, b)):
            split_bf16x3([tensor[start : start + at_once] for tensor in side], to)
        high, middle, low = a.split(m, dim=1)
        first += multiply_parts(high.unflatten(0, (parts, _ROWS)), b[:, :n].unflatten(0, (parts, _ROWS))).sum(0)
        add_product(second, high, b[:, n:])  # x_1 y_2 beside x_1 y_3
        add_product(second, middle, b[:, : 2 * n])  # x_2 y_1 beside x_2 y_2
        add_product(third, low, b[:, :n])
    total = first + (second[:, :n] + (second[:, n:] + third))
    return total[:heights, :widths]


def multiply_parts(a: Tensor, b: Tensor) -> Tensor:
    """Return the product of each part, (P, R, M) and (P, R, N) in bfloat16, as (P, M, N) in float32."""
    return torch.bmm(a.mT, b, out_dtype=torch.float32)


def add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add the product of (R, M) and (R, N) in bfloat16 to ``total`` (M, N)."""
    torch.addmm(total, a.mT, b, out_dtype=torch.float32, out=total)
