"""Try many settings, each with several seeds: optuna chooses, and trials run here, in processes, or on Slurm."""

import os
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from steadyrnn.errors import ArgumentError, RunError, SteadyError
from steadyrnn.runs.folder import make_run_folder
from steadyrnn.train.progress import Progress, make_progress
from steadyrnn.train.ranks import refuse_ranks
from steadyrnn.train.signals import Signals

from .search.executors import Executor, InProcess, Processes
from .search.folder import SweepFolder, TrialRecord, read_record, trial_folder, write_record
from .search.journal import quiet_optuna, repair_journal
from .search.plan import Entry, SweepPlan
from .search.plan_file import SweepFile
from .search.prepare import Prepared, prepare
from .search.reconcile import reconcile
from .search.result import Standing, read_standing, write_standing
from .search.study import Studies
from .search.submitit_jobs import make_submitit
from .search.trial import Outcome, TrialJob, forget_task

__all__ = ["EXECUTORS", "SweepInterruptedError", "run_sweep"]

EXECUTORS = ("processes", "local", "slurm")
"""Where trials can run: processes of this machine; the same as jobs of submitit; jobs on Slurm."""

_MOST_KILLS = 3
"""Processes that may be lost with a trial before it counts as failed."""
_WAIT = 0.5
_EVERY = 20
"""Trials after which the table is written anew."""


class SweepInterruptedError(SteadyError):
    """A sweep was ended by a signal. What was trained is saved, and the sweep can go on.

    Attributes:
        folder: Its folder.
        exit_code: What a program should leave with: 130 after Ctrl-C, 143 after a request to end.
    """

    def __init__(self, number: int, folder: Path) -> None:
        super().__init__(f"Stopped by {signal.Signals(number).name}; trials are saved in {folder}.")
        self.folder, self.exit_code = folder, 128 + number


def run_sweep(
    plan: SweepPlan | None = None,
    out: str | Path = "runs",
    *,
    file: SweepFile | None = None,
    resume: str | Path | None = None,
    jobs: int | None = None,
    threads: int = 1,
    executor: str = "processes",
    options: Mapping[str, Any] | None = None,
    progress: str = "silent",
    command: Sequence[str] = (),
    note: Callable[[str], None] = lambda text: None,
) -> Standing:
    """Run the trials of a plan, each a setting trained with all seeds; keep everything in one folder.

    Every value is tried on a task and a model before anything is trained. A trial that fails is recorded, and others go on. A
    trial whose process is killed is not counted; ``resume`` goes on with it from its last checkpoint, and repeats nothing that
    has ended. The best trial is the one with the best mean of the metric on the validation part.

    Args:
        plan: What is tried; None with ``resume``.
        out: Where the folder is made: ``out/TASK/sweep/ID``.
        file: The user's file that the plan was read from; a copy is kept.
        resume: The folder of a sweep to go on with.
        jobs: Trials at a time; None is the number of cores, or 1 on a GPU. With 1 they run in this process.
        threads: CPU threads of a process.
        executor: Of :data:`EXECUTORS`.
        options: Of submitit: ``{"partition": "gpu", "time": 60}``.
        progress: ``"auto"`` shows a bar or lines, ``"silent"`` nothing.
        command: The words that runs are noted to come from.
        note: Called with a line on the way; the first names the folder.

    Raises:
        ArgumentError: A setting cannot be; nothing was started.
        RunError: Another process sweeps in the folder, or journal and folders do not agree, or cannot be written.
        SweepInterruptedError: A signal came.

    Example:
        >>> small = {"model.width": 4, "task.length": 5, "train.steps": 2, "train.batch_size": 8, "train.device": "cpu"}
        >>> plan = SweepPlan("addition", ("gru",), (0, 1), small, grid={"train.optimizer.lr": (0.01, 0.1)})
        >>> found = run_sweep(plan, jobs=1)
        >>> [trial.state for trial in found.trials], list(found.best["gru"].test)
        (['finished', 'finished'], ['loss'])
    """
    if executor not in EXECUTORS:
        raise ArgumentError(f"`executor` must be one of {', '.join(EXECUTORS)}, but is {executor!r}.")
    if (plan is None) == (resume is None):
        raise ArgumentError("Give `plan` to start a sweep, or `resume` to go on with one, and not both.")
    refuse_ranks("A sweep", "Start it without torchrun: it starts its own processes.")
    for name, number in (("jobs", 1 if jobs is None else jobs), ("threads", threads)):
        if number < 1:
            raise ArgumentError(f"`{name}` must be at least 1, but is {number}.")
    forget_task()
    known = None if plan is None else prepare(plan)
    with quiet_optuna(), _open(known, Path(out), file, resume) as sweep:
        prepared = known or prepare(sweep.plan, sweep.facts)
        for line in (f"sweep {sweep.folder}", *prepared.notes):
            note(line)
        if repair_journal(sweep.folder):
            note("the last line of the journal was half written, and was cut off")
        count = min(jobs or _default_jobs(prepared.device, executor), sweep.plan.count())
        runner: Executor
        if executor == "processes":
            runner = InProcess() if count == 1 else Processes(count, threads)
        else:
            runner = make_submitit(sweep.folder, executor, options or {}, count, threads)
        return _Sweep(sweep, prepared, runner, threads, tuple(command), note).run(make_progress(progress, "sweep", "trial"))


def _open(prepared: Prepared | None, out: Path, file: SweepFile | None, resume: str | Path | None) -> SweepFolder:
    """Make the folder of a new sweep, or open that of one to go on with; both are held."""
    if prepared is None:
        return SweepFolder.open(Path(str(resume)), write=True)
    folder = make_run_folder(out, prepared.label, "sweep")
    path, data = (None, b"") if file is None else (file.path, file.data)
    return SweepFolder.create(folder, prepared.plan, path, data, prepared.to_dict())


def _default_jobs(device: str, executor: str) -> int:
    """Return how many trials run at a time: on one GPU trainings run one after another."""
    if executor == "slurm":
        return 16
    return 1 if device != "cpu" else len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Sweep:
    """One call: from what is known to the end of all trials, or to a signal."""

    def __init__(
        self, sweep: SweepFolder, prepared: Prepared, runner: Executor, threads: int, command: tuple[str, ...],
        note: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.sweep, self.prepared, self.runner, self.threads = sweep, prepared, runner, threads
        self.command, self.note = command, note
        self.studies = Studies(sweep.folder, sweep.plan, prepared.higher)
        self.records, self.open, notes = reconcile(sweep, self.studies)
        for line in notes:
            note(line)
        entries = sweep.plan.entries()
        self.waiting: deque[Entry] = deque(entry for entry in entries if entry.number not in self.records)
        self.unfinished: dict[int, str] = {}
        self.written = len(self.records)

    def run(self, progress: Progress) -> Standing:
        """Run what is missing, and write table and page, whatever ends it."""
        number: int | None = None
        progress.begin(self.sweep.plan.count(), len(self.records))
        try:
            with Signals() as signals, self.runner:
                number = self._loop(signals, progress)
        finally:
            progress.end()
            standing = self._write()
        if number is not None:
            raise SweepInterruptedError(number, self.sweep.folder)
        return standing

    def _loop(self, signals: Signals, progress: Progress) -> int | None:
        """Start trials and take what they come to; return the signal that ended that, None where all were tried."""
        stopped, before = None, len(self.records)
        while stopped is None and (self.waiting or self.runner.running()):
            while self.waiting and self.runner.has_place():
                self.runner.start(self._job(self.waiting.popleft()))
            for place, outcome in self.runner.collect(_WAIT):
                self._take(place, outcome)
                stopped = outcome.signal if isinstance(self.runner, InProcess) else None
            if len(self.records) > before:  # nothing is known of the time left until one has ended
                progress.update(len(self.records), self._numbers())
            stopped = stopped or signals.received
        for place, outcome in self.runner.stop():  # a process that ended because it was asked to was not lost
            self._take(place, replace(outcome, state="interrupted") if outcome.state == "lost" else outcome)
        return stopped

    def _job(self, entry: Entry) -> TrialJob:
        """Return what a process needs to run a trial: one that was begun, or a new one."""
        known = self.open.get(entry.number) or self.studies.ask(entry)
        self.open[entry.number] = known
        plan = self.sweep.plan
        pruner = (str(self.sweep.folder.absolute()), known.model, known.place, plan.pruner)
        return TrialJob(
            str(trial_folder(self.sweep.folder, entry.number).absolute()), entry.number,
            self.prepared.configuration(entry.model, known.settings).to_dict(), plan.seeds, str(plan.metric), known.settings,
            self.command, self.prepared.facts.get(entry.model), self.threads, None if plan.pruner == "none" else pruner,
            self.prepared.data,
        )  # fmt: skip

    def _take(self, number: int, outcome: Outcome) -> None:
        """Note what became of a trial."""
        known, record = self.open[number], outcome.record
        if outcome.state == "lost" and self.studies.note_kill(known) >= _MOST_KILLS:
            record = TrialRecord(number, known.model, known.settings, "failed", reason=f"{outcome.reason}, {_MOST_KILLS} times")
            write_record(trial_folder(self.sweep.folder, number), record)
        if record is None:
            self.unfinished[number] = outcome.reason or "interrupted"
            if outcome.state != "interrupted":
                self.note(f"trial {number} did not end: {self.unfinished[number]}")
            return
        if record.state == "failed":
            self.note(f"trial {number} failed: {record.reason}")
            self._keep(record)
        self.studies.tell(known, record)
        self.records[number] = record
        if len(self.records) >= self.written + _EVERY:
            self._write()

    def _keep(self, record: TrialRecord) -> None:
        """Write a failure that its own process could not write; where that fails again, the journal has it."""
        folder = trial_folder(self.sweep.folder, record.number)
        try:
            if read_record(folder) is None:
                write_record(folder, record)
        except RunError:
            return

    def _numbers(self) -> dict[str, Any]:
        """Return what a person wants to see of a sweep on its way."""
        counts = {state: sum(one.state == state for one in self.records.values()) for state in ("failed", "pruned")}
        values = [one.value for one in self.records.values() if one.value is not None]
        best = (max if self.prepared.higher else min)(values) if values else None
        shown = {name: count for name, count in {**counts, "running": len(self.runner.running())}.items() if count}
        return shown | ({} if best is None else {f"best {self.sweep.plan.metric}": best})

    def _write(self) -> Standing:
        """Write table and page as the sweep stands."""
        self.written = len(self.records)
        records = [self.records[number] for number in sorted(self.records)]
        standing = read_standing(self.sweep, records, self.unfinished, self.studies.importance())
        write_standing(standing, self.command)
        return standing
