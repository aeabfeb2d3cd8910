"""Stored examples, their splits, and the half of a task that reads them."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from steadyrnn.errors import ArgumentError, ArgumentTypeError, DataError

from .base import Batch, Task
from .hashing import Stream, permutation
from .splits import EpochOrder, cut

__all__ = ["Examples", "Splits", "StoredTask", "as_float32", "count_held_out"]


@dataclass(frozen=True)
class Examples:
    """Rows of features and their targets, (N, F) and (N,) or (N, C), of any dtype."""

    features: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.features)

    def take(self, rows: Tensor | slice) -> "Examples":
        """Return some of the rows."""
        return Examples(self.features[rows], self.targets[rows])

    def to(self, device: torch.device) -> "Examples":
        """Return the same rows on a device."""
        return Examples(self.features.to(device), self.targets.to(device))


def as_float32(numbers: Tensor, where: Path) -> Tensor:
    """Return the finite numbers of a file as float32, if none of them is too large for it.

    Example:
        >>> as_float32(torch.tensor([0.5], dtype=torch.float64), Path("a.txt"))
        tensor([0.5000])
    """
    narrow = numbers.to(torch.float32)
    if not bool(narrow.isfinite().all()):
        raise DataError(f"{where} must hold numbers that float32 can, up to 3.4e38, but has a larger one. Obtain it again.")
    return narrow


class Splits:
    """Training, validation and test examples.

    Validation examples are drawn from the training ones by hashing the seed; each example is in one split. Training goes
    through its examples in a new order every epoch (:class:`~steadyrnn.tasks.splits.EpochOrder`).

    Args:
        train: Examples to train on, of which some become validation.
        test: Examples to test on.
        validation: How many of the former to hold out.
        seed: Draws the split and the orders.
    """

    def __init__(self, train: Examples, test: Examples, validation: int, seed: int) -> None:
        drawn = permutation(seed, Stream.SYSTEM, len(train))
        held, kept = drawn[:validation].sort().values, drawn[validation:].sort().values
        self.parts = {"train": train.take(kept), "validation": train.take(held), "test": test}
        self.seed, self.order = seed, EpochOrder(seed, len(kept))

    def keep_all(self, train: Examples) -> None:
        """Train on all of ``train``, and score the same examples in the place of the validation split."""
        self.parts = {**self.parts, "train": train, "validation": train}
        self.order = EpochOrder(self.seed, len(train))

    def train_examples(self, step: int, batch_size: int) -> Examples:
        """Return the training examples of batch ``step``."""
        train = self.parts["train"]
        return train.take(self.order.rows(step, batch_size, train.features.device))

    def batches(self, split: str, batch_size: int) -> Iterator[Examples]:
        """Yield the examples of a split in order, ``batch_size`` at a time."""
        counts = {name: len(part) for name, part in self.parts.items()}
        ranges = cut(split, counts, batch_size)
        return (self.parts[split].take(slice(rows.start, rows.stop)) for rows in ranges)

    def to(self, device: torch.device) -> None:
        """Move every split."""
        self.parts = {name: part.to(device) for name, part in self.parts.items()}


class StoredTask(Task):
    """The half of a task that reads: examples of three splits, which a final class makes into batches."""

    splits: Splits

    def epoch_steps(self, batch_size: int) -> int:
        """Return how many batches it takes to see every training example."""
        return self.splits.order.steps(batch_size)

    def train_batch(self, step: int, batch_size: int) -> Batch:
        """Return training batch number ``step``."""
        return self._batch(self.splits.train_examples(step, batch_size))

    def batches(self, split: str, batch_size: int) -> Iterator[Batch]:
        """Yield the examples of a split in order."""
        return map(self._batch, self.splits.batches(split, batch_size))

    def to(self, device: torch.device | str) -> "StoredTask":
        """Move the examples; return the task itself."""
        super().to(device)
        self.splits.to(self.device)
        return self

    @abstractmethod
    def _batch(self, examples: Examples) -> Batch:
        """Return some examples as the model and the loss take them."""


def count_held_out(validation: float, rows: int) -> int:
    """Return how many of ``rows`` training examples to hold out: a number of them, or (a float) a fraction, at least one.

    Example:
        >>> count_held_out(0.2, 23), count_held_out(5000, 60000)
        (5, 5000)
    """
    if isinstance(validation, bool) or not isinstance(validation, int | float):
        raise ArgumentTypeError(f"`validation` must be a number, but is of type {type(validation).__name__}.")
    if isinstance(validation, float) and 0 < validation < 1:
        return min(max(1, round(validation * rows)), rows - 1)
    if isinstance(validation, int) and 0 < validation < rows:
        return validation
    wanted = "between 0 and 1, the fraction" if isinstance(validation, float) else f"from 1 to {rows - 1}, the number"
    raise ArgumentError(f"`validation` must be {wanted} of the {rows} training examples to hold out, but is {validation}.")
