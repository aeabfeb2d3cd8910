"""Losses and scores of series: steps without a target do not count, classes may weigh alike, errors are in the file's units."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from steadyrnn.errors import ShapeError

from .examples import NOTHING
from .scaling import Scaling

__all__ = [
    *("class_scores", "class_summary", "class_weight", "number_loss", "number_scores", "number_summary", "number_weight"),
    *("weighted_class_loss", "weighted_class_scores"),
]


def weighted_class_loss(logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """Return the mean cross-entropy of logits (..., N) and classes (...); a class of -100 does not count.

    Example:
        >>> weighted_class_loss(torch.zeros(2, 8), torch.tensor([3, -100]), None)  # ln 8
        tensor(2.0794)
    """
    flat, classes = _flat_classes(logits, target)
    shares = flat.new_ones(flat.shape[-1]) if weight is None else weight.to(flat)
    counted = shares[classes.clamp(min=0)] * (classes != NOTHING)
    return cross_entropy(flat, classes, weight=shares, ignore_index=NOTHING, reduction="sum") / counted.sum().clamp(min=1e-12)


def class_weight(target: Tensor, weight: Tensor | None) -> Tensor:
    """Return what :func:`weighted_class_loss` divides by: the number of classes that count, or the sum of their weights.

    Example:
        >>> class_weight(torch.tensor([0, 1, -100]), torch.tensor([0.5, 2.0]))
        tensor(2.5000, dtype=torch.float64)
    """
    counts = target != NOTHING
    return counts.sum() if weight is None else (weight[target.clamp(min=0)] * counts).sum(dtype=torch.float64)


def class_scores(logits: Tensor, target: Tensor) -> dict[str, Tensor]:
    """Return the sums of cross-entropies and of right answers, and of each class how often it came and was named."""
    flat, classes = _flat_classes(logits, target)
    each = cross_entropy(flat, classes, ignore_index=NOTHING, reduction="none")
    counted, right = classes != NOTHING, flat.argmax(-1) == classes
    sums = {
        "cross_entropy": each.sum(dtype=torch.float64),
        "correct": right.sum(dtype=torch.float64),
        "count": counted.sum(dtype=torch.float64),
    }
    for number in range(flat.shape[-1]):
        own = classes == number
        sums[f"count:{number}"] = own.sum(dtype=torch.float64)
        sums[f"correct:{number}"] = (own & right).sum(dtype=torch.float64)
    return sums


def weighted_class_scores(logits: Tensor, target: Tensor, weight: Tensor) -> dict[str, Tensor]:
    """Return the sums of weighted cross-entropies and of weights."""
    flat, classes = _flat_classes(logits, target)
    each = cross_entropy(flat, classes, weight=weight.to(flat), ignore_index=NOTHING, reduction="none")
    counted = weight.to(flat)[classes.clamp(min=0)] * (classes != NOTHING)
    return {"weighted": each.sum(dtype=torch.float64), "weight": counted.sum(dtype=torch.float64)}


def class_summary(sums: Mapping[str, float]) -> dict[str, float]:
    """Return loss, accuracy, and the mean over classes of the share that is named right.

    Example:
        >>> sums = {"cross_entropy": 3.0, "correct": 3.0, "count": 4.0}
        >>> class_summary({**sums, "count:0": 3.0, "correct:0": 3.0, "count:1": 1.0, "correct:1": 0.0})
        {'loss': 0.75, 'accuracy': 0.75, 'balanced_accuracy': 0.5}
    """
    count = sums["count"] or 1.0
    shares = [
        sums[f"correct:{name.partition(':')[2]}"] / number
        for name, number in sums.items()
        if name.startswith("count:") and number
    ]
    balanced = sum(shares) / len(shares) if shares else 0.0
    return {"loss": sums["cross_entropy"] / count, "accuracy": sums["correct"] / count, "balanced_accuracy": balanced}


def number_loss(output: Tensor, target: Tensor) -> Tensor:
    """Return the mean squared error; a target of NaN does not count.

    Example:
        >>> number_loss(torch.zeros(2, 1), torch.tensor([[2.0], [float("nan")]]))
        tensor(4.)
    """
    error, counts = _errors(output, target)
    return error.square().sum() / counts.sum().clamp(min=1)


def number_weight(target: Tensor) -> Tensor:
    """Return what :func:`number_loss` divides by: how many numbers count.

    Example:
        >>> number_weight(torch.tensor([[2.0], [float("nan")]]))
        tensor(1)
    """
    return (~target.isnan()).sum()


def number_scores(output: Tensor, target: Tensor) -> dict[str, Tensor]:
    """Return of each output the sums of squared and absolute errors, and their number."""
    error, counts = _errors(output, target)
    error, counts = error.flatten(0, -2).double(), counts.flatten(0, -2)
    sums: dict[str, Tensor] = {}
    for place in range(error.shape[-1]):
        sums[f"squares:{place}"] = error[:, place].square().sum()
        sums[f"absolute:{place}"] = error[:, place].abs().sum()
        sums[f"count:{place}"] = counts[:, place].sum(dtype=torch.float64)
    return sums


def number_summary(sums: Mapping[str, float], scaling: Scaling, names: Sequence[str], columns: int) -> dict[str, float]:
    """Return the mean squared error of scaled numbers, and errors in the units of the file.

    ``rmse`` is the root of the mean squared error, ``mae`` the mean absolute error. Of several columns each has its own.

    Args:
        sums: Of :func:`number_scores`, added up.
        scaling: Of the columns.
        names: Of the columns.
        columns: How many there are; further outputs are the same columns at later steps.
    """
    outputs = sum(name.startswith("count:") for name in sums)
    squares, absolute, counts = (
        [sums[f"{kind}:{place}"] for place in range(outputs)] for kind in ("squares", "absolute", "count")
    )
    scores = {"loss": sum(squares) / (sum(counts) or 1.0)}
    for column in range(columns):
        own = range(column, outputs, columns)
        count = sum(counts[place] for place in own) or 1.0
        unit = scaling.deviation[column]
        mark = "" if columns == 1 else f" {names[column]}"
        scores[f"rmse{mark}"] = unit * (sum(squares[place] for place in own) / count) ** 0.5
        scores[f"mae{mark}"] = unit * sum(absolute[place] for place in own) / count
    return scores


def _flat_classes(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    if logits.shape[:-1] != target.shape:
        raise ShapeError(
            f"`output` must have shape {tuple(target.shape)} and one more dimension, of classes, but has {tuple(logits.shape)}."
        )
    return _wide(logits).flatten(0, -2), target.flatten()


def _errors(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return errors, 0 where nothing counts, and where something does."""
    if output.shape != target.shape:
        raise ShapeError(f"`output` must have shape {tuple(target.shape)}, as the target, but has {tuple(output.shape)}.")
    counts = ~target.isnan()
    return torch.where(counts, _wide(output) - target.nan_to_num(0.0), 0.0), counts


def _wide(output: Tensor) -> Tensor:
    return output if output.dtype == torch.float64 else output.float()
