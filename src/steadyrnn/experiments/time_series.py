"""Networks on sets of time series: a group of seeds at a time, settings chosen on held-out series."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, cast

from steadyrnn.jobs.configuration import Configuration
from steadyrnn.jobs.loading import build_task
from steadyrnn.models.group import SequenceGroup, group
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.models.systems import build_model
from steadyrnn.tasks.base import Task
from steadyrnn.tasks.registry import make_task
from steadyrnn.train.grouped import train_group
from steadyrnn.train.randomness import seed_everything

from .base import Judgement, judge_numbers
from .curves import Axis, Line, Panel, mean_curve
from .parameter_counts import count_parameters
from .published.zhang import VALUES

__all__ = [
    "MODELS", "count_all_parameters", "draw_accuracies", "draw_learning", "judge_best", "judge_overfitting", "judge_parameters",
    "judge_reached", "judge_set", "search_time_series", "train_time_series",
]  # fmt: skip

MODELS: dict[str, str] = {"rnn": "RNN", "lstm": "LSTM", "ornn": "oRNN", "spectral-rnn": "Spectral-RNN"}
"""The models of the table, by the key of their published numbers."""

_DIGITS = 3  # of a printed accuracy
_PARTS = ("train", "validation")
_AUGMENTED = {"task.noise", "task.shift"}
"""Settings that change the training series."""


def train_time_series(
    settings: Mapping[str, Any], seeds: Sequence[int], found: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Train a network of each seed, all in one group, and test the best weights of each.

    Args:
        settings: Dotted settings of the task ``ucr``, the model and the training.
        seeds: Of weights and data, one per network.
        found: What :func:`search_time_series` chose, on top of ``settings``.

    Returns:
        ``parameters`` of a network; of each seed ``last``, the validation scores after the last step; ``validation`` and
        ``test``, the accuracies of the weights that were best on validation series; None where it diverged; ``settings``,
        where some were chosen.
    """
    chosen = {} if found is None else dict(found["chosen"])
    configuration = Configuration.from_dotted({**settings, **chosen})
    tasks = [build_task(replace(configuration, task=replace(configuration.task, seed=seed))) for seed in seeds]
    networks = _build_group(configuration, tasks, seeds)
    done = train_group(networks, tasks, configuration.train)
    return {
        "parameters": sum(parameter.numel() for parameter in networks.members[0].parameters()),
        "validation": [None if one is None else one.best["accuracy"] for one in done.results],
        "last": [None if one is None else one.last for one in done.results],
        "test": [None if one is None else one.test["accuracy"] for one in done.results],
        **({} if found is None else {"settings": chosen}),
    }


def search_time_series(
    settings: Mapping[str, Any], candidates: Sequence[Mapping[str, Any]], draws: Sequence[int], lengths: Sequence[int]
) -> dict[str, Any]:
    """Choose settings and the number of steps on held-out series: try all, keep the better half, try that for longer.

    Every trial trains a network of each draw, from a fresh start. It is ranked by the accuracy on held-out series after the
    last step, a mean over the draws; among equals the loss decides. The best trial of all is chosen, of whatever length.

    Settings that leave the training series as they are also give what the paper prints: in the first round, the weights that
    were best on held-out series on the way are tested. Nothing is chosen by that, and no other trial keeps test scores.

    Args:
        settings: Those that all candidates share.
        candidates: Dotted settings to choose from.
        draws: Seeds of weights and of the series that are held out.
        lengths: Steps of the first round and of the second one.

    Returns:
        ``chosen``, the settings and the steps of the best trial; ``tried``, all trials with their scores; ``plain`` and
        ``test``, the best settings of the first round that leave the training series as they are, and the test accuracy of
        each draw.
    """
    short, long = lengths
    first = [_try(settings, candidate, draws, short) for candidate in candidates]
    ranked = sorted(first, key=_rank)
    second = [_try(settings, one["settings"], draws, long) for one in ranked[: max(1, len(ranked) // 2)]]
    plain = next(one for one in ranked if _is_plain(one["settings"]))
    best = min((*first, *second), key=_rank)
    return {
        "chosen": {**best["settings"], "train.steps": best["steps"]},
        "tried": [{name: value for name, value in one.items() if name != "test"} for one in (*first, *second)],
        "plain": plain["settings"],
        "test": plain["test"],
    }


def _try(settings: Mapping[str, Any], candidate: Mapping[str, Any], draws: Sequence[int], steps: int) -> dict[str, Any]:
    """Return a candidate, its steps and its scores on held-out series; only a plain one is scored on the way too."""
    own = {**settings, **candidate, "train.steps": steps}
    done = train_time_series(own if _is_plain(candidate) else {**own, "train.validate_every": steps}, draws)
    whole = None not in done["last"]
    scores = {name: fmean(one[name] for one in done["last"]) if whole else None for name in ("accuracy", "loss")}
    return {"settings": dict(candidate), "steps": steps, **scores, "test": done["test"]}


def _is_plain(candidate: Mapping[str, Any]) -> bool:
    return not _AUGMENTED & {*candidate}


def _rank(one: Mapping[str, Any]) -> tuple[float, float]:
    return (1.0, 0.0) if one["accuracy"] is None else (-one["accuracy"], one["loss"])


def _build_group(configuration: Configuration, tasks: Sequence[Task], seeds: Sequence[int]) -> SequenceGroup:
    """Return fresh networks, each with the first weights that a run of its own seed would have."""
    networks: list[SequenceModel] = []
    for seed, task in zip(seeds, tasks, strict=True):
        seed_everything(seed)
        networks.append(cast(SequenceModel, build_model(configuration.model, task.interface)))
    return group(networks)


def count_all_parameters(settings: Mapping[str, Mapping[str, Any]], sets: Sequence[str]) -> dict[str, Any]:
    """Return the number of parameters of every network on every set, built and counted.

    Args:
        settings: Dotted settings of each model, by name.
        sets: Names of sets.
    """
    counts: dict[str, Any] = {}
    for name in sets:
        interface = make_task("ucr", dataset=name, paper_outputs=True).interface
        for model, given in settings.items():
            counts[f"{name}/{model}"] = count_parameters(given, interface.inputs, interface.outputs)["all"]
    return counts


# Judges


def _accuracies(cells: Mapping[str, Any], row: str, name: str) -> dict[str, list[float | None]]:
    return {model: cells[f"{row}/{model}/{name}"]["test"] for model in MODELS if f"{row}/{model}/{name}" in cells}


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean with as many digits as are printed, None where a run diverged."""
    known = [value for value in values if value is not None]
    return round(fmean(known), _DIGITS) if len(known) == len(values) else None


def judge_set(cells: Mapping[str, Any], row: str, name: str, published: Mapping[str, float]) -> Judgement:
    """Judge one set: seen where the Spectral-RNN is as accurate as printed; the other models stand beside it.

    Args:
        cells: Numbers by name.
        row: ``search``, of which the settings that leave the series as they are count, or ``tuned``.
        name: Of the set.
        published: Accuracies by model.
    """
    found = _accuracies(cells, row, name)
    means = {model: _mean(values) for model, values in found.items()}
    text = "; ".join(
        f"{MODELS[model]} {'diverged' if mean is None else format(mean, '.3f')} (printed {published[model]:.3f})"
        for model, mean in reversed(means.items())
    )
    own = means["spectral-rnn"]
    if own is None:
        return Judgement("not seen", text, seeds=len(found["spectral-rnn"]))
    verdict = "seen" if own >= published["spectral-rnn"] else "not seen"
    return judge_numbers(verdict, text, [value for value in found["spectral-rnn"] if value is not None], "accuracy")


def judge_reached(cells: Mapping[str, Any], row: str, published: Mapping[str, float], least: int) -> Judgement:
    """Judge on how many sets the Spectral-RNN is at or above its printed accuracy; seen for at least ``least``."""
    means = {name: _mean(cells[f"{row}/spectral-rnn/{name}"]["test"]) for name in published}
    reached = [name for name, mean in means.items() if mean is not None and mean >= published[name]]
    seeds = len(cells[f"{row}/spectral-rnn/{next(iter(published))}"]["test"])
    text = f"at or above the printed accuracy on {len(reached)} of {len(published)} sets"
    return Judgement("seen" if len(reached) >= least else "not seen", text, len(reached), None, seeds, "sets")


def judge_best(cells: Mapping[str, Any], row: str, sets: Sequence[str], printed: int) -> Judgement:
    """Judge on how many sets no model is more accurate than the Spectral-RNN; seen for as many as printed, or more.

    A model with a run that diverged is not more accurate. Where it is the Spectral-RNN, the set does not count.
    """
    best = 0
    for name in sets:
        means = {model: _mean(values) for model, values in _accuracies(cells, row, name).items()}
        own = means["spectral-rnn"]
        best += own is not None and own >= max(mean for mean in means.values() if mean is not None)
    text = f"no model is more accurate than the Spectral-RNN on {best} of {len(sets)} sets"
    return Judgement("seen" if best >= printed else "not seen", text, best, unit="sets")


def judge_parameters(cells: Mapping[str, Any], published: Mapping[str, int]) -> Judgement:
    """Judge that every network has exactly the printed number of parameters."""
    counts = cells["parameters"]
    equal = [name for name, count in published.items() if counts[name] == count]
    text = f"{len(equal)} of {len(published)} networks have the printed number of parameters"
    return Judgement("seen" if len(equal) == len(published) else "not seen", text, len(equal), unit="networks")


def judge_overfitting(cells: Mapping[str, Any], name: str) -> Judgement:
    """Judge that the Spectral-RNN ends with the smallest gap between training and validation accuracy of one set.

    Training accuracy is that of the last batches, validation accuracy the last one; both are means over the seeds that did not
    diverge. A network that learned nothing has no gap: so the validation accuracy of the Spectral-RNN must be at most 0.05
    below the best. Where it diverged itself, or all runs of another model did, it is not seen.
    """
    gaps, scores, texts = dict[str, float](), dict[str, float](), []
    seeds, lost = sum(key.startswith(f"rnn/{name}/seed") for key in cells), dict[str, int]()
    for model, label in MODELS.items():
        runs = [run for key, run in cells.items() if key.startswith(f"{model}/{name}/seed")]
        whole = [
            run["curve"] for run in runs
            if run["validation"] is not None and {f"{part} accuracy" for part in _PARTS} <= {*run["curve"]}
        ]  # fmt: skip
        lost[model] = len(runs) - len(whole)
        if not whole:
            return Judgement("not seen", f"all {len(runs)} runs of {label} diverged", seeds=seeds)
        trained, scores[model] = (fmean(curve[f"{part} accuracy"][-1][1] for curve in whole) for part in _PARTS)
        gaps[model] = trained - scores[model]
        diverged = f"; {lost[model]} of {len(runs)} runs diverged" if lost[model] else ""
        texts.append(f"{label} {gaps[model]:.2f} (validation {scores[model]:.2f}{diverged})")
    learned = not lost["spectral-rnn"] and scores["spectral-rnn"] >= max(scores.values()) - 0.05
    verdict = "seen" if learned and gaps["spectral-rnn"] <= min(gaps.values()) else "not seen"
    text = "training less validation accuracy: " + "; ".join(texts)
    return Judgement(verdict, text, gaps["spectral-rnn"], seeds=seeds, unit="gap of accuracy")


# Pictures


def draw_accuracies(cells: Mapping[str, Any]) -> list[Panel]:
    """Return one panel for each row that was run: mean accuracy of every model on every set, and the printed one."""
    panels = []
    for row, title in (("tuned", "trained on all series"), ("search", "a fifth of the training series held out")):
        sets = list(dict.fromkeys(key.split("/")[2] for key in cells if key.startswith(f"{row}/")))
        if sets:
            printed = [float(VALUES[f"table4/{name}/spectral-rnn/accuracy"].value) for name in sets]
            lines = [_draw_model(cells, row, model, sets) for model in MODELS]
            lines.append(Line("Spectral-RNN, printed", list(range(len(sets))), printed, style="points"))
            panels.append(Panel(title, Axis("set", names=sets), Axis("test accuracy"), lines))
    return panels


def _draw_model(cells: Mapping[str, Any], row: str, model: str, sets: Sequence[str]) -> Line:
    means = [_mean(cells[f"{row}/{model}/{name}"]["test"]) for name in sets]
    return Line(MODELS[model], list(range(len(sets))), means, style="points")


def draw_learning(cells: Mapping[str, Any]) -> list[Panel]:
    """Return one panel for each set: accuracy on training batches and on held-out series during training."""
    panels = []
    for name in dict.fromkeys(key.split("/")[1] for key in cells):
        for part in _PARTS:
            lines = []
            for model in MODELS:
                curves = [run["curve"] for key, run in cells.items() if key.startswith(f"{model}/{name}/")]
                line = mean_curve(MODELS[model], [curve.get(f"{part} accuracy", []) for curve in curves])
                lines += [] if line is None else [line]
            if lines:
                panels.append(Panel(f"{name}, {part}", Axis("step"), Axis("accuracy"), lines))
    return panels
