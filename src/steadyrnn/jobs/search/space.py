"""Lists and ranges of a setting, read from a file; free of torch."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from steadyrnn.errors import ArgumentError, suggestion

from .plan import MOST_TRIALS, Range
from .setting_types import is_number, kinds_of, read_value

__all__ = ["enumerate_space", "read_choices", "read_space"]

Refusal = Callable[[str, str], ArgumentError]
"""Makes the error for a key of a file, from the key and what is wrong with it."""

_OF_A_RANGE = ("low", "high", "log", "step")


def read_choices(refusal: Refusal, key: str, values: Any, kind: Any) -> tuple[Any, ...]:
    """Return the values that are listed for a setting.

    Args:
        refusal: Makes an error.
        key: What the list is called.
        values: What the file has.
        kind: The setting's type.
    """
    if not isinstance(values, list) or not values:
        raise refusal(key, "must be a list with at least one value" + (", but is empty." if values in ([], None) else "."))
    found = tuple(read_value(value, kind) for value in values)
    for value in found:
        if not isinstance(value, str | bool | int | float | None) or (isinstance(value, float) and not math.isfinite(value)):
            raise refusal(key, "must list finite numbers, texts, true, false or null.")
        if not _fits(value, kind):
            raise refusal(key, f"must list values of type {_kind_name(kind)}, but has {str(value)[:60]!r}.")
    if len({(type(value), value) for value in found}) < len(found):
        raise refusal(key, "must list each value once.")
    return found


def read_space(refusal: Refusal, key: str, space: Any, kind: Any) -> Range | tuple[Any, ...]:
    """Return the range or the choices that a setting is drawn from; arguments as of :func:`read_choices`."""
    if isinstance(space, list):
        return read_choices(refusal, key, space, kind)
    if not isinstance(space, Mapping):
        raise refusal(key, "must be a list of choices, or a range such as {low: 0.001, high: 0.1, log: true}.")
    for name in space:
        if name not in _OF_A_RANGE:
            raise refusal(f"{key}.{str(name)[:60]}", f"is not a part of a range. {suggestion(name, _OF_A_RANGE)}")
    kinds = kinds_of(kind)
    whole = int in kinds and float not in kinds
    if not whole and float not in kinds:
        raise refusal(key, f"must be a list of choices: the setting is of type {_kind_name(kind)}, which has no range.")
    low, high = (_read_end(refusal, f"{key}.{end}", space.get(end), kind, whole) for end in ("low", "high"))
    if not low < high:
        raise refusal(key, f"must have `low` below `high`, but they are {low:g} and {high:g}.")
    log = space.get("log", False)
    if not isinstance(log, bool):
        raise refusal(f"{key}.log", "must be true or false.")
    if log and low <= 0:
        raise refusal(f"{key}.low", f"must be above 0 where `log` is true, but is {low:g}.")
    step = space.get("step")
    if step is None:
        return Range(low, high, log, None, whole)
    if log:
        raise refusal(f"{key}.step", "and `log` cannot both be given.")
    step = _read_end(refusal, f"{key}.step", step, kind, whole)
    if not 0 < step <= high - low:
        raise refusal(f"{key}.step", f"must be above 0 and at most high - low, {high - low:g}, but is {step:g}.")
    return Range(low, high, log, step, whole)


def enumerate_space(refusal: Refusal, key: str, space: Range | tuple[Any, ...]) -> tuple[Any, ...]:
    """Return all values of a finite space; refuse one that is not."""
    if isinstance(space, tuple):
        return space
    step = space.step or (1 if space.whole and not space.log else None)
    if step is None:
        raise refusal(key, "needs a `step`, or a list of values, for `sampler: grid`.")
    count = math.floor((space.high - space.low) / step * (1 + 1e-12)) + 1
    if count > MOST_TRIALS:
        raise refusal(key, f"has {count:,} values, but a sweep has at most {MOST_TRIALS:,} trials.")
    values = (space.low + place * step for place in range(count))
    return tuple(value if space.whole else float(f"{value:.12g}") for value in values)  # 0.3, and not 0.1 + 0.1 + 0.1


def _read_end(refusal: Refusal, key: str, value: Any, kind: Any, whole: bool) -> float:
    if value is None:
        raise refusal(key, "is missing: a range has a `low` and a `high`.")
    number = read_value(value, kind)
    if not is_number(number) or (whole and type(number) is not int):
        raise refusal(key, f"must be {'a whole' if whole else 'a finite'} number, but is {str(value)[:60]!r}.")
    found: float = number
    return found


def _fits(value: Any, kind: Any) -> bool:
    kinds = kinds_of(kind)
    if value is None or isinstance(value, bool | str):
        return type(value) in kinds
    return type(value) in kinds or (isinstance(value, int) and float in kinds)


def _kind_name(kind: Any) -> str:
    return " or ".join("null" if one is type(None) else getattr(one, "__name__", str(one)) for one in kinds_of(kind))
