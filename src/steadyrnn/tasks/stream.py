"""The half of a task that draws: examples that never repeat, each by its number."""

from abc import abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from .base import Batch, Task
from .hashing import Stream
from .settings import TaskSettings
from .splits import cut, split_counts, stream_rows, stream_steps

__all__ = ["StreamTask"]


class StreamTask(Task):
    """Training examples without end, validation and test examples as many as the settings say; an epoch is 100 batches.

    Args:
        settings: They have ``validation`` and ``test``, the sizes of these splits.
    """

    def __init__(self, settings: TaskSettings) -> None:
        super().__init__()
        self._counts = split_counts(settings, "validation", "test")

    def epoch_steps(self, batch_size: int) -> int:
        """Return 100: the stream has no end."""
        return stream_steps(batch_size)

    def train_batch(self, step: int, batch_size: int) -> Batch:
        """Return the next ``batch_size`` examples of the stream."""
        return self._at(step)._draw(Stream.TRAIN, stream_rows(step, batch_size))

    def batches(self, split: str, batch_size: int) -> Iterator[Batch]:
        """Yield the batches of ``"validation"`` or ``"test"``."""
        return (self._draw(Stream[split.upper()], rows) for rows in cut(split, self._counts, batch_size))

    def _at(self, step: int) -> "StreamTask":
        """Return the task that training batch ``step`` is of: this one, unless batches differ in length."""
        return self

    def _draw(self, stream: Stream, rows: range) -> Batch:
        return self._examples(stream, torch.arange(rows.start, rows.stop, device=self.device))

    @abstractmethod
    def _examples(self, stream: Stream, index: Tensor) -> Batch:
        """Return the examples of these numbers, shape (B,), as a pure function of the settings, the stream and them."""
