"""Checks of the trainer's settings; each names the setting, what came and what was expected."""

import math
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from torch import nn

from steadyrnn.checks import check_interval, check_positive_int
from steadyrnn.constraints.optimizer import SCALES
from steadyrnn.errors import ArgumentError, ArgumentTypeError, not_among
from steadyrnn.runs.folder import Run
from steadyrnn.tasks.base import Task

from .averaging import AVERAGES
from .clipping import RECURRENT_OF
from .device import AUTOCAST
from .graph import GRAPHS
from .optimizers import OPTIMIZERS
from .progress import Progress
from .schedules import SCHEDULES
from .settings import MOST_THREADS, TrainSettings

__all__ = ["check_arguments", "check_settings"]

_KINDS: dict[Any, str] = {
    **{int: "an integer", float: "a number", str: "text", bool: "True or False", NoneType: "None"},
    tuple: "a tuple of numbers or names",
}


def check_settings(settings: TrainSettings) -> None:
    """Refuse settings that no run can have.

    Example:
        >>> check_settings(TrainSettings(accumulate=3, batch_size=2))
        Traceback (most recent call last):
        ...
        steadyrnn.errors.ArgumentError: `accumulate` must be at most `batch_size`, 2, but is 3.
    """
    _check_types(settings)
    for name in ("epochs", "batch_size", "accumulate", "log_every", "check_ranks"):
        check_positive_int(name, getattr(settings, name))
    for name in ("steps", "evaluation_batch_size", "validate_every", "save_every", "threads"):
        if getattr(settings, name) is not None:
            check_positive_int(name, getattr(settings, name))
    if settings.threads is not None and settings.threads > MOST_THREADS:
        raise ArgumentError(f"`threads` must be at most {MOST_THREADS:,}, but is {settings.threads}.")
    if settings.accumulate > settings.batch_size:
        raise ArgumentError(f"`accumulate` must be at most `batch_size`, {settings.batch_size}, but is {settings.accumulate}.")
    if settings.autocast is not None:
        _check_name("autocast", settings.autocast, AUTOCAST)
    _check_name("graph", settings.graph, GRAPHS)
    _check_seed(settings.seed)
    _check_number("penalty", settings.penalty)
    _check_optimizer(settings)
    _check_schedule(settings)
    _check_limits(settings)
    _check_average(settings)


def check_arguments(model: object, task: object, settings: object, run: object, progress: object) -> None:
    """Refuse arguments of :func:`~steadyrnn.train.trainer.train` of the wrong kind, each by its name.

    Example:
        >>> check_arguments(nn.Linear(1, 1), None, TrainSettings(), None, None)
        Traceback (most recent call last):
        ...
        steadyrnn.errors.ArgumentTypeError: `task` must be a Task, but is of type NoneType.
    """
    given: tuple[tuple[str, object, type], ...] = (
        *(("model", model, nn.Module), ("task", task, Task), ("settings", settings, TrainSettings)),
        *(("run", run, Run), ("progress", progress, Progress)),
    )
    for name, value, kind in given:
        optional = value is None and name in ("run", "progress")
        if not optional and not isinstance(value, kind):
            raise ArgumentTypeError(f"`{name}` must be a {kind.__name__}, but is of type {type(value).__name__}.")


def _check_types(settings: Any, path: str = "") -> None:
    """Refuse a setting of the wrong type; True is not a number."""
    hints = get_type_hints(type(settings))
    for field in fields(settings):
        name, value, hint = f"{path}{field.name}", getattr(settings, field.name), hints[field.name]
        if isinstance(hint, type) and is_dataclass(hint):
            if not isinstance(value, hint):
                raise ArgumentTypeError(f"`{name}` must be {hint.__name__}(...), but is of type {type(value).__name__}.")
            _check_types(value, f"{name}.")
        elif not _is_of(value, hint):
            parts = (hint,) if get_origin(hint) is tuple else get_args(hint) or (hint,)
            wanted = " or ".join(_KINDS[get_origin(part) or part] for part in parts)
            raise ArgumentTypeError(f"`{name}` must be {wanted}, but is of type {type(value).__name__}.")


def _is_of(value: object, hint: Any) -> bool:
    """Say whether a value is of a plain type, one of several, or a tuple of one."""
    if get_origin(hint) is tuple:
        return isinstance(value, tuple | list) and all(_is_of(one, get_args(hint)[0]) for one in value)
    kinds = get_args(hint) or (hint,)
    if isinstance(value, bool):
        return bool in kinds
    return isinstance(value, (*kinds, int) if float in kinds else kinds)


def _check_optimizer(settings: TrainSettings) -> None:
    own = settings.optimizer
    _check_name("optimizer.name", own.name, OPTIMIZERS)
    _check_number("optimizer.lr", own.lr)
    if own.transition_lr is not None:
        _check_number("optimizer.transition_lr", own.transition_lr)
    _check_name("optimizer.transition_scale", own.transition_scale, SCALES)
    if own.transition_scale != "none" and own.name == "sgd":
        raise ArgumentError(
            f"`optimizer.transition_scale` must be 'none' for sgd, but is {own.transition_scale!r}: it is for optimizers that "
            "move each entry by about `lr` (adam, adamw, rmsprop). Set `optimizer.transition_lr`."
        )
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
    _check_name("clip.recurrent_of", settings.clip.recurrent_of, RECURRENT_OF)
    if settings.stop.patience is not None:
        check_positive_int("stop.patience", settings.stop.patience)
    if settings.stop.below is not None and not math.isfinite(settings.stop.below):
        raise ArgumentError(f"`stop.below` must be a finite number, or None for no limit, but is {settings.stop.below}.")
    _check_count("probe.every", settings.probe.every)


def _check_average(settings: TrainSettings) -> None:
    own = settings.average
    _check_name("average.name", own.name, AVERAGES)
    if not 0 <= own.decay < 1:
        raise ArgumentError(f"`average.decay` must be 0 or above and below 1, but is {own.decay}.")
    _check_count("average.start", own.start)
    check_positive_int("average.every", own.every)


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
