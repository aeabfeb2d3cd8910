"""Checks of the trainer's settings; each names the setting, what came and what was expected."""

import math
from collections.abc import Iterable

from steadyrnn.checks import check_interval, check_positive_int
from steadyrnn.errors import ArgumentError, ArgumentTypeError, not_among

from .machine import AUTOCAST
from .optimizers import OPTIMIZERS
from .schedules import SCHEDULES
from .settings import TrainSettings

__all__ = ["check_settings"]


def check_settings(settings: TrainSettings) -> None:
    """Refuse settings that no run can have.

    Example:
        >>> check_settings(TrainSettings(accumulate=3, batch_size=2))
        Traceback (most recent call last):
        ...
        steadyrnn.errors.ArgumentError: `accumulate` must be at most `batch_size`, 2, but is 3.
    """
    for name in ("epochs", "batch_size", "accumulate", "log_every"):
        check_positive_int(name, getattr(settings, name))
    for name in ("steps", "evaluation_batch_size", "validate_every", "save_every", "threads"):
        if getattr(settings, name) is not None:
            check_positive_int(name, getattr(settings, name))
    if settings.accumulate > settings.batch_size:
        raise ArgumentError(f"`accumulate` must be at most `batch_size`, {settings.batch_size}, but is {settings.accumulate}.")
    if settings.autocast is not None:
        _check_name("autocast", settings.autocast, AUTOCAST)
    _check_seed(settings.seed)
    _check_optimizer(settings)
    _check_schedule(settings)
    _check_limits(settings)


def _check_optimizer(settings: TrainSettings) -> None:
    own = settings.optimizer
    _check_name("optimizer.name", own.name, OPTIMIZERS)
    _check_number("optimizer.lr", own.lr)
    if own.transition_lr is not None:
        _check_number("optimizer.transition_lr", own.transition_lr)
    for name in ("weight_decay", "momentum", "eps"):
        _check_number(f"optimizer.{name}", getattr(own, name))
    check_interval("optimizer.alpha", own.alpha, 0.0, 1.0)
    if len(own.betas) != 2 or not all(0 <= beta < 1 for beta in own.betas):
        raise ArgumentError(f"`optimizer.betas` must be two numbers, each 0 or above and below 1, but is {own.betas}.")


def _check_schedule(settings: TrainSettings) -> None:
    own = settings.schedule
    _check_name("schedule.name", own.name, SCHEDULES)
    if not 0 < own.factor <= 1:
        raise ArgumentError(f"`schedule.factor` must be above 0 and at most 1, but is {own.factor}.")
    check_positive_int("schedule.patience", own.patience)
    _check_count("schedule.warmup", own.warmup)


def _check_limits(settings: TrainSettings) -> None:
    for name, value in (("clip.norm", settings.clip.norm), ("clip.recurrent", settings.clip.recurrent)):
        if value is not None and not 0 < value < math.inf:
            raise ArgumentError(f"`{name}` must be a number above 0, or None for no clipping, but is {value}.")
    if settings.stop.patience is not None:
        check_positive_int("stop.patience", settings.stop.patience)
    if settings.stop.below is not None and not math.isfinite(settings.stop.below):
        raise ArgumentError(f"`stop.below` must be a finite number, or None for no limit, but is {settings.stop.below}.")
    _check_count("probe.every", settings.probe.every)


def _check_seed(seed: int) -> None:
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ArgumentTypeError(f"`seed` must be an integer, but is of type {type(seed).__name__}.")
    if not 0 <= seed < 2**64:
        raise ArgumentError(f"`seed` must be from 0 to 2^64 - 1, but is {seed}.")


def _check_name(name: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        raise ArgumentError(not_among(name, value, known))


def _check_number(name: str, value: float) -> None:
    if not 0 <= value < math.inf:
        raise ArgumentError(f"`{name}` must be a finite number, 0 or above, but is {value}.")


def _check_count(name: str, value: int) -> None:
    if value != 0:
        check_positive_int(name, value)
