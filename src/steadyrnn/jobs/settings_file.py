"""A file of settings, YAML or JSON, read into plain values of bounded size; free of torch."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from steadyrnn.errors import ArgumentError, RunError
from steadyrnn.models.settings import ModelSettings
from steadyrnn.runs.regular import read_if_there
from steadyrnn.tasks.settings import TaskSettings
from steadyrnn.train.settings import TrainSettings

__all__ = ["parse_mapping", "parse_settings", "read_file", "read_settings"]

_OF_THE_COMMAND_LINE = ("config", "resume", "out", "json", "quiet", "tensorboard", "print_config", "seeds")
"""What names other files and folders, or how the program answers, is for whoever types to say, not for a file."""
_MOST_BYTES = 1 << 20
_MOST_VALUES = 10_000
_DEEPEST = 20
_LARGEST = 2**64  # a seed may be one below


def read_settings(path: Path) -> Mapping[str, Any] | None:
    """Return the mapping that a file of settings holds, None where there is no file.

    Raises:
        ArgumentError: The file cannot be read, is too large, or holds something else.
    """
    data = read_file(path)
    return None if data is None else parse_settings(data, path)


def read_file(path: Path) -> bytes | None:
    """Return the bytes of a file of settings, None where there is no file.

    Raises:
        ArgumentError: The file cannot be read, or is too large.
    """
    try:
        return read_if_there(path, most=_MOST_BYTES)
    except RunError as error:
        raise ArgumentError(str(error)) from error


def parse_settings(data: bytes, path: Path) -> Mapping[str, Any]:
    """Return the settings of a text in YAML or JSON.

    Args:
        data: The whole file.
        path: Its name, for errors.

    Raises:
        ArgumentError: It is refused by :func:`parse_mapping`, or has a part by its file, or what belongs to the command line.

    Example:
        >>> parse_settings(b"task: {name: copy}", Path("a.yaml"))
        {'task': {'name': 'copy'}}
    """
    stored = parse_mapping(data, path, "`task`, `model` and `train`")
    foreign = next((name for name in _OF_THE_COMMAND_LINE if name in stored), None)
    if foreign is not None:
        raise ArgumentError(f"{path} must hold settings, but has `{foreign}`, which belongs to the command line.")
    for part, cls in (("task", TaskSettings), ("model", ModelSettings), ("train", TrainSettings)):
        if part in stored:
            _check_mapping(stored[part], cls, part, path)
    return stored


def parse_mapping(data: bytes, path: Path, parts: str, dotted: bool = False) -> Mapping[str, Any]:
    """Return the mapping of a text in YAML or JSON.

    A few lines of YAML can stand for billions of values, by aliases of aliases. So the values are counted, each alias as
    often as it is used, before anybody looks at them.

    Args:
        data: The whole file.
        path: Its name, for errors.
        parts: What the mapping should have, for errors.
        dotted: Whether names may have dots.

    Raises:
        ArgumentError: It is neither, holds no mapping, too many values, one that JSON does not have, or a name twice.

    Example:
        >>> parse_mapping(b"model.width: 8", Path("a.yaml"), "settings", dotted=True)
        {'model.width': 8}
    """
    import yaml  # type: ignore[import-untyped]

    try:
        text = data.decode("utf-8")
        _refuse_repeated(yaml.compose(text, Loader=yaml.SafeLoader), path)
        stored = yaml.safe_load(text)
    except ArgumentError:
        raise
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError, OverflowError, LookupError, TypeError) as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise ArgumentError(f"{path} is neither YAML nor JSON that can be read: {reason}") from error
    if not isinstance(stored, Mapping):
        raise ArgumentError(f"{path} must hold a mapping with {parts}, but holds {type(stored).__name__}.")
    _count(stored, path, _DEEPEST, {}, dotted)
    return stored


def _refuse_repeated(root: Any, path: Path) -> None:
    """Refuse a mapping that has a name twice: one of the two values would be lost without a word."""
    waiting, known = [root], set()
    while waiting:
        node = waiting.pop()
        if id(node) in known or not isinstance(getattr(node, "value", None), list):
            continue
        known.add(id(node))
        names = set()
        for item in node.value:
            if not isinstance(item, tuple):
                waiting.append(item)
                continue
            name = item[0].value if isinstance(item[0].value, str) else None
            if name is not None and name in names:
                line = item[0].start_mark.line + 1
                raise ArgumentError(f"{path} must have every setting once, but has `{name[:60]}` again in line {line}.")
            names.add(name)
            waiting.extend(item)


def _count(value: Any, path: Path, depth: int, known: dict[tuple[int, int], int], dotted: bool) -> int:
    """Return how many values there are in one, itself included; refuse too many, too deep ones, and what JSON lacks."""
    if depth < 0:
        raise ArgumentError(f"{path} must not nest its values more than {_DEEPEST} deep, but does.")
    key = id(value), depth
    if key in known:
        return known[key]
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) and (dotted or "." not in name) for name in value):
            words = "words" if dotted else "words without a dot"
            raise ArgumentError(f"{path} must have {words} as the names of settings, but has another one.")
        inner = list(value.values())
    else:
        inner = value if isinstance(value, list) else []
    if not isinstance(value, Mapping | list | str | bool | int | float | None):
        raise ArgumentError(f"{path} must hold texts, numbers, lists and mappings, but holds a {type(value).__name__}.")
    if isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
        raise ArgumentError(f"{path} must hold numbers of at most 64 bits, but has one of {value.bit_length()}.")
    found = 1
    for item in inner:
        found += _count(item, path, depth - 1, known, dotted)
        if found > _MOST_VALUES:
            raise ArgumentError(f"{path} must hold at most {_MOST_VALUES:,} values, but its aliases stand for more.")
    known[key] = found
    return found


def _check_mapping(value: Any, cls: type, name: str, path: Path) -> None:
    """Refuse a text in the place of a part of the settings: the parser would take it for a file to read."""
    if not isinstance(value, Mapping):
        raise ArgumentError(f"{path} must have a mapping as `{name}`, but has {type(value).__name__}.")
    for field in fields(cls):
        if isinstance(field.type, type) and is_dataclass(field.type) and field.name in value:
            _check_mapping(value[field.name], field.type, f"{name}.{field.name}", path)
