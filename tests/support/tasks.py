"""Tasks around another one, for tests that change a part of it."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from torch import Tensor

from steadyrnn.tasks.base import Batch, Interface, Task


class WrappedTask(Task):
    """What another task is, but of a class of its own, and not stored."""

    higher_is_better = False

    def __init__(self, inner: Task) -> None:
        super().__init__()
        self.inner, self.metric = inner, inner.metric  # type: ignore[misc]

    @property
    def interface(self) -> Interface:
        return self.inner.interface

    @property
    def baselines(self) -> Mapping[str, float]:
        return {}

    def epoch_steps(self, batch_size: int) -> int:
        return self.inner.epoch_steps(batch_size)

    def train_batch(self, step: int, batch_size: int) -> Batch:
        return self.inner.train_batch(step, batch_size)

    def batches(self, split: str, batch_size: int) -> Iterator[Batch]:
        return self.inner.batches(split, batch_size)

    def batch_weight(self, batch: Batch) -> Tensor | float:
        return self.inner.batch_weight(batch)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        return self.inner.loss(output, batch)

    def scores(self, output: Tensor, batch: Batch) -> dict[str, Tensor]:
        return self.inner.scores(output, batch)

    def summary(self, sums: Mapping[str, float]) -> dict[str, float]:
        return self.inner.summary(sums)


class WideTask(WrappedTask):
    """The same task with numbers in float64."""

    def train_batch(self, step: int, batch_size: int) -> Batch:
        return self._wide(self.inner.train_batch(step, batch_size))

    def batches(self, split: str, batch_size: int) -> Iterator[Batch]:
        return map(self._wide, self.inner.batches(split, batch_size))

    @staticmethod
    def _wide(batch: Batch) -> Batch:
        input, target = (part.double() if part.is_floating_point() else part for part in (batch.input, batch.target))
        return replace(batch, input=input, target=target)
