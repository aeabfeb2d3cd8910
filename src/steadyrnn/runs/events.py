"""The scalars of a run as TensorBoard's event files."""

import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from steadyrnn.errors import RunError

__all__ = ["EventWriter", "check_events", "scalars"]

_NOT_MEASURED = {"kind", "name", "step", "epoch", "time"}


class EventWriter:
    """Writes the numbers of metrics records where TensorBoard looks for them; needs the package ``tensorboard``.

    Every writer begins a file of its own, so a resumed run adds one. The files repeat what ``metrics.jsonl`` holds, for the
    eye: they are written in the background and not synced.

    Args:
        folder: Where the event file goes.

    Raises:
        RunError: ``tensorboard`` is not installed, or the file cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        check_events()
        from tensorboard.compat.proto import event_pb2, summary_pb2  # type: ignore[import-untyped]
        from tensorboard.summary.writer.event_file_writer import EventFileWriter  # type: ignore[import-untyped]

        self._folder = folder
        self._protocol: Any = event_pb2
        self._summaries: Any = summary_pb2
        with self._explain_errors():
            # nobody can have put a link where the file will be: a part of its name is drawn
            self._writer: Any = EventFileWriter(str(folder), filename_suffix=f".{secrets.token_hex(8)}")

    def add(self, record: Mapping[str, Any]) -> None:
        """Write every number of a record at its step."""
        values = [self._summaries.Summary.Value(tag=tag, simple_value=value) for tag, value in scalars(record)]
        if values:
            self._put(record["step"], summary=self._summaries.Summary(value=values))

    def purge(self, step: int) -> None:
        """Have TensorBoard forget what earlier files say of this step and later ones: the run takes another course."""
        self._put(step, session_log=self._protocol.SessionLog(status=self._protocol.SessionLog.START))

    def close(self) -> None:
        """Write what is waiting and close the file; a second call does nothing."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with self._explain_errors():
                writer.close()

    def _put(self, step: int, **what: Any) -> None:
        with self._explain_errors():
            self._writer.add_event(self._protocol.Event(wall_time=time.time(), step=step, **what))

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunError(f"The event file in `{self._folder}` could not be written: {error.strerror or error}.") from error


def check_events() -> None:
    """Raise unless event files can be written here: ``tensorboard`` is installed."""
    if find_spec("tensorboard") is None:
        raise RunError("Event files need the package `tensorboard`: pip install steadyrnn[train].")


def scalars(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a record with their tags: those at its top, and of a probe also those one or two steps inside.

    Example:
        >>> list(scalars({"kind": "train", "step": 3, "loss": 0.5, "lr": None}))
        [('train/loss', 0.5)]
        >>> list(scalars({"kind": "probe", "name": "spectrum", "step": 3, "margin": {"weight_hh_l0": 0.1}}))
        [('spectrum/margin/weight_hh_l0', 0.1)]
    """
    root = record["name"] if record["kind"] == "probe" else record["kind"]
    yield from _numbers(str(root), {key: value for key, value in record.items() if key not in _NOT_MEASURED})


def _numbers(tag: str, value: object) -> Iterator[tuple[str, float]]:
    if isinstance(value, bool | int | float):
        yield tag, float(value)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _numbers(f"{tag}/{key}", item)
