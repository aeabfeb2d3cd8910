"""Run the cells of an experiment, keep each as soon as it is finished, and write one record of all of them."""

import shutil
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
from steadyrnn.runs.regular import check_writable
from steadyrnn.train.progress import Progress, make_progress

from .cell_runner import own_folder, run_cells
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
    work: Work, out: str | Path = "results", *, again: bool = False, jobs: int = 1, command: Sequence[str] = (),
    progress: str = "silent",
) -> Reproduced:  # fmt: skip
    """Run what is not yet finished of some work, and write ``OUT/NAME.json``.

    Each finished cell is written at once to ``OUT/NAME.partial.json``, as a whole, and is never repeated: a call after a
    crash, Ctrl-C or SIGKILL goes on with the next cell, and a resumable cell goes on where it stopped. The record is written
    when all cells are there; then the partial file is removed. A call for a record that is there repeats nothing, and judges
    its numbers anew. A cell that returned None, for data that is not there, is not finished: the next call runs it again.

    The record of an interrupted run has the same bytes as that of an uninterrupted one, except under the key ``made``: the
    date and the environment of the first start, the latest command, the seconds of each cell, and the environments of later
    starts where these differ.

    Args:
        work: The cells, and how their numbers become a record.
        out: The folder, made where there is none.
        again: Whether to run all cells anew. ``OUT/NAME.json`` stays until the new one is whole; an interrupted call goes on
            with the same argument.
        jobs: Cells at a time, each in a process of its own where there are several; on one GPU leave it at 1.
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
        return _Desk(work, folder, [*command]).run(again, jobs, make_progress(progress, "reproducing", "cell"))
    finally:
        lock.release()


class _Desk:
    """The two files of one piece of work, and what is known of its cells."""

    def __init__(self, work: Work, folder: Path, command: list[str]) -> None:
        self.work, self.command = work, command
        self.path = check_writable(folder, f"{work.name}.json")
        self.partial = check_writable(folder, f"{work.name}{PARTIAL}")
        self.folder = check_writable(folder, f".{work.name}.cells", last="a folder")
        self.cells: dict[str, Any] = {}
        self.made: dict[str, Any] = {}
        self.again = False

    def run(self, again: bool, jobs: int, progress: Progress) -> Reproduced:
        """Take up what is there, run the rest, write the record."""
        before, begun = read_result(self.path), read_result(self.partial)
        if begun is not None and (not again or (begun.get("again") is True and self._stranger(begun) is None)):
            self._take(self.partial, begun)
            self.again = begun.get("again") is True
        elif again:
            self.again = True
            shutil.rmtree(self.folder, ignore_errors=True)
        elif before is not None:
            self._take(self.path, before)
        missing = [cell for cell in self.work.cells if cell.name not in self.cells]
        kept = len(self.work.cells) - len(missing)
        if missing or not self.made:
            self._note_start()
        self._run(missing, kept, jobs, progress)
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
        shutil.rmtree(self.folder, ignore_errors=True)
        return Reproduced(self.path, record, len(missing), kept)

    def _take(self, path: Path, record: Mapping[str, Any]) -> None:
        stranger = self._stranger(record)
        if stranger is not None:
            raise RunError(
                f"`{path}` holds the cell {stranger!r}, which these settings do not have or have otherwise. Give the settings "
                "it was made with, choose another folder with --out, or run all cells anew with --again."
            )
        self.cells = {name: numbers for name, numbers in record["cells"].items() if numbers is not None}
        self.made = dict(record["made"])

    def _stranger(self, record: Mapping[str, Any]) -> str | None:
        """Return the name of a finished cell that is not the plan's."""
        plan = {cell.name: null_for_nonfinite(cell.to_dict()) for cell in self.work.cells}
        stored = record["config"]["cells"]
        return next((name for name in record["cells"] if name not in plan or stored.get(name) != plan[name]), None)

    def _note_start(self) -> None:
        """Note date and environment of the first start, the command, and the environment of a later start that differs."""
        now = _environment()
        first = {"date": datetime.now(UTC).date().isoformat(), "command": [], "environment": now, "seconds": {}}
        self.made = {**first, **self.made, "command": self.command}
        known = [self.made["environment"], *self.made.get("resumed_in", [])]
        if now not in known:
            self.made["resumed_in"] = [*known[1:], now]

    def _run(self, missing: Sequence[Cell], kept: int, jobs: int, progress: Progress) -> None:
        if not missing:
            return
        progress.begin(len(self.work.cells), kept)
        try:
            progress.update(kept, {"": missing[0].name})
            for done, (cell, numbers, seconds) in enumerate(run_cells(missing, self.cells, self.folder, jobs), kept + 1):
                self.cells[cell.name] = null_for_nonfinite(numbers, cell.name)
                self.made["seconds"] = {**self.made["seconds"], cell.name: round(seconds, 3)}
                _write(self.partial, {**self._config(), "again": self.again, "cells": self.cells, "made": self.made})
                shutil.rmtree(own_folder(self.folder, cell), ignore_errors=True)
                progress.update(done, {"": cell.name})
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
