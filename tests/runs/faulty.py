"""A disk that fails or a process that dies at the n-th system call, and processes to try it in."""

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steadyrnn.runs import files

CALLS = {"open", "write", "fsync", "close", "replace", "unlink", "mkdir", "fchmod", "ftruncate", "lstat", "fstat", "listdir"}
KILLED = 99


class WatchedSystem:
    """The ``os`` module with its calls on files counted; before (for ``close``: after) each, ``act`` may raise or die."""

    def __init__(self, act: Callable[[int, str, tuple[Any, ...]], None] = lambda number, name, arguments: None) -> None:
        self.names: list[str] = []
        self._act = act

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in CALLS:
            return real

        def watched(*arguments: Any) -> Any:
            self.names.append(name)
            if name == "close":  # a close that reports an error has closed all the same
                real(*arguments)
                return self._act(len(self.names) - 1, name, arguments)
            self._act(len(self.names) - 1, name, arguments)
            return real(*arguments)

        return watched


def watch(monkeypatch: pytest.MonkeyPatch, act: Callable[[int, str, tuple[Any, ...]], None] | None = None) -> WatchedSystem:
    system = WatchedSystem(act) if act else WatchedSystem()
    monkeypatch.setattr(files, "os", system)
    return system


def count_calls(monkeypatch: pytest.MonkeyPatch, body: Callable[[], object]) -> int:
    with monkeypatch.context() as patch:
        system = watch(patch)
        body()
    return len(system.names)


def fail_at(call: int, error: int, *, onwards: bool = False) -> Callable[[int, str, tuple[Any, ...]], None]:
    """Fail the call of that number; with ``onwards`` every later one too: the disk stays full or read-only."""

    def act(number: int, name: str, arguments: tuple[Any, ...]) -> None:
        if number == call or (onwards and number > call and name not in {"close", "lstat", "fstat", "listdir"}):
            raise OSError(error, os.strerror(error))

    return act


def die_at(call: int, *, torn: bool = False) -> Callable[[int, str, tuple[Any, ...]], None]:
    """Die in the call of that number; with ``torn`` a write gets half of its bytes out first."""

    def act(number: int, name: str, arguments: tuple[Any, ...]) -> None:
        if number == call:
            if torn and name == "write":
                os.write(arguments[0], arguments[1][: len(arguments[1]) // 2])
            os._exit(KILLED)

    return act


def in_child(body: Callable[[], object]) -> int:
    """Run ``body`` in a forked process and return its exit status: 0, ``KILLED``, or 1 with the error printed."""
    child = os.fork()
    if child == 0:
        try:
            body()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def child_that_waits(body: Callable[[], object]) -> int:
    """Run ``body`` in a forked process that then sleeps until it is killed; return its number once ``body`` is done."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            body()
            os.write(writer, b"+")
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os.close(writer)
        while True:
            os.read(os.pipe()[0], 1)
    os.close(writer)
    done = os.read(reader, 1)
    os.close(reader)
    assert done == b"+", "the child failed"
    return child


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
