"""JSON as the run folder writes it: standard numbers only, one text for one value."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from steadyrnn.errors import ArgumentError, ArgumentTypeError, RunError, SteadyError

__all__ = ["decode_exactly", "encode_exactly", "null_for_nonfinite", "parse", "parse_file", "render", "render_line"]

_FLOAT = "$float"
_DEEPEST = 100
_MOST_DIGITS = 300  # a float takes 308


def null_for_nonfinite(value: Any, name: str = "value") -> Any:
    """Return ``value`` as JSON takes it, with null for NaN and infinity; tuples become lists.

    Raises:
        ArgumentTypeError: Something inside is not a JSON value, or a key is not a string; the message says where.

    Example:
        >>> null_for_nonfinite({"loss": float("nan"), "betas": (0.9, 0.999)})
        {'loss': None, 'betas': [0.9, 0.999]}
    """
    return _copy(value, name, lambda number: number if math.isfinite(number) else None, lambda key: key)


def encode_exactly(value: Any, name: str = "value") -> Any:
    """Return ``value`` in standard JSON from which :func:`decode_exactly` gets it back bit for bit.

    Finite floats need nothing, their shortest decimal form is exact. NaN and infinity become ``{"$float": "nan"}``, and a
    key that starts with ``$`` gets a second one, so that nothing of the caller's is taken for that. Tuples become lists.

    Raises:
        ArgumentTypeError: Something inside is not a JSON value, or a key is not a string; the message says where.

    Example:
        >>> encode_exactly({"best": float("inf"), "$float": 1})
        {'best': {'$float': 'inf'}, '$$float': 1}
    """
    return _copy(value, name, _exact_float, lambda key: f"${key}" if key.startswith("$") else key)


def decode_exactly(value: Any) -> Any:
    """Return what :func:`encode_exactly` was given.

    Raises:
        ValueError: ``value`` does not come from there.

    Example:
        >>> decode_exactly({"best": {"$float": "inf"}, "$$float": 1})
        {'best': inf, '$float': 1}
    """
    match value:
        case {"$float": "nan" | "inf" | "-inf" as text, **rest} if not rest:
            return float(text)
        case dict():
            return {_unescape(key): decode_exactly(item) for key, item in value.items()}
        case list():
            return [decode_exactly(item) for item in value]
    return value


def render(value: Any) -> str:
    r"""Return the one text of a JSON value: indented, ASCII, a newline at the end.

    Example:
        >>> render({"format": 1})
        '{\n  "format": 1\n}\n'
    """
    return _dump(value, indent=2)


def render_line(value: Any) -> str:
    r"""Return a JSON value on one line, with its newline.

    Example:
        >>> render_line({"kind": "train", "step": 3})
        '{"kind": "train", "step": 3}\n'
    """
    return _dump(value, indent=None)


def parse(data: bytes) -> Any:
    """Return the value of a JSON text; NaN and Infinity, which are not JSON, are refused.

    So are numbers beyond any float and values nested more than 100 deep: whoever reads the value on can convert every number
    and walk it to its ground.

    Raises:
        ValueError: The bytes are not JSON, or hold such a value.

    Example:
        >>> parse(b"[1, 2.5]")
        [1, 2.5]
    """
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_refuse, parse_float=_float, parse_int=_int)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if data.count(b"[") + data.count(b"{") > _DEEPEST and _is_deeper(value, _DEEPEST):
        raise ValueError("nested too deeply")
    return value


def parse_file(data: bytes, path: Path, error: type[SteadyError] = RunError) -> Any:
    """Return the value of the JSON file ``path``, whose bytes are ``data``; raise ``error`` where they are none.

    Example:
        >>> parse_file(b"[1]", Path("facts.json"))
        [1]
    """
    try:
        return parse(data)
    except ValueError as problem:
        raise error(f"`{path}` is damaged: it is not JSON ({problem}).") from problem


def _dump(value: Any, indent: int | None) -> str:
    try:
        return json.dumps(value, indent=indent, allow_nan=False) + "\n"
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits, a list inside itself
        raise ArgumentError(f"`value` cannot be written as JSON: {error}.") from error


def _copy(value: Any, name: str, number: Callable[[float], Any], key: Callable[[str], str]) -> Any:
    try:
        return _walk(value, name, number, key)
    except RecursionError:
        raise ArgumentError(f"`{name}` is nested too deeply to be written as JSON, or holds itself.") from None


def _walk(value: Any, name: str, number: Callable[[float], Any], key: Callable[[str], str]) -> Any:
    """Copy a JSON value, with ``number`` applied to its floats and ``key`` to its keys."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return number(float(value))
        case list() | tuple():
            return [_walk(item, f"{name}[{i}]", number, key) for i, item in enumerate(value)]
        case dict():
            return {key(_check_key(k, name)): _walk(item, f"{name}.{k}", number, key) for k, item in value.items()}
    raise ArgumentTypeError(
        f"`{name}` must be a JSON value (None, bool, int, float, str, list, dict), but is of type {type(value).__name__}."
    )


def _check_key(key: object, name: str) -> str:
    if not isinstance(key, str):
        raise ArgumentTypeError(f"`{name}` must have strings as keys, but has one of type {type(key).__name__}.")
    return key


def _exact_float(number: float) -> Any:
    return number if math.isfinite(number) else {_FLOAT: repr(number)}


def _unescape(key: str) -> str:
    if not key.startswith("$"):
        return key
    if not key.startswith("$$"):
        raise ValueError(f"unknown mark {key!r}")
    return key[1:]


def _is_deeper(value: Any, depth: int) -> bool:
    """Say whether lists and objects are inside each other more than ``depth`` times; walks level by level."""
    level = [value]
    for _ in range(depth + 1):
        level = [
            item for one in level if isinstance(one, list | dict) for item in (one.values() if isinstance(one, dict) else one)
        ]
    return bool(level)


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{_short(text)} is beyond any float")
    return number


def _int(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"{_short(text)} has {len(text)} digits")
    return int(text)


def _short(text: str) -> str:
    return text if len(text) < 20 else f"{text[:12]}..."


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON number")
