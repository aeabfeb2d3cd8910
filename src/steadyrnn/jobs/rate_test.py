"""A short range test: a few steps at each of several learning rates, and from their validation losses the rate for the run."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from steadyrnn.errors import NotFiniteError, TrainingError
from steadyrnn.models.systems import build_model
from steadyrnn.tasks.base import Task
from steadyrnn.train.randomness import seed_everything
from steadyrnn.train.settings import AverageSettings, ProbeSettings, ScheduleSettings, StopSettings
from steadyrnn.train.trainer import train

from .configuration import Configuration

__all__ = ["RATES", "RateTest", "find_rate"]

RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
"""Learning rates that are tried."""

_STEPS = 100
_LONGER = 5
"""How many times as long as its test a run is, for which the best rate of the test is too high."""
_LEARNED = 0.9
"""Share of the loss at the lowest rate below which the best of a test has learned more than that."""


@dataclass(frozen=True)
class RateTest:
    """What a range test found.

    Args:
        rate: The rate to train with.
        losses: Validation loss after the test, by rate; infinite where it was not finite.
        steps: Steps at each rate.
    """

    rate: float
    losses: Mapping[float, float]
    steps: int

    @property
    def reason(self) -> str:
        """Why this rate was chosen, in a few words."""
        best = _find_best(self.losses)
        return "the best of the test" if self.rate == best else f"below {best:g}, the best of the test, as the run is longer"

    def to_dict(self) -> dict[str, Any]:
        """Return the form that JSON holds."""
        losses = {f"{rate:g}": loss if math.isfinite(loss) else None for rate, loss in self.losses.items()}
        return {"rate": self.rate, "steps": self.steps, "validation_loss": losses}


def find_rate(configuration: Configuration, task: Task) -> RateTest:
    """Train a fresh network for a few steps at each of several rates; choose the rate of the run by the validation losses.

    All start from the same weights and see the same batches. A network is built for each, and forgotten.

    The rate with the lowest loss is too high for a run that is many times as long: in 1,000 to 2,000 steps on seven UCR sets the
    lowest validation loss was found at a third to a thirtieth of it, wherever the test had taught something. So the next lower
    rate is taken for a run of five times the steps or more, unless the test hardly tells the rates apart: with a loss within a
    tenth of that at the lowest rate.

    Args:
        configuration: Model and training; its learning rate and its schedule are not used.
        task: The task, on any device.

    Example:
        >>> from steadyrnn.jobs.recipes import configure
        >>> from steadyrnn.tasks.registry import make_task
        >>> found = find_rate(configure("addition", "gru", {"model.width": 4, "train.device": "cpu"}), make_task("addition", length=5))
        >>> found.rate in RATES, found.steps
        (True, 100)
    """  # noqa: E501
    settings = configuration.train
    total = settings.steps or settings.epochs * task.epoch_steps(settings.batch_size)
    steps = min(_STEPS, total)
    losses = {}
    for rate in RATES:
        seed_everything(settings.seed)
        model = build_model(configuration.model, task.interface)
        short = replace(
            settings, steps=steps, validate_every=steps, log_every=steps, schedule=ScheduleSettings("cosine"),
            optimizer=replace(settings.optimizer, lr=rate, transition_lr=None), stop=StopSettings(), probe=ProbeSettings(),
            average=AverageSettings(),
        )  # fmt: skip
        try:
            losses[rate] = train(model, task, short).best["loss"]
        except (TrainingError, NotFiniteError):
            losses[rate] = math.inf
    return RateTest(_choose(losses, total >= _LONGER * steps), losses, steps)


def _choose(losses: Mapping[float, float], longer: bool) -> float:
    """Return the rate with the lowest loss, or for a longer run the next lower one if the test tells them apart.

    Example:
        >>> _choose({0.001: 0.9, 0.003: 0.5, 0.01: math.inf}, longer=True)
        0.001
        >>> _choose({0.001: 0.97, 0.003: 0.95, 0.01: math.inf}, longer=True)
        0.003
    """
    rates, best = sorted(losses), _find_best(losses)
    lower = rates[max(rates.index(best) - 1, 0)]
    return lower if longer and math.isfinite(losses[lower]) and losses[best] < _LEARNED * losses[rates[0]] else best


def _find_best(losses: Mapping[float, float]) -> float:
    """Return the rate with the lowest finite loss; of equal ones the lowest rate."""
    return min(sorted(losses), key=lambda rate: losses[rate] if math.isfinite(losses[rate]) else math.inf)
