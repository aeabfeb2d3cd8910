"""Every setting of a task by its dotted name, with its type; free of torch."""

import math
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, get_args

from steadyrnn.models.registry import SYSTEMS
from steadyrnn.models.settings import ModelSettings
from steadyrnn.tasks.registry import TASKS
from steadyrnn.train.settings import TrainSettings

__all__ = ["applies", "is_number", "kinds_of", "read_value", "setting_types"]

_OWN = {"model.name", "train.seed", "task.name"}
"""What a sweep sets itself, from its models, seeds and task."""


def setting_types(task: str) -> dict[str, Any]:
    """Return the type of every setting that a run on a task has, by its dotted name.

    Example:
        >>> found = setting_types("addition")
        >>> found["model.width"], found["train.optimizer.lr"], "train.seed" in found
        (int | None, <class 'float'>, False)
    """
    found: dict[str, Any] = {}
    for part, cls in (("task", TASKS[task].settings), ("model", ModelSettings), ("train", TrainSettings)):
        _collect(cls, part, found)
    return {name: kind for name, kind in found.items() if name not in _OWN}


def _collect(cls: Any, prefix: str, found: dict[str, Any]) -> None:
    for field in fields(cls):
        name = f"{prefix}.{field.name}"
        if isinstance(field.type, type) and is_dataclass(field.type):
            _collect(field.type, name, found)
        else:
            found[name] = field.type


def kinds_of(kind: Any) -> tuple[Any, ...]:
    """Return the types that a setting's type stands for.

    Example:
        >>> kinds_of(int | None)
        (<class 'int'>, <class 'NoneType'>)
    """
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)


def read_value(value: Any, kind: Any) -> Any:
    """Return a value from a file as a setting of a type has it: YAML reads ``1e-3`` as a text, and JSON has no tuples.

    What does not fit is returned as it is, to be refused where the setting is made.

    Example:
        >>> read_value("1e-3", float), read_value(1, float | None), read_value("adam", str)
        (0.001, 1.0, 'adam')
    """
    kinds = kinds_of(kind)
    if isinstance(value, str) and str not in kinds:
        for number in (int, float):
            if number in kinds:
                try:
                    value = number(value)
                    break
                except ValueError:
                    continue
    if type(value) is int and float in kinds and int not in kinds and abs(value) < 2**64:
        return float(value)
    return value


def applies(name: str, model: str) -> bool:
    """Say whether a model has a setting: a setting of the task or of training belongs to all of them.

    Example:
        >>> applies("model.radius", "spectral"), applies("model.radius", "gru"), applies("train.steps", "gru")
        (True, False, True)
    """
    system = SYSTEMS[model]
    return not name.startswith("model.") or bool(system.wraps) or name.removeprefix("model.") in system.options


def is_number(value: Any) -> bool:
    """Say whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
