"""The folder of a sweep: its plan, the copy of the user's file, and what each trial came to."""

import hashlib
import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from steadyrnn.errors import RunError
from steadyrnn.runs.files import list_folder, make_folder, write_atomically
from steadyrnn.runs.json_text import parse_file, render
from steadyrnn.runs.layout import CONFIG
from steadyrnn.runs.lock import Lock
from steadyrnn.runs.regular import check_writable, kind_of, read_if_there

from .plan import MOST_TRIALS, SweepPlan

__all__ = [
    *("SWEEP", "SweepFolder", "TrialRecord", "find_newest_sweep", "is_sweep", "read_record", "trial_folder", "write_record"),
]

SWEEP, FILE, TRIALS, RECORD, LOCK = "sweep.json", "configuration", "trials", "trial.json", "lock"
"""What makes a folder that of a sweep; the copy of the user's file; folders of trials; what one came to; the lock."""

_FORMAT = 1
STATES = ("finished", "pruned", "failed")


@dataclass(frozen=True)
class TrialRecord:
    """What a trial came to.

    Args:
        number: Its number.
        model: Its model.
        settings: What it was tried with, beyond the common settings.
        state: ``finished``, ``pruned`` or ``failed``.
        value: Mean of the metric over its seeds; None unless it is finished.
        values: The metric by seed, as text.
        reason: Why it failed, or where it was pruned.
        seconds: Of training, all seeds together.
    """

    number: int
    model: str
    settings: Mapping[str, Any]
    state: str
    value: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    seconds: float = 0.0


def is_sweep(folder: Path) -> bool:
    """Say whether a folder is that of a sweep."""
    return (folder / SWEEP).is_file()


def find_newest_sweep(path: Path) -> Path:
    """Return the folder of a sweep at a path, or of the newest one below it; no link is followed.

    Raises:
        RunError: There is none.
    """
    found, waiting = list[Path](), [path]
    while waiting:
        here = waiting.pop()
        if is_sweep(here):
            found.append(here)
        elif not (here / CONFIG).is_file():
            waiting += [here / name for name in list_folder(here) if kind_of(here / name) == "a folder"]
    if not found:
        raise RunError(f"`{path}` contains no sweep: neither it nor a folder below it has a `{SWEEP}`.")
    return max(found, key=lambda folder: ((folder / SWEEP).stat().st_mtime_ns, folder.name))


def trial_folder(folder: Path, number: int) -> Path:
    """Return the folder of a trial, which holds a run folder for each seed.

    Example:
        >>> trial_folder(Path("sweep"), 7)
        PosixPath('sweep/trials/0007')
    """
    return folder / TRIALS / f"{number:04d}"


def write_record(folder: Path, record: TrialRecord) -> None:
    """Write what a trial came to into its folder."""
    check_writable(folder, RECORD)
    write_atomically(folder / RECORD, render({"format": _FORMAT, **asdict(record)}).encode())


def read_record(folder: Path) -> TrialRecord | None:
    """Return what a trial came to, None where that is not known yet.

    Raises:
        RunError: The file is damaged, or of another release.
    """
    path = folder / RECORD
    data = read_if_there(path)
    if data is None:
        return None
    stored = parse_file(data, path)
    match stored:
        case {
            "format": 1, "number": int(), "model": str(), "settings": dict(), "state": str(state), "value": value,
            "values": dict(values), "reason": str(), "seconds": int() | float(),
        } if state in STATES and len(stored) == 9:  # fmt: skip
            right = _is_finite(value) if state == "finished" else value is None
            if right and all(map(_is_finite, values.values())):
                return TrialRecord(**{name: item for name, item in stored.items() if name != "format"})
    raise RunError(f"`{path}` is damaged, or of another release: it does not say what a trial came to.")


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


class SweepFolder:
    """The folder of a sweep, held for writing until :meth:`close`; one process at a time does.

    Args:
        folder: The folder.
        lock: Its lock; None for reading.
        stored: What ``sweep.json`` holds.
    """

    def __init__(self, folder: Path, lock: Lock | None, stored: Mapping[str, Any]) -> None:
        self.folder, self._lock, self._stored = folder, lock, stored
        self.plan = SweepPlan.from_dict(stored["plan"])

    @classmethod
    def create(cls, folder: Path, plan: SweepPlan, file: Path | None, data: bytes, facts: Mapping[str, Any]) -> Self:
        """Make the parts of a new sweep in its folder, and hold it.

        ``sweep.json`` is written last: a folder without it is not one of a sweep.

        Args:
            folder: The folder, which is there and empty.
            plan: What is tried.
            file: The user's file, None where the plan was made in Python.
            data: Its bytes.
            facts: What else is to be kept, as JSON.
        """
        lock = Lock(folder / LOCK)
        try:
            copy = None
            if file is not None:
                copy = {"name": f"{FILE}{file.suffix[:16]}", "sha256": hashlib.sha256(data).hexdigest(), "path": str(file)}
                write_atomically(folder / copy["name"], data)
            make_folder(folder / TRIALS)
            stored = {"format": _FORMAT, "plan": plan.to_dict(), "file": copy, **facts}
            write_atomically(folder / SWEEP, render(stored).encode())
            return cls(folder, lock, stored)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def open(cls, folder: Path, write: bool = False) -> Self:
        """Open the folder of a sweep.

        Raises:
            RunError: It is none, or damaged, or another process sweeps in it.
        """
        path = folder / SWEEP
        data = read_if_there(path)
        if data is None:
            raise RunError(f"`{folder}` is not the folder of a sweep: it has no `{SWEEP}`.")
        stored = parse_file(data, path)
        if not isinstance(stored, dict) or stored.get("format") != _FORMAT or not isinstance(stored.get("plan"), dict):
            raise RunError(f"`{path}` is damaged, or of another release: it does not hold the plan of a sweep.")
        with ExitStack() as stack:
            lock = None
            if write:
                check_writable(folder, TRIALS, last="a folder")
                lock = Lock(folder / LOCK)
                stack.callback(lock.release)
            found = cls(folder, lock, stored)
            found._check()
            stack.pop_all()
        return found

    @property
    def facts(self) -> Mapping[str, Any]:
        """What else is kept in ``sweep.json``."""
        return self._stored

    def trials(self) -> list[int]:
        """Return the numbers of the trials that have a folder."""
        found = [int(name) for name in list_folder(self.folder / TRIALS) if name.isdecimal() and len(name) < 9]
        return [number for number in dict.fromkeys(found) if kind_of(trial_folder(self.folder, number)) is not None]

    def close(self) -> None:
        """Give the lock back."""
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _check(self) -> None:
        """Refuse a plan that is too large, and a copy of the user's file that is not the one that was read."""
        try:
            count = self.plan.count()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunError(f"`{self.folder / SWEEP}` is damaged: its plan cannot be read ({error}).") from error
        if not 1 <= count <= MOST_TRIALS:
            raise RunError(f"`{self.folder / SWEEP}` is damaged: its plan has {count:,} trials.")
        copy = self._stored.get("file")
        if copy is None:
            return
        match copy:
            case {"name": str(name), "sha256": str(sha256)} if name.startswith(FILE) and "/" not in name:
                data = read_if_there(self.folder / name)
                if data is not None and hashlib.sha256(data).hexdigest() == sha256:
                    return
        raise RunError(f"`{self.folder}` holds another `{FILE}` than it was made with: it was altered. Restore it.")
