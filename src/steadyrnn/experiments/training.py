"""Cells that train a network: one run of a seed, and the search of settings that a paper does not give."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from steadyrnn.errors import TrainingError
from steadyrnn.jobs.configuration import Configuration
from steadyrnn.jobs.loading import build_task
from steadyrnn.jobs.measurements import make_probes, record_certificate
from steadyrnn.jobs.training_probes import shorten
from steadyrnn.models.systems import build_model
from steadyrnn.runs.folder import Run
from steadyrnn.tasks.base import Task
from steadyrnn.train.arguments import check_settings
from steadyrnn.train.device import device_context
from steadyrnn.train.randomness import seed_everything
from steadyrnn.train.trainer import train

__all__ = ["MOST_POINTS", "halve_candidates", "search_settings", "train_network"]

MOST_POINTS = 200
"""Points of a curve that are kept, evenly over the run, the first and the last among them."""


def train_network(
    settings: Mapping[str, Any], seed: int, folder: Path, found: Mapping[str, Any] | None = None, certified: bool = False
) -> dict[str, Any]:
    """Train a network and test its best weights; a run that was killed goes on from its last checkpoint.

    Args:
        settings: Dotted settings, as the command line has them: ``{"task.name": "addition", "model.name": "lstm"}``. What is
            left out has the trainer's default; recipes play no part.
        seed: Of weights, dropout and data; a ``task.seed`` among the settings fixes the data.
        folder: For the run.
        found: What :func:`search_settings` chose, on top of ``settings``.
        certified: Whether to certify the best weights.

    Returns:
        ``parameters``; ``validation`` and ``test``, scores of the best weights, None where the run diverged; ``best_step``,
        ``steps`` and the ``reason`` for the end; ``curve``, what was logged by name, each a list of [step, value];
        ``probes``, by name, each a list of records; ``settings``, where some were chosen; ``certificate``, where it is
        wanted: ``contraction`` and ``stable`` of the best weights, None where the run diverged.

    Example:
        >>> sizes = {"model.width": 4, "task.length": 5, "train.steps": 2, "train.batch_size": 8, "train.log_every": 1}
        >>> done = train_network({"task.name": "addition", "model.name": "lstm", **sizes}, seed=0, folder=Path("cell"))
        >>> done["steps"], done["parameters"], sorted(done["curve"])
        (2, 117, ['train loss', 'validation loss'])
    """
    chosen = {} if found is None else dict(found["chosen"])
    configuration = Configuration.from_dotted({"task.seed": seed, **settings, **chosen, "train.seed": seed})
    with device_context(configuration.train):
        task, model = _build(configuration)
        with _open(configuration, folder) as run:
            scores = _train(configuration, task, model, run)
            curve, probes = _read_curves(run), _read_probes(run)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    noted: dict[str, Any] = {} if found is None else {"settings": chosen}
    noted |= {"certificate": _certify(model, scores)} if certified else {}
    return {"parameters": parameters, **scores, "curve": curve, "probes": probes, **noted}


def search_settings(
    settings: Mapping[str, Any], candidates: Sequence[Mapping[str, Any]], steps: int, folder: Path, seed: int = 0
) -> dict[str, Any]:
    """Choose settings on the validation split: train with each, keep the better half, train that twice as long, keep the best.

    A run that diverges is the worst. Each start is fresh. Nothing is chosen by test scores.

    Args:
        settings: Those that all candidates share.
        candidates: Dotted settings to choose from.
        steps: Of the first round.
        folder: For the runs.
        seed: Of every run.

    Returns:
        ``chosen``, one of the candidates, and ``tried``: candidate, steps and validation score of every run.

    Example:
        >>> sizes = {"task.name": "addition", "model.name": "lstm", "model.width": 4, "task.length": 5, "train.batch_size": 8}
        >>> rates = [{"train.optimizer.lr": 0.01}, {"train.optimizer.lr": 1e-6}]
        >>> search_settings(sizes, rates, 40, Path("search"))["chosen"]
        {'train.optimizer.lr': 0.01}
    """

    def validate(candidate: Mapping[str, Any], length: int, name: str) -> dict[str, float | None]:
        return _validate({**settings, **candidate, "train.steps": length}, seed, folder / name)

    return halve_candidates(candidates, steps, validate)


def halve_candidates(
    candidates: Sequence[Mapping[str, Any]], steps: int, validate: Callable[[Mapping[str, Any], int, str], Mapping[str, Any]]
) -> dict[str, Any]:
    """Choose the best of some candidates: try each, keep the better half, try that twice as long, keep the best.

    Args:
        candidates: Dotted settings to choose from.
        steps: Of the first round.
        validate: From a candidate, its steps and a name for the run to ``value``, its validation score or None where it
            diverged, and ``rank``: lower is better.

    Returns:
        ``chosen``, one of the candidates, and ``tried``: candidate, steps and validation score of every run.

    Example:
        >>> halve_candidates([{"lr": 1}, {"lr": 3}], 5, lambda one, steps, name: {"value": one["lr"], "rank": -one["lr"]})
        {'chosen': {'lr': 3}, 'tried': [{'settings': {'lr': 1}, 'steps': 5, ...}, {'settings': {'lr': 3}, ...}]}
    """
    left, tried = list(candidates), list[dict[str, Any]]()
    for turn in (1, 2):
        scores = []
        for candidate in left:
            number = candidates.index(candidate)
            score = validate(candidate, turn * steps, f"round{turn}-{number}")
            tried.append({"settings": dict(candidate), "steps": turn * steps, "validation": score["value"]})
            scores.append((score["rank"], number))
        left = [candidates[number] for _, number in sorted(scores)[: max(1, len(left) // 2)]]
        if len(left) == 1:
            break
    return {"chosen": dict(left[0]), "tried": tried}


def _validate(settings: Mapping[str, Any], seed: int, folder: Path) -> dict[str, float | None]:
    """Return the validation score of a run, and its rank: lower is better."""
    done = train_network(settings, seed, folder)
    if done["validation"] is None:
        return {"value": None, "rank": float("inf")}
    value = done["validation"][done["metric"]]
    return {"value": value, "rank": -value if done["higher_is_better"] else value}


def _build(configuration: Configuration) -> tuple[Task, nn.Module]:
    check_settings(configuration.train)
    task = build_task(configuration)
    seed_everything(configuration.train.seed)  # the model's first weights come from it
    return task, build_model(configuration.model, task.interface)


def _open(configuration: Configuration, folder: Path) -> Run:
    """Open the run in a folder, or make it."""
    names = configuration.task_name, configuration.model.name
    begun = sorted(path.parent for path in folder.joinpath(*names).glob("*/config.json"))
    if begun:
        return Run.open(begun[-1], write=True)
    return Run.create(folder, *names, configuration.to_dict())


def _train(configuration: Configuration, task: Task, model: nn.Module, run: Run) -> dict[str, Any]:
    settings = configuration.train
    size = settings.evaluation_batch_size or settings.batch_size
    probes = make_probes(task, settings.probe.names if settings.probe.every else (), size, settings.probe, run.folder)
    facts = {"metric": task.metric, "higher_is_better": task.higher_is_better, "baselines": dict(task.baselines)}
    try:
        done = train(model, task, settings, run=run, resume="last" in run.checkpoints(), callbacks=probes)
    except TrainingError as error:
        return {**facts, "validation": None, "test": None, "best_step": None, "steps": None, "reason": str(error)}
    scores = {"validation": done.best, "test": done.test, "best_step": done.best_step, "steps": done.steps}
    return {**facts, **scores, "reason": done.reason}


def _certify(model: nn.Module, scores: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what is proven of the best weights, which training leaves in the model."""
    if scores["test"] is None:
        return None
    record = record_certificate(model, None, None, scores["best_step"], "best")
    proven = record["certificate"] or {}
    return {"contraction": proven.get("contraction"), "stable": proven.get("stable", False), "reason": record["reason"]}


def _read_curves(run: Run) -> dict[str, list[list[float]]]:
    """Return what the run logged of training and validation, thinned."""
    curves: dict[str, list[list[float]]] = {}
    for record in run.metrics():
        if record["kind"] in ("train", "validation"):
            for name in ("loss", "accuracy", "perplexity", "r2"):
                if isinstance(record.get(name), float):
                    curves.setdefault(f"{record['kind']} {name}", []).append([record["step"], shorten(record[name])])
    return {name: thin(points) for name, points in curves.items()}


def thin(points: Sequence[Any]) -> list[Any]:
    """Return at most :data:`MOST_POINTS` of some points, evenly, the first and the last among them.

    Example:
        >>> len(thin(range(1000))), thin(range(1000))[0], thin(range(1000))[-1]
        (200, 0, 999)
    """
    if len(points) <= MOST_POINTS:
        return list(points)
    return [points[round(i * (len(points) - 1) / (MOST_POINTS - 1))] for i in range(MOST_POINTS)]


def _read_probes(run: Run) -> dict[str, list[dict[str, Any]]]:
    """Return what probes measured, by name, thinned."""
    probes: dict[str, list[dict[str, Any]]] = {}
    for record in run.metrics():
        if record["kind"] == "probe":
            kept = {name: value for name, value in record.items() if name not in ("kind", "name")}
            probes.setdefault(record["name"], []).append(kept)
    return {name: thin(records) for name, records in probes.items()}
