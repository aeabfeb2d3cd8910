"""Cells for tests of interruptions: they say that they ran, and one waits to be killed."""

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steadyrnn.jobs.work import Cell, Work


def draw(folder: str, name: str, seed: int) -> dict[str, Any]:
    """Note the call, wait where a file of that name says so, and return numbers that depend on the seed alone."""
    with Path(folder, "calls").open("a", encoding="utf-8") as calls:
        calls.write(f"{name}\n")
    if Path(folder, f"wait-{name}").exists():
        Path(folder, f"reached-{name}").touch()
        time.sleep(60)
    return {"value": seed / 3, "huge": float("inf")}


def finish(cells: Mapping[str, Any]) -> dict[str, Any]:
    return {"claims": [], "verdict": "", "sum": sum(numbers["value"] for numbers in cells.values())}


def make_work(folder: str | Path, count: int = 6) -> Work:
    cells = tuple(
        Cell(f"c{i}", "tests.jobs.killed:draw", {"folder": os.fspath(folder), "name": f"c{i}"}, seed=i)
        for i in range(count)
    )  # fmt: skip
    return Work("killed", {"title": "a test"}, cells, finish)


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text(encoding="utf-8").split()


def count_up(folder: Path, found: int = 0) -> int:
    """Add one to the number of an earlier cell; the folder must be its own."""
    folder.mkdir(parents=True)
    return found + 1


def end_process(found: float) -> None:
    """End the process as the kernel does when memory is short."""
    os.kill(os.getpid(), signal.SIGKILL)


def fail_after(seconds: float) -> None:
    time.sleep(seconds)
    raise ArithmeticError("on purpose")


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def measure_file(file: str) -> int | None:
    """Return the size of a file, None where it is not there."""
    return Path(file).stat().st_size if Path(file).exists() else None
