"""Trials as jobs of submitit: the same trials, saved and queued again when their time is up."""

import json
import os
import signal
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from steadyrnn.errors import ArgumentError
from steadyrnn.jobs.recipes import configure
from steadyrnn.jobs.search import submitit_jobs, trial
from steadyrnn.jobs.search.folder import read_record, trial_folder
from steadyrnn.jobs.search.submitit_jobs import SubmittedTrial, make_submitit
from steadyrnn.jobs.search.trial import TrialJob
from steadyrnn.jobs.sweep import run_sweep
from steadyrnn.runs.owner import Owner
from steadyrnn.train.progress import Silent
from tests.jobs.search.sweeps import LR, SMALL, curve, grid

MANY = {**SMALL, "train.steps": 300, "train.validate_every": 10}


def job(folder: Path) -> TrialJob:
    configuration = configure("addition", "gru", {**SMALL, "train.steps": 30, "train.validate_every": 10})
    return TrialJob(str(folder), 0, configuration.to_dict(), (0, 1), "loss", {LR: 0.01})


class _Warned(Silent):
    """Warns the process at some step, as Slurm does some time before the end."""

    number = signal.SIGUSR2

    def update(self, step: int, values: Any) -> None:
        if step == 13:
            os.kill(os.getpid(), self.number)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_job_whose_time_is_up_is_saved_before_submitit_queues_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    queued: list[Any] = []
    submitted = SubmittedTrial(job(tmp_path / "warned"))

    def answer(received: int, frame: FrameType | None) -> None:  # as submitit's own handler does
        saved = json.loads((tmp_path / "warned" / "seed-0" / "metrics.jsonl").read_text().splitlines()[-1])
        queued.append((received, saved, submitted.checkpoint()))

    before = signal.signal(number, answer)
    real = trial.train_seeds
    monkeypatch.setattr(_Warned, "number", number)
    monkeypatch.setattr(trial, "train_seeds", lambda *args, **more: real(*args, **{**more, "progress": _Warned()}))
    try:
        assert submitted() == "interrupted"
        assert signal.getsignal(number) is answer
    finally:
        signal.signal(number, before)
    monkeypatch.setattr(trial, "train_seeds", real)
    ((received, saved, again),) = queued
    assert received == number
    assert (saved["kind"], saved["reason"]) == ("end", "interrupted")
    assert saved["step"] in (13, 14)  # the step in hand was finished, and saved
    assert read_record(tmp_path / "warned") is None
    assert again.result() == "ended"
    assert SubmittedTrial(job(tmp_path / "whole"))() == "ended"
    for seed in (0, 1):
        assert curve(tmp_path / "warned" / f"seed-{seed}") == curve(tmp_path / "whole" / f"seed-{seed}")


@pytest.mark.slow
def test_trials_through_the_local_executor_are_those_of_this_process(tmp_path: Path) -> None:
    """One of the jobs is warned that its time is up, and is queued again by submitit itself."""
    warned = list[int]()

    def warn() -> None:
        end = time.monotonic() + 100
        while not warned and time.monotonic() < end:
            for path in tmp_path.glob("jobs/addition/sweep/*/trials/0000"):
                try:
                    owner, lines = (
                        Owner.from_bytes((path / "lock").read_bytes()),
                        (path / "seed-0" / "metrics.jsonl").read_text(),
                    )
                except FileNotFoundError:
                    continue
                if owner is not None and '"validation"' in lines:
                    warned.append(owner.pid)
                    os.kill(owner.pid, signal.SIGUSR2)
            time.sleep(0.01)

    thread = threading.Thread(target=warn)
    thread.start()
    plan = grid(0.01, 0.02, settings=MANY, seeds=(0, 1))
    through = run_sweep(plan, tmp_path / "jobs", executor="local", jobs=2)
    thread.join()
    assert len(warned) == 1
    here = run_sweep(plan, tmp_path / "here", jobs=1)
    assert [(one.number, one.value, dict(one.values)) for one in through.trials] == [
        (one.number, one.value, dict(one.values)) for one in here.trials
    ]
    for number in (0, 1):
        for seed in (0, 1):
            runs = [trial_folder(found.folder, number) / f"seed-{seed}" for found in (through, here)]
            assert curve(runs[0]) == curve(runs[1])
    logs = "".join(path.read_text() for path in through.folder.glob("submitit/local/*/*_log.err"))
    logs += "".join(path.read_text() for path in through.folder.glob("submitit/local/*/*_log.out"))
    assert "Requeued job" in logs


def test_a_pickle_that_somebody_left_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Submitit would load ``JOB_0_result.pkl`` when it is asked for a result; its folder is new each time."""
    folders = set[str]()
    for _ in range(2):
        made = make_submitit(tmp_path, "local", {}, 1, 1)
        folders.add(os.fspath(made._executor.folder))
        monkeypatch.setattr(made, "_executor", _Ended(tmp_path))
        made.start(job(tmp_path / "trial"))
        ((number, outcome),) = made.collect(0.0)
        assert (number, outcome.state) == (0, "lost")
        assert outcome.reason == "its job ended as FINISHED without a result: killed"
    assert len(folders) == 2


class _Ended:
    """An executor of which every job has ended, and whose results must not be asked for."""

    job_id, state = "1", "FINISHED"

    def __init__(self, folder: Path) -> None:
        self.stderr = folder / "log"
        self.stderr.write_text("a line\nkilled\n")
        self.paths = self

    def submit(self, function: Any) -> "_Ended":
        return self

    def done(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        pytest.fail(f"was asked for {name}")


def test_slurm_that_is_not_there_and_options_that_do_not_exist_get_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ArgumentError, match=r"Trials cannot be submitted: Could not detect .srun."):
        make_submitit(tmp_path, "slurm", {"partition": "gpu"}, 1, 1)
    monkeypatch.setattr(submitit_jobs.submitit.SlurmExecutor, "affinity", classmethod(lambda cls: 1))
    with pytest.raises(ArgumentError, match=r"Unavailable parameter\(s\): \['partiton'\]"):
        make_submitit(tmp_path, "slurm", {"partiton": "gpu"}, 1, 1)
    made = make_submitit(tmp_path, "slurm", {"partition": "gpu", "time": 60}, 4, 2)
    assert (made._executor.parameters["partition"], made._executor.parameters["time"]) == ("gpu", 60)
    assert made._executor.parameters["cpus_per_task"] == 2
