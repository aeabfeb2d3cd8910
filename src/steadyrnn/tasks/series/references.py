"""Simple methods that a network is shown beside: the commonest class, the mean, the last value, a linear model."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..base import Batch, Task
from .examples import NOTHING
from .problem import Problem

__all__ = ["score_constant", "score_references"]

Reference = Callable[[Batch], Tensor]
"""From a batch to outputs, of the shape that a network gives."""

_MOST_FEATURES = 2000
_MOST_ROWS = 20_000
_PENALTIES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
_ROWS = 256


@torch.no_grad()
def score_constant(task: Task, problem: Problem) -> dict[str, float]:
    """Return the test scores of the constant answer that is best in training."""
    (method,) = _constant(task, problem).values()
    return _score(task, method)


@torch.no_grad()
def score_references(task: Task, problem: Problem, columns: list[int], even: bool) -> dict[str, dict[str, float]]:
    """Return the test scores of simple methods, by name.

    The *linear model* reads the whole input of an example; where inputs differ in length or have more than 2,000 numbers, it
    reads mean, deviation, extremes, first and last value of each channel instead; where every step has a target, the channels
    of that step. Classes are found by logistic regression, numbers by ridge regression, with the penalty that is best on the
    validation part. It learns from 20,000 examples at most.

    Args:
        task: The task; its ``"train"`` part can be read in order.
        problem: What is asked.
        columns: Of a forecast, the places of the channels to forecast among those of a step.
        even: Whether all inputs have the same number of steps.
    """
    methods = {**_constant(task, problem), **_last_value(problem, columns, task.interface.inputs // problem.patch)}
    methods["linear model"] = _linear(task, problem, even)
    return {name: _score(task, method) for name, method in methods.items()}


def _score(task: Task, method: Reference) -> dict[str, float]:
    """Return the test scores of a method."""
    sums: dict[str, float] = {}
    for batch in task.batches("test", _ROWS):
        for key, value in task.scores(method(batch).to(batch.input), batch).items():
            sums[key] = sums.get(key, 0.0) + float(value)
    return task.summary(sums)


def _constant(task: Task, problem: Problem) -> dict[str, Reference]:
    """Return the best constant answer of the training part."""
    target = torch.cat([_counted(batch.target) for batch in task.batches("train", _ROWS)])
    if problem.kind == "classification":
        share = torch.bincount(target, minlength=len(problem.outputs)).double() / len(target)
        return {"commonest class": _repeat(share.clamp(min=1e-9).log(), 0)}
    return {"mean": _repeat(target.double().mean(0), 1)}


def _repeat(row: Tensor, columns: int) -> Reference:
    """Return what gives the same output for every example, or step."""

    def answer(batch: Batch) -> Tensor:
        shape = batch.target.shape[:-1] if columns else batch.target.shape
        return row.expand(*shape, len(row))

    return answer


def _last_value(problem: Problem, columns: list[int], width: int) -> dict[str, Reference]:
    """Return the forecast that nothing changes."""
    if problem.kind != "forecasting":
        return {}
    last = (problem.window or 1) - 1
    places = [last % problem.patch * width + column for column in columns]

    def answer(batch: Batch) -> Tensor:
        x = batch.input if problem.each else batch.input[last // problem.patch]
        return x[..., places].repeat(*(1 for _ in x.shape[:-1]), problem.horizon)

    return {"last value": answer}


def _linear(task: Task, problem: Problem, even: bool) -> Reference:
    read = _read_step if problem.each else _read_whole if even and _is_short(task) else _summarize
    x, y = _examples(task, "train", read)
    held, wanted = _examples(task, "validation", read)
    mean, spread = x.mean(0), x.std(0, correction=0).clamp(min=1e-6)

    def scaled(z: Tensor) -> Tensor:
        return torch.cat([(z - mean) / spread, z.new_ones(len(z), 1)], 1)

    fit, error = (_logistic, _class_error) if problem.kind == "classification" else (_ridge, _square_error)
    weights = [fit(scaled(x), y, penalty, len(problem.outputs)) for penalty in _PENALTIES]
    best = min(weights, key=lambda weight: error(scaled(held) @ weight, wanted))

    def answer(batch: Batch) -> Tensor:
        output = scaled(read(batch)) @ best
        return output.unflatten(0, batch.input.shape[:2]) if problem.each else output

    return answer


def _is_short(task: Task) -> bool:
    return next(task.batches("train", 1)).input.numel() <= _MOST_FEATURES


def _examples(task: Task, split: str, read: Callable[[Batch], Tensor]) -> tuple[Tensor, Tensor]:
    """Return features and targets of the examples of a part, not too many, spread evenly."""
    inputs, targets = list[Tensor](), list[Tensor]()
    apart, held = 1, 0
    for batch in task.batches(split, _ROWS):
        target = batch.target.flatten(0, 1) if task.interface.reads == "each" else batch.target
        counts = _is_counted(target)
        inputs.append(read(batch)[counts][::apart].clone())
        targets.append(target[counts][::apart])
        held += len(targets[-1])
        if held > 2 * _MOST_ROWS:  # every second one is enough, of these and of all that follow
            inputs, targets = [torch.cat(inputs)[::2].clone()], [torch.cat(targets)[::2].clone()]
            apart, held = 2 * apart, len(targets[0])
    x, y = torch.cat(inputs), torch.cat(targets)
    if len(x) > _MOST_ROWS:
        rows = torch.linspace(0, len(x) - 1, _MOST_ROWS).long().to(x.device)
        x, y = x[rows], y[rows]
    return x, y


def _counted(target: Tensor) -> Tensor:
    flat = target.flatten() if target.dtype == torch.int64 else target.flatten(0, -2)
    return flat[_is_counted(flat)]


def _is_counted(target: Tensor) -> Tensor:
    return target != NOTHING if target.dtype == torch.int64 else ~target.isnan().any(-1)


def _read_step(batch: Batch) -> Tensor:
    return batch.input.flatten(0, 1).double()


def _read_whole(batch: Batch) -> Tensor:
    return batch.input.transpose(0, 1).flatten(1).double()


def _summarize(batch: Batch) -> Tensor:
    """Return mean, deviation, extremes, first and last value of each channel, (B, 6 F)."""
    x = batch.input.double()
    rows = x.shape[1]
    lengths = torch.full((rows,), len(x)) if batch.lengths is None else batch.lengths
    lengths = lengths.to(x.device)
    inside = (torch.arange(len(x), device=x.device).unsqueeze(1) < lengths).unsqueeze(-1)  # (T, B, 1)
    count = lengths.unsqueeze(-1)
    mean = (x * inside).sum(0) / count
    deviation = ((x - mean).square() * inside).sum(0).div(count).sqrt()
    low, high = x.masked_fill(~inside, torch.inf).amin(0), x.masked_fill(~inside, -torch.inf).amax(0)
    return torch.cat([mean, deviation, low, high, x[0], x[lengths - 1, torch.arange(rows, device=x.device)]], 1)


def _ridge(x: Tensor, y: Tensor, penalty: float, outputs: int) -> Tensor:
    """Return the weights that minimize |x W - y|^2 / B + penalty |W|^2; the constant is not held down."""
    gram = x.mT @ x / len(x)
    gram.diagonal()[:-1] += penalty
    weights: Tensor = torch.linalg.solve(gram, x.mT @ y.double() / len(x))
    return weights


def _logistic(x: Tensor, y: Tensor, penalty: float, outputs: int) -> Tensor:
    """Return the weights of a logistic regression with a quadratic penalty."""
    with torch.enable_grad():
        weight = x.new_zeros(x.shape[1], outputs, requires_grad=True)
        optimizer = torch.optim.LBFGS([weight], max_iter=100, line_search_fn="strong_wolfe")

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(x @ weight, y) + penalty / 2 * weight[:-1].square().sum()
            loss.backward()
            return loss

        optimizer.step(closure)
    return weight.detach()


def _class_error(output: Tensor, target: Tensor) -> float:
    return float(torch.nn.functional.cross_entropy(output, target))


def _square_error(output: Tensor, target: Tensor) -> float:
    return float((output - target).square().mean())
