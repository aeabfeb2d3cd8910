"""A user's own tensors as a task: sequences or rows with a class or with numbers to predict."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from steadyrnn.checks import check_finite
from steadyrnn.errors import ArgumentError, ArgumentTypeError, DtypeError, ShapeError

from .base import Batch, Interface, Task
from .guessing import class_guess
from .scoring import class_loss, class_scores, class_summary, square_loss, square_scores, square_summary
from .splits import EpochOrder, cut

__all__ = ["Part", "TensorClassification", "TensorRegression"]


@dataclass(frozen=True)
class Part:
    """Some examples.

    Args:
        input: Sequences (T, N, D), time first, or rows without time (N, D), in floating point and finite.
        target: Of N examples: classes (N,), or numbers (N, C); of every step (T, N) and (T, N, C).
        lengths: Of N sequences, each from 0 to T, where they are not all T; only where the last step is read.
    """

    input: Tensor
    target: Tensor
    lengths: Tensor | None = None

    @property
    def count(self) -> int:
        """N."""
        return self.input.shape[-2]

    def take(self, rows: Tensor, each: bool) -> Batch:
        """Return some of the examples; ``each`` says that every step has a target."""
        along = self.input.dim() - 2
        lengths = None if self.lengths is None else self.lengths[rows.to(self.lengths.device)]
        return Batch(self.input.index_select(along, rows), self.target.index_select(int(each), rows), lengths)

    def to(self, device: torch.device) -> "Part":
        """Return the same examples on a device; lengths stay where they are."""
        return Part(self.input.to(device), self.target.to(device), self.lengths)


class TensorTask(Task):
    """What the two kinds share: the splits, and the order of training examples, which is a new one each epoch."""

    higher_is_better = False
    dimensions: ClassVar[int]  # of the target of sequences that have one each

    def __init__(self, train: Part, validation: Part, test: Part | None = None, seed: int = 0) -> None:
        super().__init__()
        self.parts = {"train": train, "validation": validation, "test": validation if test is None else test}
        for name, part in self.parts.items():
            self._check_part(name, part)
            self._check_target(name, part.target)
        self.order = EpochOrder(seed, train.count)

    def _check_part(self, name: str, part: Part) -> None:
        """Refuse examples whose shapes do not fit each other, or those to train on."""
        if not isinstance(part, Part):
            raise ArgumentTypeError(f"`{name}` must be a Part(input, target), but is of type {type(part).__name__}.")
        x, target, train = part.input, part.target, self.parts["train"].input
        if x.dim() not in (2, 3) or not x.is_floating_point():
            raise ShapeError(
                f"`{name}.input` must hold floating-point numbers of shape (T, N, D) or (N, D), "
                f"but has shape {tuple(x.shape)} and dtype {x.dtype}."
            )
        if x.dim() != train.dim() or x.shape[-1] != train.shape[-1]:
            raise ShapeError(
                f"`{name}.input` must be as that of `train`, {tuple(train.shape)}, but for T and N; it is {tuple(x.shape)}."
            )
        each = self.reads == "each"
        wanted = tuple(x.shape[:2]) if each else (part.count,)
        if part.count == 0 or target.dim() != self.dimensions + each or tuple(target.shape[: len(wanted)]) != wanted:
            raise ShapeError(
                f"`{name}.target` must have an entry for each of the examples, or as `train` has it for each step of each, "
                f"but has shape {tuple(target.shape)} for an input of shape {tuple(x.shape)}."
            )
        if part.lengths is not None and (self.reads != "last" or part.lengths.shape != (part.count,)):
            raise ShapeError(f"`{name}.lengths` must have shape ({part.count},), for sequences with one target each.")
        check_finite(f"{name}.input", x)

    @abstractmethod
    def _check_target(self, name: str, target: Tensor) -> None:
        """Refuse a target of the wrong kind."""

    @property
    def reads(self) -> str:
        """``"row"``, ``"last"`` or ``"each"``, as the shapes say."""
        train = self.parts["train"]
        if train.input.dim() == 2:
            return "row"
        return "each" if train.target.dim() > self.dimensions else "last"

    def epoch_steps(self, batch_size: int) -> int:
        """Return how many batches it takes to see every training example."""
        return self.order.steps(batch_size)

    def train_batch(self, step: int, batch_size: int) -> Batch:
        """Return training batch number ``step``."""
        return self.parts["train"].take(self.order.rows(step, batch_size, self.device), self.reads == "each")

    def batches(self, split: str, batch_size: int) -> Iterator[Batch]:
        """Yield the examples of a split in order."""
        counts = {name: part.count for name, part in self.parts.items()}
        ranges, each = cut(split, counts, batch_size), self.reads == "each"
        return (self.parts[split].take(torch.arange(rows.start, rows.stop, device=self.device), each) for rows in ranges)

    def to(self, device: torch.device | str) -> "TensorTask":
        """Move the examples."""
        super().to(device)
        self.parts = {name: part.to(self.device) for name, part in self.parts.items()}
        return self


class TensorClassification(TensorTask):
    """Name the class of each of your sequences, of each of their steps, or of rows without time.

    Args:
        train: Examples to train on.
        validation: Examples to choose by.
        test: Examples to test on, once, in the end; None takes the validation examples again.
        classes: How many there are; None is one more than the largest in ``train``.
        seed: Numbers the order of training examples.

    Example:
        >>> part = Part(torch.randn(30, 8, 2), torch.tensor([0, 1] * 4))
        >>> task = TensorClassification(part, part)
        >>> task.interface
        Interface(inputs=2, outputs=2, vocabulary=None, reads='last', carries_state=False)
    """

    metric = "accuracy"
    higher_is_better = True
    dimensions = 1

    def __init__(
        self, train: Part, validation: Part, test: Part | None = None, classes: int | None = None, seed: int = 0
    ) -> None:
        self.classes = classes
        if classes is None and isinstance(train.target, Tensor) and train.target.numel():
            self.classes = int(train.target.max()) + 1
        super().__init__(train, validation, test, seed)

    def _check_target(self, name: str, target: Tensor) -> None:
        if target.dtype != torch.int64:
            raise DtypeError(f"`{name}.target` must hold classes as int64, but has dtype {target.dtype}.")
        low, high = (int(edge) for edge in target.aminmax())
        if self.classes is None or low < 0 or high >= self.classes:
            raise ArgumentError(f"`{name}.target` must lie from 0 to {(self.classes or 0) - 1}, but holds {low} to {high}.")

    @property
    def interface(self) -> Interface:
        """Your features in, a logit for each class out."""
        return Interface(self.parts["train"].input.shape[-1], self.classes or 0, reads=self.reads)

    @property
    def baselines(self) -> Mapping[str, float]:
        """Entropy of the test labels, share of the commonest."""
        return class_guess(self.parts["test"].target)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Return the mean cross-entropy."""
        return class_loss(output, batch.target)

    def scores(self, output: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Return sums of cross-entropy, right answers, examples."""
        return class_scores(output, batch.target)

    def summary(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Return loss and accuracy."""
        return class_summary(sums)


class TensorRegression(TensorTask):
    """Predict numbers from your sequences, at each of their steps or behind the last, or from rows without time.

    Args:
        train: Examples to train on.
        validation: Examples to choose by.
        test: Examples to test on, once, in the end; None takes the validation examples again.
        seed: Numbers the order of training examples.

    Example:
        >>> x = torch.randn(30, 8, 2)
        >>> task = TensorRegression(Part(x, x.sum(0)), Part(x, x.sum(0)))
        >>> task.interface.outputs, task.reads
        (2, 'last')
    """

    metric = "loss"
    dimensions = 2

    def _check_target(self, name: str, target: Tensor) -> None:
        wanted = self.parts["train"].target
        if not target.is_floating_point() or target.shape[-1] != wanted.shape[-1]:
            raise ShapeError(
                f"`{name}.target` must hold floating-point numbers of shape (N, C) or (T, N, C), C the same in every part, "
                f"but has shape {tuple(target.shape)} and dtype {target.dtype}."
            )
        check_finite(f"{name}.target", target)

    @property
    def interface(self) -> Interface:
        """Your features in, your numbers out."""
        train = self.parts["train"]
        return Interface(train.input.shape[-1], train.target.shape[-1], reads=self.reads)

    @property
    def baselines(self) -> Mapping[str, float]:
        """The variance of the test targets about their own mean."""
        target = self.parts["test"].target.double().flatten(0, -2)
        return {"loss": float((target - target.mean(0)).square().mean())}

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Return the mean squared error."""
        return square_loss(output, batch.target)

    def scores(self, output: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Return the sum of squared errors and their number."""
        return square_scores(output, batch.target)

    def summary(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Return the mean squared error."""
        return square_summary(sums)
