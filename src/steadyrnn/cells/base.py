"""What a cell is: one step, and the record of what others need to know of it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from torch import Tensor

from .record import CellRecord

__all__ = ["Cell", "Recur", "State"]

State = tuple[Tensor, ...]
"""The state of a cell: ``(h,)`` or ``(h, c)``, each of shape (B, H)."""

Recur = Callable[[Tensor, str], Tensor]
"""``recur(v, gates)``: the product of ``v`` (B, H) with the named rows of the recurrent weight, bias included."""


class Cell(ABC):
    """One step of a recurrent network.

    Laws: ``step`` is pure and differentiable to any order; row b of its result depends on row b of its arguments only;
    ``cell_from_key(cell.key)`` is an equal cell. To add one, give it a ``record`` and a ``step``, and call
    :func:`~steadyrnn.cells.registry.register_cell`.
    """

    record: CellRecord
    """All that others need to know of it, as a class attribute or one of the object."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickled cell, also one that was pickled when cells had no record."""
        self.__dict__.update(state)
        prepare = getattr(self, "__post_init__", None)
        if prepare is not None:
            prepare()

    @property
    def key(self) -> str:
        """A string from which ``cell_from_key`` builds an equal cell: what a custom op can carry."""
        return self.record.key

    @property
    def gates(self) -> str:
        """One letter per gate, in the order in which torch stacks them."""
        return self.record.gates

    @property
    def candidate(self) -> str:
        """The gate that a single constraint is put on."""
        return self.record.candidate

    @property
    def states(self) -> int:
        """How many tensors its state consists of."""
        return len(self.record.state_names)

    @abstractmethod
    def step(self, gates_x: Tensor, state: State, recur: Recur, theta: Tensor | None) -> State:
        """Return the next state.

        Args:
            gates_x: Input part of every gate, bias included, shape (B, G * H).
            state: The state before, each of shape (B, H).
            recur: The engine's product with rows of the recurrent weight.
            theta: Learned parameter of the activation, or None.
        """
