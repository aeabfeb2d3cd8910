"""What a cell is: the names of its gates and one step."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from torch import Tensor

__all__ = ["Cell", "Recur", "State"]

State = tuple[Tensor, ...]
"""The state of a cell: ``(h,)`` or ``(h, c)``, each of shape (B, H)."""

Recur = Callable[[Tensor, str], Tensor]
"""``recur(v, gates)``: the product of ``v`` (B, H) with the named rows of the recurrent weight, bias included."""


class Cell(ABC):
    """One step of a recurrent network.

    Laws: ``step`` is pure and differentiable to any order; row b of its result depends on row b of its arguments only;
    ``cell_from_key(cell.key)`` is an equal cell.
    """

    gates: ClassVar[str]
    """One letter a gate, in the order in which torch stacks them in a weight of G * H rows."""
    candidate: ClassVar[str]
    """The gate that a single constraint is put on."""
    states: ClassVar[int]

    @property
    @abstractmethod
    def key(self) -> str:
        """A string from which ``cell_from_key`` builds an equal cell: what a custom op can carry."""

    @abstractmethod
    def step(self, gates_x: Tensor, state: State, recur: Recur, theta: Tensor | None) -> State:
        """Return the next state.

        Args:
            gates_x: Input part of every gate, bias included, shape (B, G * H).
            state: The state before, each of shape (B, H).
            recur: The engine's product with rows of the recurrent weight.
            theta: Learned parameter of the activation, or None.
        """
