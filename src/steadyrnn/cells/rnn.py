"""The Elman step."""

from dataclasses import dataclass

from torch import Tensor

from steadyrnn.activations import Activation

from .base import Cell, Recur, State

__all__ = ["RNNStep"]


@dataclass(frozen=True)
class RNNStep(Cell):
    r"""One step :math:`h_t = \varphi(W h_{t-1} + U x_t + b)`.

    Example:
        >>> from steadyrnn.activations import ReLU
        >>> RNNStep(ReLU()).step(torch.ones(1, 2), (torch.ones(1, 2),), lambda v, gates: -2 * v, None)
        (tensor([[0., 0.]]),)
    """

    activation: Activation
    gates = "h"
    candidate = "h"
    states = 1

    @property
    def key(self) -> str:
        """The activation's key behind the family's name."""
        return f"rnn:{self.activation.key}"

    def step(self, gates_x: Tensor, state: State, recur: Recur, theta: Tensor | None) -> State:
        """Return the next state; shapes as in :class:`~steadyrnn.cells.base.Cell`."""
        return (self.activation.value(gates_x + recur(state[0], "h"), theta),)
