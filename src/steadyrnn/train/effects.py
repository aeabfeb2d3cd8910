"""Settings that a new run would not use: each is refused by name, so that nobody believes it had an effect."""

from collections.abc import Iterator
from typing import Any

from torch import nn

from steadyrnn.constraints.sites import sites
from steadyrnn.errors import ArgumentError
from steadyrnn.tasks.base import Task

from .device import choose_device
from .graph import reason_against_settings
from .settings import TrainSettings
from .stages import plan_stages

__all__ = ["check_effects"]

_DEFAULTS = TrainSettings()


def check_effects(settings: TrainSettings, model: nn.Module, task: Task) -> None:
    """Refuse a setting that differs from its default and can have no effect in this run.

    For runs that start. A run that an earlier release stored with such a setting is loaded and resumed as it is.

    Args:
        settings: Of the run, each in its range.
        model: What is trained.
        task: What it is trained on.

    Raises:
        ArgumentError: There is such a setting, or fewer steps than the task has stages.

    Example:
        >>> from steadyrnn.tasks.registry import make_task
        >>> check_effects(TrainSettings(penalty=2.0), sr.RNN(2, 3), make_task("addition"))
        Traceback (most recent call last):
        ...
        steadyrnn.errors.ArgumentError: `penalty` has no effect: no constraint of the model has a penalty (sigma='penalty'). It is 2.0; leave it out, or set its default, 1.0.
    """  # noqa: E501
    for name, used, why in _uses(settings, model):
        value, default = _value(settings, name), _value(_DEFAULTS, name)
        if not used and value != default:
            raise ArgumentError(f"`{name}` has no effect: {why}. It is {value}; leave it out, or set its default, {default}.")
    why = reason_against_settings(settings, choose_device(settings.device)) if settings.graph == "on" else ""
    if why:
        raise ArgumentError(f"`graph` is 'on', but {why}. Use `graph='auto'`.")
    total = settings.steps or settings.epochs * task.epoch_steps(settings.batch_size)
    plan_stages(task, total)
    if settings.average.name != "none" and settings.average.start >= total:
        raise ArgumentError(
            f"`average.start` must be below the number of steps, {total:,}, but is {settings.average.start:,}: "
            "no weights would be averaged."
        )


def _uses(settings: TrainSettings, model: nn.Module) -> Iterator[tuple[str, bool, str]]:
    """Yield settings, whether the run uses them, and why not otherwise."""
    optimizer, schedule, average = settings.optimizer.name, settings.schedule.name, settings.average.name
    chosen = f"`optimizer.name` is {optimizer!r}"
    yield "optimizer.momentum", optimizer in ("sgd", "rmsprop"), chosen
    yield "optimizer.betas", optimizer in ("adam", "adamw"), chosen
    yield "optimizer.alpha", optimizer == "rmsprop", chosen
    yield "optimizer.eps", optimizer != "sgd", chosen
    yield "schedule.factor", schedule in ("decay", "plateau"), f"`schedule.name` is {schedule!r}"
    yield "schedule.patience", schedule == "plateau", f"`schedule.name` is {schedule!r}"
    yield "clip.recurrent_of", settings.clip.recurrent is not None, "`clip.recurrent` is None"
    yield "average.decay", average == "ema", f"`average.name` is {average!r}"
    yield "average.start", average != "none", "`average.name` is 'none'"
    yield "average.every", average != "none", "`average.name` is 'none'"
    yield "probe.names", settings.probe.every > 0, "`probe.every` is 0"
    penalties = (site.penalty() is not None for site in sites(model))
    yield "penalty", any(penalties), "no constraint of the model has a penalty (sigma='penalty')"


def _value(settings: Any, name: str) -> Any:
    """Return a setting by its dotted name; a list as the tuple that it stands for."""
    for part in name.split("."):
        settings = getattr(settings, part)
    return tuple(settings) if isinstance(settings, list) else settings
