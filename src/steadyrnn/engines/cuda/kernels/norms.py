"""2-norms of many vectors, which are read from memory once."""

import torch
from torch import Tensor

from steadyrnn.gpu.device import multiprocessors
from steadyrnn.gpu.nvrtc import OnDevice, is_there, kernel

from .codes import PACKAGE

__all__ = ["every_norm", "largest_square", "supports"]

_THREADS, _BLOCKS = 256, 8  # of a block, and of a multiprocessor
_MANY = 2**22  # numbers from which it is faster
_MOST_ROWS = 2**31 - 2**20


def supports(vectors: Tensor) -> bool:
    """Say whether the kernel is for vectors (..., N): many numbers of float32 on a GPU, one after another.

    Example:
        >>> supports(torch.ones(2**16, 64))  # on a CPU
        False
    """
    fits = vectors.numel() >= _MANY and vectors.numel() // vectors.shape[-1] <= _MOST_ROWS
    return vectors.is_cuda and vectors.dtype == torch.float32 and fits and vectors.is_contiguous() and is_there()


def largest_square(vectors: Tensor) -> Tensor:
    """Return the largest sum of squares of vectors (..., N), a number on their device; NaN where there is one."""
    most = vectors.new_empty(_warps(vectors))
    _launch(vectors, most, every=False)
    return most.max()


def every_norm(vectors: Tensor) -> Tensor:
    """Return the 2-norm of each of vectors (..., N) in float64, without a copy of them in it where the kernel is for them.

    Example:
        >>> every_norm(torch.tensor([[3.0, 4.0], [0.0, 1.0]]))
        tensor([5., 1.], dtype=torch.float64)
    """
    if not supports(vectors):
        plain: Tensor = torch.linalg.vector_norm(vectors.double(), dim=-1)
        return plain
    found = vectors.new_empty(vectors.shape[:-1], dtype=torch.float64)
    _launch(vectors, found, every=True)
    return found


def _warps(vectors: Tensor) -> int:
    return _BLOCKS * multiprocessors(vectors.device) * _THREADS // 32


def _launch(vectors: Tensor, found: Tensor, every: bool) -> None:
    size, warps = vectors.shape[-1], _warps(vectors)
    vec = 1 if size % 4 or vectors.data_ptr() % 16 else 4
    with OnDevice(vectors.device):
        defined = (("threads", _THREADS), ("vec", vec), ("every", int(every)), ("blocks", 1))
        run = kernel(PACKAGE, ("ptx", "norms"), "run_norms", defined, 0, vectors.device)
        run(warps * 32 // _THREADS, _THREADS, 0, [vectors, found, vectors.numel() // size, size, warps])
