"""Every task by name."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, cast

from steadyrnn.errors import ArgumentError, not_among

from .addition import Addition
from .base import Task
from .contractive import Contractive
from .copying import Copying
from .largest import Largest
from .mnist import Mnist
from .multilabel import MultiLabel
from .recall import Recall
from .settings import TASK_SETTINGS, TaskSettings
from .stable_system import StableSystem
from .text import Language
from .ucr import Ucr

__all__ = ["TASKS", "make_task"]

TASKS: dict[str, type[Task]] = {
    "addition": Addition,
    "copy": Copying,
    "recall": Recall,
    "largest": Largest,
    "contractive": Contractive,
    "stable-system": StableSystem,
    "mnist": Mnist,
    "mnist-rows": Mnist,
    "pixel-mnist": Mnist,
    "permuted-mnist": Mnist,
    "ptb": Language,
    "wikitext-2": Language,
    "ucr": Ucr,
    "bibtex": MultiLabel,
    "mediamill": MultiLabel,
}
"""Every task by name; a class is made from its settings, ``TASK_SETTINGS[name](...)``."""


def make_task(name: str, **settings: Any) -> Task:
    """Return a task by its name.

    Args:
        name: A key of :data:`TASKS`.
        settings: What its settings class in :data:`~steadyrnn.tasks.settings.TASK_SETTINGS` takes; the rest has defaults.

    Example:
        >>> make_task("addition", length=50).train_batch(0, 8).input.shape
        torch.Size([50, 8, 2])
    """
    if name not in TASKS:
        raise ArgumentError(not_among("name", name, TASKS))
    known = [field.name for field in fields(TASK_SETTINGS[name])]
    unknown = [key for key in settings if key not in known]
    if unknown:
        raise ArgumentError(f"The task {name!r} has no setting `{unknown[0]}`; it has {', '.join(known)}.")
    build = cast(Callable[[TaskSettings], Task], TASKS[name])
    return build(TASK_SETTINGS[name](**settings))
