"""From nested mappings to settings and back; free of torch."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any, TypeVar

from steadyrnn.errors import ArgumentError, not_among
from steadyrnn.models.settings import ModelSettings
from steadyrnn.tasks.settings import TASK_SETTINGS, TaskSettings
from steadyrnn.train.settings import TrainSettings

__all__ = ["FORMAT", "Configuration", "settings_of"]

FORMAT = 1
"""The version of the form a configuration is stored in."""

S = TypeVar("S")


@dataclass(frozen=True)
class Configuration:
    """All that decides a run.

    Args:
        task_name: Of ``TASK_SETTINGS``.
        task: Its settings.
        model: The model's.
        train: The trainer's.
    """

    task_name: str
    task: TaskSettings
    model: ModelSettings
    train: TrainSettings

    def to_dict(self) -> dict[str, Any]:
        """Return the form it is stored in; options of the model that were left open are left out."""
        model = {name: value for name, value in asdict(self.model).items() if value is not None}
        task = {"name": self.task_name, **asdict(self.task)}
        return {"format": FORMAT, "task": _listed(task), "model": _listed(model), "train": _listed(asdict(self.train))}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "Configuration":
        """Return the configuration of a stored form.

        Example:
            >>> stored = {"format": 1, "task": {"name": "addition"}, "model": {"name": "lstm"}, "train": {"steps": 3}}
            >>> Configuration.from_dict(stored).train.steps
            3
        """
        if stored.get("format") != FORMAT:
            raise ArgumentError(f"`format` of a configuration must be {FORMAT}, but is {stored.get('format')!r}.")
        for part in ("task", "model", "train"):
            if not isinstance(stored.get(part), Mapping):
                raise ArgumentError(f"`{part}` must be a mapping in a configuration, but is {stored.get(part)!r}.")
        task = dict(stored["task"])
        name = task.pop("name", None)
        if name not in TASK_SETTINGS:
            raise ArgumentError(not_among("task.name", name, TASK_SETTINGS))
        parts = (
            settings_of(TASK_SETTINGS[name], task, "task"),
            settings_of(ModelSettings, stored["model"], "model"),
            settings_of(TrainSettings, stored["train"], "train"),
        )
        return cls(name, *parts)


def settings_of(cls: type[S], values: Mapping[str, Any], path: str) -> S:
    """Return a settings object of a nested mapping; what it does not have is refused by name, lists become tuples.

    Example:
        >>> settings_of(TrainSettings, {"optimizer": {"lr": 0.1}}, "train").optimizer.lr
        0.1
    """
    known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    given: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise ArgumentError(f"`{path}.{name}` is no setting; there are {', '.join(known)}.")
        part = known[name].type
        if isinstance(part, type) and is_dataclass(part):
            value = settings_of(part, value, f"{path}.{name}")
        given[name] = tuple(value) if isinstance(value, list) else value
    return cls(**given)


def _listed(value: Any) -> Any:
    """Return a value with lists in place of tuples, as JSON gives it back."""
    if isinstance(value, Mapping):
        return {key: _listed(item) for key, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value
