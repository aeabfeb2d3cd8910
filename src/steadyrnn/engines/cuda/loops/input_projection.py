"""The input projection at all times at float32's accuracy, on the tensor cores, from numbers in three parts.

The six terms of a product are one sum, the small ones first: a row of the input has its parts beside each other in that order,
and so has one of the weight. In this order what tensor cores cut off of the sum is less than what rounding to nearest is
allowed in :func:`~steadyrnn.certificates.rounding.local_rounding`; in another it might be more. The bias is the weight of an
input that is 1.
"""

import torch
from torch import Tensor

from ..kernels.bf16x3 import empty_bf16x3, split_bf16x3, supports

__all__ = ["is_faster", "project_input"]

_LEFT, _RIGHT = (2, 1, 0, 1, 0, 0), (0, 1, 2, 0, 1, 0)  # the parts of both that are multiplied with each other
_WIDTHS = range(32, 257)  # of inputs: fewer are no work, and a sum of more errs too much
_ROWS, _RESULTS = 2**13, 1024  # from which on it is faster
_MEMORY = 2**28  # bytes that hold numbers in bfloat16 at a time


def is_faster(x: Tensor, results: int) -> bool:
    """Say whether :func:`project_input` is for an input (T, B, D) and so many results.

    Example:
        >>> is_faster(torch.ones(100, 128, 64), 2048)  # on a CPU
        False
    """
    return x.shape[0] * x.shape[1] >= _ROWS and x.shape[2] in _WIDTHS and results >= _RESULTS and supports(x)


def project_input(x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
    r"""Write :math:`W x_r + b` for every row r of ``x`` (R, D) to ``out`` (R, N); ``weight`` is (N, D), all float32."""
    b = join_parts([weight] if bias is None else [weight, bias.unsqueeze(1)], _RIGHT)
    blocks = -(-len(x) * 3 * b.shape[1] // _MEMORY)  # of rows, each in three parts and then in six
    at_once = max(-(-len(x) // max(blocks, 1)), 1)
    for rows, to in zip(x.split(at_once), out.split(at_once), strict=True):
        a = join_parts([rows] if bias is None else [rows, rows.new_ones(len(rows), 1)], _LEFT)
        multiply(a, b, to)


def join_parts(tensors: list[Tensor], order: tuple[int, ...]) -> Tensor:
    """Return matrices (R, N_j) side by side in parts, these one after another in some order: (R, 6 N)."""
    joined = empty_bf16x3(tensors[0], len(tensors[0]), sum(tensor.shape[1] for tensor in tensors))
    split_bf16x3(tensors, joined)
    parts = joined.chunk(3, dim=1)
    return torch.cat([parts[which] for which in order], dim=1)


def multiply(a: Tensor, b: Tensor, out: Tensor) -> None:
    """Write the product of (R, K) and the transposed (N, K) in bfloat16 to ``out`` (R, N) in float32."""
    torch.mm(a, b.t(), out_dtype=torch.float32, out=out)
