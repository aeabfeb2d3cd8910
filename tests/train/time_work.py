"""What two processes do that share the time of each batch, and one process with the same: many runs and a report each."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import steadyrnn as sr
from steadyrnn.jobs.own_data import settle
from steadyrnn.jobs.train import train_network
from steadyrnn.models.settings import ModelSettings
from steadyrnn.models.systems import build_model
from steadyrnn.runs.folder import Run
from steadyrnn.tasks.base import Batch, Task
from steadyrnn.train.ranks import join
from steadyrnn.train.settings import AverageSettings, OptimizerSettings, TrainSettings
from steadyrnn.train.trainer import Result, train
from tests.support.tasks import WideTask
from tests.tasks.series.made import classes, made, make, numbers
from tests.train.rank_work import failure
from tests.train.runs import new_run, tiny

TOL, STEPS, LOST_AT, RATE = 1e-10, 30, 17, 0.1
"""The truncation that is allowed; optimizer steps; where one run is cut off; the learning rate."""
FORGETS = 0.995
"""No layer here has a larger rate of contraction."""
CUT_OFF = RuntimeError("the lights went out")


class Wide(WideTask):
    """A series task in float64; its ranks share time. At one step every process may fail."""

    def __init__(self, inner: Task, fails_at: int = 0) -> None:
        super().__init__(inner)
        self.fails_at = fails_at

    @property
    def ranks_share(self) -> str:
        return self.inner.ranks_share

    def train_batch(self, step: int, batch_size: int) -> Batch:
        if step + 1 == self.fails_at:
            raise CUT_OFF
        return super().train_batch(step, batch_size)


def stream(**more: Any) -> Task:
    """A long series, of which some batches have one step only: fewer than ranks."""
    series = made([403], 2, numbers(403), seed=3)
    return make(series, bptt=60, parallel="ranks", validation=0.2, **more)


def forecast() -> Task:
    return make(made([400], 2, seed=4), horizon=2, bptt=50, parallel="ranks")


def windows() -> Task:
    """Windows of one length, with classes that do not come alike often."""
    return make(made([40] * 12, 2, classes(480, 3), seed=5), window=20, split="series", weights="balanced", parallel="ranks")


def model_of(system: str, task: Task, layers: int = 1, seed: int = 3) -> nn.Module:
    torch.manual_seed(seed)
    return build_model(ModelSettings(system, width=8, layers=layers), task.interface).double()


def settings_of(**more: Any) -> TrainSettings:
    """Settings by which an error of the gradient moves weights by as much or less, and not as Adam does by its sign."""
    own: dict[str, Any] = {"steps": STEPS, "batch_size": 2, "save_every": 10, "validate_every": 15, "log_every": 10}
    return tiny(**own | {"optimizer": OptimizerSettings("sgd", lr=RATE)} | more)


CASES: dict[str, tuple[str, Callable[[], Task], dict[str, Any], int]] = {
    "two layers": ("contractive", stream, {"accumulate": 2, "batch_size": 3}, 2),
    "forecast": ("contractive", forecast, {"batch_size": 1, "average": AverageSettings("ema", decay=0.8, start=2)}, 1),
    "windows": ("stable-spectral", windows, {"batch_size": 5}, 1),
}


def over_ranks(model: nn.Module) -> nn.Module:
    return sr.to_parallel(model, TOL, group=True)


def run_case(name: str) -> tuple[nn.Module, Result]:
    system, make_task, more, layers = CASES[name]
    task = Wide(make_task())
    model = model_of(system, task, layers)
    return model, train(model, task, settings_of(**more), over_ranks=over_ranks)


def in_folder(folder: Path, resume: bool = False, fails_at: int = 0) -> nn.Module:
    """Train the case with a carried state in a folder; one that goes on begins with other weights, which must not matter."""
    task = Wide(stream(), fails_at)
    model, settings = model_of("stable-spectral", task, seed=4 if resume else 3), settings_of()
    run = None
    if join().first:
        run = Run.open(next(folder.rglob("config.json")).parent, write=True) if resume else new_run(folder, settings)
    try:
        train(model, task, settings, run=run, resume=resume, over_ranks=over_ranks)
    finally:
        if run is not None:
            run.close()
    return model


def allowed(layers: int) -> float:
    """Return by how much weights may differ: in every step by the error of a gradient, to which those of all states add up."""
    return STEPS * RATE * TOL / (1 - FORGETS) ** layers


def weights(model: nn.Module) -> dict[str, list[float]]:
    return {name: tensor.double().flatten().tolist() for name, tensor in model.state_dict().items()}


def train_file(folder: Path, **more: Any) -> dict[str, Any]:
    """Train on a file, as the program does."""
    given = {
        "task.data": str(folder / "long.csv"), "task.target": "level", "task.bptt": 30, "task.parallel": "ranks",
        "model.width": 8, "train.steps": 6, "train.batch_size": 1, "train.device": "cpu",
    }  # fmt: skip
    settled = settle(given | more)
    done = train_network(settled.configuration, folder / "file", task=settled.task)
    return {"notes": settled.notes, "test": done.result.test, "folder": str(done.folder)}


def check_all(folder: Path) -> None:
    """Do everything in two processes."""
    ranks, report = join(), dict[str, Any]()
    for name in CASES:
        model, result = run_case(name)
        report[name] = {"weights": weights(model), "test": result.test, "best": result.best}
    report["whole"] = weights(in_folder(folder / "whole"))
    report["error"] = failure(lambda: in_folder(folder / "cut", fails_at=LOST_AT))
    if ranks.first:
        shutil.copytree(folder / "cut", folder / "cut for one")
    report["resumed"] = weights(in_folder(folder / "cut", resume=True))
    report["file"] = train_file(folder)
    for name in ("lstm", "irnn"):
        report[f"refused {name}"] = failure(partial(train_file, folder, **{"model.name": name}))
    report["refused compiled file"] = failure(
        partial(train_file, folder / "none", **{"task.data": str(folder / "long.csv"), "train.compile": True})
    )
    report["folders"] = (folder / "none").exists()
    task = Wide(stream())
    model = model_of("stable-spectral", task)
    report["refused bare"] = failure(lambda: train(model, task, settings_of()))
    report["refused compile"] = failure(lambda: train(model, task, settings_of(compile=True), over_ranks=over_ranks))
    (folder / f"report-{ranks.rank}.json").write_text(json.dumps(report), encoding="utf-8")
