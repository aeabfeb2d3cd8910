"""What the validations of a run amount to: the best so far, how long nothing got better, whether to stop."""

import math
from dataclasses import dataclass, replace

from .settings import ScheduleSettings, StopSettings

__all__ = ["Standing", "reason_to_stop"]


@dataclass(frozen=True)
class Standing:
    """What is remembered of all validations; a new one makes a new standing.

    Attributes:
        best: Best value of the task's metric, None before the first validation.
        best_step: Steps done at the best validation: of those with that value, the one with the lowest loss.
        stale: Validations since then.
        loss_at_best: Validation loss of the best validation.
        best_loss: Lowest validation loss since the last reduction of the learning rate or before it.
        stale_loss: Validations since the loss was lowest or the learning rate was reduced.
        reductions: How often the loss has stalled for as long as the schedule allows.

    Example:
        >>> first = Standing().after(1, loss=2.0, metric=0.5, higher=True, schedule=ScheduleSettings())
        >>> then = first.after(2, loss=1.0, metric=0.4, higher=True, schedule=ScheduleSettings())
        >>> then.best, then.best_step, then.stale, then.best_loss
        (0.5, 1, 1, 1.0)
        >>> tied = then.after(3, loss=0.9, metric=0.5, higher=True, schedule=ScheduleSettings())
        >>> tied.best, tied.best_step, tied.stale
        (0.5, 3, 0)
    """

    best: float | None = None
    best_step: int = 0
    stale: int = 0
    loss_at_best: float | None = None
    best_loss: float | None = None
    stale_loss: int = 0
    reductions: int = 0

    def after(self, step: int, *, loss: float, metric: float, higher: bool, schedule: ScheduleSettings) -> "Standing":
        """Return the standing after one more validation.

        A validation is the best if its metric is better than all before, or as good and its loss lower: an accuracy of 1 says
        no more, while the loss still falls. NaN is worse than any number.
        """
        new = replace(self, stale=self.stale + 1, stale_loss=self.stale_loss + 1)
        if _better(metric, self.best, higher) or (_equal(metric, self.best) and _better(loss, self.loss_at_best, higher=False)):
            new = replace(new, best=metric, best_step=step, stale=0, loss_at_best=loss)
        if _better(loss, self.best_loss, higher=False):
            return replace(new, best_loss=loss, stale_loss=0)
        if schedule.name == "plateau" and new.stale_loss >= schedule.patience:
            return replace(new, stale_loss=0, reductions=self.reductions + 1)
        return new

    def in_new_stage(self) -> "Standing":
        """Return the standing at the start of a new stage: the best is kept, and nothing is stale.

        Example:
            >>> Standing(best=0.5, best_step=3, stale=4, best_loss=0.5, reductions=2).in_new_stage()
            Standing(best=0.5, best_step=3, stale=0, loss_at_best=None, best_loss=None, stale_loss=0, reductions=0)
        """
        return replace(self, stale=0, best_loss=None, stale_loss=0, reductions=0)


def reason_to_stop(settings: StopSettings, standing: Standing, loss: float) -> str | None:
    """Return why a run should end after a validation, ``"patience"`` or ``"below"``, else None.

    Example:
        >>> reason_to_stop(StopSettings(below=0.1), Standing(), loss=0.05)
        'below'
    """
    if settings.below is not None and loss < settings.below:
        return "below"
    if settings.patience is not None and standing.stale >= settings.patience:
        return "patience"
    return None


def _equal(value: float, best: float | None) -> bool:
    return best is not None and (value == best or (math.isnan(value) and math.isnan(best)))


def _better(value: float, best: float | None, higher: bool) -> bool:
    if best is None or math.isnan(best):
        return best is None or not math.isnan(value)
    return value > best if higher else value < best
