"""Training of an estimator's network: chosen and trained anew, or trained on."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from steadyrnn.jobs.own_data import settle
from steadyrnn.jobs.train_model import train_model
from steadyrnn.models.systems import build_model
from steadyrnn.runs.folder import Run
from steadyrnn.tasks.series.task import SeriesTask
from steadyrnn.train.device import choose_device, device_context
from steadyrnn.train.progress import Progress, make_progress
from steadyrnn.train.randomness import keep_random_state, seed_everything
from steadyrnn.train.ranks import refuse_ranks
from steadyrnn.train.settings import TrainSettings
from steadyrnn.train.step import Stepper
from steadyrnn.train.trainer import Result, train

__all__ = ["Fitted", "fit_new", "make_untrained", "train_on"]

_VALIDATIONS = 100
"""Of a training: where an epoch has few steps, validating after each would take longer than the steps."""


@dataclass(frozen=True)
class Fitted:
    """A trained network, and how it came about.

    Args:
        model: The network with its best weights, on the CPU.
        train: How it was trained, with the rate that was found.
        facts: How model and rate were chosen.
        result: Steps and scores; None of a network that is not trained yet.
        history: The validation score in the course of training.
        folder: The run folder, where one was wanted.
    """

    model: nn.Module
    train: TrainSettings
    facts: Mapping[str, Any]
    result: Result | None = None
    history: tuple[dict[str, float], ...] = ()
    folder: Path | None = None


def fit_new(task: SeriesTask, given: Mapping[str, Any], want: str | None, runs: str | None, label: str, verbose: int) -> Fitted:
    """Choose what is open, and train a fresh network; the random states of the process stay as they are.

    Args:
        task: The task.
        given: Dotted settings, as the program has them.
        want: What the user wants of the model.
        runs: Where a run folder is made; None makes none.
        label: What the estimator is called there.
        verbose: Whether a person watches.
    """
    refuse_ranks("An estimator", "Start it without torchrun, or train a model by `train_model`.")
    with keep_random_state():
        made = _make(task, given, want)
        every = max(task.epoch_steps(made.train.batch_size), _total(task, made.train) // _VALIDATIONS)
        settings = replace(made.train, validate_every=every)
        progress = "auto" if verbose else "silent"
        if runs is not None:
            name = made.facts["model"]
            run = train_model(made.model, task, settings, runs, name=label, label=name, progress=progress)
            return replace(_finished(made, run.result), history=_read_history(run.folder, task), folder=run.folder)
        history = _History(make_progress(progress), every, f"validation {task.metric}")
        result = train(made.model, task, settings, progress=history)
        return replace(_finished(made, result), history=tuple(history.lines))


def make_untrained(task: SeriesTask, given: Mapping[str, Any], want: str | None) -> Fitted:
    """Choose what is open and return a fresh network, as :func:`fit_new` does before it trains."""
    with keep_random_state():
        return _make(task, given, want)


def train_on(
    model: nn.Module, task: SeriesTask, settings: TrainSettings, state: dict[str, Any] | None, done: int
) -> tuple[dict[str, Any], int]:
    """Train a network for one pass through the examples of a task; return the state of the optimizer, and the steps.

    Args:
        model: The network, on the CPU; it is changed.
        task: The task.
        settings: How to train.
        state: Of the optimizer after the pass before; None begins.
        done: Steps before; numbers what is drawn.
    """
    refuse_ranks("An estimator", "Start it without torchrun, or train a model by `train_model`.")
    device = choose_device(settings.device)
    with keep_random_state(), device_context(settings):
        seed_everything(settings.seed + done)
        model.to(device).train()
        task.to(device)
        stepper = Stepper(model, task, settings, model)
        if state is not None:
            stepper.optimizer.load_state_dict(copy.deepcopy(state))
        steps = task.epoch_steps(settings.batch_size)
        for step in range(steps):
            stepper.step(step + 1, task.train_batch(step, settings.batch_size), 1.0)
        stepper.guard.check()
        model.cpu().eval()
        return _on_cpu(stepper.optimizer.state_dict()), steps


def _make(task: SeriesTask, given: Mapping[str, Any], want: str | None) -> Fitted:
    """Choose what is open, and build the network."""
    settled = settle(given, want, task)
    configuration = settled.configuration
    seed_everything(configuration.train.seed)
    model = build_model(configuration.model, task.interface)
    return Fitted(model, configuration.train, {**settled.facts, "model": configuration.model.name})


def _finished(made: Fitted, result: Result) -> Fitted:
    return replace(made, model=made.model.cpu().eval(), result=result)


def _total(task: SeriesTask, settings: TrainSettings) -> int:
    return settings.steps or settings.epochs * task.epoch_steps(settings.batch_size)


def _read_history(folder: Path, task: SeriesTask) -> tuple[dict[str, float], ...]:
    lines = [line for line in Run.open(folder).metrics() if line["kind"] == "validation"]
    return tuple({"step": line["step"], task.metric: line[task.metric]} for line in lines)


def _on_cpu(value: Any) -> Any:
    """Return a nested state with its tensors on the CPU."""
    if isinstance(value, dict):
        return {key: _on_cpu(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_on_cpu(item) for item in value]
    return value.detach().cpu() if hasattr(value, "detach") else value


class _History(Progress):
    """Keeps the validation score, and shows what another one shows.

    Args:
        shown: The other one.
        every: Steps between two validations.
        name: Of the score among the numbers that are shown.
    """

    def __init__(self, shown: Progress, every: int, name: str) -> None:
        self.shown, self.every, self.name, self.total = shown, every, name, 0
        self.lines: list[dict[str, float]] = []

    def begin(self, total: int, done: int) -> None:
        """Note how many steps there will be."""
        self.total = total
        self.shown.begin(total, done)

    def update(self, step: int, values: Mapping[str, Any]) -> None:
        """Keep the score of a step that was validated."""
        if self.name in values and (step % self.every == 0 or step == self.total):
            self.lines.append({"step": step, self.name.removeprefix("validation "): values[self.name]})
        self.shown.update(step, values)

    def note(self, text: str) -> None:
        """Show a line of text."""
        self.shown.note(text)

    def end(self) -> None:
        """Finish."""
        self.shown.end()
