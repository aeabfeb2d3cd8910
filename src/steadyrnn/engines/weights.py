"""A recurrent weight as engines pass it on: all gates stacked, or each by itself, dense or in factors."""

from collections.abc import Sequence

import torch
from torch import Tensor

from steadyrnn.linalg.operators import DiagonalLowRank

__all__ = ["Gate", "RecurrentWeight", "as_gates", "flattened", "grouped", "stacked"]

Gate = Tensor | DiagonalLowRank
"""One matrix, dense (H, H) or in factors."""

RecurrentWeight = Gate | tuple[Gate, ...]
"""One matrix (G * H, H), its factors where G is 1, or one a gate."""


def as_gates(weight: RecurrentWeight) -> tuple[Gate, ...]:
    """Return the matrices a weight consists of (factors are a tuple, too, but one matrix).

    Example:
        >>> len(as_gates(torch.eye(2)))
        1
    """
    return (weight,) if isinstance(weight, Tensor | DiagonalLowRank) else weight


def flattened(weight: RecurrentWeight) -> list[Tensor]:
    """Return every tensor of a weight, one for a dense matrix and three for factors.

    Example:
        >>> len(flattened((torch.eye(2), DiagonalLowRank(torch.ones(2), torch.ones(2, 1), torch.ones(2, 1)))))
        4
    """
    return [tensor for gate in as_gates(weight) for tensor in ((gate,) if isinstance(gate, Tensor) else gate)]


def grouped(tensors: Sequence[Tensor]) -> RecurrentWeight:
    """Return the weight of which :func:`flattened` gave the tensors; a vector is the diagonal that factors begin with.

    Example:
        >>> grouped([torch.ones(2), torch.ones(2, 1), torch.ones(2, 1)]).dense()
        tensor([[2., 1.],
                [1., 2.]])
    """
    gates: list[Gate] = []
    rest = iter(tensors)
    for tensor in rest:
        gates.append(tensor if tensor.dim() == 2 else DiagonalLowRank(tensor, next(rest), next(rest)))
    return gates[0] if len(gates) == 1 else tuple(gates)


def stacked(weight: RecurrentWeight, dtype: torch.dtype) -> Tensor:
    """Return the dense matrix of all gates, (G * H, H); factors are multiplied out before they are rounded.

    Example:
        >>> stacked((torch.eye(2), torch.eye(2)), torch.float32).shape
        torch.Size([4, 2])
    """
    dense = [(gate if isinstance(gate, Tensor) else gate.dense()).to(dtype) for gate in as_gates(weight)]
    return dense[0] if len(dense) == 1 else torch.cat(dense)
