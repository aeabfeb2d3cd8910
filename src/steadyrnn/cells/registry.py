"""From the key a custom op carries back to the cell."""

from steadyrnn.activations import ACTIVATIONS, activation_from_key
from steadyrnn.errors import ArgumentError

from .base import Cell
from .gru import GRUStep
from .lstm import LSTMStep
from .rnn import RNNStep

__all__ = ["CELLS", "cell_from_key"]

CELLS: dict[str, Cell] = {
    **{f"rnn-{name}": RNNStep(cls()) for name, cls in ACTIVATIONS.items()},
    "gru-after": GRUStep(reset_after=True),
    "gru-before": GRUStep(reset_after=False),
    "lstm": LSTMStep(),
}
"""One cell of every kind, by name: what the contract tests run over."""


def cell_from_key(key: str) -> Cell:
    """Return the cell a :attr:`Cell.key` stands for.

    Example:
        >>> cell_from_key("rnn:leaky_relu(0.5)")
        RNNStep(activation=LeakyReLU(slope=0.5))
    """
    family, _, rest = key.partition(":")
    if family == "rnn":
        return RNNStep(activation_from_key(rest))
    if family == "gru":
        return GRUStep(reset_after=rest == "after")
    if family == "lstm":
        return LSTMStep()
    raise ArgumentError(f"`key` names no cell: {key!r}.")
