"""A short range test: a few steps at each of several learning rates, and the one that lowers the validation loss most."""

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

    def to_dict(self) -> dict[str, Any]:
        """Return the form that JSON holds."""
        losses = {f"{rate:g}": loss if math.isfinite(loss) else None for rate, loss in self.losses.items()}
        return {"rate": self.rate, "steps": self.steps, "validation_loss": losses}


def find_rate(configuration: Configuration, task: Task) -> RateTest:
    """Train a fresh network for a few steps at each of several rates; return the rate with the lowest validation loss.

    All start from the same weights and see the same batches. A network is built for each, and forgotten.

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
    best = min(RATES, key=lambda rate: losses[rate] if math.isfinite(losses[rate]) else math.inf)
    return RateTest(best, losses, steps)
