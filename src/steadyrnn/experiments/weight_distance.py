"""Figure 3 of Miller and Hardt: how far weights trained by truncated backpropagation are from those of a longer window."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from .base import Judgement, judge_numbers
from .curves import Axis, Panel, mean_curve
from .training import train_network

__all__ = ["compare_windows", "judge_growth", "judge_norm", "judge_returns", "judge_windows", "show_distances"]

_WEIGHT = "weight_hh_l0"


def compare_windows(
    settings: Mapping[str, Any], windows: Sequence[int], longest: int, words: int, times: int, seed: int, folder: Path,
    found: Mapping[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    r"""Train a language model with backpropagation through k words, for several k, and measure how far apart the weights are.

    Distances are :math:`\lVert W_k - W_K \rVert_2` of the recurrent weights, gates stacked, where K is the longest window. All
    runs start at the same weights. A batch is k words long, as ``task.bptt`` says, and the state is carried on. So a run
    with a shorter window takes more steps for the same text. Runs are compared where they have read the same text, up to one
    batch.

    Args:
        settings: As :func:`~.training.train_network` takes them, without window, length of training and probes.
        windows: The k.
        longest: K.
        words: Of each row between two measurements.
        times: Measurements after the first, which is before training.
        seed: Of all runs.
        folder: For the runs.
        found: What a search chose, on top of ``settings``.

    Returns:
        ``words`` read by each row at each measurement; ``distance`` by k; ``norm`` of the longest window's weight. A run that
        diverged has fewer distances.
    """

    def train(window: int, name: str, probe: str, against: str | None = None) -> list[dict[str, Any]]:
        """Return what a probe measured in the run with one window."""
        every = max(1, round(words / window))
        length = {"task.bptt": window, "train.steps": times * every}
        probes = {"train.probe.every": every, "train.probe.names": [probe], "train.probe.against": against}
        done = train_network({**settings, **length, **probes}, seed, folder / name, found)
        records: list[dict[str, Any]] = done["probes"].get(probe, [])
        return records

    reference = train(longest, "longest", "weights")
    (run,) = [path.parent for path in folder.glob("longest/*/*/*/config.json")]
    distance = {}
    for k in windows:
        records = train(k, f"window{k}", "weight-distance", str(run))
        distance[str(k)] = [record["value"][_WEIGHT] for record in records if record["value"]]
    norms = [record["value"][_WEIGHT] for record in reference if record["value"]]
    return {"words": [words * time for time in range(times + 1)], "distance": distance, "norm": norms}


def judge_windows(cells: Mapping[str, Any], models: Sequence[str]) -> Judgement:
    """Judge that at the end the shortest window is the farthest and the longest one the nearest, in the mean over seeds.

    Example:
        >>> cells = {"rnn/seed0": {"words": [0, 9], "distance": {"5": [0.0, 3.0], "10": [0.0, 1.0]}}}
        >>> judge_windows(cells, ["rnn"]).ours
        'rnn: 3 (k = 5), 1 (k = 10)'
    """

    def farthest_first(windows: Sequence[int], ends: Sequence[float]) -> bool:
        return ends[0] == max(ends) and ends[-1] == min(ends) and ends[0] > ends[-1]

    return _judge_ends(cells, models, farthest_first)


def judge_returns(cells: Mapping[str, Any], models: Sequence[str]) -> Judgement:
    """Judge that a longer window gains less: per word of window, from the middle window on less than up to it.

    Example:
        >>> cells = {"rnn/seed0": {"words": [0, 9], "distance": {"5": [0.0, 3.0], "10": [0.0, 1.0], "20": [0.0, 0.5]}}}
        >>> judge_returns(cells, ["rnn"]).verdict
        'seen'
    """

    def diminish(windows: Sequence[int], ends: Sequence[float]) -> bool:
        middle = len(windows) // 2
        before = (ends[0] - ends[middle]) / (windows[middle] - windows[0])
        return before > (ends[middle] - ends[-1]) / (windows[-1] - windows[middle])

    return _judge_ends(cells, models, diminish)


def judge_growth(cells: Mapping[str, Any], models: Sequence[str]) -> Judgement:
    """Judge that every distance grows less in the second half of training than in the first, in the mean over seeds.

    Example:
        >>> cells = {"rnn/seed0": {"words": [0, 9, 18], "distance": {"5": [0.0, 2.0, 3.0]}}}
        >>> judge_growth(cells, ["rnn"]).ours
        'growth in the second half over that in the first, the largest of all windows: rnn 0.5'
    """
    parts, worst = [], []
    for model in models:
        curves = _mean_curves(cells, model)
        if curves is None:
            return Judgement("not seen", f"{model}: a run diverged")
        halves = [(curve[len(curve) // 2], curve[-1]) for curve in curves.values()]
        worst.append(max((end - middle) / middle if middle > 0 else float("inf") for middle, end in halves))
        parts.append(f"{model} {worst[-1]:.2g}")
    text = f"growth in the second half over that in the first, the largest of all windows: {', '.join(parts)}"
    return Judgement("seen" if max(worst) < 1 else "not seen", text, seeds=_seeds(cells, models[0]))


def judge_norm(cells: Mapping[str, Any], model: str, published: float) -> Judgement:
    """Judge a printed spectral norm: seen where our mean over seeds is within a tenth of it.

    Example:
        >>> def _converged(norm): return {"test": {}, "probes": {"weights": [{"value": {"weight_hh_l0": norm}}]}}
        >>> cells = {f"n/seed{i}": _converged(x) for i, x in enumerate((2.8, 3.0))}
        >>> judge_norm(cells, "n", 2.95).ours
        '2.9, 0.05 below the printed'
    """
    runs = [cell for name, cell in cells.items() if name.startswith(f"{model}/seed")]
    measured = [run["probes"]["weights"][-1]["value"] for run in runs if run["test"] is not None]
    norms = [record[_WEIGHT] for record in measured]
    if len(norms) < len(runs):
        return Judgement("not seen", f"{len(runs) - len(norms)} of {len(runs)} runs diverged", seeds=len(runs))
    mean = fmean(norms)
    near = abs(mean / published - 1) < 0.1
    text = f"{mean:.3g}, {abs(mean - published):.2g} {'above' if mean > published else 'below'} the printed"
    return judge_numbers("seen" if near else "not seen", text, norms, "spectral norm")


def show_distances(cells: Mapping[str, Any]) -> list[Panel]:
    """Show the distances by the text that was read, one panel per network and one line per window."""
    panels = []
    for model in dict.fromkeys(name.rpartition("/seed")[0] for name, cell in cells.items() if "distance" in cell):
        runs = _runs(cells, model)
        lines = []
        for k in runs[0]["distance"]:
            curves = [[*zip(run["words"], run["distance"][k], strict=False)] for run in runs]  # a run that diverged ends early
            line = mean_curve(f"k = {k}", curves)
            lines += [] if line is None else [line]
        title, x = f"Weights trained with windows of k words, {model}", Axis("words read by each row")
        panels += [Panel(title, x, Axis("spectral norm of the difference"), lines)] if lines else []
    return panels


def _judge_ends(
    cells: Mapping[str, Any], models: Sequence[str], holds: Callable[[Sequence[int], Sequence[float]], bool]
) -> Judgement:
    """Judge the distances at the end of training, by window."""
    parts, seen = [], True
    for model in models:
        curves = _mean_curves(cells, model)
        if curves is None:
            return Judgement("not seen", f"{model}: a run diverged")
        ends = {k: curve[-1] for k, curve in curves.items()}
        seen = seen and holds([*ends], [*ends.values()])
        parts.append(f"{model}: " + ", ".join(f"{end:.3g} (k = {k})" for k, end in ends.items()))
    return Judgement("seen" if seen else "not seen", "; ".join(parts), seeds=_seeds(cells, models[0]))


def _runs(cells: Mapping[str, Any], model: str) -> list[dict[str, Any]]:
    return [cell for name, cell in cells.items() if name.startswith(f"{model}/seed")]


def _seeds(cells: Mapping[str, Any], model: str) -> int:
    return len(_runs(cells, model))


def _mean_curves(cells: Mapping[str, Any], model: str) -> dict[int, list[float]] | None:
    """Return the mean distance over seeds by window, from the shortest on; None where a run ended early."""
    runs = _runs(cells, model)
    longest = len(runs[0]["words"])
    curves = {}
    for k in sorted(map(int, runs[0]["distance"])):
        found = [run["distance"][str(k)] for run in runs]
        if any(len(curve) < longest for curve in found):
            return None
        curves[k] = [fmean(values) for values in zip(*found, strict=True)]
    return curves
