"""The metrics of a run: one JSON object per line, appended as they come, and cut back where a run resumes."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steadyrnn.errors import ArgumentError, ArgumentTypeError, RunError

from .files import Appender, write_atomically
from .json_text import null_for_nonfinite, parse, render_line
from .regular import read_if_there

__all__ = ["MetricsFile", "check_mark", "read_metrics"]

_ONCE_AT_THE_END = ("test", "end")
MOST_BYTES = 1 << 31
"""Of a metrics file: some ten million lines."""


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the records of a metrics file in order; none where there is no file.

    The last line may be half written: by a process that was killed, or that is writing now. It is left out.

    Raises:
        RunError: Another line is damaged; the message names it.
    """
    return [record for record, _ in _read(path)]


def check_mark(path: Path, mark: Mapping[str, Any]) -> None:
    """Raise unless a metrics file begins with the very lines that were there when a mark of it was taken.

    Raises:
        RunError: Lines are missing, altered, or another run's.
    """
    size = mark.get("bytes")
    data = read_if_there(path, MOST_BYTES) or b""
    if not isinstance(size, int) or hashlib.sha256(data[:size]).hexdigest() != mark.get("sha256"):
        raise RunError(
            f"`{path}` does not begin with the lines that the last checkpoint was saved behind: they are lost, altered, or of "
            "another run. Restore the file, or start a new run."
        )


class MetricsFile:
    """A metrics file with a writer; there is one writer.

    A line is written by one call to the system, so it outlives the process from then on. A half-written last line that a
    killed process left is cut off first.

    Args:
        path: The file, made where there is none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._digest = hashlib.sha256()
        self._bytes = 0
        self._appender = self._open()

    @property
    def mark(self) -> dict[str, Any]:
        """Size and SHA-256 of the file, by which a checkpoint knows the lines before it again: see :func:`check_mark`."""
        return {"bytes": self._bytes, "sha256": self._digest.hexdigest()}

    def append(self, record: Mapping[str, Any]) -> None:
        """Write a record behind the others.

        Args:
            record: A JSON object with ``kind`` (a string) and ``step`` (optimizer steps done). NaN and infinity become null.

        Raises:
            ArgumentTypeError: The record, its kind or its step is of the wrong type.
            RunError: The system refused to write; no part of the line is in the file.
        """
        line = render_line(_check_record(record)).encode()
        self._appender.append(line)
        self._digest.update(line)
        self._bytes += len(line)

    def rewind(self, step: int) -> None:
        """Drop, atomically, what comes after a step: records of later steps, and those that only an ended run has.

        A run that resumes has not ended, so its lines of kind ``test`` and ``end`` are dropped whatever their step is.
        """
        _check_step("step", step)
        kept = [line for record, line in _read(self.path) if record["step"] <= step and record["kind"] not in _ONCE_AT_THE_END]
        write_atomically(self.path, b"".join(kept))
        self._appender.close()  # it still writes to the file that was replaced
        self._appender = self._open()

    def sync(self) -> None:
        """Make what was appended outlive a power cut."""
        self._appender.sync()

    def close(self) -> None:
        """Close the file."""
        self._appender.close()

    def _open(self) -> Appender:
        whole = b"".join(line for _, line in _read(self.path))
        self._digest, self._bytes = hashlib.sha256(whole), len(whole)
        return Appender(self.path, keep=self._bytes)


def _read(path: Path) -> list[tuple[dict[str, Any], bytes]]:
    """Return every record with its line, but not a half-written last one."""
    *lines, torn = (read_if_there(path, MOST_BYTES) or b"").split(b"\n")
    read = []
    for number, line in enumerate(lines, start=1):
        record = _record(line)
        if record is not None:
            read.append((record, line + b"\n"))
        elif number < len(lines) or torn:
            raise RunError(f"`{path}` is damaged: line {number} is no record of metrics. Remove that line to go on without it.")
    return read


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        match parse(line):
            case {"kind": str(), "step": int(step)} as record if not isinstance(step, bool):
                return dict(record)
    except ValueError:
        pass
    return None


def _check_record(record: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(record, Mapping):
        raise ArgumentTypeError(f"`record` must be a mapping, but is of type {type(record).__name__}.")
    if not isinstance(record.get("kind"), str):
        raise ArgumentTypeError(f"`record` must have a string as `kind`, but has {type(record.get('kind')).__name__}.")
    _check_step("record.step", record.get("step"))
    plain: dict[str, Any] = null_for_nonfinite(dict(record), "record")
    return plain


def _check_step(name: str, step: object) -> None:
    if isinstance(step, bool) or not isinstance(step, int):
        raise ArgumentTypeError(f"`{name}` must be an integer, but is of type {type(step).__name__}.")
    if step < 0:
        raise ArgumentError(f"`{name}` must not be negative, but is {step}.")
