"""The table that ``steadyrnn bench --calibrate`` writes: begun once, then grown row by row, shard by shard."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from steadyrnn import __version__
from steadyrnn.engines.calibration_table import FORMAT, parse_table
from steadyrnn.errors import ArgumentError
from steadyrnn.runs.output_file import write_output
from steadyrnn.runs.regular import read_if_there

__all__ = ["CalibrationFile"]

_KEY = ("cell", "dtype", "n", "B", "rank")


class CalibrationFile:
    """A table on its way: what is there is kept, and every row is on the disk before the next is measured.

    Args:
        path: The file; a table that is there must be of the same device and versions.
        facts: What the figures depend on beside the code: device, sizes.
        command: The words that measure now.

    Raises:
        DataError: The file is there, but is no table.
        ArgumentError: It was measured on another device or with other versions.
    """

    def __init__(self, path: Path, facts: dict[str, Any], command: Sequence[str]) -> None:
        self.path = path
        versions = {"torch": str(torch.__version__), "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
        self.header: dict[str, Any] = {"format": FORMAT, **facts, **versions, "steadyrnn": __version__, "made": []}
        self.rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        data = read_if_there(path)
        if data is not None:
            parse_table(data, path.name, f"the file {str(path)!r}")
            self._take(json.loads(data))
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self.header["made"] = [*self.header["made"], {"command": " ".join(command), "date": now}]

    def _take(self, there: dict[str, Any]) -> None:
        for name, value in self.header.items():
            if name != "made" and there.get(name) != value:
                raise ArgumentError(
                    f"`--out` names a table whose {name} is {there.get(name)!r}, but here it is {value!r}. Name another file."
                )
        self.header["made"] = list(there.get("made", []))
        self.rows = {self._key(row): row for row in there["rows"]}

    @staticmethod
    def _key(row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row.get(name) for name in _KEY)

    def has(self, row: dict[str, Any], engines: Sequence[str]) -> bool:
        """Say whether a figure of each of ``engines`` is there, with and without gradients."""
        there = self.rows.get(self._key(row), {})
        return all(name in there.get(part, {}) for name in engines for part in ("forward", "training"))

    def add(self, row: dict[str, Any]) -> None:
        """Put a row into the file, in the place of an older one."""
        self.rows[self._key(row)] = row
        head = json.dumps(self.header, indent=1).removesuffix("\n}")
        body = ",\n".join(f"  {json.dumps(one)}" for one in self.rows.values())
        write_output(self.path, f'{head},\n "rows": [\n{body}\n ]\n}}\n'.encode())
