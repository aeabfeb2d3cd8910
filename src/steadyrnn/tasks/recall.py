"""Recall the first number of a sequence."""

import math
from collections.abc import Iterator, Mapping
from typing import ClassVar

import torch
from torch import Tensor

from steadyrnn.checks import check_positive_int
from steadyrnn.errors import ArgumentError

from .base import Batch, Interface, Task
from .hashing import Stream, integers
from .number_encoding import coding_by_name
from .scoring import class_loss, class_scores, class_summary
from .settings import RecallSettings
from .splits import cut, split_counts, stream_rows, stream_steps

__all__ = ["Recall"]


class Recall(Task):
    r"""Recall the first number of a sequence.

    The input is N numbers, each uniform on 0, ..., M - 1; the target, asked for after the last, is the first. Everything after
    the first step is noise to be ignored. The paper embeds the numbers in 30 dimensions (``coding="token"``). A guess that
    does not look has the cross-entropy :math:`\ln M` and the accuracy 1/M.

    Training examples never repeat (the size of the paper's set is not known); an epoch is 100 batches.

    Args:
        settings: N, M, the coding and the sizes of the splits.

    Example:
        >>> from steadyrnn.tasks.settings import RecallSettings
        >>> task = Recall(RecallSettings(length=20, symbols=10))
        >>> batch = task.train_batch(0, 4)
        >>> batch.input.shape, bool((batch.target == batch.input[0]).all())
        (torch.Size([20, 4]), True)

    References:
        Lin, Wang. uRNN: An Approach to Bounded Gradients. Section 4.1, task I.
    """

    metric: ClassVar[str] = "accuracy"
    higher_is_better: ClassVar[bool] = True

    def __init__(self, settings: RecallSettings) -> None:
        super().__init__()
        check_positive_int("length", settings.length)
        if check_positive_int("symbols", settings.symbols) < 2:
            raise ArgumentError("`symbols` must be at least 2, or there is nothing to recall, but is 1.")
        self.settings = settings
        self._coding = coding_by_name(settings.coding)
        self._counts = split_counts(settings, "validation", "test")

    @property
    def interface(self) -> Interface:
        """M classes from the last step."""
        symbols = self.settings.symbols
        vocabulary = symbols if self._coding.tokens else None
        return Interface(inputs=self._coding.features(symbols), outputs=symbols, vocabulary=vocabulary)

    @property
    def baselines(self) -> Mapping[str, float]:
        """A guess that does not look."""
        return {"loss": math.log(self.settings.symbols), "accuracy": 1 / self.settings.symbols}

    def epoch_steps(self, batch_size: int) -> int:
        """Return 100: the stream has no end."""
        return stream_steps(batch_size)

    def train_batch(self, step: int, batch_size: int) -> Batch:
        """Return the next ``batch_size`` examples of the stream."""
        return self._examples(Stream.TRAIN, stream_rows(step, batch_size))

    def batches(self, split: str, batch_size: int) -> Iterator[Batch]:
        """Yield the batches of ``"validation"`` or ``"test"``."""
        return (self._examples(Stream[split.upper()], rows) for rows in cut(split, self._counts, batch_size))

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Return the mean cross-entropy."""
        return class_loss(output, batch.target)

    def scores(self, output: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Return the sums of cross-entropies and of right answers, and the number of examples."""
        return class_scores(output, batch.target)

    def summary(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Return the mean cross-entropy and the share of right answers."""
        return class_summary(sums)

    def _examples(self, stream: Stream, rows: range) -> Batch:
        index = torch.arange(rows.start, rows.stop, device=self.device)  # (B,)
        steps = torch.arange(self.settings.length, device=self.device).unsqueeze(1)  # (T, 1)
        numbers = integers(self.settings.seed, stream, index, steps, below=self.settings.symbols)  # (T, B)
        return Batch(input=self._coding.encode(numbers, self.settings.symbols), target=numbers[0].clone())
