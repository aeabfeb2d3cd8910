"""What this package is to reach beyond the papers: targets, recipes, and rivals on the same data; free of torch."""

from .base import Experiment
from .target_digits import DIGITS
from .target_sequences import SEQUENCES
from .target_words import WORDS

__all__ = ["TARGETS"]

TARGETS: dict[str, Experiment] = {target.id: target for target in (*DIGITS, *SEQUENCES, *WORDS)}
"""Our own targets by name: the first word is ``ours``. A verdict is met or missed."""
