"""Settings for a user's own data: what is left open is chosen after the data has been read, with a reason for each choice."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadyrnn.models.registry import SYSTEMS
from steadyrnn.tasks.base import Task
from steadyrnn.tasks.registry import make_task
from steadyrnn.tasks.series.prepared import has_few_held_out
from steadyrnn.tasks.series.task import SeriesTask
from steadyrnn.train.device import choose_device
from steadyrnn.train.ranks import alone, join

from .configuration import Configuration
from .loading import build_task
from .model_choice import choose_model, kind_of
from .open_settings import AUTO, TASK
from .rate_test import find_rate
from .recipes import configure

__all__ = ["Settled", "settle"]


_BATCH = 32
_USUAL_RATE = 3e-3
_SHORT = 40
"""Steps up to which a last state has seen enough of a series."""
_MOST_EPOCHS, _FEWEST_STEPS, _MOST_STEPS = 200, 1000, 2000
_SMALL = 32 * 128
"""Rows of a batch times units up to which more CPU threads than one hardly help, and are slow where others use the cores."""


@dataclass(frozen=True)
class Settled:
    """A configuration of which nothing is open.

    Args:
        configuration: Task, model and training.
        task: The task, its data read.
        notes: How the choices came about, a sentence each.
        facts: The same for machines.
    """

    configuration: Configuration
    task: Task
    notes: tuple[str, ...]
    facts: dict[str, Any]


def settle(given: Mapping[str, Any], want: str | None = None, task: Task | None = None) -> Settled:
    r"""Choose what a user left open: the model, the readout and the learning rate.

    The model is chosen if none, or ``"auto"``, is named. A network with one answer per series of more than 40 steps, unless
    that is a forecast, reads the mean of its states, so that one that forgets quickly still sees the whole series. The rate is
    that of a :func:`~steadyrnn.jobs.rate_test.find_rate`.

    If fewer than 10 series would be held out for validation, they would tell networks apart by chance. Then none is held out:
    the network trains on all series but those of the test, at a rate of 0.003, for all steps.

    Of the processes of a distributed run the first chooses, and tells the others.

    Args:
        given: Dotted settings, as the command line has them; ``task.data`` names the file.
        want: What the user wants of the model, of :data:`~steadyrnn.jobs.open_settings.WANTS`.
        task: The task of these settings, where it has been made already; None makes it.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("waves.csv").write_text("id,x,kind\n" + "".join(
        ...     f"{n},{(n % 2 + 1) * t % 3},{'ab'[n % 2]}\n" for n in range(20) for t in range(9)))
        >>> waves = {"task.data": "waves.csv", "task.series": "id", "task.target": "kind", "train.epochs": 1}
        >>> settled = settle({**waves, "train.device": "cpu", "train.optimizer.lr": 0.01})
        >>> settled.configuration.model.name, settled.configuration.model.readout
        ('stable-spectral', None)
    """
    ranks = join()
    if ranks.size == 1:
        return _settle(given, want, task)
    chosen = ranks.agree(lambda: _settle_alone(given, want, task) if ranks.first else None)
    plain = {} if chosen is None else {**vars(chosen), "configuration": chosen.configuration.to_dict(), "task": None}
    told, _ = ranks.share(plain)
    return ranks.agree(lambda: chosen if chosen is not None else _repeat(told, task))


def _settle_alone(given: Mapping[str, Any], want: str | None, task: Task | None) -> Settled:
    """Choose while the other processes of a distributed run wait: two could choose differently, by rounding."""
    with alone():
        return _settle(given, want, task)


def _repeat(told: Mapping[str, Any], task: Task | None) -> Settled:
    """Return what another process has chosen, with the data read here."""
    configuration = Configuration.from_dict(told["configuration"])
    made = build_task(configuration) if task is None else task
    return Settled(configuration, made, tuple(told["notes"]), told["facts"])


def _settle(given: Mapping[str, Any], want: str | None, task: Task | None) -> Settled:
    """Choose what a user left open, in one process."""
    settings = dict(given)
    for name in ("task.data", "task.test_data"):
        if settings.get(name) is not None:
            settings[name] = str(Path(settings[name]).absolute())
    if task is None:
        task = _make(settings)
        few = isinstance(task, SeriesTask) and has_few_held_out(task.prepared)
        if few and not {"task.validation", "task.refit"} & {*settings}:
            settings["task.refit"] = True
            task = _make(settings)
    settings = {**_chosen_reading(task), **settings}
    notes, facts = list[str](), dict[str, Any]()
    if settings.get("model.name", AUTO) == AUTO:
        choice = choose_model(task, want, settings.get("model.width"))
        settings = {**choice.settings, **settings, "model.name": choice.settings["model.name"]}
        notes.append(choice.reason)
        facts["model_choice"] = choice.reason
    name = settings["model.name"]
    if _reads_mean(task, name):
        settings = {"model.readout": "mean", **settings}
    settings = {**_measure_out(task, settings), **settings}
    configuration = configure(TASK, name, settings)
    if "train.threads" not in given and _is_small(configuration):
        settings["train.threads"] = 1
        configuration = configure(TASK, name, settings)
        notes.append("one CPU thread, enough for a network of this size")
    if "train.optimizer.lr" not in given and settings.get("task.refit"):
        configuration = configure(TASK, name, {**settings, "train.optimizer.lr": _USUAL_RATE})
        notes.append(f"learning rate {_USUAL_RATE:g}: there are too few series to hold some out for a range test")
    elif "train.optimizer.lr" not in given and task.ranks_share == "time":
        configuration = configure(TASK, name, {**settings, "train.optimizer.lr": _USUAL_RATE})
        notes.append(f"learning rate {_USUAL_RATE:g}: one process may be too small for a range test of series that ranks share")
    elif "train.optimizer.lr" not in given:
        found = find_rate(configuration, task)
        configuration = configure(TASK, name, {**settings, "train.optimizer.lr": found.rate})
        tried = ", ".join(f"{loss:.3g} at {rate:g}" for rate, loss in found.losses.items())
        notes.append(f"learning rate {found.rate:g}: {found.reason}; validation loss after {found.steps} steps is {tried}")
        facts["rate_test"] = found.to_dict()
    return Settled(configuration, task, tuple(notes), facts)


def _is_small(configuration: Configuration) -> bool:
    """Say whether one CPU thread is enough. Threads wait for each other in each of thousands of small operations per step."""
    on_cpu = choose_device(configuration.train.device).type == "cpu"
    return on_cpu and configuration.train.batch_size * (configuration.model.width or 1) <= _SMALL


def _make(settings: Mapping[str, Any]) -> Task:
    """Return the task of dotted settings."""
    options = {name.partition(".")[2]: value for name, value in settings.items() if name.startswith("task.")}
    return make_task(TASK, **{name: value for name, value in options.items() if name != "name"})


def _chosen_reading(task: Task) -> dict[str, Any]:
    """Return how the series are read, so that a later release that would choose otherwise reads a stored run as it was."""
    if not isinstance(task, SeriesTask):
        return {}
    problem = task.problem
    windows = {"task.window": problem.window, "task.stride": problem.stride} if problem.window is not None else {}
    split = {"task.split": "time" if problem.by_time else "series", "task.refit": task.prepared.settings.refit}
    return {"task.kind": problem.kind, "task.patch": problem.patch, **windows, **split}


def _measure_out(task: Task, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return how long to train: up to 200 epochs, but 1,000 to 2,000 steps, so that any file is done in minutes.

    A validation follows every epoch, or every 25 to 100 steps where epochs are shorter or longer. Training ends early when a
    third of the validations have brought nothing better.
    """
    if "train.steps" in given or "train.epochs" in given:
        return {}
    epoch = task.epoch_steps(int(given.get("train.batch_size", _BATCH)))
    steps = min(max(_MOST_EPOCHS * epoch, _FEWEST_STEPS), _MOST_STEPS)
    every = int(given.get("train.validate_every") or min(max(epoch, 25), 100))
    patience = max(5, round(steps / every / 3))
    return {"train.steps": steps, "train.validate_every": every, "train.stop.patience": patience}


def _reads_mean(task: Task, model: str) -> bool:
    """Say whether a network reads the mean of its states unless the user says otherwise."""
    system = SYSTEMS.get(model)
    if kind_of(task) == "forecasting" or task.interface.reads != "last" or system is None or "readout" not in system.options:
        return False
    return len(task.train_batch(0, 8).input) > _SHORT
