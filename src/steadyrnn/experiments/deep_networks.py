"""Judges and pictures of networks of many layers: what works at which depth, and how fast it is learned; free of torch."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from .base import Judgement
from .curves import Axis, Line, Panel, mean_line
from .scores import collect_scores, mean_score

__all__ = ["collect_accuracies", "collect_precisions", "judge_similar", "judge_slower"]


def judge_similar(cells: Mapping[str, Any], models: Sequence[str], like: str, score: str, within: float) -> Judgement:
    """Judge that the mean of each series is that of the series ``like``, up to ``within``, or better.

    Example:
        >>> runs = {"a/seed0": {"test": {"accuracy": 0.95}}, "b/seed0": {"test": {"accuracy": 0.96}}}
        >>> judge_similar(runs, ["a"], "b", "accuracy", 0.02).ours
        'a 0.95; b 0.96'
    """
    means = {model: mean_score(collect_scores(cells, model, score)) for model in (*models, like)}
    known = {model: float("-inf") if mean is None else mean for model, mean in means.items()}
    seen = means[like] is not None and all(known[model] >= known[like] - within for model in models)
    return Judgement("seen" if seen else "not seen", _show(means), seeds=len(collect_scores(cells, like, score)))


def judge_slower(cells: Mapping[str, Any], slow: str, fast: Sequence[str], curve: str) -> Judgement:
    """Judge that a series learns more slowly than each of ``fast``: its curve, where more is better, has the lowest mean.

    Example:
        >>> points = {"a": [[1, 0.2], [2, 0.9]], "b": [[1, 0.8], [2, 0.9]]}
        >>> runs = {f"{name}/seed0": {"curve": {"validation accuracy": found}} for name, found in points.items()}
        >>> judge_slower(runs, "a", ["b"], "validation accuracy").ours
        'mean of the curve: a 0.55; b 0.85'
    """
    means = {model: _mean_height(cells, model, curve) for model in (slow, *fast)}
    known = {model: float("-inf") if mean is None else mean for model, mean in means.items()}
    seen = all(known[slow] < known[model] for model in fast)
    return Judgement("seen" if seen else "not seen", f"mean of the curve: {_show(means)}", seeds=len(_runs(cells, slow)))


def collect_accuracies(cells: Mapping[str, Any]) -> list[Panel]:
    """Return panels of the accuracy against depth, and during training at each depth."""
    return [_depth_panel(cells, "accuracy"), *_training_panels(cells, "validation accuracy")]


def collect_precisions(cells: Mapping[str, Any]) -> list[Panel]:
    """Return panels of the precision against depth, and of the loss during training at each depth."""
    return [_depth_panel(cells, "precision@1"), *_training_panels(cells, "validation loss")]


def _depth_panel(cells: Mapping[str, Any], score: str) -> Panel:
    lines = []
    for model in {name.split("/")[0]: None for name in _trained(cells)}:
        depths = sorted({int(name.split("/")[1]) for name in _trained(cells) if name.split("/")[0] == model})
        columns = zip(*(collect_scores(cells, f"{model}/{depth}", score) for depth in depths), strict=True)
        lines.append(mean_line(model, [(depths, list(column)) for column in columns]))
    return Panel(f"Test {score} against depth", Axis("layers"), Axis(score), lines)


def _training_panels(cells: Mapping[str, Any], curve: str) -> list[Panel]:
    panels = []
    for depth in sorted({int(name.split("/")[1]) for name in _trained(cells)}):
        lines = [
            Line(name.split("/")[0], [step for step, _ in run["curve"][curve]], [value for _, value in run["curve"][curve]])
            for name, run in _trained(cells).items()
            if int(name.split("/")[1]) == depth and run["curve"].get(curve)
        ]
        if lines:
            scale = "log" if curve.endswith("loss") else "linear"
            panels.append(Panel(f"{depth} layers", Axis("step"), Axis(curve, scale), lines))
    return panels


def _trained(cells: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cells that were trained, not the searches: ``MODEL/LAYERS/seedN``."""
    return {name: run for name, run in cells.items() if "/seed" in name}


def _mean_height(cells: Mapping[str, Any], model: str, curve: str) -> float | None:
    points = [run["curve"].get(curve, []) for run in _runs(cells, model)]
    return fmean(fmean(value for _, value in run) for run in points) if points and all(points) else None


def _runs(cells: Mapping[str, Any], model: str) -> list[Any]:
    return [run for name, run in cells.items() if name.startswith(f"{model}/seed")]


def _show(means: Mapping[str, float | None]) -> str:
    return "; ".join(f"{model} {'diverged' if mean is None else format(mean, '.3g')}" for model, mean in means.items())
