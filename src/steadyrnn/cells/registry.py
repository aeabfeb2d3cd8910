"""From the key a custom op carries back to the cell."""

from functools import lru_cache

from steadyrnn.activations import ACTIVATIONS, Activation, activation_class, activation_from_key
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
        return _elman(activation_class(rest), rest)
    if family == "gru":
        return GRUStep(reset_after=rest == "after")
    if family == "lstm":
        return LSTMStep()
    raise ArgumentError(f"`key` names no cell: {key!r}.")


@lru_cache(256)  # asked twice in every training step; a class that is defined anew is another
def _elman(activation: type[Activation], key: str) -> RNNStep:
    return RNNStep(activation_from_key(key))
