"""What each cell asks of the loop: its functions by name, and how many vectors a row it keeps where."""

from dataclasses import dataclass

from steadyrnn.activations import Absolute, Activation, Identity, LeakyReLU, ModReLU, ReLU, Sigmoid, Tanh
from steadyrnn.cells.base import Cell
from steadyrnn.cells.gru import GRUStep
from steadyrnn.cells.lstm import LSTMStep
from steadyrnn.cells.rnn import RNNStep

__all__ = ["Form", "form_of"]

_VALUES: dict[type[Activation], str] = {
    Absolute: "absolute",
    Identity: "identity",
    LeakyReLU: "leaky_relu",
    ReLU: "relu",
    Sigmoid: "sigmoid",
    Tanh: "tanh",
}


@dataclass(frozen=True)
class Form:
    """One cell in the loop; counts are of vectors a row (and time, where kept)."""

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
    """Vectors a unit hands to itself, forwards and backwards."""
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
    "gru:after": Form("gru_after", 3, 3, 4, (1, 3), (1, 1), 4, 3),
    "gru:before": Form("gru_before", 3, 3, 4, (2, 3), (1, 2), 3, 2),
    "lstm": Form("lstm", 4, 4, 5, (1, 4), (1, 2), 4, 4),
}


def form_of(cell: Cell) -> Form | None:
    """Return the form of a cell, or None if the kernels have none for it.

    Example:
        >>> form_of(RNNStep(Tanh())).value, form_of(LSTMStep()).kept
        ('tanh', 5)
    """
    if type(cell) in (GRUStep, LSTMStep):
        return _GATED[cell.key]
    if not isinstance(cell, RNNStep):
        return None
    activation = cell.activation
    if type(activation) is ModReLU:
        return Form("modrelu", 2, 1, 1, (1, 1), (0, 2), 1, 1)
    if type(activation) not in _VALUES:
        return None
    slope = activation.slope if isinstance(activation, LeakyReLU) else 0.0
    kept = 0 if activation.from_output else 1
    return Form("rnn", 1, 1, kept, (1, 1), (0, 1), 1, 1, _VALUES[type(activation)], slope)
