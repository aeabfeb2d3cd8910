"""The folder of one run: made, opened, written by one process, read by any."""

import hashlib
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch import Tensor

from steadyrnn.errors import CheckpointError, RunError

from .checkpoint import DOCUMENT, Checkpoint, load_checkpoint, save_checkpoint
from .environment import describe_environment
from .events import EventWriter, check_events
from .files import is_temporary, list_folder, make_folder, remove_quietly, write_atomically
from .json_text import null_for_nonfinite, parse_file, render
from .layout import CHECKPOINTS, CONFIG, DATA, ENVIRONMENT, FORMAT, LOCK, METRICS, check_config, check_name, read_config
from .lock import Lock
from .metrics import MetricsFile, check_mark, read_metrics
from .regular import check_writable, kind_of, read_if_there

__all__ = ["Run", "make_run_folder"]


class Run:
    """A run: ``runs/<task>/<model>/<id>/`` with configuration, metrics, checkpoints and what else belongs to it.

    Make one by :meth:`create` or :meth:`open`. One process at a time writes to it; reading needs no lock, and what is read
    is whole, also while another writes.

    Args:
        folder: The run's folder.
        config: Its configuration, as in ``config.json``.
        lock: The lock that this process holds, None for reading.

    Example:
        >>> import tempfile
        >>> config = {"task": {"name": "addition"}, "model": {"name": "rnn"}, "train": {"seed": 0}}
        >>> with tempfile.TemporaryDirectory() as root:
        ...     with Run.create(root, "addition", "rnn", config, ["steadyrnn", "train", "addition"]) as run:
        ...         run.log({"kind": "train", "step": 10, "epoch": 0.1, "time": 0.5, "loss": float("nan")})
        ...         run.save("last", {"weight": torch.ones(2)}, {"step": 10})
        ...     again = Run.open(run.folder)
        ...     again.metrics(), again.load("last").facts
        ([{'kind': 'train', 'step': 10, 'epoch': 0.1, 'time': 0.5, 'loss': None}], {'step': 10})
    """

    def __init__(self, folder: Path, config: dict[str, Any], lock: Lock | None = None) -> None:
        self.folder = folder
        self.config = config
        self._lock = lock
        self._events: EventWriter | None = None
        self._wants_events = False
        self._metrics: MetricsFile | None = None
        self._environment: dict[str, Any] = {}

    @classmethod
    def create(
        cls, root: str | Path, task: str, model: str, config: Mapping[str, Any], command: Sequence[str] = (),
        environment: Mapping[str, Any] | None = None, folder: Path | None = None,
    ) -> Self:  # fmt: skip
        """Make the folder of a new run and hold it for writing.

        ``config.json`` is written last: a folder without it is not a run, only a start that was killed.

        Args:
            root: The folder of all runs.
            task: Name of the task, a folder below ``root``.
            model: Name of the model, a folder below that.
            config: ``task``, ``model`` (each with its ``name``) and ``train``, as JSON.
            command: The words that started the run.
            environment: What else numbers depend on, as JSON: goes into ``environment.json``.
            folder: The folder itself, in place of a new name below ``root``; it must not exist yet.

        Raises:
            RunError: The folder cannot be written, or ``config`` lacks a part.
        """
        full = null_for_nonfinite({"format": FORMAT, **config, "command": list(command)}, "config")
        check_config(full, "`config`")
        text = render(full).encode()
        if folder is None:
            folder = make_run_folder(root, task, model)
        else:
            _make_named(folder)
        lock = Lock(folder / LOCK)
        try:
            write_atomically(folder / ENVIRONMENT, render({**describe_environment(), **(environment or {})}).encode())
            run = cls(folder, full, lock)
            run._metrics = MetricsFile(folder / METRICS)
            write_atomically(folder / CONFIG, text)
        except BaseException:
            lock.release()
            raise
        return run

    @classmethod
    def open(cls, folder: str | Path, write: bool = False, environment: Mapping[str, Any] | None = None) -> Self:
        """Open a run.

        Held for writing, it is read as far as it will be written, and nothing in it changes before the first call that
        writes. That call also removes what killed writers left, and notes in ``environment.json`` what has changed since the
        run was made. A run that is closed before is as it was.

        Args:
            folder: Its folder.
            write: Whether to hold it for writing.
            environment: What else numbers depend on now, as JSON.

        Raises:
            RunError: The folder is not a run, or another process is writing it, or a link or damaged file is in it where it
                would be written.
        """
        folder = Path(folder)
        config = read_config(folder)
        if not write:
            return cls(folder, config)
        _check_parts(folder)
        lock = Lock(folder / LOCK, sign=False)
        try:
            run = cls(folder, read_config(folder), lock)
            read_metrics(folder / METRICS)
            run._environment = {**describe_environment(), **(environment or {})}
        except BaseException:
            lock.release()
            raise
        return run

    @property
    def id(self) -> str:
        """The name of the folder: when the run was made, and a random end."""
        return self.folder.name

    def log(self, record: Mapping[str, Any]) -> None:
        """Append a record to ``metrics.jsonl``, and its numbers to the event file where there is one.

        Args:
            record: A JSON object with ``kind`` and ``step``; NaN and infinity are written as null.
        """
        self._writer().append(record)
        events = self._event_writer()
        if events is not None:
            events.add(record)

    def metrics(self) -> list[dict[str, Any]]:
        """Return every record of ``metrics.jsonl``; a half-written last line is left out."""
        return read_metrics(self.folder / METRICS)

    def rewind(self, step: int) -> None:
        """Drop the records of later steps, and those of kind ``test`` and ``end``, for the run goes on from ``step``."""
        self._writer().rewind(step)
        events = self._event_writer()
        if events is not None:
            events.purge(step + 1)

    def write_events(self) -> None:
        """Write TensorBoard's event files from the next line on; needs the package ``tensorboard``."""
        self._check_held()
        check_events()
        self._wants_events = True

    def save(self, name: str, tensors: Mapping[str, Tensor], facts: Any) -> None:
        """Replace the checkpoint of that name; see :func:`~steadyrnn.runs.checkpoint.save_checkpoint`.

        The metrics so far are made durable first: a checkpoint that outlives a power cut has its metrics with it. It keeps
        checksums of them and of ``config.json``, by which :meth:`load` and :meth:`check_metrics` know them again.
        """
        folder = check_writable(self.folder, CHECKPOINTS, check_name("name", name), DOCUMENT).parent
        save_checkpoint(folder, tensors, facts, self.mark())

    def mark(self) -> dict[str, Any]:
        """Make the metrics so far durable, and return checksums of them and of ``config.json``: see :meth:`check_mark`."""
        metrics = self._writer()
        metrics.sync()
        return {"config": self._config_digest(), "metrics": metrics.mark}

    def check_mark(self, mark: Mapping[str, Any]) -> None:
        """Raise unless the folder has the ``config.json`` and the lines of metrics that it had when a mark was taken.

        Raises:
            RunError: One of them was altered, or is another run's.
        """
        if mark.get("config") != self._config_digest():
            raise RunError(f"`{self.folder / CONFIG}` was altered since the last checkpoint, or is another run's. Restore it.")
        self.check_metrics(Checkpoint({}, None, dict(mark)))

    def load(self, name: str) -> Checkpoint:
        """Return the checkpoint of that name.

        Raises:
            CheckpointError: There is none, it is damaged, or it was not saved with the ``config.json`` that is there now.
        """
        folder = self.folder / CHECKPOINTS / check_name("name", name)
        if not folder.is_dir():
            there = ", ".join(self.checkpoints()) or "none"
            raise CheckpointError(f"`{self.folder}` has no checkpoint {name!r}; it has: {there}.")
        return self._of_this_run(load_checkpoint(folder), f"The checkpoint {name!r}")

    def _of_this_run(self, found: Checkpoint, name: str) -> Checkpoint:
        """Return what was saved with the ``config.json`` that is there; refuse anything else."""
        if found.run.get("config", self._config_digest()) != self._config_digest():
            raise CheckpointError(
                f"{name} of `{self.folder}` was not saved with the `{CONFIG}` that is there: one of them was altered, or is "
                "another run's. Restore it."
            )
        return found

    def check_metrics(self, checkpoint: Checkpoint) -> None:
        """Raise unless ``metrics.jsonl`` has the very lines behind which a checkpoint was saved.

        Raises:
            RunError: Lines are missing, altered, or another run's.
        """
        mark = checkpoint.run.get("metrics")
        if isinstance(mark, dict):
            check_mark(self.folder / METRICS, mark)

    def checkpoints(self) -> list[str]:
        """Return the names of the checkpoints."""
        folder = self.folder / CHECKPOINTS
        return [name for name in list_folder(folder) if (folder / name / "checkpoint.json").is_file()]

    def save_data(self, tensors: Mapping[str, Tensor], facts: Any) -> None:
        """Keep the data that the run is trained on, in the form of a checkpoint, once and for all."""
        self._writer()
        folder = check_writable(self.folder, DATA, DOCUMENT).parent
        save_checkpoint(folder, tensors, facts, {"config": self._config_digest()})

    def load_data(self) -> Checkpoint | None:
        """Return the data that the run keeps; None where it keeps none.

        Raises:
            CheckpointError: They are damaged, or another run's.
        """
        if not (self.folder / DATA / DOCUMENT).is_file():
            return None
        return self._of_this_run(load_checkpoint(self.folder / DATA), "The folder `data`")

    def write_json(self, name: str, value: Any) -> None:
        """Replace a JSON file of the run, atomically; NaN and infinity are written as null."""
        data = render(null_for_nonfinite(value)).encode()
        self._writer()
        write_atomically(self.folder / check_name("name", name), data)

    def read_json(self, name: str) -> Any:
        """Return the value of a JSON file of the run.

        Raises:
            RunError: There is none, or it is damaged.
        """
        path = self.folder / check_name("name", name)
        data = read_if_there(path)
        if data is None:
            raise RunError(f"`{self.folder}` has no `{name}`.")
        return parse_file(data, path)

    def close(self) -> None:
        """Close the files and give the lock back; the run can still be read. A second call does nothing."""
        events, self._events = self._events, None
        with ExitStack() as stack:  # whatever fails, the rest is closed, and the lock given back last
            if self._lock is not None:
                stack.callback(self._lock.release)
            if self._metrics is not None:
                stack.callback(self._metrics.close)
            if events is not None:
                stack.callback(events.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Run({os.fspath(self.folder)!r})"

    def environment(self) -> dict[str, Any] | None:
        """Return what the run was last worked on with: ``environment.json`` and what has changed since; None if lost."""
        try:
            noted = self.read_json(ENVIRONMENT)
            changes = [note["changed"] for note in noted.pop("resumed", [])]
            for changed in changes:
                noted.update(changed)
        except (RunError, TypeError, KeyError, AttributeError, ValueError):  # not as it was written: of no use to the run
            return None
        return dict(noted)

    def _check_held(self) -> Lock:
        """Return the lock; an error where this process does not hold the run."""
        if self._lock is None:
            raise RunError(f"`{self.folder}` was opened for reading; open it with `Run.open(folder, write=True)` to write.")
        if not self._lock.held:
            raise RunError(f"`{self.folder}` is not held by this process: the run was closed, or this is a forked child.")
        return self._lock

    def _writer(self) -> MetricsFile:
        """Return the metrics file for writing, and before the first write do what goes before it."""
        lock = self._check_held()
        if self._metrics is None:
            lock.sign()
            for name in list_folder(self.folder):
                if is_temporary(name):
                    remove_quietly(self.folder / name)
            self._metrics = MetricsFile(self.folder / METRICS)
            self._note_environment(self._environment)
        return self._metrics

    def _event_writer(self) -> EventWriter | None:
        if self._events is None and self._wants_events:
            self._events = EventWriter(self.folder)
        return self._events

    def _config_digest(self) -> str:
        """Return the SHA-256 of the configuration, whatever spaces stand in its file."""
        return hashlib.sha256(render(self.config).encode()).hexdigest()

    def _note_environment(self, now: dict[str, Any]) -> None:
        """Note in ``environment.json`` what has changed since it was last written."""
        before = self.environment()
        if before is None:
            return self.write_json(ENVIRONMENT, now)
        changed = {key: value for key, value in now.items() if before.get(key) != value}
        if changed:
            noted = self.read_json(ENVIRONMENT)
            note = {"time": _now().isoformat(timespec="seconds"), "changed": changed}
            self.write_json(ENVIRONMENT, {**noted, "resumed": [*noted.get("resumed", []), note]})


def _check_parts(folder: Path) -> None:
    """Refuse a run folder with a link, or anything but a file, where a file will be written, in the place of any part of it."""
    for name in {METRICS, ENVIRONMENT, LOCK, *(name for name in list_folder(folder) if name.endswith(".json"))}:
        check_writable(folder, name)
    check_writable(folder, CHECKPOINTS, last="a folder")
    check_writable(folder, DATA, DOCUMENT)
    for name in list_folder(folder / CHECKPOINTS):
        if kind_of(folder / CHECKPOINTS / name) != "a regular file":  # somebody's note
            check_writable(folder, CHECKPOINTS, name, DOCUMENT)


def _now() -> datetime:
    return datetime.now(UTC)


def make_run_folder(root: str | Path, task: str, model: str) -> Path:
    """Make a folder ``root/TASK/MODEL/ID`` that nobody else has: named by the second, and by chance within it.

    Example:
        >>> make_run_folder("runs", "addition", "lstm").parent
        PosixPath('runs/addition/lstm')
    """
    parent = Path(root) / check_name("task", task) / check_name("model", model)
    while True:
        folder = parent / f"{_now():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
        try:
            make_folder(folder, new=True)
        except FileExistsError:
            continue
        return folder


def _make_named(folder: Path) -> None:
    """Make a folder of a given name, which must be new."""
    try:
        make_folder(folder, new=True)
    except FileExistsError:
        raise RunError(f"`{folder}` exists already; a new run needs a folder of its own.") from None
