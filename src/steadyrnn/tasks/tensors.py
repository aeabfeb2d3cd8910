"""A user's own tensors as a task: sequences or rows with a class or with numbers to predict."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from steadyrnn.checks import check_count, check_finite, check_positive_int
from steadyrnn.errors import ArgumentError, ArgumentTypeError, DtypeError, ShapeError

from .base import Batch, Interface, StoredData, Task
from .constant_baseline import class_baseline
from .scoring import ClassificationTask, RegressionTask
from .splits import EpochOrder, cut

__all__ = ["Part", "TensorClassification", "TensorRegression"]

_PARTS, _TENSORS = ("train", "validation", "test"), ("input", "target", "lengths")


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

    kind: ClassVar[str]  # how it is called where it is stored
    options: ClassVar[tuple[str, ...]] = ()  # arguments beside the examples and the seed
    dimensions: ClassVar[int]  # of the target of sequences that have one each

    def _take(self, train: Part, validation: Part | None, test: Part | None, seed: int) -> None:
        """Check the examples and keep them."""
        if validation is None:
            raise ArgumentTypeError(
                "`validation` must be a Part(input, target), the examples by which the best weights are chosen, but is None. "
                "Hold some of the training examples out for it."
            )
        given = {"train": train, "validation": validation, "test": validation if test is None else test}
        for name, part in given.items():
            _check_tensors(name, part)
        self.parts = given
        for name, part in given.items():
            self._check_part(name, part)
            self._check_target(name, part.target)
        self.order = EpochOrder(check_count("seed", seed), train.count)

    def _check_part(self, name: str, part: Part) -> None:
        """Refuse examples whose shapes do not fit each other, or those to train on."""
        x, target, train = part.input, part.target, self.parts["train"].input
        if x.dim() not in (2, 3) or not x.is_floating_point():
            raise ShapeError(
                f"`{name}.input` must hold floating-point numbers of shape (T, N, D), N sequences, or (N, D), N rows, but has "
                f"shape {tuple(x.shape)} and dtype {x.dtype}."
            )
        if x.dim() != train.dim() or x.shape[-1] != train.shape[-1]:
            wanted = f"({'any T, ' * (train.dim() - 2)}any N, {train.shape[-1]})"
            raise ShapeError(f"`{name}.input` must have shape {wanted}, as `train.input` has, but has {tuple(x.shape)}.")
        if part.count == 0:
            raise ShapeError(f"`{name}.input` must hold at least one example, but has shape {tuple(x.shape)}, N = 0.")
        each = self.reads == "each"
        fitting = tuple(x.shape[:2]) if each else (part.count,)
        if target.dim() != self.dimensions + each or tuple(target.shape[: len(fitting)]) != fitting:
            raise ShapeError(self._wrong_target(name, part))
        _check_lengths(name, part, self.reads)
        check_finite(f"{name}.input", x)

    def _wrong_target(self, name: str, part: Part) -> str:
        """Say which shapes a target may have for its input."""
        steps, last = part.input.shape[0], ", C" * (self.dimensions - 1)
        one = f"({part.count},{last.removeprefix(',')})" if last else f"({part.count},)"
        shapes = [f"{one}, one target for each example"]
        if part.input.dim() == 3:
            shapes.append(f"({steps}, {part.count}{last}), one for each of its {steps} steps")
        if name != "train" and self.reads != "row":
            shapes = [shapes[self.reads == "each"] + ", as `train.target` has"]
        numbers = "; C is how many numbers there are to predict, 1 by target.unsqueeze(-1)" if last else ""
        came = f"but has shape {tuple(part.target.shape)}, where `{name}.input` has {tuple(part.input.shape)}"
        return f"`{name}.target` must have shape {', or '.join(shapes)}, {came}{numbers}."

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

    def stored(self) -> StoredData | None:
        """Return the examples and the settings; None of a subclass, which may be another task."""
        if "kind" not in vars(type(self)):
            return None
        named = {f"{name}.{what}": getattr(part, what) for name, part in self.parts.items() for what in _TENSORS}
        facts = {"seed": self.order.seed, **{name: getattr(self, name) for name in self.options}}
        return StoredData(self.kind, facts, {name: tensor for name, tensor in named.items() if tensor is not None})

    @classmethod
    def from_stored(cls, data: StoredData) -> Self:
        """Return the task that :meth:`stored` was called on; what came from a file is checked as what a user gives.

        Example:
            >>> part = Part(torch.randn(5, 4, 2), torch.tensor([0, 1, 1, 0]))
            >>> again = TensorClassification.from_stored(TensorClassification(part, part, seed=3).stored())
            >>> again.order.seed, again.classes
            (3, 2)
        """
        known = {f"{name}.{what}" for name in _PARTS for what in _TENSORS}
        needed = {f"{name}.{what}" for name in _PARTS for what in _TENSORS[:2]}
        faults = (needed - data.tensors.keys()) | (data.tensors.keys() - known) | (data.facts.keys() ^ {"seed", *cls.options})
        if faults:
            raise ArgumentError(f"The stored data lack parts or have others: {', '.join(sorted(faults))[:200]}.")
        parts = {name: Part(*(data.tensors.get(f"{name}.{what}") for what in _TENSORS)) for name in _PARTS}  # type: ignore[arg-type]
        return cls(**parts, **data.facts)

    def to(self, device: torch.device | str) -> "TensorTask":
        """Move the examples."""
        super().to(device)
        self.parts = {name: part.to(self.device) for name, part in self.parts.items()}
        return self


def _check_tensors(name: str, part: Part) -> None:
    """Refuse what is no part, or holds something else than tensors."""
    if not isinstance(part, Part):
        raise ArgumentTypeError(f"`{name}` must be a Part(input, target), but is of type {type(part).__name__}.")
    for what, value in (("input", part.input), ("target", part.target), ("lengths", part.lengths)):
        if not isinstance(value, Tensor) and not (what == "lengths" and value is None):
            raise ArgumentTypeError(
                f"`{name}.{what}` must be a tensor, but is of type {type(value).__name__}. Make one with torch.as_tensor."
            )


def _check_lengths(name: str, part: Part, reads: str) -> None:
    """Refuse lengths that do not fit the sequences."""
    lengths, steps = part.lengths, part.input.shape[0]
    if lengths is None:
        return
    if reads != "last":
        what = "rows have no time" if reads == "row" else "every step has a target"
        raise ArgumentError(f"`{name}.lengths` must be None where {what}, but is given.")
    if lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool:
        raise DtypeError(f"`{name}.lengths` must hold integers, but has dtype {lengths.dtype}.")
    if tuple(lengths.shape) != (part.count,):
        raise ShapeError(
            f"`{name}.lengths` must have shape ({part.count},), one length for each example, but has {tuple(lengths.shape)}."
        )
    low, high = (int(edge) for edge in lengths.aminmax())
    if low < 0 or high > steps:
        raise ArgumentError(
            f"`{name}.lengths` must lie from 0 to {steps}, the steps of the input, but goes from {low} to {high}."
        )


class TensorClassification(TensorTask, ClassificationTask):
    """Name the class of each of your sequences, of each of their steps, or of rows without time.

    Args:
        train: Examples to train on.
        validation: Examples by which the best weights are chosen; they must be given.
        test: Examples to test on, once, in the end; None takes the validation examples again.
        classes: How many there are; None is one more than the largest in ``train``.
        seed: Numbers the order of training examples.

    Example:
        >>> part = Part(torch.randn(30, 8, 2), torch.tensor([0, 1] * 4))
        >>> task = TensorClassification(part, part)
        >>> task.interface
        Interface(inputs=2, outputs=2, vocabulary=None, reads='last', carries_state=False)
    """

    kind, options = "tensor-classification", ("classes",)
    dimensions = 1

    def __init__(
        self,
        train: Part,
        validation: Part | None = None,
        test: Part | None = None,
        classes: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if classes is None:
            _check_tensors("train", train)
            self.classes = int(train.target.max()) + 1 if train.target.numel() else 1
        else:
            self.classes = check_positive_int("classes", classes)
        self._take(train, validation, test, seed)

    def _check_target(self, name: str, target: Tensor) -> None:
        if target.dtype != torch.int64:
            raise DtypeError(
                f"`{name}.target` must hold classes as int64, numbered from 0, but has dtype {target.dtype}. For numbers to "
                "predict use TensorRegression."
            )
        low, high = (int(edge) for edge in target.aminmax())
        if low < 0 or high >= self.classes:
            raise ArgumentError(
                f"`{name}.target` must hold classes from 0 to {self.classes - 1}, but holds {low} to {high}. Number classes "
                "from 0, and give `classes` where `train` lacks some."
            )

    @property
    def interface(self) -> Interface:
        """Your features in, a logit for each class out."""
        return Interface(self.parts["train"].input.shape[-1], self.classes, reads=self.reads)

    @property
    def baselines(self) -> Mapping[str, float]:
        """Entropy of the test labels, share of the commonest."""
        return class_baseline(self.parts["test"].target)


class TensorRegression(TensorTask, RegressionTask):
    """Predict numbers from your sequences, at each of their steps or behind the last, or from rows without time.

    Args:
        train: Examples to train on.
        validation: Examples by which the best weights are chosen; they must be given.
        test: Examples to test on, once, in the end; None takes the validation examples again.
        seed: Numbers the order of training examples.

    Example:
        >>> x = torch.randn(30, 8, 2)
        >>> task = TensorRegression(Part(x, x.sum(0)), Part(x, x.sum(0)))
        >>> task.interface.outputs, task.reads
        (2, 'last')
    """

    kind = "tensor-regression"
    dimensions = 2

    def __init__(self, train: Part, validation: Part | None = None, test: Part | None = None, seed: int = 0) -> None:
        super().__init__()
        self._take(train, validation, test, seed)

    def _check_target(self, name: str, target: Tensor) -> None:
        wanted = self.parts["train"].target
        if not target.is_floating_point():
            raise DtypeError(
                f"`{name}.target` must hold floating-point numbers, but has dtype {target.dtype}. Convert it, target.float(); "
                "for classes use TensorClassification."
            )
        if target.shape[-1] != wanted.shape[-1]:
            raise ShapeError(
                f"`{name}.target` must have {wanted.shape[-1]} numbers each, as `train.target` has, but has shape "
                f"{tuple(target.shape)}."
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
