"""Recurrent weights of a run step by step: kept in its folder, and compared with those that another run kept."""

from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor, nn

from steadyrnn.errors import ArgumentError, RunError, ShapeError
from steadyrnn.models.truncated import recurrent_part
from steadyrnn.probes.adjoint import matrix_norms
from steadyrnn.probes.spectrum import recurrent_weights
from steadyrnn.runs.files import make_folder, write_atomically
from steadyrnn.runs.layout import read_config
from steadyrnn.runs.regular import check_writable, read_if_there
from steadyrnn.train.settings import ProbeSettings

from .training_probes import Callback, Place, short_name

__all__ = ["FOLDER", "find_other_run", "keep_weights", "measure_distance"]

FOLDER = "weights"
"""Where a run keeps its recurrent weights: ``weights/STEP.safetensors``."""

_MOST_BYTES = 1 << 34
"""Of a file of recurrent weights: 65,536 units of an RNN."""


def keep_weights(place: Place) -> Callback:
    """Return the probe that keeps every recurrent weight in the run folder; its value is the spectral norm of each."""

    def keep(step: int, model: nn.Module) -> dict[str, Any]:
        found = _read(model)
        if place.folder is not None:
            make_folder(check_writable(place.folder, FOLDER, last="a folder"))
            stored = {name: weight.cpu().contiguous().clone() for name, weight in found.items()}
            write_atomically(check_writable(place.folder, FOLDER, _name(step)), safetensors.torch.save(stored))
        return {"value": {name: _norms(weight)[1] for name, weight in found.items()}}

    return keep


def measure_distance(place: Place) -> Callback:
    """Return the measurement of how far recurrent weights are from those of another run.

    The n-th measurement is compared with the n-th of the other run: the same step where both measure as often, the same share
    of an epoch where both measure as often in an epoch. The gates of a GRU or LSTM are one matrix, stacked.

    Raises:
        ArgumentError: No other run is named, or it did not keep its weights.
    """
    other, other_every = find_other_run(place.settings)
    every = max(place.settings.every, 1)

    def measure(step: int, model: nn.Module) -> dict[str, Any]:
        if step % every:
            return {"value": {}, "reason": f"Step {step} is no multiple of {every}: the other run has no weights to compare."}
        theirs = step // every * other_every
        before = _load(other, theirs)
        if before is None:
            return {"value": {}, "reason": f"The other run kept no weights at step {theirs}."}
        norms = {name: _norms(_difference(name, weight, before)) for name, weight in _read(model).items()}
        spectral, frobenius = ({name: pair[i] for name, pair in norms.items()} for i in (1, 0))
        return {"value": spectral, "frobenius": frobenius, "against_step": theirs}

    return measure


def find_other_run(settings: ProbeSettings) -> tuple[Path, int]:
    """Return the folder of the run that weights are compared with, and how often it kept them.

    Raises:
        ArgumentError: No run is named, or it did not keep its weights.
        RunError: The folder is not a run.
    """
    if settings.against is None:
        raise ArgumentError("`probe.against` must be the folder of a run with the probe `weights`, but is None.")
    other = Path(settings.against)
    probe = read_config(other)["train"].get("probe", {})
    if _load(other, 0) is None or not probe.get("every"):
        raise ArgumentError(f"`probe.against` must be the folder of a run with the probe `weights`, but {other} kept none.")
    return other, int(probe["every"])


def _read(model: nn.Module) -> dict[str, Tensor]:
    """Return recurrent weights as the layers use them, by name."""
    return {short_name(name): weight for name, (weight, _) in recurrent_weights(recurrent_part(model)).items()}


def _norms(matrix: Tensor) -> tuple[float, float]:
    """Return Frobenius and spectral norm."""
    frobenius, spectral = matrix_norms(matrix.double().unsqueeze(0)).flatten().tolist()
    return frobenius, spectral


def _difference(name: str, weight: Tensor, before: dict[str, Tensor]) -> Tensor:
    if name not in before or before[name].shape != weight.shape:
        shape = f"of shape {tuple(before[name].shape)}" if name in before else "not there"
        raise ShapeError(f"`{name}` has shape {tuple(weight.shape)}, but in the run of `probe.against` it is {shape}.")
    return weight.double() - before[name].to(weight.device).double()


def _load(folder: Path, step: int) -> dict[str, Tensor] | None:
    """Return the weights that a run kept at a step; None where it kept none."""
    file = folder / FOLDER / _name(step)
    data = read_if_there(file, _MOST_BYTES)
    if data is None:
        return None
    try:
        return safetensors.torch.load(data)
    except Exception as error:  # the reader of safetensors raises many kinds
        raise RunError(f"`{file}` is damaged: {error}") from error


def _name(step: int) -> str:
    return f"{step}.safetensors"
