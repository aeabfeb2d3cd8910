"""Taking up a run: everything in its folder that training will need is read, and agrees, before anything is written."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from steadyrnn.errors import CheckpointError, RunError
from steadyrnn.runs.checkpoint import Checkpoint
from steadyrnn.runs.folder import Run

from .older import complete_older
from .state import refuse_differences
from .weights import check_weights

__all__ = ["load_best", "load_to_go_on"]


def load_to_go_on(run: Run, model: nn.Module, description: Mapping[str, Any], resume: bool) -> Checkpoint | None:
    """Return what a run goes on from, None where it starts; the folder is only read.

    Raises:
        RunError: It has a checkpoint and is not to be resumed, or has lost its own; or as :func:`_load_last` says.
        CheckpointError: As :func:`_load_last` says.
    """
    stored = "last" in run.checkpoints()
    if stored and not resume:
        raise RunError(f"`run` has a checkpoint already: {run.folder}. Resume it, or start a new run.")
    refuse_differences({"train": run.config.get("train", {})}, description)
    if stored:
        return _load_last(run, model, description)
    _refuse_lost(run)
    return None


def _load_last(run: Run, model: nn.Module, description: Mapping[str, Any]) -> Checkpoint:
    """Return a run's last checkpoint, if it can be gone on from; the folder is only read.

    The metrics must have the lines that the checkpoint was saved behind, and the best weights, once there are any, must be
    those of this run and fit the model: training for hours only to find them missing would be too late.

    Raises:
        RunError: Settings differ, or lines of the metrics are lost.
        CheckpointError: A checkpoint is missing, damaged or does not fit.
    """
    last = run.load("last")
    if not isinstance(last.facts, dict):
        raise CheckpointError(f"The checkpoint 'last' of `{run.folder}` was not written by the trainer.")
    _refuse_other_settings(last, description)
    run.check_metrics(last)
    standing = last.facts.get("standing")
    if isinstance(standing, dict) and standing.get("best_step", 0) > 0:
        best = load_best(run)
        _refuse_other_settings(best, description)
        check_weights(model, best.tensors)
    return last


def load_best(run: Run) -> Checkpoint:
    """Return the checkpoint of the best weights, with the facts that go with them.

    Raises:
        CheckpointError: It is missing, damaged, or was not written by the trainer.
    """
    best = run.load("best")
    match best.facts:
        case {"step": int(), "validation": dict()}:
            return best
    raise CheckpointError(f"The checkpoint 'best' of `{run.folder}` was not written by the trainer.")


def _refuse_lost(run: Run) -> None:
    """Raise where a run without a last checkpoint must have had one: it would start anew, over what it has done.

    The first checkpoint is saved before the first step, so that lines of a later step, or any checkpoint, tell.

    Raises:
        RunError: The checkpoint is lost.
    """
    steps = max((record["step"] for record in run.metrics()), default=0)
    if steps > 0 or run.checkpoints():
        raise RunError(
            f"`{run.folder}` has lost its checkpoint `checkpoints/last`, but was trained for {steps} steps or more. Restore "
            "the folder `checkpoints`, or start a new run."
        )


def _refuse_other_settings(checkpoint: Checkpoint, description: Mapping[str, Any]) -> None:
    stored = checkpoint.facts.get("settings", {})
    stored = stored if isinstance(stored, dict) else {}
    if isinstance(stored.get("train"), dict):
        stored = {**stored, "train": complete_older(stored["train"])}
    refuse_differences(stored, description)
