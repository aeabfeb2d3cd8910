"""The factors of the SVD parametrisation on a GPU, and their gradient, in one launch each."""

from functools import cache

import torch
from torch import Tensor
from torch.nn import Parameter

from steadyrnn.gpu.device import SHARED_BYTES, has_clusters
from steadyrnn.gpu.nvrtc import Compiled, OnDevice, kernel
from steadyrnn.gpu.torch_private import count_dispatch_modes, is_legacy_batchedtensor, peek_interpreter_stack

__all__ = ["can_launch", "fits", "kept_numbers", "launch_backward", "launch_forward"]

_PACKAGE = __name__.rpartition(".")[0]
_BLOCKS, _THREADS = 8, 128  # of the one cluster that runs


def shared_bytes(count: int) -> int:
    """Return the shared memory that a block of the gradient asks for: eight arrays of its rows, and squares.

    Example:
        >>> shared_bytes(16)
        146688
    """
    return 8 * (8 * count * (_THREADS + 1) + 7 * count * count + 2 * count)


def can_launch(tensors: tuple[Tensor, ...], rows: int, count: int) -> bool:
    """Say whether there is a kernel for the factors of ``rows`` rows and ``count`` reflectors: plain tensors on a GPU.

    Example:
        >>> can_launch((torch.ones(3),), 3, 1)
        False
    """
    if torch.compiler.is_compiling() or count_dispatch_modes():
        return False
    if peek_interpreter_stack() is not None:  # under vmap a tensor has no memory of its own
        return False
    if not all(t.is_cuda and type(t) in (Tensor, Parameter) and not is_legacy_batchedtensor(t) for t in tensors):
        return False
    if len({t.device for t in tensors}) > 1 or not has_clusters(tensors[0].device.index or 0):
        return False
    return fits(rows, count)


def fits(rows: int, count: int) -> bool:
    """Say whether a cluster has one thread per row and the memory for ``count`` reflectors.

    Example:
        >>> fits(1024, 24), fits(1025, 16), fits(1024, 25)
        (True, False, False)
    """
    return rows <= _BLOCKS * _THREADS and shared_bytes(count) <= SHARED_BYTES


def kept_numbers(rows: int, count: int) -> int:
    """Return how many numbers the gradient wants kept: Y and Z of both sides, lengths, triangles, core.

    Example:
        >>> kept_numbers(3, 1)
        17
    """
    return 4 * rows * count + 2 * count + 3 * count * count


@cache
def compile_kernel(entry: str, count: int, device: torch.device) -> Compiled:
    """Return one of the two kernels."""
    return kernel(_PACKAGE, ("ptx", "spectral_factors"), entry, (("count", count),), shared_bytes(count), device)


def launch_forward(left: Tensor, right: Tensor, sigma: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return both factors, (2, H, 2K) in float32, and what the gradient wants kept, in float64.

    Arguments as in :func:`~steadyrnn.linalg.spectral_factors.spectral_factors`.
    """
    rows = sigma.shape[0]
    factors = sigma.new_empty(2, rows, 2 * count)
    kept = sigma.new_empty(kept_numbers(rows, count), dtype=torch.float64)
    y, z, squares = kept.split([2 * rows * count, 2 * rows * count, 2 * count + 3 * count * count])
    with OnDevice(sigma.device):
        compile_kernel("run_forward", count, sigma.device)(
            _BLOCKS, _THREADS, shared_bytes(count),
            [left.contiguous(), right.contiguous(), sigma.contiguous(), factors[0], factors[1], y, z, squares, rows],
        )  # fmt: skip
    return factors, kept


def launch_backward(
    factors: tuple[Tensor, ...], sigma: Tensor, kept: Tensor, count: int, size: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of the packed reflectors of both sides, of ``size`` entries each, and of ``sigma``.

    ``factors`` are the gradients of the factors.
    """
    rows, (lower, upper) = sigma.shape[0], (factor.contiguous() for factor in factors)
    left, right, of_sigma = (sigma.new_empty(number) for number in (size, size, rows))
    y, z, squares = kept.split([2 * rows * count, 2 * rows * count, 2 * count + 3 * count * count])
    with OnDevice(sigma.device):
        compile_kernel("run_backward", count, sigma.device)(
            _BLOCKS, _THREADS, shared_bytes(count),
            [lower, upper, sigma.contiguous(), y, z, squares, left, right, of_sigma, rows],
        )  # fmt: skip
    return left, right, of_sigma
