"""Runs in processes of their own, killed at random moments: resumed, they end as the run that nobody killed."""

import multiprocessing
import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest
import torch

from steadyrnn.constraints import Spectral
from steadyrnn.runs.folder import Run
from steadyrnn.train.settings import OptimizerSettings, ProbeSettings
from steadyrnn.train.signals import Interrupted
from steadyrnn.train.trainer import train
from tests.train.runs import addition, differences, lines, new_run, noisy_probe, sequence_model, tiny

KILLS = 50 if os.environ.get("STEADYRNN_LONGER") else 5
SETTINGS = tiny(steps=40, log_every=3, save_every=2, probe=ProbeSettings(every=7), optimizer=OptimizerSettings(lr=1e-2))

# The server imports torch once and forks a fresh process for every run: a fork of this one could not train any more.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["pytest", "torch._dynamo", "steadyrnn.train.trainer", "steadyrnn.models.sequence", "steadyrnn.tasks.registry"]
)

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can be killed and forked")


def work(folder: Path) -> None:
    """Start the run, or resume it: dropout, and singular values that are clipped after each step."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = sequence_model(Spectral(sigma="clip"))
    try:
        with Run.open(folder, write=True) as run:
            train(model, addition(), SETTINGS, run=run, resume=True, callbacks={"noise": noisy_probe})
    except Interrupted as interrupted:
        sys.exit(interrupted.exit_code)


def fresh(root: Path) -> Path:
    with new_run(root, SETTINGS) as run:
        return run.folder


def spawn(folder: Path) -> multiprocessing.process.BaseProcess:
    process = PROCESSES.Process(target=work, args=(folder,))
    process.start()
    return process


def run_to_the_end(folder: Path) -> Run:
    process = spawn(folder)
    process.join(120)
    assert process.exitcode == 0
    return Run.open(folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return the run that nobody killed."""
    return run_to_the_end(fresh(tmp_path_factory.mktemp("whole")))


def wait_for(process: multiprocessing.process.BaseProcess, folder: Path, lines: float) -> None:
    """Wait until a run has written so many lines of metrics, or has ended."""
    until = time.perf_counter() + 120
    while process.is_alive() and (folder / "metrics.jsonl").read_bytes().count(b"\n") < lines:
        assert time.perf_counter() < until
        time.sleep(0.001)


def kill_at(folder: Path, lines: float, delay: float) -> None:
    """Start or resume a run, and kill it a moment after it has written so many lines."""
    process = spawn(folder)
    wait_for(process, folder, lines)
    time.sleep(delay)
    process.kill()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("number", range(KILLS))
def test_a_killed_run_ends_as_the_one_nobody_killed(tmp_path: Path, whole: Run, number: int) -> None:
    folder, chance = fresh(tmp_path), random.Random(number)
    moment = 0.8 * len(whole.metrics()) * (number + chance.random()) / KILLS
    kill_at(folder, moment, delay=0.03 * chance.random())
    assert differences(whole, run_to_the_end(folder)) == []


def test_a_run_killed_again_and_again_ends_as_the_one_nobody_killed(tmp_path: Path, whole: Run) -> None:
    folder, chance = fresh(tmp_path), random.Random(0)
    for number in range(KILLS):
        kill_at(folder, 0.8 * len(whole.metrics()) * number / KILLS, delay=0.03 * chance.random())
    assert differences(whole, run_to_the_end(folder)) == []


def test_a_run_asked_to_end_leaves_with_143_and_goes_on_later(tmp_path: Path, whole: Run) -> None:
    folder = fresh(tmp_path)
    process = spawn(folder)
    wait_for(process, folder, 5)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGTERM)
    process.join(60)
    assert process.exitcode == 143
    assert lines(Run.open(folder))[-1]["reason"] == "interrupted"
    assert differences(whole, run_to_the_end(folder)) == []
