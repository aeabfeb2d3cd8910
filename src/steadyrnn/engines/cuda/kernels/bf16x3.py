r"""float32 numbers in three parts of bfloat16 (bf16x3), for the tensor cores.

A float32 number is the sum of three of bfloat16, :math:`x = x_1 + x_2 + x_3` with :math:`\lvert x_p \rvert \le 2^{-8(p-1)}
\lvert x \rvert`, so that six products of such numbers are one of float32 except for :math:`2^{-23}` of it:

.. math:: xy \approx x_1 y_1 + (x_1 y_2 + x_2 y_1) + (x_1 y_3 + x_2 y_2 + x_3 y_1)

The tensor cores are fifteen times as fast with them as other units are with float32. Infinity times a number is NaN by this,
since parts that are 0 are multiplied with it, too; numbers below 2^-110 have fewer than three parts.
"""

from functools import cache

import torch
from torch import Tensor
from torch.backends.cuda import matmul

from steadyrnn.gpu.nvrtc import Compiled, OnDevice, kernel

from .codes import PACKAGE

__all__ = ["empty_bf16x3", "round_to_eights", "split_bf16x3", "supports"]

_THREADS = 256


def supports(tensor: Tensor) -> bool:
    """Say whether products are better made of parts: in float32 on a GPU, unless TF32 was requested, which is faster still.

    Example:
        >>> supports(torch.ones(2))  # on a CPU
        False
    """
    return tensor.is_cuda and tensor.dtype == torch.float32 and matmul.fp32_precision != "tf32"


def round_to_eights(columns: int) -> int:
    """Return the columns of a part: the tensor cores read eight at a time.

    Example:
        >>> round_to_eights(9)
        16
    """
    return -(-columns // 8) * 8


def empty_bf16x3(like: Tensor, rows: int, columns: int) -> Tensor:
    """Return memory for numbers in parts, (R, 3 N) with N from :func:`round_to_eights`: zero beyond the columns.

    Example:
        >>> empty_bf16x3(torch.ones(1), 2, 3).view(2, 3, 8)[0, 2, 3:]
        tensor([0., 0., 0., 0., 0.], dtype=torch.bfloat16)
    """
    parts = like.new_empty(rows, 3 * round_to_eights(columns), dtype=torch.bfloat16)
    parts.unflatten(1, (3, -1))[:, :, columns:].zero_()
    return parts


@cache
def compile_kernel(vec: int, device: torch.device) -> Compiled:
    """Return the kernel for columns by ``vec``."""
    defined = (("threads", _THREADS), ("vec", vec), ("blocks", 1))
    return kernel(PACKAGE, ("ptx", "bf16x3"), "run_bf16x3", defined, 0, device)


def split_bf16x3(tensors: list[Tensor], to: Tensor) -> None:
    """Write tensors (R, N_j) side by side to each third of the columns of ``to`` (R', 3 N), zero beyond their rows."""
    place, (padded, stride) = 0, to.shape
    for tensor in tensors:
        rows, columns = tensor.shape
        tensor = tensor if tensor.stride(1) == 1 and columns <= tensor.stride(0) < 2**31 else tensor.contiguous()
        step, aligned = tensor.stride(0), tensor.data_ptr() % 16 == 0 and tensor.stride(0) % 4 == 0
        vec = next(v for v in (8, 4, 1) if columns % v == place % v == 0 and (aligned or v == 1))
        with OnDevice(to.device):
            compile_kernel(vec, to.device)(
                -(-padded * columns // (vec * _THREADS)), _THREADS, 0,
                [tensor, to[:, place:], rows, padded, columns, step, stride, stride // 3],
            )  # fmt: skip
        place += columns
