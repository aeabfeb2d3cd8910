"""Which network suits some series: by their length, their number and what the user wants."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from steadyrnn.errors import ArgumentError, not_among
from steadyrnn.tasks.base import Task

from .open_settings import WANTS

__all__ = ["ModelChoice", "choose_model", "kind_of"]

_LONG = 400
"""Steps of a window from which a network that keeps gradients is taken unless the user wants something else."""
_MANY = 200_000
"""Steps of an epoch from which a network has 128 units and not 64."""


@dataclass(frozen=True)
class ModelChoice:
    """A network and why it was chosen.

    Args:
        settings: Dotted settings of the model.
        reason: A sentence.
    """

    settings: Mapping[str, Any]
    reason: str


def choose_model(task: Task, want: str | None, units: int | None = None) -> ModelChoice:
    """Return the network for a task.

    Args:
        task: The task.
        want: Of :data:`~steadyrnn.jobs.open_settings.WANTS`; None takes a contraction for whole series, which read by their
            mean was the most accurate on held-out series, and the least to compute; a GRU, or for long windows a network that
            keeps gradients, for forecasts and answers at every step; a contraction where ranks share time.
        units: Of the network, where the user has said how many; None chooses.

    Example:
        >>> from steadyrnn.tasks.registry import make_task
        >>> choose_model(make_task("addition", length=50), "stability").settings["model.name"]
        'stable-spectral'
    """
    if want is not None and want not in WANTS:
        raise ArgumentError(not_among("want", want, WANTS))
    steps, examples = len(task.train_batch(0, 8).input), task.epoch_steps(1)
    carried = task.interface.carries_state
    width = 32 if want == "speed" else 128 if steps * examples >= _MANY else 64
    width = width if units is None else units
    whole = task.interface.reads == "last" and kind_of(task) != "forecasting"
    more: dict[str, Any] = {}
    if want == "stability" or (want is None and task.ranks_share == "time"):
        name, why = "stable-spectral", "its singular values lie from 0.945 to 0.995, so that it contracts by construction"
    elif want == "memory" or (want is None and steps >= _LONG and not carried):
        name, why, more = (
            "spectral",
            "it keeps the norm of gradients through all steps",
            {"radius": 0.01, "reflectors": min(32, width)},
        )
    elif want == "speed":
        name, why = "spectral", "an Elman network has the fewest operations per step, and this one learns"
    elif whole:
        name, why = "stable-spectral", "a contraction whose mean state is read is accurate on whole series, and certified"
    else:
        name, why = "gru", "a GRU learns quickly at this length"
    wished = "no wish given" if want is None else f"--want {want}"
    size = f"about {steps:,} steps, {examples:,} {'batches of one row' if carried else 'training examples'}"
    settings = {f"model.{option}": value for option, value in {"name": name, "width": width, **more}.items()}
    return ModelChoice(settings, f"{name} of {width} units: {why} ({wished}; {size})")


def kind_of(task: Task) -> str:
    """Return what a task on a user's series predicts, of ``KINDS``; empty for other tasks."""
    preparation = task.data_facts().get("preparation", {})
    return str(preparation.get("kind", ""))
