"""Trials in processes: a killed one loses its own trial alone, a signal saves all, and a second start goes on bit for bit."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from steadyrnn.jobs.configuration import Configuration
from steadyrnn.jobs.search.executors import describe_exit
from steadyrnn.jobs.search.folder import trial_folder
from steadyrnn.jobs.sweep import run_sweep
from steadyrnn.jobs.train_seeds import train_seeds
from steadyrnn.runs.owner import Owner
from tests.jobs.search.sweeps import LR, curve, operations, records, snapshot

LONG = {
    "task": "addition", "models": ["rnn"], "seeds": "0..1",
    "settings": {
        "task": {"length": 10, "validation": 20, "test": 20},
        "train": {"steps": 300, "validate_every": 20, "batch_size": 8, "device": "cpu", "probe": {"every": 0}},
        "model.width": 4,
    },
    "grid": {LR: [0.001, 0.002, 0.003, 0.004]},
}  # fmt: skip
PATIENCE = 120


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def owner_of(trial: Path) -> int | None:
    """Return the process that trains a trial and has validated it, None where there is none."""
    try:
        owner = Owner.from_bytes((trial / "lock").read_bytes())
        lines = (trial / "seed-0" / "metrics.jsonl").read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return owner.pid if owner is not None and lines.count('"validation"') >= 2 and not (trial / "trial.json").exists() else None


def is_gone(process: int) -> bool:
    """Say whether a process has ended, also one that nobody has waited for."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads processes where Linux has them")
def test_a_killed_worker_and_a_stopped_program_lose_nothing_that_has_ended(tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text(json.dumps(LONG))
    words = [sys.executable, "-m", "steadyrnn", "sweep", "sweep.json", "--jobs", "2"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        found: list[tuple[Path, int]] = []

        def trained() -> list[tuple[Path, int]]:
            trials = sorted(tmp_path.glob("runs/addition/sweep/*/trials/*"))
            found[:] = [(trial, process) for trial in trials for process in [owner_of(trial)] if process is not None]
            return found

        wait_for(trained)
        killed, process = found[0]
        folder = killed.parents[1]
        os.kill(process, signal.SIGKILL)
        wait_for(lambda: records(folder) and trained())
        assert killed.name not in {f"{number:04d}" for number in records(folder)}
        others = {process for _, process in found}
        program.send_signal(signal.SIGTERM)
        out, err = program.communicate(timeout=PATIENCE)
    assert program.returncode == 143, err
    assert f"go on with: steadyrnn sweep --resume {folder.relative_to(tmp_path)}" in err
    assert f"trial {int(killed.name)} did not end: its process was killed by SIGKILL" in out
    assert all(map(is_gone, {process, *others}))
    done = records(folder)
    assert 1 <= len(done) < 4
    before, journal = snapshot(folder, done), (folder / "journal.log").read_bytes()
    standing = run_sweep(resume=folder, jobs=1)
    assert [trial.state for trial in standing.trials] == ["finished"] * 4
    assert not standing.unfinished
    assert snapshot(folder, done) == before
    assert (folder / "journal.log").read_bytes().startswith(journal)
    ends = [line["trial_id"] for line in operations(folder) if line["op_code"] == 6 and line["state"] == 1]
    assert sorted(ends) == [*range(4)]
    stored = Configuration.from_dict(json.loads((killed / "seed-0" / "config.json").read_text()))
    alone = train_seeds(stored, (0, 1), tmp_path / "alone")
    for seed in (0, 1):
        assert curve(alone.runs[seed].folder) == curve(trial_folder(folder, int(killed.name)) / f"seed-{seed}")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-signal.SIGSEGV, "its process was killed by SIGSEGV"),
        (-signal.SIGKILL, "its process was killed by SIGKILL, perhaps for want of memory"),
        (3, "its process ended by itself with status 3"),
        (None, "its process ended by itself with status None"),
    ],
)
def test_the_end_of_a_process_is_said_in_words(code: int | None, words: str) -> None:
    assert describe_exit(code) == words
