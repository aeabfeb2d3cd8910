"""Small sweeps for tests, and what their folders say."""

import json
from pathlib import Path
from typing import Any

from steadyrnn.jobs.search.folder import TrialRecord, read_record, trial_folder
from steadyrnn.jobs.search.plan import Range, SweepPlan

SMALL = {
    "task.length": 5, "task.validation": 20, "task.test": 20, "train.steps": 4, "train.validate_every": 2,
    "train.batch_size": 4, "train.device": "cpu", "train.probe.every": 0, "model.width": 3,
}  # fmt: skip
LR = "train.optimizer.lr"


def make_plan(**changed: Any) -> SweepPlan:
    """Return a plan of four trials, the rates of which are drawn."""
    plan: dict[str, Any] = {
        "task": "addition", "models": ("gru",), "seeds": (0,), "settings": SMALL, "search": {LR: Range(1e-3, 1e-1, log=True)},
        "trials": 4, "sampler": "random",
    }  # fmt: skip
    return SweepPlan(**{**plan, **changed})


def grid(*rates: float, **changed: Any) -> SweepPlan:
    """Return a plan with a trial for each rate."""
    return make_plan(**{"grid": {LR: rates}, "search": {}, "trials": 1, **changed})


def records(folder: Path) -> dict[int, TrialRecord]:
    """Return what trials came to, by number, from their folders."""
    found = {int(place.name): read_record(place) for place in (folder / "trials").iterdir()}
    return {number: record for number, record in found.items() if record is not None}


def snapshot(folder: Path, numbers: Any) -> dict[str, tuple[int, int, bytes]]:
    """Return identity, time and content of every file of some trials."""
    files = [path for number in numbers for path in trial_folder(folder, number).rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def curve(run: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's metrics without times and speeds."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{key: value for key, value in line.items() if key not in ("time", "examples_per_second")} for line in lines]


def operations(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of the journal."""
    return [json.loads(line) for line in (folder / "journal.log").read_text(encoding="utf-8").splitlines()]
