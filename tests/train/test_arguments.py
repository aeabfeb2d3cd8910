"""Settings that no run can have."""

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
import torch

from steadyrnn.errors import ArgumentError, ArgumentTypeError, SteadyError
from steadyrnn.tasks.tensors import Part, TensorRegression
from steadyrnn.train.arguments import check_settings
from steadyrnn.train.settings import OptimizerSettings, TrainSettings
from steadyrnn.train.trainer import train


def test_the_defaults_are_fine() -> None:
    check_settings(TrainSettings())


def with_value(settings: Any, name: str, value: object) -> Any:
    """Return the settings with another value of the setting ``name``, such as ``optimizer.lr``."""
    own, _, inner = name.partition(".")
    return replace(settings, **{own: with_value(getattr(settings, own), inner, value) if inner else value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 0),
        ("epochs", 0),
        ("batch_size", -1),
        ("batch_size", 2.5),
        ("accumulate", 0),
        ("accumulate", 129),
        ("evaluation_batch_size", 0),
        ("validate_every", 0),
        ("log_every", 0),
        ("save_every", 0),
        ("threads", 0),
        ("autocast", "float8"),
        ("seed", -1),
        ("seed", 2**64),
        ("seed", 1.5),
        ("optimizer.name", "lion"),
        ("optimizer.lr", -1.0),
        ("optimizer.lr", math.nan),
        ("optimizer.transition_lr", math.inf),
        ("optimizer.weight_decay", -1.0),
        ("optimizer.momentum", -1.0),
        ("optimizer.eps", -1.0),
        ("optimizer.alpha", 2.0),
        ("optimizer.betas", (0.9, 1.1)),
        ("optimizer.betas", (1.0, 0.9)),
        ("optimizer.betas", (0.9,)),
        ("optimizer.transition_scale", "cube"),
        ("penalty", -1.0),
        ("penalty", math.nan),
        ("schedule.name", "linear"),
        ("schedule.factor", 0.0),
        ("schedule.factor", 1.5),
        ("schedule.patience", 0),
        ("schedule.warmup", -1),
        ("clip.norm", 0.0),
        ("clip.recurrent", math.nan),
        ("clip.recurrent_of", "weights"),
        ("stop.patience", 0),
        ("stop.below", math.nan),
        ("stop.below", math.inf),
        ("average.name", "median"),
        ("average.decay", 1.0),
        ("average.decay", -0.1),
        ("average.decay", math.nan),
        ("average.start", -1),
        ("average.every", 0),
        ("probe.every", -1),
    ],
)
def test_a_bad_setting_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(SteadyError, match=f"`{name}` must"):
        check_settings(with_value(TrainSettings(), name, value))


def test_a_scale_for_reflectors_is_not_for_sgd() -> None:
    own = OptimizerSettings("sgd", transition_scale="sqrt")
    with pytest.raises(ArgumentError, match=r"`optimizer.transition_scale` must be 'none' for sgd"):
        check_settings(TrainSettings(optimizer=own))


def names(settings: Any, prefix: str = "") -> Iterator[str]:
    """Yield the name of every setting."""
    for field in fields(settings):
        yield prefix + field.name
        value = getattr(settings, field.name)
        if is_dataclass(value):
            yield from names(value, f"{prefix}{field.name}.")


@pytest.mark.parametrize("name", [*names(TrainSettings())])
def test_a_setting_of_the_wrong_type_is_named(name: str) -> None:
    with pytest.raises(ArgumentTypeError, match=rf"^`{name}` must be .*, but is of type set\.$"):
        check_settings(with_value(TrainSettings(), name, {3}))


@pytest.mark.parametrize("name", ["model", "task", "settings", "run", "progress"])
def test_an_argument_of_the_wrong_kind_is_named(name: str) -> None:
    part = Part(torch.ones(3, 2, 1), torch.ones(2, 1))
    fitting: dict[str, Any] = {
        **{"model": torch.nn.Linear(1, 1), "task": TensorRegression(part, part), "settings": TrainSettings(steps=1)},
    }
    with pytest.raises(ArgumentTypeError, match=f"^`{name}` must be a .*, but is of type set"):
        train(**{**fitting, name: {3}})
