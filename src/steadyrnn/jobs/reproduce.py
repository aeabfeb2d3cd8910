"""Run the cells of an experiment, keep each as soon as it is finished, and write one record of all of them."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from steadyrnn.errors import RunError
from steadyrnn.runs.environment import describe_environment
from steadyrnn.runs.files import make_folder, remove_quietly, write_atomically
from steadyrnn.runs.json_text import null_for_nonfinite, render
from steadyrnn.runs.lock import Lock
from steadyrnn.train.progress import Progress, make_progress

from .result_file import FORMAT, PARTIAL, read_result
from .work import Cell, Work

__all__ = ["Reproduced", "reproduce"]

_PATHS = ("STEADYRNN_DATA", "STEADYRNN_CALIBRATION")
"""Variables that hold a folder of the user's, which is nobody else's business."""


@dataclass(frozen=True)
class Reproduced:
    """What a call of :func:`reproduce` left behind.

    Args:
        path: The file with the record.
        record: Its content.
        ran: Cells that ran in this call.
        kept: Cells that were finished before.
    """

    path: Path
    record: dict[str, Any]
    ran: int
    kept: int


def reproduce(
    work: Work, out: str | Path = "results", *, again: bool = False, command: Sequence[str] = (), progress: str = "silent"
) -> Reproduced:
    """Run what is not yet finished of some work, and write ``OUT/NAME.json``.

    Each finished cell is written at once to ``OUT/NAME.partial.json``, as a whole, and is never repeated: a call after a
    crash, Ctrl-C or SIGKILL goes on with the next cell. The record is written when all cells are there; then the partial file
    is removed. A call for a record that is there repeats nothing, and judges its numbers anew.

    The record of an interrupted run has the same bytes as that of an uninterrupted one, except under the key ``made``: the
    date and the environment of the first start, the command, the seconds of each cell, and the environments of later starts
    where these differ.

    Args:
        work: The cells, and how their numbers become a record.
        out: The folder, made where there is none.
        again: Whether to run cells anew whose numbers are in ``OUT/NAME.json``. That file stays until the new one is whole.
        command: The words that the record is noted to come from.
        progress: ``"auto"`` shows a bar or lines, ``"silent"`` nothing.

    Raises:
        RunError: Another process writes the same record, a file is damaged, or one holds cells of other settings or numbers
            that cannot be judged.

    Example:
        >>> cells = (Cell("names", "steadyrnn.errors:suggestion", {"name": "lsmt", "known": ["lstm"]}),)
        >>> work = Work("example", {}, cells, finish=lambda numbers: {"claims": []})
        >>> done = reproduce(work, "records")
        >>> done.ran, reproduce(work, "records").kept, done.record["cells"]
        (1, 1, {'names': 'Did you mean `lstm`?'})
    """
    folder = Path(out)
    make_folder(folder)
    lock = Lock(folder / f".{work.name}.lock", sign=False)
    try:
        return _Desk(work, folder, [*command]).run(again, make_progress(progress, "reproducing", "cell"))
    finally:
        lock.release()


class _Desk:
    """The two files of one piece of work, and what is known of its cells."""

    def __init__(self, work: Work, folder: Path, command: list[str]) -> None:
        self.work, self.command = work, command
        self.path, self.partial = folder / f"{work.name}.json", folder / f"{work.name}{PARTIAL}"
        self.cells: dict[str, Any] = {}
        self.made: dict[str, Any] = {}

    def run(self, again: bool, progress: Progress) -> Reproduced:
        """Take up what is there, run the rest, write the record."""
        before, begun = read_result(self.path), read_result(self.partial)
        if begun is not None and not (again and self._stranger(begun)):
            self._take(self.partial, begun)
        elif before is not None and not again:
            self._take(self.path, before)
        missing = [cell for cell in self.work.cells if cell.name not in self.cells]
        kept = len(self.work.cells) - len(missing)
        if missing or not self.made:
            self._note_start()
        self._run(missing, kept, progress)
        try:
            record = self._record()
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            if not kept:  # the numbers are fresh: the fault is in the judge
                raise
            raise RunError(
                f"`{self.path}` or its unfinished form holds numbers that cannot be judged ({type(error).__name__}: {error}). "
                "It was changed, or an earlier release wrote it. Run all cells anew with --again."
            ) from error
        if record != before:
            _write(self.path, record)
        remove_quietly(self.partial)
        return Reproduced(self.path, record, len(missing), kept)

    def _take(self, path: Path, record: Mapping[str, Any]) -> None:
        stranger = self._stranger(record)
        if stranger is not None:
            raise RunError(
                f"`{path}` holds the cell {stranger!r}, which these settings do not have or have otherwise. Give the settings "
                "it was made with, choose another folder with --out, or run all cells anew with --again."
            )
        self.cells, self.made = dict(record["cells"]), dict(record["made"])

    def _stranger(self, record: Mapping[str, Any]) -> str | None:
        """Return the name of a finished cell that is not the plan's."""
        plan = {cell.name: null_for_nonfinite(cell.to_dict()) for cell in self.work.cells}
        stored = record["config"]["cells"]
        return next((name for name in record["cells"] if name not in plan or stored.get(name) != plan[name]), None)

    def _note_start(self) -> None:
        """Note date, command and environment of the first start, and the environment of a later one that differs."""
        now = _environment()
        first = {"date": datetime.now(UTC).date().isoformat(), "command": self.command, "environment": now, "seconds": {}}
        self.made = {**first, **self.made}
        known = [self.made["environment"], *self.made.get("resumed_in", [])]
        if now not in known:
            self.made["resumed_in"] = [*known[1:], now]

    def _run(self, missing: Sequence[Cell], kept: int, progress: Progress) -> None:
        if not missing:
            return
        progress.begin(len(self.work.cells), kept)
        try:
            for done, cell in enumerate(missing, kept):
                progress.update(done, {"": cell.name})
                start = time.perf_counter()
                self.cells[cell.name] = null_for_nonfinite(cell.run(), cell.name)
                self.made["seconds"] = {**self.made["seconds"], cell.name: round(time.perf_counter() - start, 3)}
                _write(self.partial, {**self._config(), "cells": self.cells, "made": self.made})
                progress.update(done + 1, {"": cell.name})
        finally:
            progress.end()

    def _config(self) -> dict[str, Any]:
        cells = {cell.name: null_for_nonfinite(cell.to_dict()) for cell in self.work.cells}
        return {"format": FORMAT, "config": {"cells": cells}}

    def _record(self) -> dict[str, Any]:
        """Return the whole record; cells stand in the order of the plan, whatever order they ran in."""
        cells = {cell.name: self.cells[cell.name] for cell in self.work.cells}
        rest = null_for_nonfinite(dict(self.work.finish(cells)))
        return {**self._config(), **self.work.header, **rest, "cells": cells, "made": self.made}


def _environment() -> dict[str, Any]:
    """Return what this process runs with, without folders of the user's."""
    found = describe_environment()
    variables = {name: value for name, value in found["variables"].items() if name not in _PATHS}
    return {**found, "variables": variables}


def _write(path: Path, record: Mapping[str, Any]) -> None:
    write_atomically(path, render(record).encode())
