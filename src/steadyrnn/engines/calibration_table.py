"""The file in which measured times of engines on a device are kept, and what is refused in its place."""

import hashlib
import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from steadyrnn.errors import DataError

__all__ = ["FORMAT", "VARIABLE", "Row", "Table", "packaged_table", "parse_table", "read_table"]

FORMAT = 1
"""The version of the file's form."""
VARIABLE = "STEADYRNN_CALIBRATION"
"""The environment variable that names a table to read in place of the package's."""

_MOST_BYTES = 1 << 26
_SLOWEST = 1e12  # microseconds: eleven days
_FOLDER = files("steadyrnn.engines") / "tables"


class Row(NamedTuple):
    """What was measured at one size: plain numbers and names only, since a compiler must look into it."""

    size: int  # n, hidden units
    rank: int  # of the recurrent weight where it was given in factors; n where it was dense
    batch: int  # B
    microseconds: tuple[tuple[str, float], ...]  # of a step, by engine


class Table(NamedTuple):
    """What was measured on one device."""

    name: str
    device: str
    sha256: str
    rows: dict[tuple[str, str, bool], tuple[Row, ...]]  # by cell, dtype, and whether gradients were computed


@cache
def packaged_table(name: str) -> Table | None:
    """Return the package's table of a device, by the file's name without its end; None where there is none.

    Example:
        >>> packaged_table("abacus") is None
        True
    """
    file = _FOLDER / f"{name}.json"
    return parse_table(file.read_bytes(), name, f"the package's table {name}.json") if file.is_file() else None


@cache
def read_table(path: str) -> Table:
    """Return the table of a file.

    Raises:
        DataError: There is none, it cannot be read, or it is not what ``steadyrnn bench --calibrate`` writes.
    """
    try:
        file = Path(path).expanduser()
        if file.exists() and not (file.is_file() or file.is_dir()):
            raise DataError(f"The table of engines {path!r} must be a regular file, but is a pipe, a socket or a device.")
        if file.stat().st_size > _MOST_BYTES:
            raise DataError(f"The table of engines {path!r} must have at most {_MOST_BYTES:,} bytes, but has more.")
        data = file.read_bytes()
    except (OSError, RuntimeError) as error:  # RuntimeError: a home that is not there
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(f"The table of engines {path!r} cannot be read: {reason}. {_way_out()}") from error
    return parse_table(data, path, f"the file {path!r}")


def parse_table(data: bytes, name: str, source: str) -> Table:
    """Return the table that ``data`` holds.

    Args:
        data: The bytes of the file.
        name: What the table is called in reasons and records.
        source: The file, for an error.

    Raises:
        DataError: It is not what ``steadyrnn bench --calibrate`` writes.
    """
    try:
        found = json.loads(data.decode("utf-8"))
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise ValueError(f"it must be a JSON object whose `format` is {FORMAT}")
        device = _text(found, "device")
        if not isinstance(found.get("rows"), list):
            raise ValueError("`rows` must be a list")
        rows: dict[tuple[str, str, bool], list[Row]] = {}
        for place, entry in enumerate(found["rows"]):
            _add_row(rows, entry, f"rows[{place}]")
    except (ValueError, RecursionError) as error:
        raise DataError(f"No table of engines is in {source}: {error}. {_way_out()}") from error
    ordered = {key: tuple(sorted(listed)) for key, listed in rows.items()}
    return Table(name, device, hashlib.sha256(data).hexdigest(), ordered)


def _add_row(rows: dict[tuple[str, str, bool], list[Row]], entry: Any, place: str) -> None:
    """Add what an entry of the file says, without gradients and with."""
    if not isinstance(entry, dict):
        raise ValueError(f"`{place}` must be an object")
    cell, dtype = _text(entry, "cell", place), _text(entry, "dtype", place)
    size, batch = _count(entry, "n", place), _count(entry, "B", place)
    rank = size if entry.get("rank") is None else _count(entry, "rank", place)
    if entry.get("rank") is not None and rank >= size:
        raise ValueError(f"`{place}.rank` must be below n = {size}, but is {rank}")
    for part, gradients in (("forward", False), ("training", True)):
        row = Row(size, rank, batch, _times(entry, part, place))
        others = rows.setdefault((cell, dtype, gradients), [])
        if any(other[:3] == row[:3] for other in others):
            raise ValueError(f"`{place}` is there twice: {cell}, {dtype}, n = {size}, B = {batch}, rank {entry.get('rank')}")
        others.append(row)


def _times(entry: dict[str, Any], part: str, place: str) -> tuple[tuple[str, float], ...]:
    given = entry.get(part)
    if not isinstance(given, dict):
        raise ValueError(f"`{place}.{part}` must be an object of microseconds by engine")
    for engine, time in given.items():
        if isinstance(time, bool) or not isinstance(time, int | float) or not (0 < time <= _SLOWEST):
            raise ValueError(f"`{place}.{part}.{engine}` must be a finite number above 0, but is {repr(time)[:40]}")
    return tuple((engine, float(time)) for engine, time in given.items())


def _text(entry: dict[str, Any], name: str, place: str = "") -> str:
    value = entry.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"`{place}.{name}`".replace("`.", "`") + f" must be a string, but is {repr(value)[:40]}")
    return value


def _count(entry: dict[str, Any], name: str, place: str) -> int:
    value = entry.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**31:
        raise ValueError(f"`{place}.{name}` must be an integer above 0, but is {repr(value)[:40]}")
    return value


def _way_out() -> str:
    return f"Write one with `steadyrnn bench --calibrate`, or leave {VARIABLE} unset."
