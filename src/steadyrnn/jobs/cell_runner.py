"""Run cells one after another, or several at once in processes of their own."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

import torch

from .work import Cell

__all__ = ["own_folder", "run_cells"]


def run_cells(
    cells: Sequence[Cell], numbers: Mapping[str, Any], folder: Path, jobs: int = 1
) -> Iterator[tuple[Cell, Any, float]]:
    """Yield each cell with its numbers and its seconds, as soon as it is finished.

    A cell starts when the one it comes ``after`` is finished. The caller must add the numbers of a yielded cell to
    ``numbers`` before it asks for the next.

    Args:
        cells: In the order in which they start; one that others come after stands before them, or is finished.
        numbers: Those of finished cells, by name.
        folder: Below it each resumable cell has one of its own.
        jobs: Cells at a time. More than one run in fresh processes, each with as many threads as torch has here.

    Example:
        >>> cells = [Cell("names", "steadyrnn.errors:suggestion", {"name": "lsmt", "known": ["lstm"]})]
        >>> [(cell.name, found) for cell, found, seconds in run_cells(cells, {}, Path("cells"))]
        [('names', 'Did you mean `lstm`?')]
    """
    if jobs > 1 and len(cells) > 1:
        yield from _run_at_once(cells, numbers, folder, jobs)
        return
    for cell in cells:
        yield cell, *_run(cell, numbers, own_folder(folder, cell))


def own_folder(folder: Path, cell: Cell) -> Path:
    """Return the folder of a resumable cell."""
    return folder / cell.name.replace("/", "-")


def _run(cell: Cell, numbers: Mapping[str, Any], folder: Path) -> tuple[Any, float]:
    start = time.perf_counter()
    return cell.run(numbers, folder), time.perf_counter() - start


def _run_at_once(
    cells: Sequence[Cell], numbers: Mapping[str, Any], folder: Path, jobs: int
) -> Iterator[tuple[Cell, Any, float]]:
    waiting, running = list(cells), dict[Future[tuple[Any, float]], Cell]()
    threads = torch.get_num_threads()
    with ProcessPoolExecutor(jobs, get_context("spawn"), _begin_worker, (threads,)) as pool:
        try:
            while waiting or running:
                ready = [cell for cell in waiting if cell.after is None or cell.after in numbers]
                for cell in ready[: jobs - len(running)]:
                    waiting.remove(cell)
                    needed = {} if cell.after is None else {cell.after: numbers[cell.after]}
                    running[pool.submit(_run, cell, needed, own_folder(folder, cell))] = cell
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(done), *done.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _begin_worker(threads: int) -> None:
    """Set the number of threads, and end with the parent, however that ends: a worker does not notice it by itself."""
    torch.set_num_threads(threads)
    parent = parent_process()
    if parent is not None:
        Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)
