"""Trials as jobs of submitit: on Slurm, or by the same way in processes of this machine."""

import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import submitit
import torch
from submitit.helpers import DelayedSubmission

from steadyrnn.errors import ArgumentError, RunError
from steadyrnn.runs.folder import make_run_folder
from steadyrnn.runs.lock import Lock
from steadyrnn.runs.regular import check_writable, kind_of, read_if_there

from ..processes import PATIENCE
from .executors import Executor, spawning
from .folder import LOCK, read_record
from .trial import Outcome, TrialJob, run_trial

__all__ = ["Submitit", "SubmittedTrial", "make_submitit"]

_POLL = {"local": 0.1, "slurm": 3.0}
"""Seconds between two looks at the jobs."""

_FOREVER = 60 * 24 * 365
"""Minutes that a job of this machine may take."""


class SubmittedTrial:
    """What a job runs: a trial, which is saved and queued again when its time is up.

    Submitit has a signal sent some time before the end, and answers it by asking :meth:`checkpoint` what to queue. That
    would be in the middle of a step. Here the training is asked to end first; it saves behind the step in hand, and then
    submitit gets its signal.

    Args:
        job: The trial.
    """

    def __init__(self, job: TrialJob) -> None:
        self.job = job

    def __call__(self) -> str:
        """Run the trial; what it comes to is in its folder, and the state of its outcome is returned."""
        handlers = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2)}
        warned = [number for number, handler in handlers.items() if callable(handler)]
        received: list[int] = []

        def ask_to_end(number: int, frame: FrameType | None) -> None:
            received.append(number)
            os.kill(os.getpid(), signal.SIGTERM)

        for number in warned:
            signal.signal(number, ask_to_end)
        outcome = run_trial(self.job)
        for number in warned:
            signal.signal(number, handlers[number])
        if outcome.state == "interrupted" and (received or outcome.signal in warned):
            handler = handlers[received[0] if received else outcome.signal]  # type: ignore[index]
            if callable(handler):
                handler(received[0] if received else int(outcome.signal or 0), None)
        return outcome.state

    def checkpoint(self) -> DelayedSubmission:
        """Return what is queued in place of a job whose time is up: the same trial, which goes on where it was saved."""
        return DelayedSubmission(SubmittedTrial(self.job))


class Submitit(Executor):
    """Runs each trial as a job of submitit.

    What a trial came to is read from its folder. The results that submitit pickles are never read: a folder may come from
    somebody else.

    Args:
        executor: Of submitit, on a folder that is new.
        kind: ``local`` or ``slurm``.
        count: Jobs at a time.
        threads: CPU threads of each.
    """

    def __init__(self, executor: submitit.Executor, kind: str, count: int, threads: int) -> None:
        self._executor, self._kind, self._count, self._threads = executor, kind, count, threads
        self._jobs: dict[int, tuple[TrialJob, submitit.Job[str]]] = {}

    def has_place(self) -> bool:
        """Say whether fewer jobs are queued or run than may be."""
        return len(self._jobs) < self._count

    def start(self, job: TrialJob) -> None:
        """Submit a trial."""
        with spawning(self._threads):
            try:
                self._jobs[job.number] = job, self._executor.submit(SubmittedTrial(job))
            except (RuntimeError, OSError) as error:  # what sbatch says
                raise RunError(f"The trial {job.number} could not be submitted: {error}") from error

    def running(self) -> list[int]:
        """Return the numbers of the trials whose jobs have not ended."""
        return [*self._jobs]

    def collect(self, seconds: float) -> list[tuple[int, Outcome]]:
        """Return the outcomes of jobs that have ended."""
        end = time.monotonic() + seconds
        while True:
            done = [number for number, (_, job) in self._jobs.items() if job.done()]
            if done or not self._jobs or time.monotonic() >= end:
                return [(number, self._outcome(*self._jobs.pop(number))) for number in done]
            time.sleep(min(_POLL[self._kind], max(end - time.monotonic(), 0)))

    def stop(self) -> list[tuple[int, Outcome]]:
        """Have all jobs end: one of this machine saves; one on Slurm is cancelled, and goes on from its last checkpoint."""
        for _, job in self._jobs.values():
            self._end(job)
        found, end = list[tuple[int, Outcome]](), time.monotonic() + PATIENCE
        while self._jobs and time.monotonic() < end:
            found += self.collect(1.0)
        for _, job in self._jobs.values():  # a second signal ends at once what did not end
            self._end(job)
        end = time.monotonic() + PATIENCE
        while self._jobs and time.monotonic() < end:
            found += self.collect(1.0)
        return found

    def _end(self, job: "submitit.Job[str]") -> None:
        if self._kind == "local":
            with suppress(ProcessLookupError, ValueError):
                os.kill(int(job.job_id), signal.SIGTERM)  # its controller hands it on to the job
        else:
            job.cancel(check=False)

    def _outcome(self, trial: TrialJob, job: "submitit.Job[str]") -> Outcome:
        """Return what became of a job that has ended."""
        try:
            record = read_record(Path(trial.folder))
        except RunError as error:
            return Outcome("lost", reason=str(error))
        if record is not None:
            return Outcome("ended", record)
        lock = Path(trial.folder) / LOCK
        try:
            if kind_of(lock) is not None:
                Lock(lock, sign=False).release()
        except RunError as error:  # a job of an earlier start still trains it, and this one left it alone
            return Outcome("busy", reason=str(error))
        return Outcome("lost", reason=f"its job ended as {job.state} without a result: {_last_line(job.paths.stderr)}")


def make_submitit(folder: Path, kind: str, options: Mapping[str, Any], count: int, threads: int) -> Submitit:
    """Return what submits trials.

    Args:
        folder: The sweep's folder; files of submitit go to a new folder in it.
        kind: ``local`` or ``slurm``.
        options: Of submitit, for Slurm: ``partition``, ``time`` in minutes, ``gpus_per_node`` and others.
        count: Jobs at a time.
        threads: CPU threads of each.

    Raises:
        ArgumentError: This machine has no Slurm, or there is no such option.
    """
    check_writable(folder, "submitit", kind, last="a folder")
    place = make_run_folder(folder, "submitit", kind)
    makers: dict[str, Callable[..., Any]] = {"local": submitit.LocalExecutor, "slurm": submitit.SlurmExecutor}
    own: dict[str, Any] = {"cpus_per_task": threads, **options}
    if kind == "local":
        own = {"timeout_min": _FOREVER, "gpus_per_node": torch.cuda.device_count(), **options}
    try:
        executor = makers[kind](place)
        executor.update_parameters(**own)
    except (RuntimeError, ValueError, NameError, TypeError) as error:
        raise ArgumentError(f"Trials cannot be submitted: {' '.join(str(error).split())[:600]}") from error
    return Submitit(executor, kind, count, threads)


def _last_line(path: Path) -> str:
    """Return the last line that a job wrote, empty where it wrote none."""
    try:
        data = read_if_there(path)
    except RunError:
        return ""
    lines = (data or b"").decode(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else ""
