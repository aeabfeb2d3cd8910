"""Names of columns that say which channel and which step they are: x_0, x_1, ..., y_0, y_1, ..."""

import re
from collections.abc import Sequence
from pathlib import Path

from steadyrnn.errors import DataError

from .number_text import is_number

__all__ = ["are_numbered", "order_steps"]

_NAME = re.compile(r"(.*?)[ _.:\-]?(\d{1,9})")
_NAME_IN_BRACKETS = re.compile(r"(.*?)[\[(](\d{1,9})[\])]")
_ONLY = "value"


def are_numbered(names: Sequence[str]) -> bool:
    """Say whether all names end with a number, such as x_0, x1 or 7.

    Example:
        >>> are_numbered(["x_0", "x_1"]), are_numbered(["mean", "x_1"])
        (True, False)
    """
    return all(map(_parse, names))


def order_steps(names: Sequence[str], path: Path) -> tuple[list[str], list[list[int]]]:
    """Return the channels, and of each the places of its columns in the order of the steps.

    Columns whose names all end with a number are ordered by it; what stands before it is the channel, if there are several.
    Columns without a number are the steps of one channel, as they stand. Names that are numbers as a whole, such as 0.5, are
    ordered by these.

    Args:
        names: Of the columns that are steps.
        path: The file, named in errors.

    Example:
        >>> order_steps(["x_1", "x_0", "y_0", "y_1"], Path("a.csv"))
        (['x', 'y'], [[1, 0], [2, 3]])
    """
    if all(map(is_number, names)):  # such as wavelengths, 1100.5
        return [_ONLY], [sorted(range(len(names)), key=lambda place: float(names[place]))]
    parsed = [_parse(name) for name in names]
    unnumbered = [name for name, parts in zip(names, parsed, strict=True) if parts is None]
    if len(unnumbered) == len(names):
        return [_ONLY], [[*range(len(names))]]
    if unnumbered:
        numbered = next(name for name, parts in zip(names, parsed, strict=True) if parts is not None)
        raise DataError(
            f"{path} must have a number in the name of each column that is a step, as {numbered!r} has, but {unnumbered[0]!r} "
            "has none. Give it a role (`target`, `series`, `group`) or remove it."
        )
    steps: dict[str, dict[int, int]] = {}
    for place, parts in enumerate(parsed):
        if parts is not None and steps.setdefault(parts[0], {}).setdefault(parts[1], place) != place:
            other = names[steps[parts[0]][parts[1]]]
            raise DataError(f"{path} must name each step once, but columns {other!r} and {names[place]!r} are the same step.")
    (first, wanted), *rest = steps.items()
    for channel, own in rest:
        if own.keys() != wanted.keys():
            step = min(own.keys() ^ wanted.keys())
            has, lacks = (channel, first) if step in own else (first, channel)
            raise DataError(
                f"{path} must have the same steps of each channel, but step {step} is there of {has!r} and not of {lacks!r}."
            )
    channels = [*steps] if rest else [_ONLY]
    return channels, [[own[step] for step in sorted(own)] for own in steps.values()]


def _parse(name: str) -> tuple[str, int] | None:
    """Return what stands before the number at the end of a name, and the number."""
    match = _NAME_IN_BRACKETS.fullmatch(name) or _NAME.fullmatch(name)
    return None if match is None else (match[1], int(match[2]))
