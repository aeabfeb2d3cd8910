"""What two processes do together for the tests of distributed training: many runs, one after another, and a report each."""

import errno
import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from steadyrnn.constraints import Spectral
from steadyrnn.constraints.registry import CONSTRAINTS
from steadyrnn.jobs import own_data, rate_test
from steadyrnn.jobs.own_data import settle
from steadyrnn.jobs.recipes import configure
from steadyrnn.jobs.train import train_network
from steadyrnn.jobs.train_model import train_model
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.runs import checkpoint
from steadyrnn.runs.folder import Run
from steadyrnn.tasks.base import Batch, Task
from steadyrnn.train.ranks import join
from steadyrnn.train.settings import (
    AverageSettings,
    ClipSettings,
    OptimizerSettings,
    ProbeSettings,
    ScheduleSettings,
    TrainSettings,
)
from steadyrnn.train.trainer import train
from tests.support.tasks import WideTask
from tests.tasks.small import small_task
from tests.train.runs import RunningSum, carrying_model, new_run, noisy_probe, spectral_model, tiny

KILLED_BY, SIGNALLED_AT = (6, 12), 7
"""The first and last step at which a rank is killed, and where others are sent a signal."""


class Doubles(WideTask):
    """A task whose numbers are in float64; something may happen in a process when it asks for the batch of a step."""

    def __init__(self, inner: Task, rank: int = 0, step: int = 0, happens: Callable[[], None] = lambda: None) -> None:
        super().__init__(inner)
        self.rank, self.step, self.happens = rank, step, happens

    def train_batch(self, step: int, batch_size: int) -> Batch:
        if step + 1 == self.step and join().rank == self.rank:
            self.happens()
        return super().train_batch(step, batch_size)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        return nn.functional.mse_loss(output, batch.target)

    def scores(self, output: Tensor, batch: Batch) -> dict[str, Tensor]:
        return {"error": (output - batch.target).square().sum(), "count": torch.tensor(float(batch.target.numel()))}

    def summary(self, sums: Mapping[str, float]) -> dict[str, float]:
        return {"loss": sums["error"] / sums["count"]}


class Choosy(nn.Module):
    """Uses one of its weights for rows whose first number is large alone."""

    def __init__(self) -> None:
        super().__init__()
        self.always, self.sometimes, self.never = (nn.Linear(2, 1).double() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        last = x[-1]
        large = last[:, 0] > 0.9
        output = self.always(last)
        return output.index_add(0, large.nonzero().squeeze(1), self.sometimes(last[large])) if bool(large.any()) else output


def double_task() -> Task:
    return Doubles(small_task("addition"))


def layer_of(name: str) -> nn.Module:
    """Return the layer of a case: a constraint's name, or a gated layer."""
    if name in CONSTRAINTS:
        return RNN(2, 6, transition=CONSTRAINTS[name]())
    made: dict[str, Callable[[], nn.Module]] = {
        "factored": lambda: RNN(2, 12, transition=Spectral(reflectors=1)),
        "clip": lambda: RNN(2, 6, transition=Spectral(sigma="clip")),
        "penalty": lambda: RNN(2, 6, transition=Spectral(sigma="penalty")),
        "gru": lambda: GRU(2, 6, transition={"n": "ornn", "r": "exp"}),
        "lstm": lambda: LSTM(2, 6),
        "stable-lstm": lambda: LSTM(2, 6, transition="stable-lstm"),
    }
    return made[name]()


LAYERS = (*CONSTRAINTS, "factored", "clip", "penalty", "gru", "lstm", "stable-lstm")


def model_of(name: str) -> nn.Module:
    torch.manual_seed(3)
    return SequenceModel(layer_of(name), 1).double()  # type: ignore[arg-type]


def exact(**more: Any) -> TrainSettings:
    """Return settings of a run without dropout whose validation is one batch, so that its sums have one order."""
    clip = ClipSettings(norm=0.5, recurrent=0.05)
    own: dict[str, Any] = {"steps": 5, "batch_size": 7, "evaluation_batch_size": 64, "clip": clip}
    return tiny(**own | {"optimizer": OptimizerSettings(lr=1e-2)} | more)


def carried() -> tuple[nn.Module, Task]:
    torch.manual_seed(3)
    return SequenceModel(LSTM(1, 6, transition="spectral"), 1, readout="each").double(), Doubles(RunningSum())


def dropped(**more: Any) -> tuple[nn.Module, Task, TrainSettings]:
    """Return a run with dropout, averaged weights and a state that is carried along, of which nothing may get lost."""
    torch.manual_seed(5)
    own: dict[str, Any] = {"steps": 16, "average": AverageSettings("ema", decay=0.8, start=2), "accumulate": 4}
    own |= {"probe": ProbeSettings(every=4)}
    return carrying_model().double(), Doubles(RunningSum()), tiny(**own | more)


def trained(
    folder: Path, model: nn.Module, task: Task, settings: TrainSettings, resume: bool = False, write: bool = True
) -> str | None:
    """Train, with the folder on rank 0; return the folder's name."""
    run = None
    if join().first and write:
        run = Run.open(folder, write=True) if resume else new_run(folder, settings)
    try:
        measured = {"noise": noisy_probe} if join().first and settings.probe.every else {}
        train(model, task, settings, run=run, resume=resume, callbacks=measured)
    finally:
        if run is not None:
            run.close()
    return None if run is None else str(run.folder)


def only(folder: Path) -> Path:
    """Return the one run below a folder."""
    return next(path.parent for path in folder.rglob("config.json"))


def failure(work: Callable[[], Any]) -> dict[str, Any]:
    """Return the error that a piece of work ends with."""
    try:
        work()
    except Exception as error:
        return {"kind": type(error).__name__, "text": str(error), "code": getattr(error, "exit_code", None)}
    return {"kind": None, "text": "", "code": None}


def start_killed(folder: Path) -> None:
    """Train until rank 1 is killed; the others must end by themselves."""
    step = random.Random(os.environ["MASTER_PORT"]).randint(*KILLED_BY)
    model, _, settings = dropped()
    task = Doubles(RunningSum(), 1, step, lambda: os.kill(os.getpid(), signal.SIGKILL))
    trained(folder / "killed", model, task, settings)


def check_all(folder: Path) -> None:
    """Do everything that is asked of two processes, in the same order on both."""
    ranks = join()
    report: dict[str, Any] = {}
    for name in LAYERS:
        report[f"layer {name}"] = trained(folder / name, model_of(name), double_task(), exact())
    report["layer carried"] = trained(folder / "carried", *carried(), exact())
    for part in (_check_ends, _check_failures, _check_gradients, _check_jobs):
        report |= part(folder)
    (folder / f"report-{ranks.rank}.json").write_text(json.dumps(report), encoding="utf-8")


def _check_ends(folder: Path) -> dict[str, Any]:
    """Runs that end early and go on."""
    found: dict[str, Any] = {}
    trained(folder / "whole", *dropped())
    trained(only(folder / "killed") if join().first else folder, *dropped(), resume=True)
    for name, rank, number in (("SIGTERM", 1, signal.SIGTERM), ("SIGUSR1", 0, signal.SIGUSR1)):
        model, _, settings = dropped()
        sent = Doubles(RunningSum(), rank, SIGNALLED_AT, lambda number=number: os.kill(os.getpid(), number))  # type: ignore[misc]
        place = folder / name
        found[name] = failure(lambda: trained(place, model, sent, settings))  # noqa: B023
        trained(only(place) if join().first else place, *dropped(), resume=True)
    with _skewed_clock(join().rank):
        trained(folder / "skewed", *dropped())
    trained(only(folder / "begun by one") if join().first else folder, *carried(), exact(steps=16), resume=True)
    model, _ = carried()
    asked = Doubles(RunningSum(), 1, SIGNALLED_AT, lambda: os.kill(os.getpid(), signal.SIGTERM))
    found["begun by two"] = failure(lambda: trained(folder / "begun by two", model, asked, exact(steps=16)))
    return found


@contextmanager
def _skewed_clock(rank: int) -> Iterator[None]:
    """Let the clocks of rank 1 be elsewhere, and run at another pace, backwards among others."""
    if rank == 0:
        yield
        return
    ticks = (1e6 - 3.0 * number for number in range(10**9))
    clocks = [mock.patch.object(time, name, side_effect=ticks) for name in ("time", "perf_counter", "monotonic")]
    for clock in clocks:
        clock.start()
    try:
        yield
    finally:
        for clock in clocks:
            clock.stop()


def _check_failures(folder: Path) -> dict[str, Any]:
    """Runs that cannot go on: every process must know, and why."""
    ranks, found = join(), dict[str, Any]()
    model, _, settings = dropped()

    def fill_disk() -> None:
        patcher = mock.patch.object(
            checkpoint, "write_atomically", side_effect=OSError(errno.ENOSPC, "No space left on device")
        )
        patcher.start()
        undo.append(patcher.stop)

    undo: list[Callable[[], Any]] = []
    full = Doubles(RunningSum(), 0, SIGNALLED_AT, fill_disk)
    found["full disk"] = failure(lambda: trained(folder / "full disk", model, full, settings))
    for stop in undo:
        stop()

    model, _, settings = dropped(check_ranks=2)

    def nudge() -> None:
        with torch.no_grad():
            first = next(model.parameters()).view(-1)
            first[0] = torch.nextafter(first[0], first[0] + 1)

    nudged = Doubles(RunningSum(), 1, 3, nudge)
    found["other weights"] = failure(lambda: trained(folder, model, nudged, settings, write=False))

    class Spoilt(Doubles):
        """The last row of a batch, which rank 1 has, is not finite in step 5."""

        def train_batch(self, step: int, batch_size: int) -> Batch:
            batch = super().train_batch(step, batch_size)
            if step == 4:
                batch.input[:, -1] = float("nan")
            return batch

    model = model_of("polar")
    found["not finite"] = failure(lambda: trained(folder, model, Spoilt(small_task("addition")), exact(), write=False))
    found["not finite"]["weights"] = sum(float(parameter.detach().sum()) for parameter in model.parameters())

    class Drawn(Doubles):
        """Its batches depend on torch's global random numbers from step 3 on, which are a rank's own."""

        def train_batch(self, step: int, batch_size: int) -> Batch:
            batch = super().train_batch(step, batch_size)
            return batch if step < 2 else replace(batch, input=batch.input + torch.rand_like(batch.input))

    found["other batches"] = failure(lambda: trained(folder, model, Drawn(small_task("addition")), exact(), write=False))
    torch.manual_seed(ranks.rank)
    hidden = nn.Sequential(model_of("polar"))
    hidden.register_buffer("hidden", torch.rand(3), persistent=False)
    trained(folder, hidden, double_task(), exact(), write=False)
    found["hidden"] = hidden.hidden.tolist()  # type: ignore[operator]
    found["small batch"] = failure(lambda: trained(folder, model, double_task(), exact(batch_size=1), write=False))
    found["normalized"] = failure(lambda: trained(folder, nn.BatchNorm1d(2), double_task(), exact(), write=False))
    own = None if ranks.first else new_run(folder / "of rank 1", exact())
    found["run on rank 1"] = failure(lambda: train(model, double_task(), exact(), run=own))
    if own is not None:
        own.close()
    found["one rank fails"] = failure(lambda: ranks.agree(lambda: 1 // (1 - ranks.rank)))
    return found


def _check_gradients(folder: Path) -> dict[str, Any]:
    """What becomes of gradients that not all ranks have, and of a scaled loss that overflows on one."""
    found: dict[str, Any] = {}
    torch.manual_seed(1)
    model = Choosy()
    settings = exact(clip=ClipSettings(), optimizer=OptimizerSettings("sgd", momentum=0.9, weight_decay=0.1), batch_size=4)
    trained(folder, model, double_task(), settings, write=False)
    found["choosy"] = {name: parameter.tolist() for name, parameter in model.state_dict().items()}
    model = spectral_model()
    plateau = ScheduleSettings("plateau", patience=1)
    half = tiny(autocast="float16", validate_every=1, schedule=plateau)
    found["float16"] = trained(folder / "float16", model, small_task("addition"), half)
    found["float16 weights"] = sum(float(parameter.detach().double().sum()) for parameter in model.parameters())
    return found


def _check_jobs(folder: Path) -> dict[str, Any]:
    """The jobs of the program, and choices that must be made once."""
    found: dict[str, Any] = {}
    configuration = configure(
        "addition", "spectral",
        {"task.length": 10, "model.width": 6, "train.steps": 4, "train.batch_size": 8, "train.device": "cpu"},
    )  # fmt: skip
    done = train_network(configuration, folder / "jobs")
    found["network"] = {"folder": str(done.folder), "certificate": done.certificate, "steps": done.result.steps}
    torch.manual_seed(join().rank)  # rank 0's model counts
    own = train_model(SequenceModel(RNN(2, 4), 1), small_task("addition"), tiny(), folder / "jobs")
    found["own model"] = {"folder": str(own.folder), "best": own.result.best}
    data = folder / "waves.csv"
    calls = {"model": 0, "rate": 0}

    def count(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            calls[name] += 1
            return real(*args, **more)

        return call

    given = {"task.data": str(data), "task.series": "id", "task.target": "kind", "train.steps": 3, "train.device": "cpu"}
    with (
        mock.patch.object(own_data, "choose_model", count("model", own_data.choose_model)),
        mock.patch.object(own_data, "find_rate", count("rate", rate_test.find_rate)),
    ):
        settled = settle({**given, "task.validation": 0.4, "task.test": 0.2})
    found["settled"] = {"calls": calls, "configuration": settled.configuration.to_dict(), "notes": [*settled.notes]}
    return found
