"""Judges of losses over the course of training, and their pictures; free of torch."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .base import Judgement, judge_numbers
from .curves import Axis, Line, Mark, Panel
from .scores import collect_scores, judge_printed

__all__ = ["draw_losses", "draw_perplexities", "judge_impossible_loss", "judge_speed"]

_LABELS = {"rnn": "RNN", "urnn": "uRNN", "gru": "GRU", "ugru": "uGRU"}


def judge_impossible_loss(cells: Mapping[str, Any], model: str, published: float, accuracy: float) -> Judgement:
    r"""Judge a printed cross-entropy that the accuracy printed beside it rules out.

    A wrong answer gives the right class a probability of at most 1/2, so the mean cross-entropy is at least
    (1 - accuracy) ln 2. The verdict is ``"different"`` if that is above the printed loss, and holds for our runs; it is
    ``"seen"`` if our loss is as low as the printed one all the same, with another accuracy.

    Example:
        >>> runs = {"urnn/seed0": {"test": {"loss": 1.0, "accuracy": 0.6}}}
        >>> judge_impossible_loss(runs, "urnn", 0.1, 0.5673).verdict
        'different'
    """
    found = judge_printed(cells, model, "loss", published, higher=False, own=True)
    least = (1 - accuracy) * math.log(2)
    losses, accuracies = (collect_scores(cells, model, score) for score in ("loss", "accuracy"))
    pairs = [(loss, part) for loss, part in zip(losses, accuracies, strict=True) if loss is not None and part is not None]
    holds = bool(pairs) and all(loss >= (1 - part) * math.log(2) for loss, part in pairs)
    if found.verdict == "seen" or published >= least or not holds:
        return found
    text = f"{found.ours}; at the printed accuracy it is at least {least:.3f}"
    return replace(found, verdict="different", ours=text)


def judge_speed(cells: Mapping[str, Any], fast: str, slow: str) -> Judgement:
    """Judge that the series ``fast`` reaches the best validation loss of ``slow`` in fewer steps, in the mean over seeds.

    Example:
        >>> runs = {"a/seed0": {"curve": {"validation loss": [[1, 0.5], [2, 0.1]]}}}
        >>> runs["b/seed0"] = {"curve": {"validation loss": [[1, 0.9], [2, 0.6]]}}
        >>> judge_speed(runs, "a", "b").ours
        '1 steps to the loss that b has after 2'
    """
    lost = sum(not curve for model in (fast, slow) for curve in _curves(cells, model))
    if lost:
        return Judgement("not seen", f"{lost} runs diverged before their first validation", seeds=len(_curves(cells, fast)))
    needed, taken = list[float](), list[float]()
    for curve, other in zip(_curves(cells, fast), _curves(cells, slow), strict=True):
        best = min(loss for _, loss in other)
        taken.append(min(step for step, loss in other if loss == best))
        needed += [min(step for step, loss in curve if loss <= best)] if min(loss for _, loss in curve) <= best else []
    if len(needed) < len(taken):
        missing = len(taken) - len(needed)
        return Judgement("not seen", f"{missing} of {len(taken)} runs never reach it", seeds=len(taken))
    steps, beside = sum(needed) / len(needed), sum(taken) / len(taken)
    text = f"{steps:.0f} steps to the loss that {slow} has after {beside:.0f}"
    return judge_numbers("seen" if steps < beside else "not seen", text, needed, "steps")


def _curves(cells: Mapping[str, Any], model: str) -> list[list[list[float]]]:
    """Return the validation losses of each seed as pairs of step and loss."""
    return [cell["curve"].get("validation loss", []) for name, cell in cells.items() if name.startswith(f"{model}/seed")]


def draw_losses(cells: Mapping[str, Any]) -> list[Panel]:
    """Return a panel of validation losses for each length and way of training, a line per seed, the best constant beside."""
    return _draw(cells, "loss", "N = ")


def draw_perplexities(cells: Mapping[str, Any]) -> list[Panel]:
    """Return a panel of validation perplexities for each column of a table and way of training, a line per seed."""
    return _draw(cells, "perplexity", "")


def _draw(cells: Mapping[str, Any], score: str, title: str) -> list[Panel]:
    """Draw series that are called ``WAY/MODEL/COLUMN`` or ``MODEL/COLUMN``."""
    panels: dict[tuple[str, str], list[Line]] = {}
    marks: dict[tuple[str, str], Mark] = {}
    for name, cell in cells.items():
        curve = cell.get("curve", {}).get(f"validation {score}")
        if curve:
            *way, model, column, _ = name.split("/")
            x, y = zip(*curve, strict=True)
            panels.setdefault(("/".join(way), column), []).append(Line(_LABELS[model], x, y))
            marks["/".join(way), column] = Mark("best constant answer", y=cell["baselines"][score])
    return [
        Panel(
            f"{title}{column}" + (f", {way}" if way else ""), Axis("step"), Axis(f"validation {score}"), lines,
            [marks[way, column]],
        )
        for (way, column), lines in panels.items()
    ]  # fmt: skip
