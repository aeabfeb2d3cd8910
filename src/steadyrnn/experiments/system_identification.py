"""Identification of contractive systems: many small networks at once, and what their R^2 says about the states they need."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import inf, sqrt
from statistics import fmean, median_low, stdev
from typing import Any, cast

from torch import nn

from steadyrnn.jobs.configuration import Configuration
from steadyrnn.models.group import SequenceGroup, group
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.models.systems import build_model
from steadyrnn.tasks.contractive import Contractive
from steadyrnn.tasks.settings import ContractiveSettings
from steadyrnn.train.grouped import train_group
from steadyrnn.train.randomness import seed_everything
from steadyrnn.train.trainer import Result

from .base import Judgement, judge_numbers
from .curves import Axis, Mark, Panel, mean_line
from .training import halve_candidates

__all__ = [
    "draw_identification", "identify_systems", "judge_ceiling", "judge_fewer_states", "judge_twice_the_states",
    "search_identification",
]  # fmt: skip

_NAMES = {"rnn": "RNN", "urnn": "URNN", "lstm": "LSTM"}
_ROWS = {"printed": "settings as printed", "tuned": "settings as tuned"}


def identify_systems(
    settings: Mapping[str, Any], realizations: int, starts: int, seed: int, found: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Learn several random systems, each with networks of its own, in one group; keep the best network of each system.

    Realization number r has the seed r: of its system and of its records. The group of seed s has the realizations from
    s * ``realizations`` on.

    Args:
        settings: Dotted settings of the task ``contractive``, the model and the training.
        realizations: Number of systems.
        starts: Networks for each system, which differ in their first weights. The one with the best validation R^2 is kept.
        seed: Number of the group.
        found: What :func:`search_identification` chose, on top of ``settings``.

    Returns:
        ``parameters`` of a network; ``ceiling``, the R^2 that a system itself has; ``validation`` and ``test``, the R^2 of
        the kept network of each realization, None where all its networks diverged; ``diverged``, their number;
        ``settings``, where some were chosen.

    Example:
        >>> sizes = {"task.length": 30, "task.train": 20, "task.epsilon": 0.5, "train.steps": 2, "train.batch_size": 10}
        >>> names = {"task.name": "contractive", "model.name": "polar", "model.width": 4, "train.device": "cpu"}
        >>> done = identify_systems({**names, **sizes}, realizations=2, starts=3, seed=0)
        >>> len(done["test"]), done["parameters"], done["diverged"], round(done["ceiling"], 4)
        (2, 38, 0, 0.9901)
    """
    chosen = {} if found is None else dict(found["chosen"])
    configuration = Configuration.from_dotted({**settings, **chosen})
    tasks = _draw_tasks(cast(ContractiveSettings, configuration.task), seed * realizations, realizations)
    networks = _build_group(configuration, tasks, seed * realizations, starts)
    done = train_group(networks, [task for task in tasks for _ in range(starts)], configuration.train)
    best = [_choose(done.results[place : place + starts]) for place in range(0, len(done.results), starts)]
    return {
        "parameters": sum(parameter.numel() for parameter in networks.members[0].parameters()), "ceiling": tasks[0].ceiling,
        "validation": [None if one is None else one.best["r2"] for one in best],
        "test": [None if one is None else one.test["r2"] for one in best],
        "diverged": len(done.failures), **({} if found is None else {"settings": chosen}),
    }  # fmt: skip


def search_identification(
    settings: Mapping[str, Any], candidates: Sequence[Mapping[str, Any]], steps: int, realizations: int
) -> dict[str, Any]:
    """Choose settings by the median validation R^2 of several realizations; one that diverged is below any other.

    Args:
        settings: Those that all candidates share.
        candidates: Dotted settings to choose from.
        steps: Of the first round.
        realizations: Number of systems, the first ones.

    Returns:
        What :func:`~steadyrnn.experiments.training.halve_candidates` returns.
    """

    def validate(candidate: Mapping[str, Any], length: int, name: str) -> dict[str, float | None]:
        done = identify_systems({**settings, **candidate, "train.steps": length}, realizations, 1, seed=0)
        median = median_low([-inf if score is None else score for score in done["validation"]])
        return {"value": None if median == -inf else median, "rank": -median}

    return halve_candidates(candidates, steps, validate)


@lru_cache(maxsize=2)
def _draw_tasks(settings: ContractiveSettings, first: int, count: int) -> tuple[Contractive, ...]:
    """Return the tasks of some realizations; those of the cell before are kept, since to draw them takes a second each."""
    return tuple(Contractive(replace(settings, seed=first + place)) for place in range(count))


def _build_group(configuration: Configuration, tasks: Sequence[Contractive], first: int, starts: int) -> SequenceGroup:
    """Return fresh networks, those of one task side by side; each has first weights of its own seed."""
    networks: list[nn.Module] = []
    for place, task in enumerate(tasks):
        for start in range(starts):
            seed_everything((first + place) * starts + start)
            networks.append(build_model(configuration.model, task.interface))
    return group([cast(SequenceModel, network) for network in networks])


def _choose(results: Sequence[Result | None]) -> Result | None:
    """Return the result with the best validation R^2, None where all diverged."""
    known = [one for one in results if one is not None]
    return max(known, key=lambda one: one.best["r2"]) if known else None


def _collect(cells: Mapping[str, Any], row: str, model: str) -> dict[int, list[float]]:
    """Return the test R^2 of all realizations by hidden units; what diverged counts as 0, as a constant."""
    start, found = f"{row}/{model}/n", dict[int, list[float]]()
    for name, cell in cells.items():
        if name.startswith(start):
            width = int(name.removeprefix(start).partition("/")[0])
            found.setdefault(width, []).extend(0.0 if score is None else score for score in cell["test"])
    return dict(sorted(found.items()))


def _find_diverged(cells: Mapping[str, Any], row: str, widths: Sequence[int]) -> Judgement | None:
    """Return the judgement of RNNs and URNNs of which all networks of a realization diverged; None where there is none."""
    names = tuple(f"{row}/{model}/n{width}/" for model in ("rnn", "urnn") for width in widths)
    scores = [score for name, cell in cells.items() if name.startswith(names) for score in cell["test"]]
    lost = scores.count(None)
    return Judgement("not seen", f"{lost} of {len(scores)} networks diverged", seeds=len(scores)) if lost else None


def _describe(rnn: Mapping[int, Sequence[float]], urnn: Mapping[int, Sequence[float]], widths: Sequence[int]) -> str:
    return "; ".join(f"{n} units: RNN {fmean(rnn[n]):.4f}, URNN {fmean(urnn[n]):.4f}" for n in widths)


def judge_fewer_states(cells: Mapping[str, Any], row: str, units: int) -> Judgement:
    """Judge that URNNs of fewer than twice the system's states are worse than RNNs of the same size.

    Seen where the mean R^2 of the URNN is below at each such size, and the difference of a realization, averaged over these
    sizes, is on average above 0 by more than twice its standard error.

    Args:
        cells: Numbers by name, ``ROW/MODEL/nWIDTH/seedS``.
        row: Which settings.
        units: States of the true system.

    Example:
        >>> def cell(*scores): return {"test": scores}
        >>> cells = {"tuned/rnn/n4/seed0": cell(0.9, 0.8, 0.9), "tuned/urnn/n4/seed0": cell(0.8, 0.7, 0.7)}
        >>> judge_fewer_states(cells, "tuned", 4).ours
        '4 units: RNN 0.8667, URNN 0.7333'
    """
    rnn, urnn = (_collect(cells, row, model) for model in ("rnn", "urnn"))
    widths = [n for n in rnn if n < 2 * units]
    if diverged := _find_diverged(cells, row, widths):
        return diverged
    gaps = [
        fmean(pairs) for pairs in zip(*([a - b for a, b in zip(rnn[n], urnn[n], strict=True)] for n in widths), strict=True)
    ]
    below = all(fmean(urnn[n]) < fmean(rnn[n]) for n in widths)
    verdict = "seen" if below and fmean(gaps) > 2 * _standard_error(gaps) else "not seen"
    return judge_numbers(verdict, _describe(rnn, urnn, widths), gaps, "R^2 of the RNN minus that of the URNN")


def _standard_error(numbers: Sequence[float]) -> float:
    """Return the standard error of a mean; infinite for one number."""
    return stdev(numbers) / sqrt(len(numbers)) if len(numbers) > 1 else inf


def judge_twice_the_states(cells: Mapping[str, Any], row: str, units: int) -> Judgement:
    """Judge that URNNs of at least twice the system's states match RNNs of the same size.

    Seen where at each such size the mean difference of a realization, RNN minus URNN, with twice its standard error on top, is
    at most the share of noise in the outputs, 1 minus the R^2 of the system itself. None may have diverged.

    Args:
        cells: Numbers by name, ``ROW/MODEL/nWIDTH/seedS``.
        row: Which settings.
        units: States of the true system.

    Example:
        >>> def cell(*scores): return {"test": scores, "ceiling": 0.99}
        >>> cells = {"tuned/rnn/n8/seed0": cell(0.98, 0.97, 0.98), "tuned/urnn/n8/seed0": cell(0.98, 0.97, 0.979)}
        >>> judge_twice_the_states(cells, "tuned", 4).verdict
        'seen'
    """
    rnn, urnn = (_collect(cells, row, model) for model in ("rnn", "urnn"))
    widths = [n for n in rnn if n >= 2 * units]
    if diverged := _find_diverged(cells, row, widths):
        return diverged
    noise = 1 - _find_ceiling(cells, row)
    paired = {n: [a - b for a, b in zip(rnn[n], urnn[n], strict=True)] for n in widths}
    seen = all(fmean(found) + 2 * _standard_error(found) <= noise for found in paired.values())
    gaps = [gap for found in paired.values() for gap in found]
    unit = "R^2 of the RNN minus that of the URNN"
    text = _describe(rnn, urnn, widths)
    return Judgement("seen" if seen else "not seen", text, fmean(gaps), seeds=len(rnn[widths[0]]), unit=unit)


def judge_ceiling(cells: Mapping[str, Any], row: str, units: int) -> Judgement:
    """Judge that RNNs and URNNs of at least twice the system's states come near the R^2 of the system itself.

    Near is an error of at most twice that of the system: what the network adds is then no more than the noise.

    Args:
        cells: Numbers by name, ``ROW/MODEL/nWIDTH/seedS``.
        row: Which settings.
        units: States of the true system.

    Example:
        >>> cells = {f"tuned/{model}/n8/seed0": {"test": [0.985, 0.987], "ceiling": 0.99} for model in ("rnn", "urnn")}
        >>> judge_ceiling(cells, "tuned", 4).ours
        '8 units: RNN 0.9860, URNN 0.9860 (ceiling 0.9900)'
    """
    rnn, urnn = (_collect(cells, row, model) for model in ("rnn", "urnn"))
    widths = [n for n in rnn if n >= 2 * units]
    ceiling = _find_ceiling(cells, row)
    seen = all(1 - fmean(scores[n]) <= 2 * (1 - ceiling) for scores in (rnn, urnn) for n in widths)
    text = f"{_describe(rnn, urnn, widths)} (ceiling {ceiling:.4f})"
    return Judgement("seen" if seen else "not seen", text, seeds=len(rnn[widths[0]]))


def _find_ceiling(cells: Mapping[str, Any], row: str) -> float:
    return float(next(cell["ceiling"] for name, cell in cells.items() if name.startswith(f"{row}/")))


def draw_identification(cells: Mapping[str, Any]) -> list[Panel]:
    """Return a panel for each row of settings: test R^2 against hidden units, mean and spread over realizations."""
    panels = []
    for row, title in _ROWS.items():
        scores = {model: _collect(cells, row, model) for model in _NAMES}
        lines = [
            mean_line(_NAMES[model], [([*own], each) for each in zip(*own.values(), strict=True)])
            for model, own in scores.items()
            if own
        ]
        if lines:
            marks = [Mark("the true system itself", y=_find_ceiling(cells, row))]
            panels.append(Panel(f"Test R^2, {title}", Axis("hidden units"), Axis("R^2"), lines, marks))
    return panels
