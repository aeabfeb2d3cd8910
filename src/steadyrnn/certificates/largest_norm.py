"""The largest 2-norm of some vectors, rounded up; on a GPU it is read while the device goes on."""

import math

import torch
from torch import Tensor

from steadyrnn.bounds.norms import above
from steadyrnn.engines.cuda.kernels.norms import largest_square, supports
from steadyrnn.gpu.async_result import AsyncResult

__all__ = ["LargestNorms", "largest_norm"]


def largest_norm(vectors: Tensor) -> float:
    """Return a number that is not below the 2-norm of any of ``vectors``, shape (..., N); NaN where there is one.

    Example:
        >>> round(largest_norm(torch.tensor([[3.0, 4.0], [0.0, 1.0]])), 4)
        5.0
    """
    return LargestNorms(vectors).value()[0]


class LargestNorms:
    """:func:`largest_norm` of each of some tensors, on its way from the device until it is asked for.

    Example:
        >>> [round(norm, 4) for norm in LargestNorms(torch.tensor([[3.0, 4.0]]), torch.zeros(0, 2)).value()]
        [5.0, 0.0]
    """

    @torch.no_grad()
    def __init__(self, *tensors: Tensor) -> None:
        norms = [_largest(t) if t.numel() else t.new_zeros(()) for t in tensors]
        self.tensors, self.norms = tensors, AsyncResult(torch.stack(norms))

    def value(self) -> list[float]:
        """Return the numbers, once they are there."""
        return [_safe(t, largest) for t, largest in zip(self.tensors, self.norms.value().tolist(), strict=True)]


def _largest(vectors: Tensor) -> Tensor:
    """Return the largest 2-norm of ``vectors``, shape (..., N), as computed."""
    return largest_square(vectors).sqrt() if supports(vectors) else torch.linalg.vector_norm(vectors, dim=-1).max()


def _safe(vectors: Tensor, largest: float) -> float:
    """Return a computed largest norm with what rounding may have taken from it."""
    size, info = vectors.shape[-1], torch.finfo(vectors.dtype)
    if vectors.numel() == 0:
        return 0.0
    if math.isinf(largest):  # a square may overflow where the number does not
        return above(math.sqrt(size) * max(abs(float(edge)) for edge in torch.aminmax(vectors.detach())))
    return above(largest * (1 + (size + 8) * info.eps) + math.sqrt(size * info.tiny))
