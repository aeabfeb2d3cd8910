"""The trainer's own time in a run, and its step beside a bare one: ``python benchmarks/bench_trainer.py``."""

import functools
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from measure import options, pairs, save, show
from torch import nn

import steadyrnn as sr
from steadyrnn.runs.folder import Run
from steadyrnn.tasks.addition import Addition
from steadyrnn.tasks.base import Batch
from steadyrnn.tasks.settings import AdditionSettings
from steadyrnn.train import step as step_module
from steadyrnn.train import trainer
from steadyrnn.train.progress import Lines
from steadyrnn.train.settings import TrainSettings
from steadyrnn.train.step import Stepper

SHAPES = {(784, 128, 128): 30, (100, 32, 64): 600}  # with the steps of a profiled run
SYSTEMS: dict[str, str | sr.Constraint] = {"rnn": "free", "spectral": sr.Spectral(reflectors=16, radius=0.01), "ball": "ball"}


class SameBatch(Addition):
    """The addition problem with one training batch, so that no data is made while time is taken."""

    def train_batch(self, step: int, batch_size: int) -> Batch:
        """Return the first batch."""
        if not hasattr(self, "_only"):
            self._only = super().train_batch(0, batch_size)
        return self._only


def build(shape: tuple[int, int, int], system: str) -> tuple[nn.Module, SameBatch]:
    """Return a model and a task of a shape."""
    steps, batch, size = shape
    torch.manual_seed(0)
    model = sr.SequenceModel(sr.RNN(2, size, transition=SYSTEMS[system]), 1)
    return model, SameBatch(AdditionSettings(length=steps, validation=batch, test=batch))


def bare_step(shape: tuple[int, int, int], system: str) -> Callable[[], None]:
    """Return what anyone would write: forward, backward, clipping, optimizer, projection."""
    model, task = build(shape, system)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    sr.attach_projection(optimizer, model)
    batch = task.train_batch(0, shape[1])

    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        task.loss(model(batch.input)[0], batch).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return run


def trainer_step(shape: tuple[int, int, int], system: str) -> Callable[[], None]:
    """Return a step of the trainer: the same, with sums, checks and the schedule."""
    model, task = build(shape, system)
    stepper = Stepper(model, task, TrainSettings(device="cpu"), model)
    count = iter(range(1, 10**9))

    def run() -> None:
        stepper.step(next(count), task.train_batch(0, shape[1]), 1.0)

    return run


class Clock:
    """Adds up the time spent in functions, by label."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.inside = False

    def wrap(self, label: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with its time added up, except where another such function calls it."""

        @functools.wraps(function)  # torch marks a step whose hooks are in place
        def run(*arguments: Any, **keywords: Any) -> Any:
            if self.inside:
                return function(*arguments, **keywords)
            self.inside, start = True, time.perf_counter()
            try:
                return function(*arguments, **keywords)
            finally:
                self.inside = False
                self.seconds[label] = self.seconds.get(label, 0.0) + time.perf_counter() - start

        return run


def profile(shape: tuple[int, int, int], system: str, steps: int) -> dict[str, Any]:
    """Run the trainer with a run folder; return the shares of its time, its own being what has no other label."""
    model, task = build(shape, system)
    settings = TrainSettings(steps=steps, batch_size=shape[1], log_every=10, validate_every=steps // 2, device="cpu")
    config = {"task": {"name": "addition"}, "model": {"name": system}, "train": asdict(settings)}
    clock = Clock()
    places: list[tuple[Any, str, str]] = [
        (model, "forward", "forward"),
        (task, "loss", "forward"),
        (task, "train_batch", "data"),
        (torch.Tensor, "backward", "backward"),
        (torch.optim.Adam, "step", "optimizer"),
        (trainer, "evaluate", "validation"),
        (step_module, "clip", "clipping"),
        (step_module, "gradient_norm", "clipping"),
        (Run, "save", "checkpoints"),
    ]
    kept = [(place, name, getattr(place, name)) for place, name, _ in places]
    for place, name, label in places:
        setattr(place, name, clock.wrap(label, getattr(place, name)))
    try:
        with tempfile.TemporaryDirectory() as root, Run.create(root, "addition", system, config) as run:
            start = time.perf_counter()
            trainer.train(model, task, settings, run=run, progress=Lines(seconds=60.0))
            total = time.perf_counter() - start
    finally:
        for place, name, before in kept:
            setattr(place, name, before)
    shares = {label: seconds / total for label, seconds in clock.seconds.items()}
    return {"total_s": total, **shares, "own": 1 - sum(shares.values())}


def main() -> None:
    """Measure and print."""
    parser = options(__doc__)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    rows = []
    profile((10, 4, 4), "ball", steps=20)  # torch imports and sets up much when it first trains
    for shape, steps in SHAPES.items():
        for system in SYSTEMS:
            row = dict(zip("TBn", shape, strict=True)) | {"system": system} | profile(shape, system, steps)
            rows.append(row | pairs(trainer_step(shape, system), bare_step(shape, system), chosen.repeats))
    show(rows)
    save(f"trainer-{chosen.threads}-threads", rows)


if __name__ == "__main__":
    main()
