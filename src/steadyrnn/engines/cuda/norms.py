"""The largest 2-norm of many vectors, read from memory once."""

import torch
from torch import Tensor

from steadyrnn.linalg.nvrtc import OnDevice, is_there, kernel

from .kinds import PACKAGE
from .launch import processors

__all__ = ["largest_square", "takes"]

_THREADS, _BLOCKS = 256, 8  # of a block, and of a multiprocessor
_MANY = 2**22  # numbers from which it pays
_MOST_ROWS = 2**31 - 2**20


def takes(vectors: Tensor) -> bool:
    """Say whether the kernel is for vectors (..., N): many numbers of float32 on a GPU, one after another.

    Example:
        >>> takes(torch.ones(2**16, 64))  # on a CPU
        False
    """
    fits = vectors.numel() >= _MANY and vectors.numel() // vectors.shape[-1] <= _MOST_ROWS
    return vectors.is_cuda and vectors.dtype == torch.float32 and fits and vectors.is_contiguous() and is_there()


def largest_square(vectors: Tensor) -> Tensor:
    """Return the largest sum of squares of vectors (..., N), a number on their device; NaN where there is one."""
    size = vectors.shape[-1]
    blocks = _BLOCKS * processors(vectors.device)
    warps = blocks * _THREADS // 32
    most, vec = vectors.new_empty(warps), 1 if size % 4 or vectors.data_ptr() % 16 else 4
    with OnDevice(vectors.device):
        defined = (("threads", _THREADS), ("vec", vec), ("blocks", 1))
        run = kernel(PACKAGE, ("norms",), "run_norms", defined, 0, vectors.device)
        run(blocks, _THREADS, 0, [vectors, most, vectors.numel() // size, size, warps])
    return most.max()
