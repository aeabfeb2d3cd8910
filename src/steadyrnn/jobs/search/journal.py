"""The journal of a search: optuna's own file, checked before optuna reads it, and written line by whole line."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any

from steadyrnn.errors import MissingExtraError, RunError
from steadyrnn.runs.files import list_folder, remove_quietly
from steadyrnn.runs.json_text import parse, render_line
from steadyrnn.runs.regular import check_writable, kind_of, read_if_there

try:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
    from optuna.storages.journal._storage import JournalOperation
except ImportError as error:
    raise MissingExtraError(f"A sweep needs {error.name}, which is not installed: `pip install 'steadyrnn[sweep]'`.") from error

__all__ = ["JOURNAL", "open_journal", "quiet_optuna", "repair_journal"]

JOURNAL = "journal.log"
"""The journal's name in the folder of a sweep."""

_MOST_BYTES = 1 << 28
_OPERATIONS = {int(operation) for operation in JournalOperation}


class _WholeLines(JournalFileBackend):
    """The file of optuna, whose lines are written whole or not at all: a half line would end the next one, too."""

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Write lines behind the others, while no other process does.

        Raises:
            RunError: The system refused; the lines that were there are whole.
        """
        path = Path(self._file_path)
        self._lock.acquire()
        try:
            with open(path, "r+b", buffering=0) as file:
                size = _cut_half_line(file)
                try:
                    data = "".join(render_line(log) for log in logs).encode()
                    while data:
                        data = data[file.write(data) :]
                    os.fsync(file.fileno())
                except OSError:
                    with suppress(OSError):
                        file.truncate(size)
                    raise
        except OSError as error:
            raise RunError(f"`{path}` could not be written: {error.strerror}. What was there before is whole.") from error
        finally:
            self._lock.release()


def open_journal(folder: Path) -> JournalStorage:
    """Return optuna's storage on the journal of a sweep.

    Raises:
        RunError: The journal is a link, too large, or damaged.
    """
    path = folder / JOURNAL
    _check(path)
    try:
        return JournalStorage(_WholeLines(os.fspath(path), JournalFileOpenLock(os.fspath(path))))
    except RunError:
        raise
    except Exception as error:  # optuna replays the lines as they are, and fails in many ways
        raise RunError(f"`{path}` is damaged: its lines do not fit together ({type(error).__name__}: {error}).") from error


def repair_journal(folder: Path) -> bool:
    """Cut off a half-written last line, which a killed process or a full disk left; say whether there was one.

    Only the owner of the folder may do that. A lock that a killed process left is removed.

    Raises:
        RunError: Another line is damaged, or the journal is not a regular file.
    """
    path = check_writable(folder, JOURNAL)
    for name in list_folder(folder):
        if name.startswith(f"{JOURNAL}.lock"):
            remove_quietly(folder / name)
    data = read_if_there(path, _MOST_BYTES)
    if data is None:
        return False
    whole = _whole_bytes(data)
    if whole < len(data):
        try:
            os.truncate(path, whole)
        except OSError as error:
            raise RunError(f"`{path}` could not be written: {error.strerror}.") from error
    _check(path)
    return whole < len(data)


def _cut_half_line(file: FileIO) -> int:
    """Cut off a half-written last line of an open journal, stand at its end, and return its size."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - 1, 0))
    if size and file.read(1) != b"\n":
        file.seek(0)
        size = _whole_bytes(file.read())
        file.truncate(size)
    return file.seek(size)


def _whole_bytes(data: bytes | None) -> int:
    """Return how many bytes there are up to the last line's end."""
    return (data or b"").rfind(b"\n") + 1


def _check(path: Path) -> None:
    """Refuse what is not a journal, before optuna looks at it."""
    if kind_of(path) not in (None, "a regular file"):
        raise RunError(f"`{path}` must be a regular file, but is {kind_of(path)}.")
    data = read_if_there(path, _MOST_BYTES) or b""
    for number, line in enumerate(data[: _whole_bytes(data)].split(b"\n")[:-1], 1):
        try:
            match parse(line):
                case {"op_code": int(code), "worker_id": str()} if code in _OPERATIONS:
                    continue
        except ValueError:
            pass
        raise RunError(f"`{path}` is damaged in line {number:,}: it is not a line of optuna's journal. Restore the file.")


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Keep optuna from telling on stderr what it does."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
