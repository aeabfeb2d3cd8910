"""The program: picks the command, turns errors into a line and an exit status."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TextIO

from steadyrnn.errors import DataError, SteadyError, TrainingError, printable, suggestion

from .commands import COMMANDS, first_page
from .ranks import own_rank, rank_count

__all__ = ["main"]

OPTIONS = ("--help", "--version", "--debug")
"""Options of the program itself."""

_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")
"""What torch says where there is no memory left."""

_OVERFLOW = ("overflow", "cannot be represented as a symint")
"""What torch says where a number does not fit its own: a length or width of 2^63, a factor of 1e308."""

OK, FAILED, MISUSED, NO_DATA, INTERRUPTED, NOT_READ = 0, 1, 2, 3, 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status.

    Only the asked command's module is imported, and that imports torch only when it runs: help is quick.

    Args:
        argv: Arguments behind the program's name; None is the process's own.

    Returns:
        0 done, 1 failed (an error of this package, one line on stderr), 2 misused, 3 data missing or damaged, 130, 138 or 143
        interrupted, 141 where nobody reads what it prints any more (``| head``): then silently, as other programs.

    Example:
        >>> main(["--version"])
        steadyrnn ...
        0
    """
    words = [*(sys.argv[1:] if argv is None else argv)]
    _open_closed()
    try:
        status = _answer([word for word in words if word != "--debug"], "--debug" in words)
        for stream in _streams():
            stream.flush()
    except BrokenPipeError:
        return _not_read()
    except OSError as error:  # of the flush: a full disk behind stdout
        return _complain(str(error), FAILED)
    return status


def _answer(words: list[str], debug: bool) -> int:
    """Run the program; turn an error into a line and a status."""
    try:
        return _run(words)
    except BrokenPipeError:
        raise
    except Exception as error:
        if debug:
            raise
        return _report_failure(error)
    except KeyboardInterrupt:
        return _complain("interrupted", INTERRUPTED)


def _open_closed() -> None:
    """Lead streams that were closed before the program started (``2>&-``) nowhere.

    Python has None in their place, which ``print`` takes for stdout; and the next file to be opened, one of a run perhaps,
    would get their number, and with it what a library prints.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            try:
                os.fstat(number)
            except OSError:
                nowhere = os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
                if nowhere != number:
                    os.dup2(nowhere, number)
                    os.close(nowhere)
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _streams() -> list[TextIO]:
    """Return where the program prints."""
    return [sys.stdout, sys.stderr]


def _not_read() -> int:
    """Lead what is still to be printed nowhere, so that the interpreter does not complain when it flushes at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for stream in _streams():
            try:
                stream.flush()
            except BrokenPipeError:
                os.dup2(nowhere, stream.fileno())
    finally:
        os.close(nowhere)
    return NOT_READ


def _run(words: list[str]) -> int:
    """Answer for the program itself, or run a command."""
    if words[:1] == ["help"] and words[1:2] and words[1] in COMMANDS:
        return _command([*words[1:], "--help"])
    if not words or words[0] in ("-h", "--help", "help"):
        print(first_page(), file=sys.stdout if words else sys.stderr)
        return OK if words else MISUSED
    if words[0] == "--version":
        from steadyrnn import __version__

        print(f"steadyrnn {__version__}")
        return OK
    if words[0].startswith("-"):
        there = f"There are {', '.join(OPTIONS)}; options of a command stand behind its name."
        return _complain(f"there is no option {words[0]} before a command. {there}", MISUSED)
    if words[0] not in COMMANDS:
        return _complain(f"there is no command {words[0]!r}. {suggestion(words[0], COMMANDS)}", MISUSED)
    return _command(words)


def _command(words: list[str]) -> int:
    """Run a command; a parser that has printed its help or a complaint leaves with its status."""
    if words[0] != "train" and rank_count() > 1:
        return _complain_once(
            f"`steadyrnn {words[0]}` runs in one process, but torchrun has started {rank_count()}. Start it without torchrun.",
            MISUSED,
        )
    command = import_module(f"steadyrnn.cli.{COMMANDS[words[0]].module}")
    try:
        status: int = command.main(words[1:])
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else OK if leave.code is None else MISUSED
    return status


def _report_failure(error: Exception) -> int:
    """Say what went wrong in a line, and return the status for it."""
    status = getattr(error, "exit_code", None)
    if isinstance(status, int):  # training that a signal ended
        return _complain_once(str(error), status)
    if isinstance(error, TrainingError):  # the same in each process
        return _complain_once(str(error), FAILED)
    if getattr(error, "told", False):  # by rank 0
        return NO_DATA if isinstance(error, DataError) else FAILED
    if isinstance(error, DataError):
        return _complain(str(error), NO_DATA)
    if isinstance(error, SteadyError):
        return _complain(str(error), FAILED)
    if isinstance(error, ModuleNotFoundError):
        way_out = "Install the extras of the program: pip install 'steadyrnn[cli,train,report]'."
        return _complain(f"the package {error.name!r} is not installed. {way_out}", FAILED)
    if isinstance(error, OSError):
        return _complain(str(error), FAILED)
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and any(word in str(error) for word in _NO_MEMORY)):
        return _complain("memory is not enough. Take a smaller width, batch or length, or `--train.accumulate`.", FAILED)
    kinds = RuntimeError | TypeError | ValueError
    named = isinstance(error, kinds) and any(word in str(error).lower() for word in _OVERFLOW)
    if named or isinstance(error, OverflowError):
        return _complain("one of the numbers given is larger than torch can compute with. Take a smaller one.", FAILED)
    raise error


def _complain(message: str, status: int) -> int:
    rank = own_rank()
    print(printable(f"steadyrnn{f' (rank {rank})' if rank else ''}: {message}"), file=sys.stderr)
    return status


def _complain_once(message: str, status: int) -> int:
    """Complain in the first process only: each has the same complaint."""
    return _complain(message, status) if own_rank() == 0 else status
