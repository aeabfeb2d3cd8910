"""Processes that work for this one: what they start with, and that none outlives it."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import connection, parent_process
from multiprocessing.process import BaseProcess
from threading import Thread

import torch

__all__ = ["PATIENCE", "begin_worker", "end_processes", "keep_folder_out"]

PATIENCE = 20.0
"""Seconds that a process has to save what it trains."""


def end_processes(workers: Iterable[BaseProcess]) -> None:
    """End processes, so that none writes to a folder which another call may take; one that trains saves first."""
    held = [*workers]
    for process in held:
        process.terminate()
    for process in held:
        process.join(PATIENCE)
        if process.is_alive():
            process.kill()
            process.join()


@contextmanager
def keep_folder_out() -> Iterator[None]:
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


def begin_worker(threads: int) -> None:
    """Set the number of threads, and end with the parent, however that ends: a worker does not notice it by itself."""
    torch.set_num_threads(threads)
    parent = parent_process()
    if parent is not None:
        Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)
