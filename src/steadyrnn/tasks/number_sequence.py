"""What tasks on a sequence of random numbers share."""

from abc import abstractmethod

import torch
from torch import Tensor

from .base import Batch, Interface
from .hashing import Stream, integers
from .number_encoding import encoding_by_name
from .scoring import ClassificationTask
from .settings import TaskSettings
from .stream import StreamTask

__all__ = ["NumberTask"]


class NumberTask(StreamTask, ClassificationTask):
    """Read numbers, each uniform on 0, ..., M - 1, and answer with one of them after the last.

    Training examples never repeat (the size of the paper's set is not known); an epoch is 100 batches.

    Args:
        settings: They have the sizes of the splits.
        length: Numbers in a sequence.
        count: M.
        coding: The name of their encoding.
    """

    def __init__(self, settings: TaskSettings, length: int, count: int, coding: str) -> None:
        super().__init__(settings)
        self._seed, self._length, self._count = settings.seed, length, count
        self._encoding = encoding_by_name(coding)

    @property
    def interface(self) -> Interface:
        """M classes from the last step."""
        return self._encoding.interface(self._count)

    def _examples(self, stream: Stream, index: Tensor) -> Batch:
        steps = torch.arange(self._length, device=self.device).unsqueeze(1)  # (T, 1)
        numbers = integers(self._seed, stream, index, steps, below=self._count)  # (T, B)
        return Batch(input=self._encoding.encode(numbers, self._count), target=self._answer(numbers).clone())

    @abstractmethod
    def _answer(self, numbers: Tensor) -> Tensor:
        """Return the number to be found, shape (B,), of each column of numbers, shape (T, B)."""
