"""A user's own series as a task: what the settings say, read, split, filled, scaled and cut into batches."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from steadyrnn.errors import ArgumentError, not_among

from ..base import Batch, Interface, StoredData, Task
from ..splits import EpochOrder, check_step, cut
from .examples import Examples, cut_examples
from .prepared import Prepared, prepare
from .read import read_series, read_test_series
from .records import SeriesSet
from .references import score_constant, score_references
from .scores import (
    class_scores,
    class_summary,
    class_weight,
    number_loss,
    number_scores,
    number_summary,
    number_weight,
    weighted_class_loss,
    weighted_class_scores,
)
from .settings import SeriesSettings
from .split import PARTS
from .storing import restore, store
from .stream import StreamPart
from .time_sharing import check_time_can_be_shared

__all__ = [
    *("BalancedClassification", "SeriesClassification", "SeriesNumbers", "SeriesTask", "WeightedClassification"),
    *("make_series_task", "restore_series_task", "task_from", "task_of"),
]


def make_series_task(settings: SeriesSettings) -> "SeriesTask":
    """Return the task of a file.

    Args:
        settings: Which file, what is to be predicted, and how it is read.
    """
    if not settings.data:
        raise ArgumentError("`data` must name a file or folder of series, but is empty.")
    test = None if settings.test_data is None else read_test_series(settings)
    return task_of(read_series(settings), settings, test)


def task_of(series: SeriesSet, settings: SeriesSettings, test: SeriesSet | None = None) -> "SeriesTask":
    """Return the task of some series.

    Args:
        series: As they were read, or made.
        settings: What is to be predicted, and how series are read; ``data`` is not used.
        test: Test series; None holds some out.
    """
    return task_from(prepare(series, settings, test))


def task_from(prepared: Prepared) -> "SeriesTask":
    """Return the task of series that are split and scaled.

    Args:
        prepared: The series, and what is asked of them.
    """
    if prepared.problem.kind != "classification":
        return SeriesNumbers(prepared)
    if prepared.class_weights is not None:
        return WeightedClassification(prepared)
    return (BalancedClassification if prepared.settings.weights == "balanced" else SeriesClassification)(prepared)


def restore_series_task(data: StoredData) -> "SeriesTask":
    """Return the task that :meth:`SeriesTask.stored` was called on; what came from a file is checked."""
    return task_from(restore(data))


class SeriesTask(Task):
    """What classes and numbers share: parts, examples or rows of a stream, and batches.

    Args:
        prepared: The series, split and scaled.
    """

    def __init__(self, prepared: Prepared) -> None:
        super().__init__()
        self.prepared, self.problem, self.flat = prepared, prepared.problem, prepared.flat
        self.streams: dict[str, StreamPart] = {}
        self.examples: dict[str, Examples] = {}
        if self.problem.bptt is None:
            self.examples = {part: cut_examples(prepared.parts[part], self.problem, part) for part in PARTS}
            self.order = EpochOrder(prepared.settings.seed, len(self.examples["train"]))
        else:
            self._open_streams()
        if self.ranks_share == "time":
            check_time_can_be_shared(self.problem, self.examples)
        self._constant: dict[str, float] | None = None
        self._references: dict[str, dict[str, float]] | None = None

    @property
    def interface(self) -> Interface:
        """Channels in, those of several steps side by side where they are read at once; classes or numbers out."""
        problem = self.problem
        inputs = self.flat.padded.shape[1] * problem.patch
        reads = "each" if problem.each else "last"
        return Interface(inputs, len(problem.outputs), reads=reads, carries_state=problem.bptt is not None)

    @property
    def ranks_share(self) -> str:
        """The steps of a batch, if the settings say so."""
        return "time" if self.prepared.settings.parallel == "ranks" else "rows"

    @property
    def baselines(self) -> Mapping[str, float]:
        """Test scores of the constant answer that is best in training; computed once."""
        if self._constant is None:
            self._constant = score_constant(self, self.problem)
        return self._constant

    def references(self) -> Mapping[str, Mapping[str, float]]:
        """Return the test scores of simple methods by name; computed once."""
        if self._references is None:
            lengths = [examples.length for examples in self.examples.values()]
            even = bool(lengths) and len(torch.cat(lengths).unique()) == 1
            self._references = score_references(self, self.problem, self._columns, even)
        return self._references

    @property
    def _columns(self) -> list[int]:
        return self.prepared.columns if self.problem.kind == "forecasting" else []

    def data_facts(self) -> Mapping[str, Any]:
        """Return what is noted of the data: files, parts, and how a series is prepared for the network."""
        return self.prepared.facts()

    def epoch_steps(self, batch_size: int) -> int:
        """Return how many batches go through the training part."""
        return self.streams["train"].batches(batch_size) if self.streams else self.order.steps(batch_size)

    def train_batch(self, step: int, batch_size: int) -> Batch:
        """Return training batch number ``step``."""
        if self.streams:
            stream = self.streams["train"]
            return stream.batch(check_step(step) % stream.batches(batch_size), batch_size)
        return self.examples["train"].batch(self.flat, self.problem, self.order.rows(step, batch_size))

    def batches(self, split: str, batch_size: int) -> Iterator[Batch]:
        """Yield the batches of a part in order."""
        if split not in PARTS:
            raise ArgumentError(not_among("split", split, PARTS))
        if self.streams:
            stream = self.streams[split]
            return (stream.batch(number, 1) for number in range(stream.batches(1)))
        examples = self.examples[split]
        ranges = cut(split, {split: len(examples)}, batch_size)
        return (examples.batch(self.flat, self.problem, slice(rows.start, rows.stop)) for rows in ranges)

    def stored(self) -> StoredData:
        """Return the series and what is asked of them."""
        return store(self.prepared)

    def to(self, device: torch.device | str) -> "SeriesTask":
        """Move the series; return the task itself."""
        super().to(device)
        self.flat = self.flat.to(self.device)
        if self.streams:
            self._open_streams()
        return self

    def _open_streams(self) -> None:
        self.streams = {part: StreamPart(self.flat, self.prepared.parts[part], self.problem, part) for part in PARTS}


class SeriesClassification(SeriesTask):
    """Classes of series or steps, by cross-entropy and accuracy."""

    metric = "accuracy"
    higher_is_better = True
    shares: Tensor | None = None
    """What the loss of each class is multiplied by."""

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Return the mean cross-entropy."""
        return weighted_class_loss(output, batch.target, self.shares)

    def batch_weight(self, batch: Batch) -> Tensor:
        """Return the number of classes that count, or the sum of their weights."""
        return class_weight(batch.target, self.shares)

    def scores(self, output: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Return sums over the batch."""
        return class_scores(output, batch.target)

    def summary(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Return loss, accuracy and balanced accuracy."""
        return class_summary(sums)

    def to(self, device: torch.device | str) -> "SeriesClassification":
        """Move the series and what classes weigh; return the task itself."""
        super().to(device)
        if self.shares is not None:
            self.shares = self.shares.to(self.device)
        return self


class BalancedClassification(SeriesClassification):
    """Classes that count alike, however often they come: by weighted cross-entropy and balanced accuracy."""

    metric = "balanced_accuracy"

    def __init__(self, prepared: Prepared) -> None:
        super().__init__(prepared)
        target = torch.cat([batch.target.flatten() for batch in self.batches("train", 256)])
        counts = torch.bincount(target[target >= 0], minlength=len(self.problem.outputs)).float()
        self.shares = counts.sum() / (counts.clamp(min=1) * len(counts))


class WeightedClassification(SeriesClassification):
    """Classes that count as they are given to, by the weighted cross-entropy, which also chooses the best weights."""

    metric = "loss"
    higher_is_better = False

    def __init__(self, prepared: Prepared) -> None:
        super().__init__(prepared)
        self.shares = torch.tensor(prepared.class_weights)

    def scores(self, output: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Return sums over the batch, those of the weighted cross-entropy among them."""
        weights = {} if self.shares is None else weighted_class_scores(output, batch.target, self.shares)
        return {**class_scores(output, batch.target), **weights}

    def summary(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Return the weighted loss, accuracy and balanced accuracy."""
        return {**class_summary(sums), "loss": sums["weighted"] / (sums["weight"] or 1.0)}


class SeriesNumbers(SeriesTask):
    """Numbers of series, of steps or of the future, by the mean squared error of scaled numbers."""

    metric = "loss"
    higher_is_better = False

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Return the mean squared error of scaled numbers."""
        return number_loss(output, batch.target)

    def batch_weight(self, batch: Batch) -> Tensor:
        """Return how many numbers count."""
        return number_weight(batch.target)

    def scores(self, output: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Return sums over the batch."""
        return number_scores(output, batch.target)

    def summary(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Return the loss, and errors in the units of the file."""
        problem, scaling = self.problem, self.prepared.target_scaling
        columns = len(scaling.mean)
        names = [name.rpartition("+")[0] or name for name in problem.outputs] if problem.horizon > 1 else [*problem.outputs]
        return number_summary(sums, scaling, names[:columns], columns)
