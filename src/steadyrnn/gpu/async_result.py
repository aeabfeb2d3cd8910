"""Numbers that are on their way from a device to the CPU while the device goes on."""

from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor

__all__ = ["AsyncResult", "Deferred"]

T = TypeVar("T")


class Deferred(Generic[T]):
    """What is computed when it is first asked for, and only then.

    Example:
        >>> Deferred(lambda: 2).value()
        2
    """

    def __init__(self, compute: Callable[[], T]) -> None:
        self.compute: Callable[[], T] | None = compute
        self.found: list[T] = []

    def value(self) -> T:
        """Return it."""
        if self.compute is not None:
            self.found.append(self.compute())
            self.compute = None  # and what it holds on to
        return self.found[0]


class AsyncResult:
    """A tensor on its way to the CPU, while the device goes on.

    Example:
        >>> AsyncResult(torch.ones(1)).value()
        tensor([1.])
    """

    def __init__(self, tensor: Tensor) -> None:
        self.there, self.arrived = tensor, None
        if tensor.device.type == "cuda":
            self.there = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self.there.copy_(tensor, non_blocking=True)
            self.arrived = torch.cuda.Event()
            self.arrived.record(torch.cuda.current_stream(tensor.device))

    def value(self) -> Tensor:
        """Return the tensor on the CPU, once it is there."""
        if self.arrived is not None:
            self.arrived.synchronize()
        return self.there.cpu()
