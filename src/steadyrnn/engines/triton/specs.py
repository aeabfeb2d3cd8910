"""What each cell asks of the loop: its functions by name, and how many vectors per row it keeps where."""

from dataclasses import dataclass

from steadyrnn.cells.base import Cell

__all__ = ["CellSpec", "spec_of"]


@dataclass(frozen=True)
class CellSpec:
    """One cell in the loop; counts are of vectors per row (and time, where kept)."""

    step: str
    """Name of the step in ``kernels.FUNCTIONS``."""
    gates: int
    """G: blocks of P rows in the weight (modReLU's pairs are two halves of one matrix)."""
    size: int
    """Vectors of length H among the gates."""
    kept: int
    """Of the stash: gates first, then what else the adjoint needs; 0 if it reads the output only."""
    shared: tuple[int, int]
    """Vectors exchanged between the units, forwards and backwards."""
    carried: tuple[int, int]
    """How many vectors each unit passes to its own next step, forward and backward."""
    adjoints: int
    """Vectors of the gates' gradient."""
    pulled: int
    """How many of the exchanged adjoints, times that many rows of the weight, are left to add to the initial state's."""
    value: str = "identity"
    """Name of the activation in ``kernels.FUNCTIONS``."""
    slope: float = 0.0

    def gate(self, hidden: int) -> int:
        """Return P, the units of a gate."""
        return hidden * self.size // self.gates


_GATED = {
    "gru_after": CellSpec("gru_after", 3, 3, 4, (1, 3), (1, 1), 4, 3),
    "gru_before": CellSpec("gru_before", 3, 3, 4, (2, 3), (1, 2), 3, 2),
    "lstm": CellSpec("lstm", 4, 4, 5, (1, 4), (1, 2), 4, 4),
}
"""By the kernel's name in a cell's record."""
_MODRELU = CellSpec("modrelu", 2, 1, 1, (1, 1), (0, 2), 1, 1)


def spec_of(cell: Cell) -> CellSpec | None:
    """Return what a cell asks of the loop, or None if there is no kernel for it.

    Example:
        >>> from steadyrnn.cells.registry import CELLS
        >>> spec_of(CELLS["rnn-tanh"]).value, spec_of(CELLS["lstm"]).kept
        ('tanh', 5)
    """
    kernel, activation = cell.record.kernel, cell.record.activation
    if kernel != "elman":
        return None if kernel is None else _GATED.get(kernel)
    if activation is None or activation.kernel is None:
        return None
    if activation.kernel == "modrelu":
        return _MODRELU
    kept = 0 if activation.from_output else 1
    return CellSpec("rnn", 1, 1, kept, (1, 1), (0, 1), 1, 1, activation.kernel, activation.kernel_argument)
