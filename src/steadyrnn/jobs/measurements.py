"""What is measured on a model while it trains, and proven of it afterwards."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from steadyrnn.certificates.certify import AnyCertificate, certify
from steadyrnn.certificates.layer import is_recurrent
from steadyrnn.errors import ArgumentError, SteadyError, not_among
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.models.truncated import recurrent_part
from steadyrnn.probes.gradient_flow import gradient_flow
from steadyrnn.probes.spectrum import spectral_margin, spectrum
from steadyrnn.tasks.base import Task
from steadyrnn.train.settings import ProbeSettings

from .training_probes import (
    Callback,
    Place,
    longest_affordable,
    measure_dead_units,
    measure_initial_gradient,
    measure_input_gradient,
    measure_margin,
    measure_state_jacobian,
    short_name,
    shorten,
)
from .weight_probes import find_other_run, keep_weights, measure_distance

__all__ = ["PROBES", "Probe", "check_probes", "make_probes", "measure_input_bound", "record_certificate"]

_EPS = 1e-3
"""The difference of states for which the horizon of a stable network is noted."""

_ROWS, _LAGS = 2, 128
"""Of the measured gradient flow: rows of the batch, and lags that are noted."""


def measure_input_bound(task: Task, batch_size: int) -> float | None:
    """Return the largest 2-norm of any input of the validation split; None where inputs are tokens or rows."""
    if task.interface.vocabulary is not None or task.interface.reads == "row":
        return None
    largest = [torch.linalg.vector_norm(batch.input.double(), dim=-1).max() for batch in task.batches("validation", batch_size)]
    bound = float(torch.stack(largest).max()) if largest else math.nan
    return bound if math.isfinite(bound) else None


def check_probes(settings: ProbeSettings) -> None:
    """Refuse a name that is no measurement, and a comparison with a run that has nothing to compare."""
    _check_names(settings.names)
    if settings.every and "weight-distance" in settings.names:
        find_other_run(settings)


def _check_names(names: Sequence[str]) -> None:
    unknown = [name for name in names if name not in PROBES]
    if unknown:
        raise ArgumentError(not_among("probe.names", unknown[0], PROBES))


def make_probes(
    task: Task, names: Sequence[str], batch_size: int, settings: ProbeSettings | None = None, folder: Path | None = None
) -> dict[str, Callback]:
    """Return the measurements of these names for the trainer; none for a network without time.

    Args:
        task: The task.
        names: Of :data:`PROBES`.
        batch_size: Rows of a batch.
        settings: Those of the run, which measurements against another run read; None is the default.
        folder: The run's folder, where weights are kept; None keeps none.
    """
    _check_names(names)
    if task.interface.reads == "row":
        return {}
    place = Place(task, batch_size, settings or ProbeSettings(), folder)
    made = {name: PROBES[name].make(place) for name in names}
    return {name: _in_evaluation(callback) for name, callback in made.items()}


def record_certificate(
    model: nn.Module, input_bound: float | None, source: str | None, step: int, checkpoint: str
) -> dict[str, Any]:
    """Return what ``certificate.json`` holds: the certificate, or why there is none."""
    certificate, reason = _try_certify(model, input_bound, "auto")
    record = {
        "certificate": None if certificate is None else certificate.to_dict(),
        **{"reason": reason, "step": step, "checkpoint": checkpoint},
        "input_bound": None if input_bound is None else {"value": input_bound, "source": source},
    }
    if certificate is not None and certificate.stable:
        try:
            record["horizon"] = {"eps": _EPS, "steps": certificate.horizon(_EPS)}
        except SteadyError:  # stable, but the first distance of two states is not bounded
            record["horizon"] = None
    return record


def _try_certify(model: nn.Module, input_bound: float | None, effort: str) -> tuple[AnyCertificate | None, str | None]:
    part = recurrent_part(model)
    if not any(map(is_recurrent, part.modules())):
        return None, "A network without time has no certificate: there is no state that could be forgotten."
    # tokens are bounded by the embedding, and of the inputs of a layer inside another model nothing is known
    reads_input = is_recurrent(part) or (isinstance(part, SequenceModel) and part.embedding is None)
    with _evaluation(part):
        try:
            return certify(part, input_bound if reads_input else None, effort=effort), None
        except SteadyError as error:
            return None, str(error)


def _spectrum(place: Place) -> Callback:
    def measure(step: int, model: nn.Module) -> dict[str, Any]:
        values = {short_name(name): sigma for name, sigma in spectrum(recurrent_part(model)).items()}
        margins = {name: spectral_margin({name: sigma}) for name, sigma in values.items()}
        return {"value": {name: _round(sigma) for name, sigma in values.items()}, "margin": margins}

    return measure


def _gradient_flow(place: Place) -> Callback:
    batch = next(iter(place.task.batches("validation", place.batch_size)))
    rows = batch.input[:, :_ROWS]

    def measure(step: int, model: nn.Module) -> dict[str, Any]:
        part = recurrent_part(model)
        steps = longest_affordable(part)
        try:
            flow = gradient_flow(part, rows[-steps:].to(next(model.parameters()).device))
        except SteadyError as error:  # a weight that is not a number any more: the trainer says so by itself
            return {"value": {}, "reason": str(error)}
        kept = _thin(len(flow.lag))
        names = ("lag", "frobenius", "spectral", "low", "high")
        return {"value": {name: _round(getattr(flow, name)[kept]) for name in names}}

    return measure


def _certificate(place: Place) -> Callback:
    bound = measure_input_bound(place.task, place.batch_size)

    def measure(step: int, model: nn.Module) -> dict[str, Any]:
        found, reason = _try_certify(model, bound, "fast")
        if found is None:
            return {"value": {"contraction": None, "stable": False, "regime": "unknown"}, "reason": reason}
        return {"value": {"contraction": found.contraction, "stable": found.stable, "regime": found.regime}}

    return measure


@dataclass(frozen=True)
class Probe:
    """A measurement on a model while it trains.

    Attributes:
        name: As ``--probe`` takes it.
        help: What is measured, in a few words.
        make: From what it measures on to what the trainer calls.
    """

    name: str
    help: str
    make: Callable[[Place], Callback]


PROBES: Mapping[str, Probe] = {
    probe.name: probe
    for probe in (
        Probe("spectrum", "singular values of every recurrent weight, and their spectral margin", _spectrum),
        Probe("gradient-flow", "norms of the derivatives through time by lag, with the certified band", _gradient_flow),
        Probe("certificate", "proven contraction, stability and regime", _certificate),
        Probe("gradient-h0", "norm of the gradient of the loss by the initial state", measure_initial_gradient),
        Probe("dead-units", "share of units of an RNN whose slope is 0 at every step", measure_dead_units),
        Probe("state-jacobian", "Frobenius norm of the derivative of the last state by the first", measure_state_jacobian),
        Probe("margin", "largest distance of a singular value from 1, of every recurrent weight", measure_margin),
        Probe(
            "input-gradient", "norm of the gradient of the loss at a step by an earlier input, by lag", measure_input_gradient
        ),
        Probe("weights", "keeps every recurrent weight in the run folder, and measures its spectral norm", keep_weights),
        Probe("weight-distance", "spectral norm of the difference to the weights that another run kept", measure_distance),
    )
}
"""Every measurement by name."""


def _in_evaluation(callback: Callback) -> Callback:
    def measure(step: int, model: nn.Module) -> dict[str, Any]:
        with _evaluation(model):
            return callback(step, model)

    return measure


@contextmanager
def _evaluation(model: nn.Module) -> Any:
    """Leave dropout out for a while."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def _round(values: Tensor) -> list[float] | list[int]:
    """Return numbers as JSON: seven digits are what a picture needs."""
    listed: list[Any] = values.tolist()
    return listed if not values.is_floating_point() else [shorten(value) for value in listed]


def _thin(count: int) -> Tensor:
    """Return at most so many places as are noted, first and last among them."""
    even = torch.linspace(0, count - 1, min(count, _LAGS), dtype=torch.float64)
    places: Tensor = torch.unique(even.round().long())
    return places
