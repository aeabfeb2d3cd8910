"""Reading the record of an experiment; free of torch, so that a list of them is quick."""

from pathlib import Path
from typing import Any

from steadyrnn.errors import RunError
from steadyrnn.runs.json_text import parse_file
from steadyrnn.runs.regular import read_if_there

__all__ = ["FORMAT", "PARTIAL", "parse_result", "read_result"]

FORMAT = 1
"""Of the files; another one is refused."""

PARTIAL = ".partial.json"
"""How the name of a file ends that holds the finished cells of an unfinished record."""


def read_result(path: str | Path) -> dict[str, Any] | None:
    """Return a record that :func:`reproduce` wrote, None where there is no such file.

    Raises:
        RunError: The file is damaged, or has another format.

    Example:
        >>> read_result("records/none.json") is None
        True
    """
    data = read_if_there(Path(path))
    return None if data is None else parse_result(data, Path(path))


def parse_result(data: bytes, path: Path) -> dict[str, Any]:
    """Return the record in the bytes of the file ``path``; every part that is read on has its type.

    Raises:
        RunError: The bytes are damaged, or have another format.

    Example:
        >>> parse_result(b"[]", Path("x.json"))
        Traceback (most recent call last):
        steadyrnn.errors.RunError: `x.json` is damaged: ...
    """
    match parse_file(data, path):
        case {"format": int(number)} if number != FORMAT:
            raise RunError(
                f"`{path}` has format {number}, but this version reads format {FORMAT}. Use another version, or --out."
            )
        case {"format": int(), "config": {"cells": dict()}, "cells": dict(), "made": dict(made)} as record if _is_complete(
            made
        ):
            return dict(record)
    raise RunError(f"`{path}` is damaged: it lacks a part of a result. Nothing was changed. Repair or remove it, or use --out.")


def _is_complete(made: dict[str, Any]) -> bool:
    """Say whether date, command, environments and seconds are there, each with its type."""
    kinds = {"date": str, "command": list, "environment": dict, "seconds": dict}
    return all(isinstance(made.get(name), kind) for name, kind in kinds.items()) and isinstance(
        made.get("resumed_in", []), list
    )
