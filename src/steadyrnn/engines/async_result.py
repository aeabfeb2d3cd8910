"""Numbers that are on their way from a device to the CPU while the device goes on: any, and the largest of many norms."""

import math
from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor

from .cuda.kernels.norms import largest_square, supports

__all__ = ["AsyncResult", "Deferred", "LargestNorms", "largest_norm", "norm_above"]

T = TypeVar("T")


class Deferred(Generic[T]):
    """What is computed when its value is first read, and only then.

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
            self.there = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
            self.there.copy_(tensor, non_blocking=True)
            self.arrived = torch.cuda.Event()
            self.arrived.record(torch.cuda.current_stream(tensor.device))

    def value(self) -> Tensor:
        """Return the tensor on the CPU, once it is there."""
        if self.arrived is not None:
            self.arrived.synchronize()
        return self.there.cpu()


class LargestNorms:
    """:func:`largest_norm` of each of some tensors, on its way from the device until it is read.

    Example:
        >>> [round(norm, 4) for norm in LargestNorms(torch.tensor([[3.0, 4.0]]), torch.zeros(0, 2)).value()]
        [5.0, 0.0]
    """

    @torch.no_grad()
    def __init__(self, *tensors: Tensor) -> None:
        self.tensors, self.norms = tensors, AsyncResult(torch.stack([_largest(t) for t in tensors]))

    def value(self) -> list[float]:
        """Return the numbers, once they are there."""
        return [_round_up(t, largest) for t, largest in zip(self.tensors, self.norms.value().tolist(), strict=True)]


def largest_norm(vectors: Tensor) -> float:
    """Return a number that is not below the 2-norm of any of ``vectors``, shape (..., N); NaN where there is one.

    Example:
        >>> round(largest_norm(torch.tensor([[3.0, 4.0], [0.0, 1.0]])), 4)
        5.0
    """
    return LargestNorms(vectors).value()[0]


def norm_above(norm: float, size: int, dtype: torch.dtype) -> float:
    """Return a number that is not below the 2-norm of ``size`` entries which was computed in ``dtype`` as ``norm``.

    Example:
        >>> 5 < norm_above(5.0, 2, torch.float32) < 5.00001
        True
    """
    info = torch.finfo(dtype)
    return (norm * (1 + (size + 8) * info.eps) + math.sqrt(size * info.tiny)) * (1 + 2.0**-49)


def _largest(vectors: Tensor) -> Tensor:
    """Return the largest 2-norm of ``vectors``, shape (..., N), as computed; 0 where there are none."""
    if not vectors.numel():
        return vectors.new_zeros(())
    fused = vectors.is_cuda and supports(vectors)
    return largest_square(vectors).sqrt() if fused else torch.linalg.vector_norm(vectors, dim=-1).max()


def _round_up(vectors: Tensor, largest: float) -> float:
    """Return a computed largest norm with what rounding may have taken from it."""
    size = vectors.shape[-1]
    if vectors.numel() == 0:
        return 0.0
    if math.isinf(largest):  # a square may overflow where the number does not
        return math.sqrt(size) * max(abs(float(edge)) for edge in torch.aminmax(vectors.detach())) * (1 + 2.0**-49)
    return norm_above(largest, size, vectors.dtype)
