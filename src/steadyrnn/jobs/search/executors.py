"""Where trials run: in this process, or in processes of their own on this machine."""

import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import active_children, get_context
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Self

import torch

from ..processes import PATIENCE, begin_worker, end_processes, keep_folder_out
from .trial import Outcome, TrialJob, run_trial

__all__ = ["Executor", "InProcess", "Processes", "describe_exit", "spawning"]


class Executor(ABC):
    """Runs trials, several at a time; a context that leaves no process behind."""

    @abstractmethod
    def has_place(self) -> bool:
        """Say whether one more trial can start now."""

    @abstractmethod
    def start(self, job: TrialJob) -> None:
        """Start a trial; there is a place for it."""

    @abstractmethod
    def running(self) -> list[int]:
        """Return the numbers of the trials that were started and whose outcome was not yet returned."""

    @abstractmethod
    def collect(self, seconds: float) -> list[tuple[int, Outcome]]:
        """Wait until a trial has ended, at most so long, and return the outcomes that are there by number."""

    @abstractmethod
    def stop(self) -> list[tuple[int, Outcome]]:
        """Have running trials save what they train and end; return their outcomes as :meth:`collect` does."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


class InProcess(Executor):
    """Runs one trial after another in this process, without the seconds that a new process takes."""

    def __init__(self) -> None:
        self._job: TrialJob | None = None

    def has_place(self) -> bool:
        """Say whether none is waiting."""
        return self._job is None

    def start(self, job: TrialJob) -> None:
        """Keep a trial for :meth:`collect`."""
        self._job = job

    def running(self) -> list[int]:
        """Return the number of the one that is waiting."""
        return [] if self._job is None else [self._job.number]

    def collect(self, seconds: float) -> list[tuple[int, Outcome]]:
        """Run the trial to its end, however long that takes."""
        if self._job is None:
            return []
        job, self._job = self._job, None
        threads = torch.get_num_threads()
        try:
            return [(job.number, run_trial(job))]
        finally:
            torch.set_num_threads(threads)  # those of the caller

    def stop(self) -> list[tuple[int, Outcome]]:
        """Forget a trial that was not begun."""
        self._job = None
        return []


class _Worker:
    """A process that runs one trial after another.

    Each worker is a pool of its own: where the process of a pool is killed, the pool ends with all that runs in it.
    """

    def __init__(self, threads: int) -> None:
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), begin_worker, (threads,))
        self.process: BaseProcess | None = None
        self.future: Future[Outcome] | None = None
        self.number = -1

    def start(self, job: TrialJob) -> None:
        others = set(active_children())
        self.future, self.number = self._pool.submit(run_trial, job), job.number
        if self.process is None:
            self.process = next(iter(set(active_children()) - others), None)

    def take(self) -> Outcome:
        """Return what became of the trial, which has ended."""
        future, self.future = self.future, None
        try:
            return future.result() if future is not None else Outcome("lost")
        except BrokenProcessPool:
            return Outcome("lost", reason=describe_exit(self._exit_code()))

    @property
    def is_broken(self) -> bool:
        """Whether its process has ended."""
        return self.process is not None and not self.process.is_alive()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _exit_code(self) -> int | None:
        if self.process is None:
            return None
        self.process.join(PATIENCE)
        return self.process.exitcode


class Processes(Executor):
    """Runs trials in processes of this machine, which are kept for the next ones and end with this process.

    Args:
        count: Processes at a time.
        threads: CPU threads of each.
    """

    def __init__(self, count: int, threads: int) -> None:
        self._count, self._threads = count, threads
        self._workers: list[_Worker] = []

    def has_place(self) -> bool:
        """Say whether fewer trials run than there may be processes."""
        return len(self.running()) < self._count

    def start(self, job: TrialJob) -> None:
        """Give a trial to a process that has none, or to a new one."""
        idle = next((worker for worker in self._workers if worker.future is None), None)
        if idle is not None and idle.is_broken:
            self._drop(idle)
            idle = None
        if idle is None:
            idle = _Worker(self._threads)
            self._workers.append(idle)
        with spawning(self._threads):
            try:
                idle.start(job)
            except BrokenProcessPool:  # it was killed between two trials
                self._drop(idle)
                idle = _Worker(self._threads)
                self._workers.append(idle)
                idle.start(job)

    def running(self) -> list[int]:
        """Return the numbers of the trials that processes have."""
        return [worker.number for worker in self._workers if worker.future is not None]

    def collect(self, seconds: float) -> list[tuple[int, Outcome]]:
        """Return outcomes as they come; a process that has ended by itself loses the trial it had, and no other one."""
        futures = [worker.future for worker in self._workers if worker.future is not None]
        if not futures:
            return []
        wait(futures, seconds, FIRST_COMPLETED)
        found = []
        for worker in [*self._workers]:
            if worker.future is not None and worker.future.done():
                found.append((worker.number, worker.take()))
                if found[-1][1].state == "lost":
                    self._drop(worker)
        return sorted(found, key=lambda pair: pair[0])

    def stop(self) -> list[tuple[int, Outcome]]:
        """Ask every process that trains to save and to end its trial, then end all of them."""
        for worker in self._workers:
            if worker.future is not None and worker.process is not None and worker.process.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(worker.process.pid, signal.SIGTERM)
        found, end = list[tuple[int, Outcome]](), time.monotonic() + PATIENCE
        while self.running() and time.monotonic() < end:
            found += self.collect(max(end - time.monotonic(), 0))
        held = [worker.process for worker in self._workers if worker.process is not None]
        for worker in [*self._workers]:
            self._drop(worker)
        end_processes(held)
        return found

    def _drop(self, worker: _Worker) -> None:
        worker.close()
        self._workers.remove(worker)


def describe_exit(code: int | None) -> str:
    """Return how a process ended, from its exit status.

    Example:
        >>> describe_exit(-9)
        'its process was killed by SIGKILL, perhaps for want of memory'
    """
    if code is None or code >= 0:
        return f"its process ended by itself with status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"its process was killed by {name}" + (", perhaps for want of memory" if name == "SIGKILL" else "")


@contextmanager
def spawning(threads: int) -> Iterator[None]:
    """Start processes that import nothing from the current folder, have some threads, and do not hear Ctrl-C.

    Ctrl-C reaches every process of a terminal. A worker that got it and then the signal of its parent, too, would take the
    second one for haste, and not save.
    """
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(threads)
    masked = hasattr(signal, "pthread_sigmask")
    if masked:
        heard = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with keep_folder_out():
            yield
    finally:
        if masked:
            signal.pthread_sigmask(signal.SIG_SETMASK, heard)
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before
