"""What is told of every step of a trial, and ends one early that is worse than others."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steadyrnn.runs.folder import Run
from steadyrnn.tasks.base import Task
from steadyrnn.train.progress import Progress
from steadyrnn.train.settings import TrainSettings

from .study import Observer

__all__ = ["PrunedError", "Watch"]


class PrunedError(Exception):
    """A trial was ended early; the text says at which step."""


class Watch(Progress):
    """Tells optuna the validations of a trial's first seed, and ends the trial when optuna's pruner says so.

    The first seed speaks for the setting in every trial, whether its seeds are trained as a group or one after another: so
    trials are compared at the same step by the same kind of number. Values are those that the run folder has; a trial that
    goes on after an interruption tells the same ones again, which changes nothing.

    Args:
        folder: The run folder of the first seed.
        pruner: The sweep's folder, the study, the trial's number in it, and the kind of pruner.
        metric: The score.
        settings: Of training, for the steps of validations.
        task: The task, for the steps of an epoch.
    """

    def __init__(
        self, folder: Path, pruner: tuple[str, str, int, str], metric: str, settings: TrainSettings, task: Task
    ) -> None:
        self._folder, self._metric = folder, metric
        self._observer = Observer(*pruner)
        self._every = settings.validate_every or task.epoch_steps(settings.batch_size)
        self._total = 0
        self._over = False

    def begin(self, total: int, done: int) -> None:
        """Note how many steps there are."""
        self._total = total

    def set_total(self, total: int) -> None:
        """Note another number of steps."""
        self._total = total

    def end(self) -> None:
        """Do nothing."""

    def update(self, step: int, values: Mapping[str, Any]) -> None:
        """Tell new validations; a group is told of a step before its validation, and so of the last one a step later."""
        if self._over or (step % self._every > 1 and self._every > 1):
            return
        lines = Run.open(self._folder).metrics()
        self._over = any(line.get("kind") == "test" for line in lines)
        for line in lines:
            if line.get("kind") == "validation" and isinstance(line.get(self._metric), int | float):
                self._tell(int(line["step"]), float(line[self._metric]))

    def _tell(self, step: int, value: float) -> None:
        if self._observer.tell(step, value) and step < self._total and not self._over:
            raise PrunedError(f"ended at step {step:,} of {self._total:,}: worse there than other trials")
