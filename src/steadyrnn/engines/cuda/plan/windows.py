"""How windows of an Elman cell run, whose weight one block holds."""

from functools import cache
from typing import NamedTuple

import torch

from steadyrnn.gpu.device import multiprocessors

__all__ = ["ROWS", "WIDEST", "WindowLayout", "rows_at_once", "window_layout"]

WIDEST = 128
"""The most units whose weight a block holds: 64 registers per thread, so that two blocks run on a multiprocessor."""
ROWS, _WARPS = 8, 16  # of a block, and of a multiprocessor


class WindowLayout(NamedTuple):
    """How ``source/bf16x3_product.cu`` is compiled."""

    chunks: int  # of 32 entries of a vector
    threads: int
    at_once: int  # blocks on a multiprocessor


@cache
def window_layout(size: int) -> WindowLayout:
    """Return the layout for ``size`` units.

    Example:
        >>> window_layout(128), window_layout(20)
        (WindowLayout(chunks=4, threads=256, at_once=2), WindowLayout(chunks=1, threads=64, at_once=8))
    """
    warps = -(-size // 16)
    return WindowLayout(-(-size // 32), warps * 32, _WARPS // warps)


def rows_at_once(size: int, device: torch.device) -> int:
    """Return how many rows run side by side."""
    return multiprocessors(device) * window_layout(size).at_once * ROWS
