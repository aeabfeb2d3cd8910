"""What tests of the trainer share: small tasks and models, runs, ways to break them off, and how runs are compared."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from steadyrnn.constraints import ExpOrthogonal, Spectral, SpectralBall
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.runs.folder import Run
from steadyrnn.tasks.base import Batch, Interface, Task
from steadyrnn.tasks.registry import make_task
from steadyrnn.train.progress import Silent
from steadyrnn.train.settings import (
    AverageSettings,
    ClipSettings,
    OptimizerSettings,
    ProbeSettings,
    ScheduleSettings,
    StopSettings,
    TrainSettings,
)
from steadyrnn.train.trainer import Result, train

TIMES = {"time", "examples_per_second"}


class RunningSum(Task):
    """Predict the sum of all inputs so far; a sequence goes on over four batches, a checkpoint falls between."""

    metric: ClassVar[str] = "loss"
    higher_is_better: ClassVar[bool] = False

    @property
    def interface(self) -> Interface:
        return Interface(inputs=1, outputs=1, reads="each", carries_state=True)

    @property
    def baselines(self) -> Mapping[str, float]:
        return {}

    def epoch_steps(self, batch_size: int) -> int:
        return 4

    def train_batch(self, step: int, batch_size: int) -> Batch:
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(5, batch_size, 1, generator=generator)
        return Batch(x.to(self.device), x.cumsum(0).to(self.device), fresh=step % 4 == 0)

    def batches(self, split: str, batch_size: int) -> Iterator[Batch]:
        start = {"validation": 1000, "test": 2000}[split]
        return (self.train_batch(step, batch_size) for step in range(start, start + 6))

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        return nn.functional.mse_loss(output.float(), batch.target)

    def scores(self, output: Tensor, batch: Batch) -> dict[str, Tensor]:
        error = (output.float() - batch.target).square().sum()
        return {"error": error, "count": torch.full_like(error, batch.target.numel())}

    def summary(self, sums: Mapping[str, float]) -> dict[str, float]:
        return {"loss": sums["error"] / sums["count"]}


def addition() -> Task:
    return make_task("addition", length=10, validation=24, test=24)


def growing_addition(**more: Any) -> Task:
    """Return a task of three stages, whose batches differ in length."""
    stages = {"curriculum": "4:6:1,7:2:0.5,10:6:0.25", "curriculum_below": None, "shortest": 0.5}
    own: dict[str, Any] = {"length": 10, "validation": 24, "test": 24, **stages}
    return make_task("addition", **own | more)


def sequence_model(transition: Any = "free", **more: Any) -> nn.Module:
    """Return a model of two layers with dropout between them, on its states and on its output."""
    layer = RNN(2, 8, num_layers=2, dropout=0.3, nonlinearity="relu", transition=transition, **more)
    return SequenceModel(layer, 1, dropout_state=0.2, dropout_logits=0.1)


def plain_model(transition: Any = "free") -> nn.Module:
    """Return a model without dropout, the same every time."""
    torch.manual_seed(0)
    return SequenceModel(RNN(2, 8, transition=transition), 1)


def spectral_model() -> nn.Module:
    return sequence_model(Spectral(reflectors=3, radius=0.1))


def carrying_model() -> nn.Module:
    return SequenceModel(LSTM(1, 6, transition="spectral"), 1, readout="each", dropout_state=0.2)


def tiny(**more: Any) -> TrainSettings:
    """Return settings of a short run in which lines, validations and checkpoints fall on different steps."""
    own: dict[str, Any] = {"steps": 14, "batch_size": 8, "validate_every": 5, "log_every": 4, "save_every": 3, "device": "cpu"}
    return TrainSettings(**own | more)


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Task], TrainSettings]] = {
    "spectral": (spectral_model, addition, tiny(optimizer=OptimizerSettings(transition_lr=1e-2))),
    "projected": (
        lambda: sequence_model(SpectralBall(bound=0.9)),
        addition,
        tiny(optimizer=OptimizerSettings("sgd", lr=0.3, momentum=0.9), schedule=ScheduleSettings("cosine", warmup=3)),
    ),
    "re-centred": (lambda: sequence_model(ExpOrthogonal("lie")), addition, tiny(optimizer=OptimizerSettings("rmsprop"))),
    "penalty": (
        lambda: sequence_model(Spectral(sigma="penalty")),
        addition,
        tiny(optimizer=OptimizerSettings("adamw", weight_decay=0.1), clip=ClipSettings(norm=None, recurrent=1e-3)),
    ),
    "carried": (carrying_model, RunningSum, tiny(accumulate=3)),
    "plateau": (
        spectral_model,
        addition,
        tiny(
            validate_every=1,
            schedule=ScheduleSettings("plateau", patience=1),
            optimizer=OptimizerSettings(lr=0.2),
            stop=StopSettings(patience=9),
        ),
    ),
    "float16": (spectral_model, addition, tiny(autocast="float16")),
    "moving average": (spectral_model, addition, tiny(average=AverageSettings("ema", decay=0.8, start=4))),
    "mean": (
        lambda: sequence_model(ExpOrthogonal("lie")),
        addition,
        tiny(average=AverageSettings("mean", start=2, every=2), optimizer=OptimizerSettings(lr=0.05)),
    ),
    "stages": (spectral_model, growing_addition, tiny(schedule=ScheduleSettings("cosine", warmup=2))),
    "stages that are learned": (
        spectral_model,
        lambda: growing_addition(curriculum_below=1e6),
        tiny(validate_every=2, average=AverageSettings("ema", decay=0.8), schedule=ScheduleSettings("plateau", patience=1)),
    ),
    "probed": (spectral_model, addition, tiny(probe=ProbeSettings(every=4))),
}
"""Runs that depend on something of their own: model, task, settings."""


def noisy_probe(step: int, model: nn.Module) -> dict[str, Any]:
    """Measure something, and disturb whatever a careless measurement may disturb."""
    model.eval()
    norm = sum(float(parameter.detach().square().sum()) for parameter in model.parameters())
    torch.manual_seed(step)
    next(model.parameters()).grad = None
    return {"value": {"norm": norm, "noise": float(torch.rand(()))}}


class Broken(Exception):
    """What a run is broken off with."""


class BreakAt(Silent):
    """Breaks a run off after a step: by an exception, or by what is handed in."""

    def __init__(self, step: int, action: Callable[[], None] | None = None) -> None:
        self.at, self.action = step, action

    def update(self, step: int, values: Mapping[str, Any]) -> None:
        if step == self.at and self.action is None:
            raise Broken
        if step == self.at and self.action is not None:
            self.action()


def new_run(root: Path, settings: TrainSettings) -> Run:
    config = {"task": {"name": "task"}, "model": {"name": "model"}, "train": asdict(settings)}
    return Run.create(root, "task", "model", config)


def start(case: str, run: Run | None, progress: Silent | None = None, resume: bool = False) -> Result:
    """Run a case with a model that is built anew; a resumed one starts from other weights, which must not matter."""
    build, make, settings = CASES[case]
    torch.manual_seed(99 if resume else 0)
    model = build()
    return train(model, make(), settings, run=run, resume=resume, callbacks={"noise": noisy_probe}, progress=progress)


def lines(run: Run) -> list[dict[str, Any]]:
    """Return the metrics of a run apart from times, and from where steps were captured, which is after every start."""
    own = (record for record in run.metrics() if record["kind"] != "graph")
    return [{key: value for key, value in record.items() if key not in TIMES} for record in own]


def same_bits(a: Tensor, b: Tensor) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(a.contiguous().reshape(-1).view(torch.uint8), b.contiguous().reshape(-1).view(torch.uint8))


def differences(a: Run, b: Run) -> list[str]:
    """Name everything in which two runs differ apart from times."""
    found = [f"line {i}: {x} {y}" for i, (x, y) in enumerate(zip(lines(a), lines(b), strict=False)) if x != y]
    found += ["number of lines"] * (len(lines(a)) != len(lines(b)))
    for name in ("last", "best"):
        one, two = a.load(name), b.load(name)
        found += [f"{name}: names"] * (list(one.tensors) != list(two.tensors))
        found += [
            f"{name}: {key}" for key, x in one.tensors.items() if key in two.tensors and not same_bits(x, two.tensors[key])
        ]
        facts = [{key: value for key, value in point.facts.items() if key != "times"} for point in (one, two)]
        found += [f"{name}: facts"] * (facts[0] != facts[1])
    return found
