"""How the learning rate goes with time: pure functions of where a run stands, so that nothing is lost when it is cut off."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from .settings import ScheduleSettings

__all__ = ["SCHEDULES", "Moment", "rate_factor"]


@dataclass(frozen=True)
class Moment:
    """Where a run stands before an optimizer step.

    Args:
        step: Optimizer steps done.
        epoch_steps: Steps of an epoch.
        total: Steps of the whole run.
        reductions: How often the validation loss has stalled.
    """

    step: int
    epoch_steps: int
    total: int
    reductions: int = 0


Schedule = Callable[[ScheduleSettings, Moment], float]

SCHEDULES: dict[str, Schedule] = {
    "constant": lambda settings, moment: 1.0,
    "decay": lambda settings, moment: settings.factor ** (moment.step // moment.epoch_steps),
    "cosine": lambda settings, moment: 0.5 * (1 + math.cos(math.pi * min(moment.step / moment.total, 1.0))),
    "inverse": lambda settings, moment: 1 / (moment.step + 1),
    "inverse-sqrt": lambda settings, moment: 1 / math.sqrt(moment.step + 1),
    "plateau": lambda settings, moment: settings.factor**moment.reductions,
}
"""Every schedule by name: the factor of the next step, before warm-up."""


def rate_factor(settings: ScheduleSettings, moment: Moment) -> float:
    r"""Return what every learning rate is multiplied by in the next step.

    The schedule's own factor times :math:`\min(1, t/w)` with t the step counted from 1 and w the steps of warm-up.

    Example:
        >>> rate_factor(ScheduleSettings("decay", factor=0.5), Moment(step=25, epoch_steps=10, total=100))
        0.25
        >>> rate_factor(ScheduleSettings(warmup=4), Moment(step=0, epoch_steps=10, total=100))
        0.25
    """
    warm = min(1.0, (moment.step + 1) / settings.warmup) if settings.warmup else 1.0
    return warm * SCHEDULES[settings.name](settings, moment)
