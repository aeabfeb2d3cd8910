"""All that a run depends on between two steps: captured in a checkpoint, restored from it bit for bit."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any

from torch import Tensor

from steadyrnn.errors import CheckpointError, RunError
from steadyrnn.tasks.base import Task

from .model_call import state_tensors
from .optimizer_state import load_optimizer_state, optimizer_state
from .randomness import random_state, restore_random_state
from .settings import TrainSettings
from .step import Stepper
from .stopping import Standing
from .weights import load_weights, section, weights_of

__all__ = ["Position", "capture", "describe", "refuse_differences", "restore"]


@dataclass
class Position:
    """Where the loop stands.

    Attributes:
        step: Optimizer steps done.
        standing: What the validations amount to.
        validation: Scores of the latest validation.
        best: Scores of the best one.
        test: Scores of the test, once it was taken.
        reason: Why the run ended; None while it goes on.
        rows: Rows trained on, those since the last line of metrics left out.
        elapsed: Seconds since the run's start, summed over resumes, up to when this process took it up.
        training: Seconds spent in training alone, those since the last line of metrics left out.
    """

    step: int = 0
    standing: Standing = field(default_factory=Standing)
    validation: dict[str, float] = field(default_factory=dict)
    best: dict[str, float] = field(default_factory=dict)
    test: dict[str, float] = field(default_factory=dict)
    reason: str | None = None
    rows: int = 0
    elapsed: float = 0.0
    training: float = 0.0


def describe(task: Task, settings: TrainSettings) -> dict[str, Any]:
    """Return what must be the same when a run is resumed: the task with its settings, and the trainer's.

    Where the data lies may change: a task has verified what it read.
    """
    own = getattr(task, "settings", None)
    known = asdict(own) if is_dataclass(own) and not isinstance(own, type) else {}
    known.pop("data_dir", None)
    return {"task": {"class": type(task).__name__} | known, "train": asdict(settings)}


def refuse_differences(stored: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise where a stored setting is not the given one, and name both; settings that were not stored are passed over.

    Example:
        >>> refuse_differences({"train": {"steps": 10}}, {"train": {"steps": 20, "seed": 0}})
        Traceback (most recent call last):
        ...
        steadyrnn.errors.RunError: A run goes on with its own settings, but `train.steps` is 10 there and 20 here. Give the...
    """
    old, new = _flat(stored), _flat(given)
    faults = [
        f"`{name}` is {value!r} there and {new.get(name)!r} here" for name, value in old.items() if value != new.get(name)
    ]
    if faults:
        raise RunError(
            f"A run goes on with its own settings, but {', '.join(faults)}. Give the settings of its config.json, or none; "
            "for others start a new run."
        )


def capture(stepper: Stepper, position: Position, description: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and facts of a checkpoint; the tensors are those at work, not copies. All times are under one key."""
    held, keys = optimizer_state(stepper.model, stepper.optimizer)
    random, random_facts = random_state()
    carried = state_tensors(stepper.state)
    average = stepper.average
    tensors = weights_of(stepper.model)
    tensors |= {f"optimizer.{name}": tensor for name, tensor in held.items()}
    tensors |= {f"random.{name}": tensor for name, tensor in random.items()}
    tensors |= {f"carried.{place}": tensor for place, tensor in enumerate(carried)}
    tensors |= {f"average.{name}": tensor for name, tensor in stepper.weight_average.tensors().items()}
    tensors |= {"window.loss": average.loss, "window.norm": average.norm}
    facts = asdict(position)
    times = {"elapsed": facts.pop("elapsed"), "training": facts.pop("training"), "window": average.seconds}
    return tensors, facts | {
        "times": times,
        "settings": dict(description),
        "optimizer": keys,
        "random": random_facts,
        "carried": None if stepper.state is None else "tensor" if isinstance(stepper.state, Tensor) else "tuple",
        "window": {"steps": average.steps, "rows": average.rows},
        "scaler": None if stepper.scaler is None else stepper.scaler.state_dict(),
    }


def restore(stepper: Stepper, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Position:
    """Put back what :func:`capture` returned, and return where the loop stood.

    Raises:
        CheckpointError: The checkpoint is none of the trainer's, or does not fit the model or the optimizer.
    """
    device = stepper.task.device
    try:
        load_optimizer_state(stepper.model, stepper.optimizer, section(tensors, "optimizer"), facts["optimizer"])
        carried = [tensor.clone().to(device) for tensor in section(tensors, "carried").values()]  # aligned as any other
        stepper.state = None if facts["carried"] is None else carried[0] if facts["carried"] == "tensor" else tuple(carried)
        if stepper.scaler is not None:
            stepper.scaler.load_state_dict(facts["scaler"])
        average, sums = stepper.average, section(tensors, "window")
        average.loss, average.norm = sums["loss"].to(device), sums["norm"].to(device)
        average.steps, average.rows = facts["window"]["steps"], facts["window"]["rows"]
        average.seconds = facts["times"]["window"]
        restore_random_state(section(tensors, "random"), facts["random"])
        own = {name: facts[name] for name in ("step", "validation", "best", "test", "reason", "rows")}
        times = facts["times"]
        standing = Standing(**facts["standing"])
        stepper.weight_average.load(section(tensors, "average"))
        load_weights(stepper.model, tensors)  # the last to be refused: a model is loaded whole or not at all
        return Position(**own, standing=standing, elapsed=times["elapsed"], training=times["training"])
    except (KeyError, TypeError, IndexError) as error:
        raise CheckpointError(f"The checkpoint was not written by the trainer, or by another release: {error!r}.") from error


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by dotted names; a tuple is the list that JSON makes of it."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = list(value) if isinstance(value, tuple) else value
    return flat
