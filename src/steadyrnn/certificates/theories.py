"""What is proven, by the kind of step that a cell's record names: ``CellRecord.theorem``."""

from .elman import ElmanTheory
from .gated import GRUTheory, LSTMTheory
from .layer import Theory

__all__ = ["THEORIES"]

THEORIES: dict[str | None, Theory] = {"elman": ElmanTheory(), "gru": GRUTheory(), "lstm": LSTMTheory()}
"""A cell whose theorem is not listed has no certificate."""
