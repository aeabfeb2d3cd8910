"""Losses, the sums that scores are made of, and scores from sums: squared error and cross-entropy."""

from collections.abc import Callable, Mapping
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from steadyrnn.errors import ShapeError

from .base import Batch, Task

__all__ = [
    *("ClassificationTask", "RegressionTask"),
    *("class_loss", "class_scores", "class_summary", "square_loss", "square_scores", "square_summary"),
]


def square_loss(output: Tensor, target: Tensor) -> Tensor:
    """Return the mean squared error; a float16 or bfloat16 output is taken to float32 first.

    Example:
        >>> square_loss(torch.zeros(2, 1), torch.tensor([[1.0], [2.0]]))
        tensor(2.5000)
    """
    _check_shape(output, target)
    return mse_loss(_wide(output), target)


def square_scores(output: Tensor, target: Tensor) -> dict[str, Tensor]:
    """Return the sum of squared errors and their number, for :func:`square_summary`."""
    _check_shape(output, target)
    error = (_wide(output) - target).square().sum(dtype=torch.float64)
    return {"squared_error": error, "count": torch.full_like(error, target.numel())}


def square_summary(sums: Mapping[str, float]) -> dict[str, float]:
    """Return the mean squared error as ``"loss"``.

    Example:
        >>> square_summary({"squared_error": 3.0, "count": 2.0})
        {'loss': 1.5}
    """
    return {"loss": sums["squared_error"] / sums["count"]}


def class_loss(logits: Tensor, target: Tensor, smoothing: float = 0.0) -> Tensor:
    r"""Return the mean cross-entropy in nats of logits (..., N) and classes (...).

    With a ``smoothing`` s the target is :math:`1 - s + s/N` for the class and :math:`s/N` for each other.

    Example:
        >>> class_loss(torch.zeros(2, 1, 8), torch.tensor([[3], [5]]))  # ln 8
        tensor(2.0794)
    """
    _check_classes(logits, target)
    return cross_entropy(_wide(logits).flatten(0, -2), target.flatten(), label_smoothing=smoothing)


def class_scores(logits: Tensor, target: Tensor) -> dict[str, Tensor]:
    """Return the sums of cross-entropies and of right answers and their number, for :func:`class_summary`."""
    _check_classes(logits, target)
    loss = cross_entropy(_wide(logits).flatten(0, -2), target.flatten(), reduction="none").sum(dtype=torch.float64)
    right = (logits.argmax(-1) == target).sum(dtype=torch.float64)
    return {"cross_entropy": loss, "correct": right, "count": torch.full_like(loss, target.numel())}


def class_summary(sums: Mapping[str, float]) -> dict[str, float]:
    """Return the mean cross-entropy as ``"loss"`` and the share of right answers as ``"accuracy"``.

    Example:
        >>> class_summary({"cross_entropy": 3.0, "correct": 1.0, "count": 2.0})
        {'loss': 1.5, 'accuracy': 0.5}
    """
    return {"loss": sums["cross_entropy"] / sums["count"], "accuracy": sums["correct"] / sums["count"]}


def _wide(output: Tensor) -> Tensor:
    return output if output.dtype == torch.float64 else output.float()


def _check_shape(output: Tensor, target: Tensor) -> None:
    if output.shape != target.shape:  # they would broadcast, and the loss would be of something else
        raise ShapeError(f"`output` must have shape {tuple(target.shape)}, as the target, but has {tuple(output.shape)}.")


def _check_classes(logits: Tensor, target: Tensor) -> None:
    if logits.shape[:-1] != target.shape:
        raise ShapeError(
            f"`logits` must have shape {tuple(target.shape)} and one more dimension, of classes, "
            f"but have shape {tuple(logits.shape)}."
        )


class Scoring(NamedTuple):
    """How outputs are scored: the loss, the sums of a batch, and the scores from sums."""

    loss: Callable[[Tensor, Tensor], Tensor]
    scores: Callable[[Tensor, Tensor], dict[str, Tensor]]
    summary: Callable[[Mapping[str, float]], dict[str, float]]


class ScoredTask(Task):
    """The half of a task that scores."""

    scoring: ClassVar[Scoring]

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Return the mean loss of a batch."""
        return self.scoring.loss(output, batch.target)

    def scores(self, output: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Return sums over the batch, and the number of targets."""
        return self.scoring.scores(output, batch.target)

    def summary(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Return the scores from sums."""
        return self.scoring.summary(sums)


class ClassificationTask(ScoredTask):
    """Classes, by cross-entropy and accuracy."""

    metric = "accuracy"
    higher_is_better = True
    scoring = Scoring(class_loss, class_scores, class_summary)


class RegressionTask(ScoredTask):
    """Numbers, by the mean squared error."""

    metric = "loss"
    higher_is_better = False
    scoring = Scoring(square_loss, square_scores, square_summary)
