"""Targets on copying and adding over thousands of steps; free of torch."""

from typing import Any

from steadyrnn.jobs.recipes import recipe

from .base import Experiment
from .target_series import SEEDS, claim_goal, make_target
from .trained_series import train_series

__all__ = ["SEQUENCES"]

_PROBES = "train.probe."
_ENOUGH = 1000
"""The longest addition that the recipe's own number of steps is enough for."""
_SHORT: dict[str, Any] = {"train.validate_every": 100, "train.stop.below": 1e-3}


def _recipe(task: str, setting: str, steps: int) -> dict[str, Any]:
    """Return what ``steadyrnn train TASK --task.SETTING STEPS`` trains, without its probes."""
    given = {f"task.{setting}": steps}
    own = {name: value for name, value in recipe(task, "spectral", given).items() if not name.startswith(_PROBES)}
    return {"task.name": task, "model.name": "spectral", **own, **given}


def _add(length: int, best: str, minutes: float) -> Experiment:
    settings = {**_recipe("addition", "length", length), "train.evaluation_batch_size": 100}
    if length > _ENOUGH:  # the recipe ends with 200 steps of 5,000: one run of three came below 0.001
        settings["train.steps"] = 3 * settings["train.steps"]
    quick = {
        **_recipe("addition", "length", 20),
        **_SHORT,
        "model.nonlinearity": "relu",
        "model.width": 64,
        "train.steps": 1500,
    }
    return make_target(
        f"addition-{length}", f"addition over {length:,} steps", best, minutes,
        [train_series("spectral-rnn", settings, SEEDS)], [claim_goal("spectral-rnn", 1e-3, best, score="loss", higher=False)],
        [train_series("spectral-rnn", quick, (0,))],
        [claim_goal("spectral-rnn", 0.05, "20 steps", score="loss", higher=False, seeds=1)], where="cpu",
    )  # fmt: skip


def _copy(delay: int, best: str, minutes: float) -> Experiment:
    settings = {**_recipe("copy", "delay", delay), "train.steps": 6000, "train.stop.below": 5e-4}
    settings["train.evaluation_batch_size"] = 100
    quick = {**_recipe("copy", "delay", 20), **_SHORT, "train.steps": 600}
    return make_target(
        f"copy-{delay}", f"copying over {delay:,} steps", best, minutes,
        [train_series("spectral-rnn", settings, SEEDS)], [claim_goal("spectral-rnn", 1e-3, best, score="loss", higher=False)],
        [train_series("spectral-rnn", quick, (0,))],
        [claim_goal("spectral-rnn", 0.05, "20 steps", score="loss", higher=False, seeds=1)],
    )  # fmt: skip


SEQUENCES = (
    _copy(2000, "asRNN: up to 2,000 steps", 6),
    _copy(5000, "asRNN: up to 2,000 steps", 15),
    _add(1000, "coRNN: up to 5,000 steps, LEM: 10,000", 15),
    _add(5000, "coRNN: up to 5,000 steps, LEM: 10,000", 40),
    _add(10000, "coRNN: up to 5,000 steps, LEM: 10,000", 80),
)
"""Targets on long sequences: a loss below 0.001, where no memory costs 0.167 (addition) and 10 ln 8 / (T + 20) (copying)."""
