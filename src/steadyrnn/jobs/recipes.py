"""Settings that work on each task: where training starts when a user gives none; free of torch."""

from collections.abc import Mapping
from typing import Any

from steadyrnn.errors import ArgumentError, not_among
from steadyrnn.models.settings import ModelSettings
from steadyrnn.tasks.registry import TASKS

from .configuration import Configuration

__all__ = ["configure", "recipe"]


def recipe(task: str, model: str | None, width: int | None = None, schedule: str | None = None) -> Mapping[str, Any]:
    """Return the settings a task starts from with a model; None is the task's own choice of model, or the default one.

    A model's options are left out where another model than the recipe's is given, and so are those of its schedule where
    another ``schedule`` is. In a model of another width, all reflectors are as many as its units.

    Example:
        >>> recipe("mnist", None)["model.name"], "model.name" in recipe("mnist", "resnet")
        ('spectral-mlp', False)
        >>> recipe("copy", None, width=32)["model.reflectors"]
        32
        >>> "train.schedule.factor" in recipe("ptb", None), "train.schedule.factor" in recipe("ptb", None, schedule="cosine")
        (True, False)
    """
    record = TASKS[task]
    start = dict(record.recipe)
    own = start.get("model.name")
    if model is not None and own is not None and model != own:
        shared = ("model.width",)
        start = {name: value for name, value in start.items() if not name.startswith("model.") or name in shared}
    start.update(record.model_recipes.get(model or own or ModelSettings().name, {}))
    if width is not None and "model.reflectors" in start and start["model.reflectors"] > width > 0:
        start["model.reflectors"] = width
    if schedule not in (None, start.get("train.schedule.name")):
        start = {name: value for name, value in start.items() if not name.startswith("train.schedule.")}
    return start


def configure(task: str, model: str | None = None, settings: Mapping[str, Any] | None = None) -> Configuration:
    """Return the configuration of a task and a model: its recipe, with some settings replaced.

    Args:
        task: A name of :data:`~steadyrnn.tasks.registry.TASKS`.
        model: A name of :data:`~steadyrnn.models.registry.SYSTEMS`; None is the recipe's.
        settings: Dotted settings, as the command line has them: ``{"task.length": 20, "train.steps": 50}``.

    Example:
        >>> configuration = configure("addition", "lstm", {"model.width": 8, "train.steps": 50})
        >>> configuration.train.steps, configuration.train.batch_size, configuration.model.name
        (50, 64, 'lstm')
    """
    if task not in TASKS:
        raise ArgumentError(not_among("task", task, TASKS))
    given = {**(settings or {}), **({} if model is None else {"model.name": model})}
    width = given.get("model.width")
    start = recipe(task, given.get("model.name"), width if isinstance(width, int) else None, given.get("train.schedule.name"))
    return Configuration.from_dotted({**start, **given, "task.name": task})
