"""The arguments and results of one op call, as the loops behind the ops see them."""

from abc import ABC, abstractmethod
from typing import NamedTuple

from torch import Tensor

from steadyrnn.cells.base import Cell

__all__ = ["Call", "Forward", "Gradients", "Kernel"]


class Call(NamedTuple):
    """The arguments of one op call, ``sizes`` read into Python numbers.

    A group of R independent networks has R in front of every shape, in that of the input behind the time.
    """

    input: Tensor  # (T, B, D)
    state: list[Tensor]  # each (B, H)
    weight_ih: Tensor  # (G * H, D)
    recurrent: list[Tensor]  # [W] of shape (G * H, H), or the tensors of one matrix per gate, see `unflatten_weight`
    bias_ih: Tensor | None
    bias_hh: Tensor | None
    theta: Tensor | None
    sizes: list[int] | None
    reverse: bool

    @property
    def times(self) -> range:
        """The times in the order in which they are run."""
        steps = self.input.shape[0]
        return range(steps - 1, -1, -1) if self.reverse else range(steps)


class Forward(NamedTuple):
    """What a forward run gives: outputs, final state, and what its adjoint will want."""

    output: Tensor  # (T, B, H)
    state: list[Tensor]  # each (B, H)
    stash: Tensor


class Gradients(NamedTuple):
    """Gradients of a call's tensors; None where not requested."""

    input: Tensor | None
    state: list[Tensor]
    weight_ih: Tensor | None
    recurrent: list[Tensor]
    bias_ih: Tensor | None
    bias_hh: Tensor | None
    theta: Tensor | None


class Kernel(ABC):
    """What stands behind the ops of an engine: a run, its adjoint, and the shape of what goes between them."""

    @abstractmethod
    def forward(self, call: Call, cell: Cell, recompute: bool, keep: bool) -> Forward:
        """Run ``call``; with ``keep`` the stash holds what :meth:`backward` needs."""

    @abstractmethod
    def backward(
        self, call: Call, cell: Cell, recompute: bool, done: Forward, grad_output: Tensor | None,
        grad_state: list[Tensor | None], needs_input: bool,
    ) -> Gradients:  # fmt: skip
        """Run the adjoint; ``done`` has no output or state where ``recompute`` is set."""

    @abstractmethod
    def stash_like(self, call: Call, cell: Cell, recompute: bool) -> Tensor:
        """Return an empty tensor of the stash's shape and dtype, for tracing."""
