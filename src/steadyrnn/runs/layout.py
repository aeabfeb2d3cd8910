"""Where things are in a run folder, and what makes a folder one."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from steadyrnn.errors import ArgumentError, RunError

from .json_text import parse_file
from .regular import read_if_there

__all__ = [
    "CHECKPOINTS",
    "CONFIG",
    "DATA",
    "ENVIRONMENT",
    "FORMAT",
    "LOCK",
    "METRICS",
    "check_config",
    "check_name",
    "find_runs",
    "read_config",
]

FORMAT = 1
CONFIG, METRICS, ENVIRONMENT, LOCK, CHECKPOINTS = "config.json", "metrics.jsonl", "environment.json", "lock", "checkpoints"
DATA = "data"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")


def find_runs(paths: Iterable[str | Path]) -> list[Path]:
    """Return the run folders that paths lead to: each is a run, or any folder above runs.

    Args:
        paths: Folders.

    Returns:
        Every run once, those of a path in the order of their names. A folder with a damaged ``config.json`` beside a
        ``metrics.jsonl`` is among them, so that whoever opens it learns of the damage.

    Raises:
        RunError: A path does not exist, or contains no run.

    Example:
        >>> find_runs([Path("no-such-folder")])
        Traceback (most recent call last):
        steadyrnn.errors.RunError: `no-such-folder` is not a folder; a run is a folder with a `config.json`.
    """
    found: dict[Path, Path] = {}
    for path in map(Path, paths):
        if not path.is_dir():
            raise RunError(f"`{path}` is not a folder; a run is a folder with a `{CONFIG}`.")
        runs = _below(path)
        if not runs:
            raise RunError(f"`{path}` contains no run: neither it nor a folder below it has the `{CONFIG}` of a run.")
        for run in runs:
            found.setdefault(run.resolve(), run)
    return list(found.values())


def read_config(folder: Path) -> dict[str, Any]:
    """Return the configuration of a run.

    Raises:
        RunError: The folder is not a run; the message says what is missing.
    """
    path = folder / CONFIG
    data = read_if_there(path)
    if data is None:
        raise RunError(f"`{folder}` is not a run: it has no `{CONFIG}`.")
    config = parse_file(data, path)
    if not isinstance(config, dict):
        raise RunError(f"`{path}` must hold a JSON object, but holds {type(config).__name__}.")
    if config.get("format") != FORMAT or isinstance(config["format"], bool):
        raise RunError(
            f"`{path}` must have `format` {FORMAT}, but has {str(config.get('format'))[:40]}: no run of this release."
        )
    check_config(config, f"`{path}`")
    return config


def check_config(config: Mapping[str, Any], name: str) -> None:
    """Raise unless a configuration has task and model with their names, train, and, where it has one, a command of strings."""
    for part in ("task", "model"):
        value = config.get(part)
        if not isinstance(value, dict) or not isinstance(value.get("name"), str):
            raise RunError(f"{name} must have an object `{part}` with a string `name`, but has none.")
    if not isinstance(config.get("train"), dict):
        raise RunError(f"{name} must have an object `train`, but has none.")
    command = config.get("command", [])
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        raise RunError(f"{name} must have a list of strings as `command`, but has another value.")


def check_name(argument: str, name: str) -> str:
    """Return ``name`` if it can name a file or folder of a run on every system: no separator, no leading dot.

    Example:
        >>> check_name("task", "addition")
        'addition'
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ArgumentError(f"`{argument}` must be a name of letters, digits and . _ + -, but is {name!r}.")
    return name


def _below(folder: Path) -> list[Path]:
    """Return the runs in a folder, itself included; nothing is looked for inside a run, and no link is followed."""
    found: list[Path] = []
    waiting = [folder]  # folders can lie in each other deeper than functions can call each other
    while waiting:
        here = waiting.pop()
        if _is_run(here):
            found.append(here)
            continue
        try:
            inside = sorted(child for child in here.iterdir() if child.is_dir() and not child.is_symlink())
        except OSError:
            continue
        waiting.extend(reversed(inside))
    return found


def _is_run(folder: Path) -> bool:
    if not (folder / CONFIG).is_file():
        return False
    try:
        read_config(folder)
    except RunError:
        return (folder / METRICS).is_file()
    return True
