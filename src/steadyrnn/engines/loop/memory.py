"""Scratch memory kept between calls, and the processor's treatment of denormal numbers."""

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

__all__ = ["KEPT_BYTES", "Steps", "flushed_denormals", "scratch"]

KEPT_BYTES = 2**24
"""The largest scratch tensor that is kept for the next call; a larger one is given back, since it would add to the peak."""

_LOCAL = threading.local()
_BLOCK = 64  # times whose views exist at once
_DENORMAL = 5e-324


def scratch(name: str, shape: Sequence[int], like: Tensor) -> Tensor:
    """Return an uninitialised tensor that may hold the memory of an earlier call's.

    Fresh pages cost more than the arithmetic on them, so memory that is neither returned nor saved is used again, one
    piece a name and thread. Never hand out for a result: the next call would overwrite it.

    Example:
        >>> scratch("adjoint", (2, 3), torch.zeros(1)).shape
        torch.Size([2, 3])
    """
    size = math.prod(shape)
    kept: dict[tuple[str, torch.dtype], Tensor] | None = getattr(_LOCAL, "kept", None)
    if kept is None:
        kept = _LOCAL.kept = {}
    memory = kept.get((name, like.dtype))
    if memory is None or memory.numel() < size:
        with torch.inference_mode(False):  # an inference tensor could not be written to by a later call outside that mode
            memory = torch.empty(size, dtype=like.dtype, device=like.device)
        if size * memory.element_size() <= KEPT_BYTES:
            kept[name, like.dtype] = memory
    return memory[:size].view(*shape)


class Steps(dict[int, Tensor]):
    """The views (B, N) of a tensor (T, B, N) by time, of which only those of some neighbouring times exist at once.

    A view takes a hundred times the memory of a number, so a list of all of them would be most of a long run's memory; one
    by one they would cost as much time as the arithmetic. Times are expected in order, up or down.

    Args:
        tensor: What is looked at, shape (T, B, N).

    Example:
        >>> Steps(torch.arange(6).view(3, 1, 2))[2]
        tensor([[4, 5]])
    """

    def __init__(self, tensor: Tensor) -> None:
        super().__init__()
        self.tensor = tensor

    def __missing__(self, time: int) -> Tensor:
        """Make the views of the block of times that ``time`` lies in, in place of those before."""
        start = time - time % _BLOCK
        self.clear()
        self.update(enumerate(self.tensor[start : start + _BLOCK].unbind(0), start))
        return self[time]


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Flush denormal numbers to zero on this thread, and restore the mode it had.

    Decayed states and gradients become denormal, on which the processor is many times slower.

    Example:
        >>> with flushed_denormals():
        ...     float(torch.tensor(1e-310, dtype=torch.float64) * 1)
        0.0
    """
    was_on = _DENORMAL * 1.0 == 0.0  # the mode is the thread's, so Python's own arithmetic shows it
    if was_on:
        yield
        return
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
