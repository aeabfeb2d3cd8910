"""Runs sorted: by task, then by configuration, whose runs differ by the seed alone."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from .numbers import finite
from .reading import Record, Trial, flatten, mapping
from .series import Line, average, extract

__all__ = ["Configuration", "Contest", "group", "to_text"]

SEEDS = {"train.seed", "task.seed"}
# What changes neither the data nor the mathematics of a run.
INDIFFERENT = {
    *("format", "train.device", "train.threads", "task.data_dir"),
    *("train.log_every", "train.save_every", "train.probe.every", "train.probe.names"),
    "train.probe.against",
}
# Settings of a task that say how it is trained on, not what it is; each with the value that a run without it has.
OF_TRAINING = {"task.curriculum": "none", "task.curriculum_below": 1e-3, "task.shortest": 1.0}
NO_METRIC = {
    "kind",
    "step",
    "epoch",
    "time",
    "loss",
    "checkpoint",
    "lr",
    "gradient_norm",
    "examples_per_second",
    "stage",
    "stage_loss",
}
HIGHER = ("accuracy", "r2", "f1", "precision", "recall", "auc", "correct", "score")


@dataclass(frozen=True)
class Configuration:
    """Runs that differ by the seed alone.

    Args:
        label: The model's name, with what tells it from another configuration of the same model.
        trials: The runs.
        style: The class of its colour.
    """

    label: str
    trials: tuple[Trial, ...]
    style: str

    @property
    def options(self) -> Record:
        """The model's options, with the model's own values where none was given and they are known."""
        given = mapping(self.trials[0].config.get("model"))
        full = mapping(next((trial.facts.get("model") for trial in self.trials if trial.facts.get("model")), None))
        return {**full, **{key: value for key, value in given.items() if value is not None}}

    def line(self, kind: str, key: str) -> Line | None:
        """Return the mean of the runs' series."""
        return average([extract(trial.records, kind, key) for trial in self.trials])

    def values(self, of: Callable[[Trial], float | None]) -> list[float]:
        """Return a number of each run that has it."""
        return [value for trial in self.trials if (value := of(trial)) is not None]


@dataclass(frozen=True)
class Contest:
    """One task with its settings, and every configuration that was trained on it.

    Args:
        title: The task's name, with the settings that tell it from another contest of the same task.
        settings: The task's settings, without seeds.
        configurations: What was trained on it.
        metric: The score to watch.
        higher: Whether a higher score is better.
        baselines: Scores of the best constant answer, as far as the runs contain them.
        references: Test scores of simple methods by name, as far as the runs contain them.
    """

    title: str
    settings: Record
    configurations: tuple[Configuration, ...]
    metric: str
    higher: bool
    baselines: Record
    references: Record

    @property
    def trials(self) -> list[Trial]:
        """Every run."""
        return [trial for configuration in self.configurations for trial in configuration.trials]

    def baseline(self, key: str) -> float | None:
        """Return the baseline of a score."""
        return finite(self.baselines.get(key))

    def best_validation(self, trial: Trial) -> float | None:
        """Return a run's best score on the validation split."""
        values = [value for _, value in extract(trial.records, "validation", self.metric)]
        return (max if self.higher else min)(values) if values else None

    def test(self, trial: Trial) -> float | None:
        """Return a run's score on the test split, with the best weights where both were tested."""
        tests = [record for record in trial.records if record.get("kind") == "test"]
        best = [record for record in tests if record.get("checkpoint") == "best"]
        values = [finite(record.get(self.metric)) for record in best or tests]
        return values[-1] if values else None


def group(trials: Sequence[Trial]) -> list[Contest]:
    """Sort runs by task and its settings, then by configuration."""
    contests = split(trials, lambda trial: flatten({"task": settings(trial, "task")}))
    styles: dict[str, str] = {}
    names = sorted({trial.task for trial in trials})
    result = []
    for name in names:
        same = [members for members in contests if members[0].task == name]
        titles = labels(name, [flatten({"task": settings(members[0], "task")}) for members in same])
        result += [contest(title, members, styles) for title, members in zip(titles, same, strict=True)]
    return result


def contest(title: str, members: Sequence[Trial], styles: dict[str, str]) -> Contest:
    """Return one contest; a label keeps its colour from one contest to the next."""
    configurations: list[Configuration] = []
    for name in sorted({trial.model for trial in members}):
        own = [trial for trial in members if trial.model == name]
        identity = partial(identify, complete=all(trial.facts.get("model") for trial in own))
        same = split(own, identity)
        for label, runs in zip(labels(name, [identity(run[0]) for run in same]), same, strict=True):
            style = styles.setdefault(label, f"c{len(styles) % 16}")
            configurations.append(Configuration(label, tuple(runs), style))
    known = next((trial.facts for trial in members if trial.facts.get("metric")), {})
    metric = str(known.get("metric") or choose_metric(members))
    higher = known.get("higher_is_better")
    if not isinstance(higher, bool):
        higher = any(word in metric.lower() for word in HIGHER)
    baselines, references = mapping(known.get("baselines")), mapping(known.get("references"))
    return Contest(title, settings(members[0], "task"), tuple(configurations), metric, higher, baselines, references)


def choose_metric(members: Iterable[Trial]) -> str:
    """Return the first score beside the loss in validations or tests, else the loss."""
    for trial in members:
        for record in trial.records:
            if record.get("kind") in ("validation", "test"):
                names = [key for key in record if key not in NO_METRIC and finite(record[key]) is not None]
                if names:
                    return str(names[0])
    return "loss"


def settings(trial: Trial, part: str) -> dict[str, Any]:
    """Return a part of the configuration without name, seed, what is indifferent and what belongs to training."""
    found, others = mapping(trial.config.get(part)), SEEDS | INDIFFERENT | {*OF_TRAINING}
    return {key: value for key, value in found.items() if key != "name" and f"{part}.{key}" not in others}


def identify(trial: Trial, complete: bool) -> dict[str, Any]:
    """Return what runs of one configuration have in common.

    Args:
        trial: One of them.
        complete: Whether options of the model that were left open have the values that the run noted.
    """
    given = {key: value for key, value in mapping(trial.config.get("model")).items() if value is not None or not complete}
    model = {**mapping(trial.facts.get("model")), **given} if complete else given
    flat = flatten({"model": model, "train": trial.config.get("train")})
    task = flatten({"task": trial.config.get("task")})
    flat |= {key: task.get(key, usual) for key, usual in OF_TRAINING.items()}
    return {key: value for key, value in flat.items() if key not in SEEDS | INDIFFERENT}


def split(trials: Sequence[Trial], key: Callable[[Trial], dict[str, Any]]) -> list[list[Trial]]:
    """Return runs in lists of equal keys, the lists in the order of the keys as text."""
    found: dict[str, list[Trial]] = {}
    for trial in trials:
        found.setdefault(f"{trial.task} {json.dumps(key(trial), sort_keys=True, default=str)}", []).append(trial)
    return [found[text] for text in sorted(found)]


def labels(name: str, several: Sequence[dict[str, Any]]) -> list[str]:
    """Return a name for each of several settings: the common one, with the entries in which they differ.

    Example:
        >>> labels("lstm", [{"model.width": 64, "train.steps": 9}, {"model.width": 128, "train.steps": 9}])
        ['lstm, width 64', 'lstm, width 128']
    """
    keys = sorted({key for one in several for key in one})
    differing = [key for key in keys if any(one.get(key) != several[0].get(key) for one in several)]
    return [", ".join([name, *(f"{key.rsplit('.', 1)[-1]} {to_text(one.get(key))}" for key in differing)]) for one in several]


def to_text(value: Any) -> str:
    """Return a setting's value as text."""
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(value, ensure_ascii=False, default=str)
