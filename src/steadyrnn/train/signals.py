"""Ctrl-C, a request to end, and a warning that time is nearly over: noted while a step runs, answered between two steps."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Interrupted", "Signals"]


_WARNING = "SIGUSR1"
_NOTED = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", _WARNING) if hasattr(signal, name))  # Windows lacks it


class Interrupted(Exception):
    """Training was asked to end by a signal. The run is saved and can be resumed.

    Attributes:
        signal: The signal's number.
        step: Optimizer steps done.
        exit_code: What a program should leave with: 130 after Ctrl-C, 143 after a request to end, 138 after SIGUSR1, which a
            scheduler sends before a job's time is over: start the job again.

    Example:
        >>> Interrupted(15, step=7).exit_code
        143
    """

    def __init__(self, number: int, step: int) -> None:
        name = signal.Signals(number).name
        again = " The time of the job is nearly over: start it again with `--resume`." if name == _WARNING else ""
        super().__init__(f"Stopped by {name} after {step} steps; all is saved.{again}")
        self.signal, self.step, self.exit_code = number, step, 128 + number


class Signals:
    """A context that notes SIGINT, SIGTERM and SIGUSR1 instead of dying of them; a second one ends the program at once.

    SIGUSR1 is no second one, nor is the one that follows it: a scheduler sends SIGTERM a while later. Outside the main thread,
    where no signal arrives, and where ``active`` is False it does nothing. Inside another such context, a signal that came
    before counts here, and one that comes here counts for the other: none is lost between them.

    Args:
        active: Whether to do anything.
        patient: Whether a second signal is ignored, too: torchrun repeats to each process what it was sent itself.

    Example:
        >>> with Signals() as signals:
        ...     signals.received is None
        True
    """

    def __init__(self, active: bool = True, patient: bool = False) -> None:
        self.received: int | None = None
        self._active, self._patient = active, patient
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        if self._active and threading.current_thread() is threading.main_thread():
            for number in _NOTED:
                self._before[number] = signal.signal(number, self._note)
            outer = self._outer()
            self.received = None if outer is None else outer.received
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        outer = self._outer()
        if outer is not None and outer.received is None:
            outer.received = self.received
        for number, handler in self._before.items():
            # None: the handler was not set from Python, so Python cannot put it back
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before.clear()

    def _outer(self) -> "Signals | None":
        """Return the context around this one, None where there is none."""
        outer = getattr(self._before.get(signal.SIGINT), "__self__", None)
        return outer if isinstance(outer, Signals) else None

    def _note(self, number: int, frame: FrameType | None) -> None:
        warned = signal.Signals(number).name == _WARNING
        before = None if self.received is None else signal.Signals(self.received).name
        if before is not None and before != _WARNING and not self._patient and not warned:
            raise KeyboardInterrupt
        self.received = self.received if warned and before is not None else number
