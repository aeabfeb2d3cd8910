"""All that decides a run, and its stored form; free of torch."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin

from steadyrnn.errors import ArgumentError, not_among
from steadyrnn.models.registry import FORMER_OPTIONS, SYSTEMS
from steadyrnn.models.settings import ModelSettings
from steadyrnn.tasks.registry import FORMER_SETTINGS, TASKS
from steadyrnn.tasks.settings import TaskSettings
from steadyrnn.train.older import complete_older
from steadyrnn.train.settings import TrainSettings

__all__ = ["FORMAT", "MADE_BY", "Configuration", "complete_stored", "is_made_in_python", "make_settings", "put_setting"]

FORMAT = 1
"""The version of the form a configuration is stored in."""

MADE_BY = "train_model"
"""What ``config.json`` has as ``made_by`` where its model and task are objects of Python, which no configuration describes."""

_LARGEST = 2**64  # a seed may be one below

S = TypeVar("S")


@dataclass(frozen=True)
class Configuration:
    """All that decides a run.

    Args:
        task_name: Of ``TASKS``.
        task: Its settings.
        model: The model's.
        train: The trainer's.
    """

    task_name: str
    task: TaskSettings
    model: ModelSettings
    train: TrainSettings

    @property
    def label(self) -> str:
        """What the folder of its runs is called: the task's name, or that of a user's own file."""
        return self.task.label or self.task_name

    @property
    def scored_part(self) -> str:
        """Which examples choose the best weights: those of ``validation``, or of ``training`` where none are held out."""
        return "training" if getattr(self.task, "refit", False) else "validation"

    def to_dict(self) -> dict[str, Any]:
        """Return the form it is stored in; options of the model that were left open are left out.

        Those in ``FORMER_OPTIONS`` are always there: without them it would be the form of an earlier release.
        """
        former = FORMER_OPTIONS.get(self.model.name, {})
        given = {name: value for name, value in asdict(self.model).items() if value is not None}
        model = {**given, **{name: given.get(name, SYSTEMS[self.model.name].options[name]) for name in former}}
        task = {"name": self.task_name, **asdict(self.task)}
        return {"format": FORMAT, "task": _to_lists(task), "model": _to_lists(model), "train": _to_lists(asdict(self.train))}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "Configuration":
        """Return the configuration of a stored form, also of one that an earlier release stored.

        Example:
            >>> stored = {"format": 1, "task": {"name": "addition"}, "model": {"name": "lstm"}, "train": {"steps": 3}}
            >>> Configuration.from_dict(stored).train.steps
            3
        """
        return cls._parse(complete_stored(stored))

    @classmethod
    def _parse(cls, stored: Mapping[str, Any]) -> "Configuration":
        """Return the configuration of nested settings; what is left out has its value of today."""
        for part in ("task", "model", "train"):
            if not isinstance(stored.get(part), Mapping):
                raise ArgumentError(f"`{part}` must be a mapping in a configuration, but is {_brief(stored.get(part))}.")
        task = dict(stored["task"])
        name = task.pop("name", None)
        if not isinstance(name, str):
            raise ArgumentError(f"`task.name` must be a text, but is {_brief(name)}.")
        if name not in TASKS:
            raise ArgumentError(not_among("task.name", name, TASKS))
        parts = (
            make_settings(TASKS[name].settings, task, "task"),
            make_settings(ModelSettings, stored["model"], "model"),
            make_settings(TrainSettings, stored["train"], "train"),
        )
        return cls(name, *parts)

    @classmethod
    def from_dotted(cls, settings: Mapping[str, Any]) -> "Configuration":
        """Return the configuration of settings by their dotted names; those that are left out have their defaults of today.

        Example:
            >>> Configuration.from_dotted({"task.name": "copy", "train.clip.norm": 1.0}).train.clip.norm
            1.0
        """
        stored: dict[str, Any] = {"task": {}, "model": {}, "train": {}}
        for path, value in settings.items():
            put_setting(stored, path, value)
        return cls._parse(stored)


def put_setting(stored: dict[str, Any], path: str, value: Any) -> None:
    """Put a setting with a dotted name into nested settings.

    Example:
        >>> stored = {"train": {"steps": 5}}
        >>> put_setting(stored, "train.clip.norm", 1.0)
        >>> stored
        {'train': {'steps': 5, 'clip': {'norm': 1.0}}}
    """
    *parts, last = path.split(".")
    for part in parts:
        stored = stored.setdefault(part, {})
    stored[last] = value


def is_made_in_python(config: Mapping[str, Any]) -> bool:
    """Say whether a ``config.json`` is of a run whose model and task were made in Python.

    Example:
        >>> is_made_in_python({"made_by": "train_model"})
        True
    """
    return config.get("made_by") == MADE_BY


def complete_stored(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored form as this release would have stored it: defaults of an earlier one that have changed are written out.

    An option of the model that is null was left open, as one that is missing.

    Raises:
        ArgumentError: The form is of another version.

    Example:
        >>> old = {"format": 1, "model": {"name": "spectral-resnet", "center": None}, "train": {"clip": {"recurrent": 0.5}}}
        >>> new = complete_stored(old)
        >>> new["model"]["center"], new["train"]["clip"]["recurrent_of"]
        (1.0, 'raw')
    """
    if stored.get("format") != FORMAT:
        raise ArgumentError(f"`format` of a configuration must be {FORMAT}, but is {_brief(stored.get('format'))}.")
    complete = dict(stored)
    task, model, train = stored.get("task"), stored.get("model"), stored.get("train")
    if isinstance(task, Mapping):
        complete["task"] = {**FORMER_SETTINGS.get(str(task.get("name")), {}), **task}
    if isinstance(model, Mapping):
        former = FORMER_OPTIONS.get(str(model.get("name")), {})
        complete["model"] = {**model, **{name: value for name, value in former.items() if model.get(name) is None}}
    if isinstance(train, Mapping):
        complete["train"] = complete_older(train)
    return complete


def make_settings(cls: type[S], values: Mapping[str, Any], path: str) -> S:
    """Return a settings object of a nested mapping; what it does not have is refused by name, lists become tuples.

    Example:
        >>> make_settings(TrainSettings, {"optimizer": {"lr": 0.1}}, "train").optimizer.lr
        0.1
    """
    known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    given: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise ArgumentError(f"`{path}.{str(name)[:60]}` is no setting; there are {', '.join(known)}.")
        part: Any = known[name].type
        if isinstance(part, type) and is_dataclass(part):
            if not isinstance(value, Mapping):
                raise ArgumentError(f"`{path}.{name}` must be a mapping, but is of type {type(value).__name__}.")
            value = make_settings(part, value, f"{path}.{name}")
        elif not _fits(value, part):
            wanted = part.__name__ if isinstance(part, type) and not get_args(part) else str(part)
            raise ArgumentError(f"`{path}.{name}` must be of type {wanted}, but is {_brief(value)}.")
        given[name] = tuple(value) if isinstance(value, list) else value
    return cls(**given)


def _fits(value: Any, wanted: Any) -> bool:
    """Say whether a value that came from JSON is of a settings' type."""
    if isinstance(wanted, UnionType):
        return any(_fits(value, one) for one in get_args(wanted))
    if get_origin(wanted) is tuple:
        kinds = get_args(wanted)
        if not isinstance(value, list | tuple):
            return False
        several = kinds[-1] is Ellipsis
        return (several or len(value) == len(kinds)) and all(
            _fits(item, kinds[0 if several else place]) for place, item in enumerate(value)
        )
    if isinstance(value, bool) or wanted is bool:
        return wanted is bool and isinstance(value, bool)
    if isinstance(value, int) and wanted in (int, float):
        return -_LARGEST <= value < _LARGEST
    return isinstance(value, wanted)


def _brief(value: Any) -> str:
    if isinstance(value, str | bool | float | None):
        return repr(value)[:60]
    return f"of type {type(value).__name__}" if not isinstance(value, int) else "an integer of another size"


def _to_lists(value: Any) -> Any:
    """Return a value with lists in place of tuples, as JSON gives it back."""
    if isinstance(value, Mapping):
        return {key: _to_lists(item) for key, item in value.items()}
    return [_to_lists(item) for item in value] if isinstance(value, list | tuple) else value
