"""A setting that would change nothing is refused when a run starts, and kept where an earlier run holds it."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from steadyrnn.constraints import Spectral
from steadyrnn.errors import ArgumentError
from steadyrnn.jobs.recipes import configure
from steadyrnn.jobs.train import train_network
from steadyrnn.models.group import group
from steadyrnn.runs.folder import Run
from steadyrnn.tasks.registry import TASKS
from steadyrnn.train.averaging import AVERAGES
from steadyrnn.train.effects import check_effects
from steadyrnn.train.grouped import train_group
from steadyrnn.train.optimizers import OPTIMIZERS
from steadyrnn.train.schedules import SCHEDULES
from steadyrnn.train.settings import AverageSettings, ClipSettings, OptimizerSettings, ScheduleSettings, TrainSettings
from steadyrnn.train.trainer import train
from tests.train.runs import addition, plain_model, tiny
from tests.train.test_arguments import with_value

OF_OPTIMIZERS: dict[str, tuple[Any, set[str]]] = {
    "optimizer.momentum": (0.9, {"sgd", "rmsprop"}),
    "optimizer.betas": ((0.8, 0.9), {"adam", "adamw"}),
    "optimizer.alpha": (0.9, {"rmsprop"}),
    "optimizer.eps": (1e-6, {"adam", "adamw", "rmsprop"}),
}
OF_SCHEDULES: dict[str, tuple[Any, set[str]]] = {
    "schedule.factor": (0.25, {"decay", "plateau"}),
    "schedule.patience": (5, {"plateau"}),
}
OF_AVERAGES: dict[str, tuple[Any, set[str]]] = {
    "average.decay": (0.5, {"ema"}),
    "average.start": (2, {"ema", "mean"}),
    "average.every": (3, {"ema", "mean"}),
}
CHOICES = [
    (f"{part}.name", choice, name, value, choice in users)
    for part, choices, table in (
        ("optimizer", OPTIMIZERS, OF_OPTIMIZERS), ("schedule", SCHEDULES, OF_SCHEDULES), ("average", AVERAGES, OF_AVERAGES),
    )
    for choice in choices
    for name, (value, users) in table.items()
]  # fmt: skip


def assert_judged(settings: TrainSettings, name: str, used: bool, model: nn.Module | None = None) -> None:
    """Check that settings pass if one of them is used, and are refused by its name if it is not."""
    model = plain_model() if model is None else model
    if used:
        check_effects(settings, model, addition())
        return
    with pytest.raises(ArgumentError, match=f"`{name}` has no effect: .*default"):
        check_effects(settings, model, addition())


def test_every_choice_has_its_defaults() -> None:
    for part, choices in (("optimizer.name", OPTIMIZERS), ("schedule.name", SCHEDULES), ("average.name", AVERAGES)):
        for choice in choices:
            check_effects(with_value(TrainSettings(), part, choice), plain_model(), addition())


@pytest.mark.parametrize(("part", "choice", "name", "value", "used"), CHOICES)
def test_a_setting_of_another_choice_is_refused(part: str, choice: str, name: str, value: Any, used: bool) -> None:
    settings = with_value(with_value(TrainSettings(), part, choice), name, value)
    assert_judged(settings, name, used)


@pytest.mark.parametrize(("recurrent", "used"), [(None, False), (0.5, True)])
def test_what_is_clipped_needs_clipping(recurrent: float | None, used: bool) -> None:
    assert_judged(TrainSettings(clip=ClipSettings(recurrent=recurrent, recurrent_of="raw")), "clip.recurrent_of", used)


@pytest.mark.parametrize(
    ("transition", "used"), [("free", False), ("spectral", False), ("ball", False), (Spectral(sigma="penalty"), True)], ids=str
)
def test_the_factor_of_penalties_needs_a_penalty(transition: Any, used: bool) -> None:
    assert_judged(TrainSettings(penalty=0.5), "penalty", used, plain_model(transition))


def test_probes_need_a_time() -> None:
    settings = with_value(TrainSettings(), "probe.names", ("margin",))
    assert_judged(settings, "probe.names", used=False)
    assert_judged(with_value(settings, "probe.every", 2), "probe.names", used=True)


@pytest.mark.parametrize("length", [{"steps": 14}, {"steps": None, "epochs": 2}], ids=str)
def test_an_average_that_never_starts_is_refused(length: dict[str, Any]) -> None:
    total = length["steps"] or 2 * addition().epoch_steps(8)
    check_effects(tiny(**length, average=AverageSettings("mean", start=total - 1)), plain_model(), addition())
    with pytest.raises(ArgumentError, match=rf"`average\.start` must be below .* steps, {total:,}, but is {total:,}"):
        check_effects(tiny(**length, average=AverageSettings("mean", start=total)), plain_model(), addition())


UNUSED = tiny(optimizer=OptimizerSettings("adam", momentum=0.9))


def test_the_trainer_refuses_before_the_first_step() -> None:
    with pytest.raises(ArgumentError, match=r"`optimizer\.momentum` has no effect: `optimizer\.name` is 'adam'"):
        train(plain_model(), addition(), UNUSED)


def test_a_group_refuses_before_the_first_step() -> None:
    settings = TrainSettings(steps=4, batch_size=8, device="cpu", schedule=ScheduleSettings("cosine", factor=0.1))
    with pytest.raises(ArgumentError, match=r"`schedule\.factor` has no effect: `schedule\.name` is 'cosine'"):
        train_group(group([plain_model(), plain_model()]), addition(), settings)


def test_the_program_refuses_before_there_is_a_folder(tmp_path: Path) -> None:
    own = {"train.penalty": 3.0, "train.steps": 2, "task.length": 5, "model.width": 4}
    with pytest.raises(ArgumentError, match="`penalty` has no effect"):
        train_network(configure("addition", "lstm", own), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_run_of_an_earlier_release_is_resumed_with_what_it_holds(tmp_path: Path) -> None:
    """A folder that was cut off before its first checkpoint; such settings passed then."""
    config = {"task": {"name": "addition"}, "model": {"name": "rnn"}, "train": asdict(UNUSED)}
    with Run.create(tmp_path, "addition", "rnn", config) as run:
        assert train(plain_model(), addition(), UNUSED, run=run, resume=True).steps == UNUSED.steps


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("task", TASKS)
def test_another_schedule_leaves_no_setting_of_the_recipes_behind(task: str, schedule: str) -> None:
    made = configure(task, settings={"train.schedule.name": schedule}).train.schedule
    default = ScheduleSettings()
    assert made.name == schedule
    assert made.factor == default.factor or schedule in OF_SCHEDULES["schedule.factor"][1]
    assert made.patience == default.patience or schedule in OF_SCHEDULES["schedule.patience"][1]
