"""What a run folder says of a model and a task that were made in Python, and how both are made again."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from steadyrnn.errors import ArgumentError, RunError, SteadyError
from steadyrnn.models.description import describe_model, rebuild_model
from steadyrnn.runs.checkpoint import Checkpoint
from steadyrnn.runs.folder import Run
from steadyrnn.tasks.base import StoredData, Task
from steadyrnn.tasks.stored import restore_task
from steadyrnn.train.older import complete_older
from steadyrnn.train.settings import TrainSettings
from steadyrnn.train.weights import section

from .configuration import MADE_BY, is_made_in_python, make_settings
from .origin import Origin

__all__ = ["PythonOrigin", "describe_objects", "refuse_other_objects", "save_task_data"]

_STORED, _IN_MEMORY = "stored", "in memory"


def describe_objects(
    model: nn.Module, task: Task, settings: TrainSettings, names: tuple[str, str], data: StoredData | None
) -> dict[str, Any]:
    """Return what ``config.json`` holds: all that decides the run, the model as its description.

    Args:
        model: The model; of one that cannot be described the reason is held.
        task: The task.
        settings: How it is trained.
        names: What task and model are called.
        data: What is kept of the task; None where nothing is.
    """
    facts = {} if data is None else {"kind": data.kind, **data.facts}
    kept = {"class": _class_name(task), "data": _IN_MEMORY if data is None else _STORED, **facts}
    try:
        described = describe_model(model)
    except SteadyError as error:
        described = {"class": _class_name(model), "reason": str(error)}
    return {
        "made_by": MADE_BY,
        "task": {"name": names[0], **kept},
        "model": {"name": names[1], **described},
        "train": asdict(settings),
    }


def save_task_data(run: Run, data: StoredData | None) -> None:
    """Keep the data of a task in a run, where there are some and the run lacks them."""
    if data is not None and run.load_data() is None:
        run.save_data(data.tensors, {"kind": data.kind, "facts": data.facts})


def refuse_other_objects(run: Run, config: Mapping[str, Any], data: StoredData | None) -> None:
    """Refuse to resume a run with another model or another task than its own; the trainer compares its settings.

    Raises:
        RunError: There is a difference; the message names it.
    """
    if not is_made_in_python(run.config):
        raise RunError(
            f"`{run.folder}` was not made by `train_model`. `steadyrnn train --resume {run.folder}` goes on with it."
        )
    for part in ("task", "model"):
        before, now = _flat(run.config[part]), _flat(config[part])
        different = [name for name in {**before, **now} if name != "name" and before.get(name) != now.get(name)]
        if different:
            name = different[0]
            raise RunError(
                f"The {part} of the run to resume is another one: `{part}.{name}` is {before.get(name)!r} there and "
                f"{now.get(name)!r} here. Give the same objects, or start a new run."
            )
    kept = run.load_data()
    if kept is not None and data is not None and not _same_tensors(kept, data):
        raise RunError(f"The data of `{run.folder}` are other ones than those of `task`. Give the same, or start a new run.")


class PythonOrigin(Origin):
    """A run of a model and a task that were made in Python."""

    def __init__(self, run: Run) -> None:
        config = run.config
        try:
            train = make_settings(TrainSettings, complete_older(config["train"]), "train")
        except SteadyError as error:
            raise RunError(f"`{run.folder}` has a config.json that this release cannot read: {error}") from error
        super().__init__(run, config["task"]["name"], config["model"]["name"], train)

    def make_model(self, stored: Checkpoint) -> nn.Module:
        """Return the model of the description."""
        folder, model = self.run.folder, self.run.config["model"]
        if "reason" in model:
            raise RunError(
                f"`{folder}` was trained from a model of {str(model.get('class'))[:80]}, which can be made in Python only: "
                f"{str(model['reason'])[:400]} In Python, `load_weights(model, Run.open(folder).load('best').tensors)` loads "
                "its weights."
            )
        try:
            return rebuild_model({name: model[name] for name in model if name != "name"}, section(stored.tensors, "model"))
        except SteadyError as error:
            raise RunError(f"`{folder}` has a config.json of which no model can be built: {error}") from error

    def make_task(self, data_dir: str | None = None) -> Task:
        """Return the task of the data that the run keeps."""
        folder, task = self.run.folder, self.run.config["task"]
        if data_dir is not None:
            raise ArgumentError(
                "`data_dir` must be None for a run that was made in Python: its data are in its folder, if any."
            )
        kept = self.run.load_data()
        if kept is None:
            if task.get("data") == _STORED:
                raise RunError(f"`{folder}` has lost its data, the folder `data`. Restore it.")
            raise RunError(
                f"`{folder}` cannot be scored: its task, {str(task.get('class'))[:80]}, was in memory and was not stored. "
                "Score it in Python with `steadyrnn.train.evaluation.evaluate`, or train on a TensorClassification or "
                "TensorRegression with `keep_data=True`, whose data are stored."
            )
        match kept.facts:
            case {"kind": str(kind), "facts": dict(facts)}:
                try:
                    return restore_task(StoredData(kind, facts, kept.tensors))
                except (SteadyError, TypeError, ValueError, RuntimeError) as error:
                    raise RunError(f"`{folder}` has data that are not those of a task: {error}") from error
        raise RunError(f"`{folder}` has data that are not those of a task.")


def _same_tensors(kept: Checkpoint, data: StoredData) -> bool:
    """Say whether a run keeps these very data."""
    if kept.tensors.keys() != data.tensors.keys():
        return False
    return all(_is_same(tensor, data.tensors[name].detach().cpu()) for name, tensor in kept.tensors.items())


def _is_same(kept: torch.Tensor, given: torch.Tensor) -> bool:
    """Say whether two tensors are equal, with missing values in the same places."""
    return torch.equal(kept.isnan(), given.isnan()) and torch.equal(kept.nan_to_num(), given.nan_to_num())


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested objects by dotted names."""
    if not isinstance(value, Mapping):
        return {prefix: value}
    return {name: one for key, part in value.items() for name, one in _flat(part, f"{prefix}.{key}".lstrip(".")).items()}


def _class_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
