"""Run cells one after another, or several at once in processes of their own."""

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, connection, get_context, parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread
from typing import Any

import torch

from steadyrnn.errors import RunError

from .work import Cell

__all__ = ["own_folder", "run_cells"]

_PATIENCE = 20.0  # seconds that a process has to save what it trains


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

    Raises:
        RunError: A process ended by itself.

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
    others, threads = active_children(), torch.get_num_threads()
    with _keep_folder_out(), ProcessPoolExecutor(jobs, get_context("spawn"), _begin_worker, (threads,)) as pool:
        try:
            while waiting or running:
                ready = [cell for cell in waiting if cell.after is None or cell.after in numbers]
                for cell in ready[: jobs - len(running)]:
                    waiting.remove(cell)
                    needed = {} if cell.after is None else {cell.after: numbers[cell.after]}
                    running[pool.submit(_run, cell, needed, own_folder(folder, cell))] = cell
                done = wait(running, return_when=FIRST_COMPLETED).done
                for one in sorted(done, key=_has_failed):  # what is finished is kept before an error ends all
                    yield running.pop(one), *one.result()
        except BrokenProcessPool as error:
            raise RunError(
                "A process that ran a cell ended by itself, perhaps for want of memory. Finished cells are kept: give the "
                "same command, with fewer --jobs."
            ) from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            _end(process for process in active_children() if process not in others)


def _has_failed(one: Future[Any]) -> bool:
    return one.exception() is not None


def _end(workers: Iterable[BaseProcess]) -> None:
    """End processes, so that none writes to a folder which another call may take; one that trains saves first."""
    held = [*workers]
    for process in held:
        process.terminate()
    for process in held:
        process.join(_PATIENCE)
        if process.is_alive():
            process.kill()
            process.join()


@contextmanager
def _keep_folder_out() -> Iterator[None]:
    """Keep new processes of Python from importing what lies in the current folder before they have their own path."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


def _begin_worker(threads: int) -> None:
    """Set the number of threads, and end with the parent, however that ends: a worker does not notice it by itself."""
    torch.set_num_threads(threads)
    parent = parent_process()
    if parent is not None:
        Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)
