"""All that a run depends on between two steps: captured in a checkpoint, restored from it bit for bit."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any

from torch import Tensor, nn

from steadyrnn.errors import CheckpointError, RunError
from steadyrnn.tasks.base import Task

from .model_call import state_tensors
from .moving_average import MovingAverage
from .optimizer_state import load_optimizer_state, optimizer_state
from .randomness import random_state
from .settings import TrainSettings
from .spread_state import random_states_of_others, restore_random_states
from .step import Stepper
from .stopping import Standing
from .weights import load_weights, section, weights_of

__all__ = [
    *("Position", "capture", "capture_plain", "describe", "read_position", "refuse_differences", "restore"),
    "restore_window",
]


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
        stage: The stage of its task's curriculum that it is in, from 0.
        stage_start: Steps done when that began.
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
    stage: int = 0
    stage_start: int = 0
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
    """Return the tensors and facts of a checkpoint; the tensors are those at work, not copies. All times are under one key.

    All processes of a run call it: each gives its share of the carried state, and its random states.
    """
    held = optimizer_state(stepper.model, stepper.optimizer)
    tensors, facts = capture_plain(stepper.model, held, stepper.average, position, description)
    others, more = random_states_of_others(stepper.ranks)
    tensors |= others
    carried = stepper.sharing.gather_state(stepper.state, stepper.ranks)
    tensors |= {f"carried.{place}": tensor for place, tensor in enumerate(state_tensors(carried))}
    tensors |= {f"average.{name}": tensor for name, tensor in stepper.weight_average.tensors().items()}
    return tensors, facts | more | {
        "carried": None if carried is None else "tensor" if isinstance(carried, Tensor) else "tuple",
        "scaler": None if stepper.scaler is None else stepper.scaler.state_dict(),
    }


def capture_plain(
    model: nn.Module,
    optimizer: tuple[dict[str, Tensor], dict[str, list[str]]],
    window: MovingAverage,
    position: Position,
    description: Mapping[str, Any],
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return what :func:`capture` does, of a run that carries no state, averages no weights and scales no loss.

    Args:
        model: The model.
        optimizer: What :func:`~steadyrnn.train.optimizer_state.optimizer_state` returned.
        window: What has added up since the last line of metrics.
        position: Where the loop stands.
        description: What must be the same when the run is resumed.
    """
    held, keys = optimizer
    random, random_facts = random_state()
    tensors = weights_of(model)
    tensors |= {f"optimizer.{name}": tensor for name, tensor in held.items()}
    tensors |= {f"random.{name}": tensor for name, tensor in random.items()}
    tensors |= {"window.loss": window.loss, "window.norm": window.norm}
    facts = asdict(position)
    times = {"elapsed": facts.pop("elapsed"), "training": facts.pop("training"), "window": window.seconds}
    return tensors, facts | {
        "times": times,
        "settings": dict(description),
        "optimizer": keys,
        "random": random_facts,
        "carried": None,
        "window": {"steps": window.steps, "rows": window.rows},
        "scaler": None,
    }


def restore(stepper: Stepper, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Position:
    """Put back what :func:`capture` returned, and return where the loop stood.

    Another number of processes may go on than there were: each takes its share of the carried state. Random states of a process
    that had none are new ones, which depend on the seed, its rank and the step.

    Raises:
        CheckpointError: The checkpoint is none of the trainer's, or does not fit the model or the optimizer.
    """
    device = stepper.task.device
    try:
        load_optimizer_state(stepper.model, stepper.optimizer, section(tensors, "optimizer"), facts["optimizer"])
        carried = [tensor.clone().to(device) for tensor in section(tensors, "carried").values()]  # aligned as any other
        whole = None if facts["carried"] is None else carried[0] if facts["carried"] == "tensor" else tuple(carried)
        stepper.state = stepper.sharing.own_state(whole, stepper.ranks)
        if stepper.scaler is not None:
            stepper.scaler.load_state_dict(facts["scaler"])
        restore_window(stepper.average, tensors, facts)
        position = read_position(facts)
        restore_random_states(stepper.ranks, tensors, facts, stepper.settings.seed)
        stepper.weight_average.load(section(tensors, "average"))
        load_weights(stepper.model, tensors)  # the last to be refused: a model is loaded whole or not at all
        return position
    except (KeyError, TypeError, IndexError) as error:
        raise CheckpointError(f"The checkpoint was not written by the trainer, or by another release: {error!r}.") from error


def restore_window(window: MovingAverage, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Put back what had added up since the last line of metrics."""
    sums = section(tensors, "window")
    window.loss.copy_(sums["loss"])
    window.norm.copy_(sums["norm"])
    window.steps, window.rows = facts["window"]["steps"], facts["window"]["rows"]
    window.seconds = facts["times"]["window"]


def read_position(facts: Mapping[str, Any]) -> Position:
    """Return where the loop stood, from the facts of a checkpoint.

    Raises:
        CheckpointError: They are none of the trainer's.
    """
    try:
        own = {name: facts[name] for name in ("step", "validation", "best", "test", "reason", "rows")}
        own |= {name: facts.get(name, 0) for name in ("stage", "stage_start")}  # of an earlier release, without stages
        times, standing = facts["times"], Standing(**facts["standing"])
        return Position(**own, standing=standing, elapsed=times["elapsed"], training=times["training"])
    except (KeyError, TypeError) as error:
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
