"""Measurements of a network while it trains, each from a task to what the trainer calls."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from steadyrnn.errors import ArgumentError, SteadyError
from steadyrnn.models.truncated import recurrent_part
from steadyrnn.probes.dead_units import dead_units
from steadyrnn.probes.gradient_flow import gradient_flow
from steadyrnn.probes.initial_state import initial_state_gradient
from steadyrnn.probes.input_gradient import input_gradient
from steadyrnn.probes.spectrum import spectral_margin, spectrum
from steadyrnn.tasks.base import Batch, Task
from steadyrnn.train.model_call import batch_rows
from steadyrnn.train.settings import ProbeSettings

__all__ = [
    *("Callback", "Place", "measure_dead_units", "measure_initial_gradient", "measure_input_gradient", "measure_margin"),
    "measure_state_jacobian",
    *("longest_affordable", "short_name", "shorten"),
]

Callback = Callable[[int, nn.Module], dict[str, Any]]

_BATCHES, _ROWS, _DEAD_ROWS, _OPERATIONS = 8, 2, 32, 2e10
"""Batches and rows of Jacobians, rows in which units may be alive, and about how many operations a Jacobian may cost."""

_MOST_LAGS, _MOST_STEPS = 50, 65
"""Lags of the gradient by inputs, and steps of a batch that it is measured on."""


@dataclass(frozen=True)
class Place:
    """What a measurement is made on.

    Args:
        task: The task.
        batch_size: Rows of a batch.
        settings: How often what is measured, and against which run.
        folder: The run's folder; None where nothing is written.
    """

    task: Task
    batch_size: int
    settings: ProbeSettings
    folder: Path | None


def measure_initial_gradient(place: Place) -> Callback:
    """Return the measurement of the gradient of the loss by the initial state, on the first batch of the validation split."""
    task = place.task
    batch = next(iter(task.batches("validation", place.batch_size)))
    rows = batch_rows(batch, task.interface)

    def measure(step: int, model: nn.Module) -> dict[str, Any]:
        part, own = recurrent_part(model), _beside(model, batch)
        more = {} if own.lengths is None else {"lengths": own.lengths}

        def loss(hx: Any) -> Tensor:
            return task.loss(part(own.input, hx=hx, **more)[0], own)

        return _tell(lambda: initial_state_gradient(part, loss, rows)._asdict())

    return measure


def measure_dead_units(place: Place) -> Callback:
    """Return the measurement of dead units, on some rows of the first batch of the validation split."""
    batch = next(iter(place.task.batches("validation", place.batch_size)))

    def measure(step: int, model: nn.Module) -> dict[str, Any]:
        own = _beside(model, batch)
        lengths = None if own.lengths is None else own.lengths[:_DEAD_ROWS]
        return _tell(lambda: dead_units(recurrent_part(model), own.input[:, :_DEAD_ROWS], lengths)._asdict())

    return measure


def measure_state_jacobian(place: Place) -> Callback:
    """Return the measurement of the derivative of the last state by the first, on the first batches of the validation split.

    Of each batch it is the mean over some rows; every batch starts from the initial state.
    """
    batches: list[Batch] = list(islice(place.task.batches("validation", place.batch_size), _BATCHES))

    def measure(step: int, model: nn.Module) -> dict[str, Any]:
        part = recurrent_part(model)

        def norms() -> dict[str, Any]:
            inputs = [_beside(model, batch).input[:, :_ROWS] for batch in batches]
            flows = [gradient_flow(part, x[-longest_affordable(part) :]) for x in inputs]
            means = [float(flow.frobenius_mean[-2]) for flow in flows]  # from the state after the first step on
            return {"mean": sum(means) / len(means), "lag": len(flows[0].lag) - 2, "batches": [shorten(x) for x in means]}

        return _tell(norms)

    return measure


def measure_margin(place: Place) -> Callback:
    """Return the measurement of how far singular values of recurrent weights are from 1."""

    def measure(step: int, model: nn.Module) -> dict[str, Any]:
        def margins() -> dict[str, Any]:
            found = spectrum(recurrent_part(model))
            return {short_name(name): spectral_margin({name: sigma}) for name, sigma in found.items()}

        return _tell(margins)

    return measure


def measure_input_gradient(place: Place) -> Callback:
    """Return the measurement of the gradient of the loss at a step by an earlier input, on the first validation batches.

    Each batch is measured from the initial state on, for lags of up to :data:`_MOST_LAGS`; longer batches are cut.
    """
    task = place.task
    if task.interface.reads != "each":
        reason = "The task has one target per sequence: there is no loss at a step."
        return lambda step, model: {"value": {}, "reason": reason}
    batches: list[Batch] = list(islice(task.batches("validation", place.batch_size), _BATCHES))

    def measure(step: int, model: nn.Module) -> dict[str, Any]:
        def norms() -> dict[str, Any]:
            found = [_measure_lags(task, recurrent_part(model), _beside(model, batch)) for batch in batches]
            lags = max(len(counts) for _, counts in found)
            totals, counts = ([0.0] * lags for _ in range(2))
            for means, pairs in found:
                for lag, (mean, count) in enumerate(zip(means, pairs, strict=True)):
                    totals[lag], counts[lag] = totals[lag] + mean * count, counts[lag] + count
            means = [shorten(total / count) for total, count in zip(totals, counts, strict=True)]
            return {"lag": [*range(lags)], "mean": means}

        return _tell(norms)

    return measure


def _measure_lags(task: Task, part: nn.Module, batch: Batch) -> tuple[list[float], list[float]]:
    """Return the mean norms by lag in one batch, and of how many pairs of steps."""
    if batch.lengths is not None:
        raise ArgumentError("Rows of different lengths have no common lags: `input-gradient` needs batches without lengths.")
    x, y = (tensor[:_MOST_STEPS] for tensor in (batch.input, batch.target))
    singles = [Batch(*pair) for pair in zip(_cut(x), _cut(y), strict=True)]

    def losses(logits: Tensor) -> Tensor:
        each = [task.loss(logit, single) for logit, single in zip(_cut(logits), singles, strict=True)]
        return torch.stack(each).view(x.shape[:2])

    means, pairs = input_gradient(part, x, losses)
    return means[: _MOST_LAGS + 1].tolist(), pairs[: _MOST_LAGS + 1].tolist()


def _cut(sequence: Tensor) -> list[Tensor]:
    """Return every step of every row by itself, (1, 1, ...): T B of them."""
    return [one.unsqueeze(0) for one in sequence.flatten(0, 1).split(1)]


def longest_affordable(part: nn.Module) -> int:
    """Return over how many steps the Jacobians of a recurrent model may be computed, 2 or more."""
    width = getattr(getattr(part, "rnn", None), "hidden_size", 1)
    return max(2, int(_OPERATIONS / (8 * _ROWS * width**3)))


def short_name(name: str) -> str:
    """Return the name of a weight without the path of the layer, and without the only gate of an RNN.

    Example:
        >>> short_name("rnn.weight_hh_l0.h")
        'weight_hh_l0'
    """
    return name.removeprefix("rnn.").removesuffix(".h")


def shorten(value: float) -> float:
    """Return a number with seven digits: what a picture needs.

    Example:
        >>> shorten(1 / 3)
        0.3333333
    """
    return float(f"{value:.7g}")


def _beside(model: nn.Module, batch: Batch) -> Batch:
    """Return a batch on the device of a model: the trainer moves both after the measurements are made."""
    device = next(model.parameters()).device
    lengths = None if batch.lengths is None else batch.lengths.to(device)
    return Batch(batch.input.to(device), batch.target.to(device), lengths, batch.fresh)


def _tell(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what was measured as the trainer logs it, or why nothing was: a cell without such units, a weight that is NaN."""
    try:
        return {"value": measure()}
    except SteadyError as error:
        return {"value": {}, "reason": str(error)}
