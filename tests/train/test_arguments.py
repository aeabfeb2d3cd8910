"""Settings that no run can have."""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from steadyrnn.errors import ArgumentTypeError, SteadyError
from steadyrnn.tasks.tensors import Part, TensorRegression
from steadyrnn.train.arguments import check_settings
from steadyrnn.train.settings import (
    ClipSettings,
    OptimizerSettings,
    ProbeSettings,
    ScheduleSettings,
    StopSettings,
    TrainSettings,
)
from steadyrnn.train.trainer import train


def test_the_defaults_are_fine() -> None:
    check_settings(TrainSettings())


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"steps": 0}, "steps"),
        ({"epochs": 0}, "epochs"),
        ({"batch_size": -1}, "batch_size"),
        ({"batch_size": 2.5}, "batch_size"),
        ({"accumulate": 0}, "accumulate"),
        ({"accumulate": 129}, "accumulate"),
        ({"evaluation_batch_size": 0}, "evaluation_batch_size"),
        ({"validate_every": 0}, "validate_every"),
        ({"log_every": 0}, "log_every"),
        ({"save_every": 0}, "save_every"),
        ({"threads": 0}, "threads"),
        ({"autocast": "float8"}, "autocast"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"optimizer": OptimizerSettings("lion")}, "optimizer.name"),
        ({"optimizer": OptimizerSettings(lr=-1.0)}, "optimizer.lr"),
        ({"optimizer": OptimizerSettings(lr=math.nan)}, "optimizer.lr"),
        ({"optimizer": OptimizerSettings(transition_lr=math.inf)}, "optimizer.transition_lr"),
        ({"optimizer": OptimizerSettings(weight_decay=-1.0)}, "optimizer.weight_decay"),
        ({"optimizer": OptimizerSettings(momentum=-1.0)}, "optimizer.momentum"),
        ({"optimizer": OptimizerSettings(eps=-1.0)}, "optimizer.eps"),
        ({"optimizer": OptimizerSettings(alpha=2.0)}, "optimizer.alpha"),
        ({"optimizer": OptimizerSettings(betas=(0.9, 1.1))}, "optimizer.betas"),
        ({"optimizer": OptimizerSettings(betas=(1.0, 0.9))}, "optimizer.betas"),
        ({"optimizer": OptimizerSettings(betas=(0.9,))}, "optimizer.betas"),  # type: ignore[arg-type]
        ({"schedule": ScheduleSettings("linear")}, "schedule.name"),
        ({"schedule": ScheduleSettings(factor=0.0)}, "schedule.factor"),
        ({"schedule": ScheduleSettings(factor=1.5)}, "schedule.factor"),
        ({"schedule": ScheduleSettings(patience=0)}, "schedule.patience"),
        ({"schedule": ScheduleSettings(warmup=-1)}, "schedule.warmup"),
        ({"clip": ClipSettings(norm=0.0)}, "clip.norm"),
        ({"clip": ClipSettings(recurrent=math.nan)}, "clip.recurrent"),
        ({"stop": StopSettings(patience=0)}, "stop.patience"),
        ({"stop": StopSettings(below=math.nan)}, "stop.below"),
        ({"stop": StopSettings(below=math.inf)}, "stop.below"),
        ({"probe": ProbeSettings(every=-1)}, "probe.every"),
    ],
)
def test_a_bad_setting_is_refused_by_name(changes: dict[str, object], name: str) -> None:
    with pytest.raises(SteadyError, match=f"`{name}` must"):
        check_settings(replace(TrainSettings(), **changes))  # type: ignore[arg-type]


def typed(settings: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every setting."""
    for field in dataclasses.fields(settings):
        yield (*path, field.name)
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            yield from typed(value, (*path, field.name))


def with_value(settings: Any, path: tuple[str, ...], value: object) -> Any:
    inner = value if len(path) == 1 else with_value(getattr(settings, path[0]), path[1:], value)
    return dataclasses.replace(settings, **{path[0]: inner})


@pytest.mark.parametrize("path", [*typed(TrainSettings())], ids=".".join)
def test_a_setting_of_the_wrong_type_is_named(path: tuple[str, ...]) -> None:
    with pytest.raises(ArgumentTypeError, match=rf"^`{'.'.join(path)}` must be .*, but is of type set\.$"):
        check_settings(with_value(TrainSettings(), path, {3}))


@pytest.mark.parametrize("name", ["model", "task", "settings", "run", "progress"])
def test_an_argument_of_the_wrong_kind_is_named(name: str) -> None:
    part = Part(torch.ones(3, 2, 1), torch.ones(2, 1))
    fitting: dict[str, Any] = {
        **{"model": torch.nn.Linear(1, 1), "task": TensorRegression(part, part), "settings": TrainSettings(steps=1)},
    }
    with pytest.raises(ArgumentTypeError, match=f"^`{name}` must be a .*, but is of type set"):
        train(**{**fitting, name: {3}})
