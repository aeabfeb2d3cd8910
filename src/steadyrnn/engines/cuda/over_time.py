r"""Sums of products over all time at float32's accuracy, on the matrix units.

A float32 number is the sum of three of bfloat16, :math:`x = x_1 + x_2 + x_3` with :math:`\lvert x_p \rvert \le 2^{-8(p-1)}
\lvert x \rvert`, so that six products of such numbers are one of float32 but for :math:`2^{-23}` of it:

.. math:: xy \approx x_1 y_1 + (x_1 y_2 + x_2 y_1) + (x_1 y_3 + x_2 y_2 + x_3 y_1)

The matrix units are fifteen times as fast with them as the others are with float32. But where they add they cut off: after
K rows a sum is off by some :math:`2^{-28} K` of itself on an H200. So the first term is summed by parts of 1024 rows: then
it errs as torch's product does. The other terms are too small for it to matter.
"""

from functools import cache

import torch
from torch import Tensor
from torch.backends.cuda import matmul

from steadyrnn.linalg.nvrtc import Compiled, OnDevice, kernel

from .kinds import PACKAGE

__all__ = ["pays", "product_over_time"]

_ROWS = 1024  # of a part
_MEMORY = 2**28  # bytes that hold numbers in bfloat16 at a time
_EIGHT = 8  # columns by which the matrix units read
_THREADS = 256


def pays(adjoint: Tensor, states: Tensor) -> bool:
    """Say whether :func:`product_over_time` is for adjoints (T, B, N) beside states (T, B, H): it takes many and wide ones.

    And float32 on a GPU where TF32 has not been asked for, which is faster.

    Example:
        >>> pays(torch.ones(100, 128, 512), torch.ones(100, 128, 512))  # on a CPU
        False
    """
    if not adjoint.is_cuda or adjoint.dtype != torch.float32 or matmul.fp32_precision == "tf32":
        return False
    steps, batch, size = states.shape
    return steps * batch >= 8 * _ROWS and size >= 256 and adjoint.shape[2] * size >= 2**18


def product_over_time(left: list[Tensor], right: list[Tensor]) -> Tensor:
    r"""Return :math:`\sum_r a_r b_r^\top`, (M, N), for rows r of the matrices side by side in ``left`` and in ``right``.

    Args:
        left: Each (R, M_i), float32, entries of a row one after another.
        right: Each (R, N_j), likewise.
    """
    rows, device = left[0].shape[0], left[0].device
    heights, widths = ([tensor.shape[1] for tensor in side] for side in (left, right))
    m, n = (-(-sum(sizes) // _EIGHT) * _EIGHT for sizes in (heights, widths))
    most = max(_MEMORY // (6 * (m + n) * _ROWS), 1)  # parts at a time
    at_once = min(most, -(-rows // _ROWS)) * _ROWS
    make = left[0].new_empty if (m, n) == (sum(heights), sum(widths)) else left[0].new_zeros  # beyond the columns
    a, b = (make(at_once, 3 * size, dtype=torch.bfloat16) for size in (m, n))
    first, second, third = (left[0].new_zeros(m, wide) for wide in (n, 2 * n, n))
    for start in range(0, rows, at_once):
        parts = -(-min(at_once, rows - start) // _ROWS)
        with OnDevice(device):
            write_planes([tensor[start : start + at_once] for tensor in left], a[: parts * _ROWS], m)
            write_planes([tensor[start : start + at_once] for tensor in right], b[: parts * _ROWS], n)
        a_now, b_now = a[: parts * _ROWS], b[: parts * _ROWS]
        high, middle, low = a_now.split(m, dim=1)
        first += products(high.unflatten(0, (parts, _ROWS)), b_now[:, :n].unflatten(0, (parts, _ROWS))).sum(0)
        second = added(second, high, b_now[:, n:])  # x_1 y_2 beside x_1 y_3
        second = added(second, middle, b_now[:, : 2 * n])  # x_2 y_1 beside x_2 y_2
        third = added(third, low, b_now[:, :n])
    total = first + (second[:, :n] + (second[:, n:] + third))
    return total[: sum(heights), : sum(widths)]


def products(a: Tensor, b: Tensor) -> Tensor:
    """Return the product of each part, (P, R, M) and (P, R, N) in bfloat16, as (P, M, N) in float32."""
    return torch.bmm(a.mT, b, out_dtype=torch.float32)


def added(total: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return ``total`` (M, N) plus the product of (R, M) and (R, N) in bfloat16."""
    return torch.addmm(total, a.mT, b, out_dtype=torch.float32)


@cache
def compiled(vec: int, device: torch.device) -> Compiled:
    """Return the kernel for columns by ``vec``."""
    defined = (("threads", _THREADS), ("vec", vec), ("blocks", 1))
    return kernel(PACKAGE, ("planes",), "run_planes", defined, 0, device)


def write_planes(tensors: list[Tensor], to: Tensor, plane: int) -> None:
    """Write tensors (R, N_j) side by side to each third of ``to`` (R', 3 * ``plane``), zero beyond their rows."""
    place, (padded, stride) = 0, to.shape
    for tensor in tensors:
        rows, columns = tensor.shape
        tensor = tensor if tensor.stride(1) == 1 and tensor.stride(0) >= columns else tensor.contiguous()
        target, step = to[:, place : place + columns], tensor.stride(0)
        even = all(number % 4 == 0 for number in (columns, place, plane, step)) and tensor.data_ptr() % 16 == 0
        blocks = -(-padded * (columns // 4 if even else columns) // _THREADS)
        compiled(4 if even else 1, to.device)(
            blocks, _THREADS, 0, [tensor, target, rows, padded, columns, step, stride, plane]
        )  # fmt: skip
        place += columns
