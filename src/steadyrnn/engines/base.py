"""What an engine is given and what it gives back: a recurrence, with its recurrent weight dense or in factors, by gate."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from steadyrnn.cells.base import Cell, State
from steadyrnn.linalg.operators import DiagonalLowRank

__all__ = [
    "Engine",
    "Gate",
    "Recurrence",
    "RecurrentWeight",
    "as_gates",
    "flatten_weight",
    "lengths_of",
    "stack_gates",
    "unflatten_weight",
]


Gate = Tensor | DiagonalLowRank
"""One matrix, dense (H, H) or in factors."""

RecurrentWeight = Gate | tuple[Gate, ...]
"""One matrix (G * H, H), its factors where G is 1, or one per gate."""


def as_gates(weight: RecurrentWeight) -> tuple[Gate, ...]:
    """Return the matrices a weight consists of (factors are a tuple, too, but one matrix).

    Example:
        >>> len(as_gates(torch.eye(2)))
        1
    """
    return (weight,) if isinstance(weight, Tensor | DiagonalLowRank) else weight


def flatten_weight(weight: RecurrentWeight) -> list[Tensor]:
    """Return every tensor of a weight, one for a dense matrix and three for factors.

    Example:
        >>> len(flatten_weight((torch.eye(2), DiagonalLowRank(torch.ones(2), torch.ones(2, 1), torch.ones(2, 1)))))
        4
    """
    return [tensor for gate in as_gates(weight) for tensor in ((gate,) if isinstance(gate, Tensor) else gate)]


def unflatten_weight(tensors: Sequence[Tensor]) -> RecurrentWeight:
    """Return the weight of which :func:`flatten_weight` gave the tensors; a vector is the diagonal that factors begin with.

    Example:
        >>> unflatten_weight([torch.ones(2), torch.ones(2, 1), torch.ones(2, 1)]).dense()
        tensor([[2., 1.],
                [1., 2.]])
    """
    gates: list[Gate] = []
    rest = iter(tensors)
    for tensor in rest:
        gates.append(tensor if tensor.dim() > 1 else DiagonalLowRank(tensor, next(rest), next(rest)))
    return gates[0] if len(gates) == 1 else tuple(gates)


def stack_gates(weight: RecurrentWeight, dtype: torch.dtype) -> Tensor:
    """Return the dense matrix of all gates, (G * H, H); factors are multiplied out before they are rounded.

    Example:
        >>> stack_gates((torch.eye(2), torch.eye(2)), torch.float32).shape
        torch.Size([4, 2])
    """
    dense = [(gate if isinstance(gate, Tensor) else gate.dense()).to(dtype) for gate in as_gates(weight)]
    return dense[0] if len(dense) == 1 else torch.cat(dense)


class Recurrence(NamedTuple):
    """One layer in one direction, ready to run: nothing here knows how the weights came to be.

    Rows are sorted by length, longest first; ``batch_sizes[t]`` of them are still running at time t, as in torch's
    packed sequences. ``reverse`` runs time backwards: a row then starts at its own last step.
    """

    cell: Cell
    input: Tensor  # (T, B, D)
    state: State  # each (B, H)
    weight_ih: Tensor  # (G * H, D)
    weight_hh: RecurrentWeight  # (G * H, H), or one per gate; factors may have more digits than the input
    bias_ih: Tensor | None = None  # (G * H,)
    bias_hh: Tensor | None = None  # (G * H,)
    theta: Tensor | None = None
    batch_sizes: Tensor | None = None  # (T,) int64 on the CPU
    reverse: bool = False
    recompute: bool = False

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """Every tensor a gradient can reach."""
        weights = flatten_weight(self.weight_hh)
        return (self.input, *self.state, self.weight_ih, *weights, self.bias_ih, self.bias_hh, self.theta)


def lengths_of(recurrence: Recurrence) -> Tensor | None:
    """Return the length of each row, shape (B,), on the CPU; None where all rows run to the end.

    Example:
        >>> from steadyrnn.cells.registry import CELLS
        >>> zero, sizes = torch.zeros(2, 1), torch.tensor([2, 1, 1])
        >>> lengths_of(Recurrence(CELLS["rnn-tanh"], torch.ones(3, 2, 1), (zero,), zero, zero, batch_sizes=sizes))
        tensor([3, 1])
    """
    sizes = recurrence.batch_sizes
    if sizes is None:
        return None
    return torch.searchsorted(-sizes.cpu(), -torch.arange(recurrence.input.shape[1]))


class Engine(ABC):
    """A way to run a recurrence.

    Laws, for every recurrence it does not refuse: outputs, final states and gradients equal the reference loop's up to
    twice its rounding error; outputs at padding are 0; a row of length 0 keeps its state; row b depends on row b only.
    """

    name: str

    @abstractmethod
    def refusal(self, recurrence: Recurrence) -> str | None:
        """Return why this engine cannot run ``recurrence``, as a clause that ends a sentence; None if it can."""

    @abstractmethod
    def run(self, recurrence: Recurrence) -> tuple[Tensor, State]:
        """Return every output, shape (T, B, H), and the final state, each of shape (B, H)."""
