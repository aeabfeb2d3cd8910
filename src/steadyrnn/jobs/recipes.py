"""Settings that work on each task: where training starts when a user gives none; free of torch."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from steadyrnn.errors import ArgumentError, not_among
from steadyrnn.models.settings import ModelSettings
from steadyrnn.tasks.registry import TASKS, TaskRecord

from .configuration import Configuration

__all__ = ["configure", "recipe"]


def recipe(task: str, model: str | None = None, given: Mapping[str, Any] = MappingProxyType({})) -> Mapping[str, Any]:
    """Return the settings a task starts from with a model; None is the task's own choice of model, or the default one.

    A model's options are left out where another model than the recipe's is given, and so are those of its schedule where
    another ``schedule`` is. In a model of another width, all reflectors are as many as its units. Long sequences have a recipe
    with a curriculum, unless ``none`` is asked for.

    Args:
        task: A name of :data:`~steadyrnn.tasks.registry.TASKS`.
        model: A name of :data:`~steadyrnn.models.registry.SYSTEMS`, or None.
        given: Dotted settings of the user; those that decide between recipes are read.

    Example:
        >>> recipe("mnist", None)["model.name"], "model.name" in recipe("mnist", "resnet")
        ('spectral-mlp', False)
        >>> recipe("copy", None, {"model.width": 32})["model.reflectors"]
        32
        >>> other = recipe("ptb", None, {"train.schedule.name": "cosine"})
        >>> "train.schedule.factor" in recipe("ptb"), "train.schedule.factor" in other
        (True, False)
        >>> recipe("addition", None, {"task.length": 1000})["task.curriculum"]
        'auto'
    """
    start, model_recipes = _choose(TASKS[task], given)
    own = start.get("model.name")
    if model is not None and own is not None and model != own:
        shared = ("model.width",)
        start = {name: value for name, value in start.items() if not name.startswith("model.") or name in shared}
    start.update(model_recipes.get(model or own or ModelSettings().name, {}))
    width, schedule = given.get("model.width"), given.get("train.schedule.name")
    if isinstance(width, int) and "model.reflectors" in start and start["model.reflectors"] > width > 0:
        start["model.reflectors"] = width
    if schedule not in (None, start.get("train.schedule.name")):
        start = {name: value for name, value in start.items() if not name.startswith("train.schedule.")}
    return start


def _choose(record: TaskRecord, given: Mapping[str, Any]) -> tuple[dict[str, Any], Mapping[str, Mapping[str, Any]]]:
    """Return the recipe of a task's length, for any model and by models."""
    long = record.long
    if long is not None and given.get("task.curriculum") != "none":
        length = given.get(f"task.{long.setting}")
        if isinstance(length, int) and length > long.above:
            return dict(long.recipe), long.model_recipes
    return dict(record.recipe), record.model_recipes


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
    return Configuration.from_dotted({**recipe(task, given.get("model.name"), given), **given, "task.name": task})
