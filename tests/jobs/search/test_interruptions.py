"""Signals at any moment: none is lost, and what ends because it was asked to does not count as killed."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from steadyrnn.jobs import sweep as sweeps
from steadyrnn.jobs import train
from steadyrnn.jobs.search.executors import InProcess
from steadyrnn.jobs.search.folder import LOCK, trial_folder
from steadyrnn.jobs.search.submitit_jobs import make_submitit
from steadyrnn.jobs.search.trial import Outcome, TrialJob
from steadyrnn.jobs.sweep import SweepInterruptedError, run_sweep
from steadyrnn.runs.lock import Lock
from tests.jobs.search.sweeps import SMALL, grid, records


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_between_two_trainings_of_a_trial_ends_the_sweep(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """While a network is certified no training listens; the next training, or the next trial, must not begin."""
    plan = grid(0.01, 0.02, seeds=(0, 1), settings={**SMALL, "train.accumulate": 2})  # one seed after another
    whole = run_sweep(plan, "whole", jobs=1)
    certified, when, real = list[str](), ["seed-0", "seed-1"], train.certify_in

    def certify(run: Any, *rest: Any) -> Any:
        certified.append(run.folder.name)
        if certified[-1] == when[0]:
            when.pop(0)
            os.kill(os.getpid(), number)
        return real(run, *rest)

    monkeypatch.setattr(train, "certify_in", certify)
    with pytest.raises(SweepInterruptedError) as stopped:
        run_sweep(plan, jobs=1)
    assert (stopped.value.exit_code, certified) == (128 + number, ["seed-0"])
    folder = stopped.value.folder
    assert records(folder) == {}
    assert not trial_folder(folder, 1).exists()
    with pytest.raises(SweepInterruptedError):  # behind the last training of trial 0: that has ended, and 1 does not begin
        run_sweep(resume=folder, jobs=1)
    assert (sorted(records(folder)), certified) == ([0], ["seed-0", "seed-0", "seed-1"])
    assert not trial_folder(folder, 1).exists()
    monkeypatch.setattr(train, "certify_in", real)
    found = run_sweep(resume=folder, jobs=1)
    assert [(one.number, one.values) for one in found.trials] == [(one.number, one.values) for one in whole.trials]


class _Stopped(InProcess):
    """Processes that end by the signal of :meth:`stop` before they can save: they had just been started."""

    def collect(self, seconds: float) -> list[tuple[int, Outcome]]:
        os.kill(os.getpid(), signal.SIGINT)
        return []

    def stop(self) -> list[tuple[int, Outcome]]:
        return [(number, Outcome("lost", reason="its process was killed by SIGTERM")) for number in self.running()]


def test_a_process_that_ends_because_the_sweep_was_stopped_is_not_counted_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "InProcess", _Stopped)
    with pytest.raises(SweepInterruptedError) as stopped:
        run_sweep(grid(0.01), jobs=1)
    for _ in range(3):
        with pytest.raises(SweepInterruptedError):
            run_sweep(resume=stopped.value.folder, jobs=1)
    assert records(stopped.value.folder) == {}
    monkeypatch.setattr(sweeps, "InProcess", InProcess)
    found = run_sweep(resume=stopped.value.folder, jobs=1)
    assert [one.state for one in found.trials] == ["finished"]


def test_a_job_that_leaves_a_trial_to_an_earlier_one_is_not_counted_as_lost(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job of an earlier start still holds the trial; the new one ends without a result."""
    made = make_submitit(place, "local", {}, 1, 1)
    monkeypatch.setattr(made, "_executor", _Ended(place))
    job = TrialJob(str(place / "trial"), 0, {}, (0,), "loss", {})
    (place / "trial").mkdir()
    lock = Lock(place / "trial" / LOCK)
    made.start(job)
    ((_, outcome),) = made.collect(0.0)
    assert outcome.state == "busy"
    assert f"is being written by process {os.getpid()} " in outcome.reason
    lock.release()
    made.start(job)
    ((_, outcome),) = made.collect(0.0)
    assert outcome.state == "lost"


class _Ended:
    """An executor of which every job has ended at once."""

    job_id, state = "1", "FINISHED"

    def __init__(self, folder: Path) -> None:
        self.stderr, self.paths = folder / "log", self

    def submit(self, function: Any) -> "_Ended":
        return self

    def done(self) -> bool:
        return True


def test_the_threads_of_the_caller_stay() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run_sweep(grid(0.01), jobs=1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
