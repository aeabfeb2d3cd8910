"""What a person sees while a model trains: a bar on a terminal, plain lines elsewhere, or nothing."""

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, TextIO

from steadyrnn.errors import ArgumentError, not_among

__all__ = ["Bar", "Lines", "Progress", "Silent", "make_progress"]


class Progress(ABC):
    """Told where a run stands after every step; draws at most a few times a second."""

    @abstractmethod
    def begin(self, total: int, done: int) -> None:
        """Start, with ``done`` of ``total`` steps behind."""

    @abstractmethod
    def update(self, step: int, values: Mapping[str, Any]) -> None:
        """Show that ``step`` steps are done; ``values`` are the latest numbers under the words to show them with."""

    def note(self, text: str) -> None:  # noqa: B027
        """Show a line of text, once; nothing unless a class says how."""

    def set_total(self, total: int) -> None:  # noqa: B027
        """Show that there are ``total`` steps after all; nothing unless a class says how."""

    @abstractmethod
    def end(self) -> None:
        """Finish; called once after every :meth:`begin`, also when a run breaks off."""


class Silent(Progress):
    """Shows nothing."""

    def begin(self, total: int, done: int) -> None:
        """Do nothing."""

    def update(self, step: int, values: Mapping[str, Any]) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""


class Lines(Progress):
    """Plain lines, one every ``seconds`` and one at the end.

    Example:
        >>> lines = Lines(sys.stdout, seconds=0.0)
        >>> lines.begin(total=10, done=0)
        >>> lines.update(5, {"loss": 0.25})
        step 5/10  loss 0.25  ...
    """

    def __init__(self, file: TextIO | None = None, seconds: float = 10.0, unit: str = "step") -> None:
        self._file, self._seconds, self._unit = file or sys.stderr, seconds, unit
        self._latest: tuple[int, Mapping[str, Any]] | None = None

    def begin(self, total: int, done: int) -> None:
        """Start the clock."""
        self._total, self._done, self._start = total, done, time.perf_counter()
        self._shown, self._latest = self._start, None

    def update(self, step: int, values: Mapping[str, Any]) -> None:
        """Write a line if the last one is old enough."""
        self._latest = step, values
        if time.perf_counter() - self._shown >= self._seconds:
            self._write(step, values)

    def note(self, text: str) -> None:
        """Write the text."""
        print(text, file=self._file, flush=True)

    def set_total(self, total: int) -> None:
        """Count to another number."""
        self._total = total

    def end(self) -> None:
        """Write the last line, if it is not there."""
        if self._latest is not None:
            self._write(*self._latest)

    def _write(self, step: int, values: Mapping[str, Any]) -> None:
        self._shown, self._latest = time.perf_counter(), None
        pace = (self._shown - self._start) / max(step - self._done, 1)
        left = f"  {_duration(pace * (self._total - step))} left" if step < self._total else ""
        print(f"{self._unit} {step}/{self._total}  {_words(values)}{left}", file=self._file, flush=True)


class Bar(Progress):
    """A live bar through ``rich``, drawn four times a second."""

    def __init__(self, label: str = "training") -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            TextColumn(label),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[words]}", markup=False),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=Console(stderr=True),
            auto_refresh=False,
            speed_estimate_period=60.0,
        )
        self._drawn = 0.0

    def begin(self, total: int, done: int) -> None:
        """Draw the empty bar."""
        self._task = self._bar.add_task("", total=total, completed=done, words="")
        self._bar.start()

    def update(self, step: int, values: Mapping[str, Any]) -> None:
        """Draw the bar anew, if a quarter of a second has passed."""
        now = time.perf_counter()
        if now - self._drawn >= 0.25:
            self._drawn = now
            self._bar.update(self._task, completed=step, words=_words(values))
            self._bar.refresh()
        self._latest = step, values

    def note(self, text: str) -> None:
        """Write the text above the bar."""
        self._bar.console.print(text, markup=False, highlight=False)

    def set_total(self, total: int) -> None:
        """Draw the bar for another number of steps."""
        self._bar.update(self._task, total=total)

    def end(self) -> None:
        """Leave the bar as it is in the end."""
        if hasattr(self, "_latest"):
            self._bar.update(self._task, completed=self._latest[0], words=_words(self._latest[1]))
        self._bar.refresh()
        self._bar.stop()


def make_progress(kind: str = "auto", label: str = "training", unit: str = "step") -> Progress:
    """Return what shows progress.

    Args:
        kind: ``"bar"``, ``"lines"``, ``"silent"``, or ``"auto"``: a bar where standard error is a terminal and ``rich`` is
            installed, else lines.
        label: What is done, in front of the bar.
        unit: What is counted, in front of each line.

    Example:
        >>> type(make_progress("silent")).__name__
        'Silent'
    """
    if kind == "auto":
        kind = "bar" if sys.stderr.isatty() and find_spec("rich") is not None else "lines"
    kinds: dict[str, Callable[[], Progress]] = {
        "bar": lambda: Bar(label), "lines": lambda: Lines(unit=unit), "silent": Silent,
    }  # fmt: skip
    if kind not in kinds:
        raise ArgumentError(not_among("kind", kind, ("auto", *kinds)))
    return kinds[kind]()


def _words(values: Mapping[str, Any]) -> str:
    return "  ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in values.items())


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
