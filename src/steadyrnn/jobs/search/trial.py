"""One trial: a setting trained with each seed, in whatever process; what it came to is told, not raised."""

import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from steadyrnn.errors import CheckpointError, DataError, RunError, SteadyError
from steadyrnn.report.numbers import mean
from steadyrnn.runs.files import list_folder, make_folder
from steadyrnn.runs.layout import CHECKPOINTS
from steadyrnn.runs.lock import Lock
from steadyrnn.runs.regular import check_writable, kind_of
from steadyrnn.tasks.base import Task
from steadyrnn.train.progress import Progress, Silent
from steadyrnn.train.signals import Interrupted, Signals

from ..configuration import Configuration
from ..loading import build_task, data_checksums
from ..seeds_file import SEEDS, seed_folder
from ..train_seeds import TrainedSeeds, train_seeds
from .folder import LOCK, TrialRecord, read_record, write_record
from .remove import remove_folder
from .watch import PrunedError, Watch

__all__ = ["Outcome", "TrialJob", "forget_task", "run_trial"]

_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")


@dataclass(frozen=True)
class TrialJob:
    """All that a process must know to run a trial.

    Args:
        folder: The trial's folder.
        number: Its number in the sweep.
        configuration: Task, model and training, as JSON.
        seeds: Of weights.
        metric: The score that is compared.
        settings: What is tried here, by dotted names.
        command: The words that the runs are noted to come from.
        facts: What is to be noted of the runs, beyond task and model.
        threads: CPU threads.
        data: Checksums of the task's data files as the sweep began; None where it has none.
        pruner: None, or how other trials are looked at: the sweep's folder, study, number in it, and kind of pruner.
    """

    folder: str
    number: int
    configuration: Mapping[str, Any]
    seeds: tuple[int, ...]
    metric: str
    settings: Mapping[str, Any]
    command: tuple[str, ...] = ()
    facts: Mapping[str, Any] | None = None
    threads: int = 1
    pruner: tuple[str, str, int, str] | None = None
    data: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of a job.

    Args:
        state: ``ended`` (``record`` says how), ``interrupted`` (by a signal; all is saved), ``busy`` (another process trains
            it) or ``lost`` (its process ended by itself).
        record: What the trial came to.
        reason: Why there is none.
        signal: The signal that interrupted it.
    """

    state: str
    record: TrialRecord | None = None
    reason: str = ""
    signal: int | None = None


def run_trial(job: TrialJob) -> Outcome:
    """Train a setting with each seed, or go on where that was left; every failure becomes an outcome.

    A trial whose record is there is not trained again. What ends it is kept in its folder before this returns.
    """
    torch.set_num_threads(job.threads)
    folder = Path(job.folder)
    try:
        check_writable(folder.parent, folder.name, last="a folder")
        make_folder(folder)
        known = read_record(folder)
        if known is not None:
            return Outcome("ended", known)
        lock = Lock(folder / LOCK)
    except RunError as error:
        return Outcome("busy", reason=str(error))
    try:
        with Signals() as signals:
            return _run(job, folder, signals)
    finally:
        lock.release()


def _run(job: TrialJob, folder: Path, signals: Signals) -> Outcome:
    """Run a trial whose folder is held."""
    start = time.perf_counter()
    try:
        configuration = Configuration.from_dict(job.configuration)
        task = _task_of(configuration)
        if data_checksums(task.data_facts()) != job.data:
            raise DataError("The data has changed since the sweep began.")
        if signals.received is not None:
            return Outcome("interrupted", signal=signals.received)
        trained = _train(job, configuration, task, folder)
        record = _judge(job, trained)
    except Interrupted as error:
        return Outcome("interrupted", reason=str(error), signal=error.signal)
    except KeyboardInterrupt:
        return Outcome("interrupted", reason="stopped at once", signal=signal.SIGINT)
    except PrunedError as error:
        record = _record(job, "pruned", reason=str(error), seconds=time.perf_counter() - start)
    except Exception as error:  # whatever a setting leads to, other trials go on
        record = _record(job, "failed", reason=_explain(error), seconds=time.perf_counter() - start)
    try:
        write_record(folder, record)
    except RunError as error:  # the disk is full, perhaps: the journal may still take it
        reason = record.reason or f"finished, but not kept: {error}"
        record = _record(job, "failed", reason=reason, seconds=record.seconds)
    return Outcome("ended", record)


def _train(job: TrialJob, configuration: Configuration, task: Task, folder: Path) -> TrainedSeeds:
    """Start the trainings of a trial, or go on with them."""
    resume = _is_begun(folder, job.seeds)
    first = seed_folder(folder, job.seeds[0])
    shown: Progress = Silent() if job.pruner is None else Watch(first, job.pruner, job.metric, configuration.train, task)
    if resume:
        return train_seeds(configuration, resume=folder, progress=shown, command=job.command, task=task, facts=job.facts or {})
    return train_seeds(
        configuration, job.seeds, folder=folder, progress=shown, command=job.command, task=task, facts=job.facts or {}
    )


def _is_begun(folder: Path, seeds: tuple[int, ...]) -> bool:
    """Say whether trainings were begun; what a process that was killed before the first step has left is removed.

    Raises:
        RunError: Some seeds have a checkpoint, and others have lost their folder.
    """
    folders = [seed_folder(folder, seed) for seed in seeds]
    missing = [one for one in folders if not (one / "config.json").is_file()]
    if not missing and (folder / SEEDS).is_file():
        return True
    if any(list_folder(one / CHECKPOINTS) for one in folders):
        raise RunError(f"`{missing[0] if missing else folder / SEEDS}` is lost, but others of the trial were trained.")
    for one in folders:
        if kind_of(one) is not None:
            remove_folder(one)
    if kind_of(folder / SEEDS) is not None:
        remove_folder(folder / SEEDS)
    return False


def _judge(job: TrialJob, trained: TrainedSeeds) -> TrialRecord:
    """Return what a trial came to whose trainings have ended."""
    seconds = sum(run.result.seconds for run in trained.runs.values())
    if trained.failures:
        seed, why = next(iter(trained.failures.items()))
        return _record(job, "failed", reason=why if len(job.seeds) == 1 else f"seed {seed}: {why}", seconds=seconds)
    scores = {seed: run.result.best for seed, run in trained.runs.items()}
    known = next(iter(scores.values()))
    if job.metric not in known:
        raise RunError(f"The validation has no score {job.metric!r}; it has {', '.join(known)}.")
    values = {str(seed): float(best[job.metric]) for seed, best in scores.items()}
    value = mean([*values.values()])
    if value is None or value != value or value in (float("inf"), float("-inf")):
        return _record(job, "failed", reason=f"the validation {job.metric} is not a finite number", seconds=seconds)
    return TrialRecord(job.number, job.configuration["model"]["name"], job.settings, "finished", value, values, "", seconds)


def _record(job: TrialJob, state: str, *, reason: str, seconds: float) -> TrialRecord:
    return TrialRecord(job.number, job.configuration["model"]["name"], job.settings, state, None, {}, reason, seconds)


def _explain(error: Exception) -> str:
    """Return why a trial failed, in a sentence."""
    if isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(word in str(error).lower() for word in _NO_MEMORY)
    ):
        return f"out of memory: {str(error)[:300] or type(error).__name__}"
    if isinstance(error, SteadyError | OSError) and not isinstance(error, CheckpointError):
        return str(error)
    return f"{type(error).__name__}: {str(error)[:1000]}"


_latest: list[tuple[str, Mapping[str, Any], Task]] = []
"""The task of the last trial of this process, which the next one often has too."""


def forget_task() -> None:
    """Forget the task of the last trial: its files may have changed."""
    _latest.clear()


def _task_of(configuration: Configuration) -> Task:
    """Return the task of a configuration; one that was made for the last trial is used again."""
    settings = configuration.to_dict()["task"]
    if _latest and _latest[0][:2] == (configuration.task_name, settings):
        return _latest[0][2]
    task = build_task(configuration)
    _latest[:] = [(configuration.task_name, settings, task)]
    return task
