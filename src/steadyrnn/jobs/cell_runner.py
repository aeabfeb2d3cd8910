"""Run cells one after another, or several at once in processes of their own."""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import torch

from steadyrnn.errors import RunError

from .processes import begin_worker, end_processes, keep_folder_out
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
    with keep_folder_out(), ProcessPoolExecutor(jobs, get_context("spawn"), begin_worker, (threads,)) as pool:
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
            end_processes(process for process in active_children() if process not in others)


def _has_failed(one: Future[Any]) -> bool:
    return one.exception() is not None
