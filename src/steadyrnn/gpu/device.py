"""Facts about a GPU that plans and engines ask for."""

from functools import cache

import torch

from .nvrtc import is_there

__all__ = ["SHARED_BYTES", "clusters_at_once", "has_bf16_tensor_cores", "has_clusters", "multiprocessors"]

SHARED_BYTES = 227 * 1024
"""The most shared memory that a block may ask for on a GPU of compute capability 9.0."""
_CLUSTERS = {1: 132, 2: 66, 4: 30, 8: 15, 16: 7}  # that an H200 runs side by side, by their size, as its driver says


@cache
def multiprocessors(device: torch.device) -> int:
    """Return how many multiprocessors a device has."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def clusters_at_once(blocks: int, processors: int) -> int:
    """Return how many clusters run side by side on so many multiprocessors; clusters of more than two do not fill a GPU.

    Example:
        >>> clusters_at_once(8, 132)
        15
    """
    return _CLUSTERS[blocks] if processors == 132 else max(1, (processors if blocks <= 2 else processors * 9 // 10) // blocks)


@cache
def has_clusters(index: int) -> bool:
    """Say whether kernels can be compiled for a device whose blocks can send each other messages: compute capability 9.0."""
    return is_there() and torch.cuda.get_device_capability(index) == (9, 0)


@cache
def has_bf16_tensor_cores(index: int) -> bool:
    """Say whether kernels can be compiled for a device whose tensor cores support bfloat16: compute capability 8.0 or above."""
    return is_there() and torch.cuda.get_device_capability(index) >= (8, 0)
