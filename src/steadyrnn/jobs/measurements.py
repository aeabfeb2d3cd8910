"""What is measured on a model while it trains, and proven of it afterwards."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from steadyrnn.certificates.certify import AnyCertificate, certify
from steadyrnn.errors import ArgumentError, SteadyError, not_among
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.models.truncated import recurrent_part
from steadyrnn.probes.gradient_flow import gradient_flow
from steadyrnn.probes.spectrum import spectral_margin, spectrum
from steadyrnn.tasks.base import Task

__all__ = ["PROBES", "check_probe_names", "make_probes", "measure_input_bound", "record_certificate"]

Callback = Callable[[int, nn.Module], dict[str, Any]]

_EPS = 1e-3
"""The difference of states for which the horizon of a stable network is noted."""

_ROWS, _LAGS, _OPERATIONS = 2, 128, 2e10
"""Of the measured gradient flow: rows of the batch, lags that are noted, and about how many operations it may cost."""


def measure_input_bound(task: Task, batch_size: int) -> float | None:
    """Return the largest 2-norm of any input of the validation split; None where inputs are tokens or rows."""
    if task.interface.vocabulary is not None or task.interface.reads == "row":
        return None
    largest = [torch.linalg.vector_norm(batch.input.double(), dim=-1).max() for batch in task.batches("validation", batch_size)]
    bound = float(torch.stack(largest).max()) if largest else math.nan
    return bound if math.isfinite(bound) else None


def check_probe_names(names: Sequence[str]) -> None:
    """Refuse the first name that is no measurement."""
    unknown = [name for name in names if name not in PROBES]
    if unknown:
        raise ArgumentError(not_among("probe.names", unknown[0], PROBES))


def make_probes(task: Task, names: Sequence[str], batch_size: int) -> dict[str, Callback]:
    """Return the measurements of these names for the trainer; none for a network without time."""
    check_probe_names(names)
    if task.interface.reads == "row":
        return {}
    made = {name: PROBES[name](task, batch_size) for name in names}
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
    if not isinstance(part, SequenceModel):
        return None, "A network without time has no certificate: there is no state that could be forgotten."
    with _evaluation(part):
        try:
            # tokens are bounded by the embedding
            return certify(part, None if part.embedding is not None else input_bound, effort=effort), None
        except SteadyError as error:
            return None, str(error)


def _spectrum(task: Task, batch_size: int) -> Callback:
    def measure(step: int, model: nn.Module) -> dict[str, Any]:
        values = {_short(name): sigma for name, sigma in spectrum(recurrent_part(model)).items()}
        margins = {name: spectral_margin({name: sigma}) for name, sigma in values.items()}
        return {"value": {name: _round(sigma) for name, sigma in values.items()}, "margin": margins}

    return measure


def _gradient_flow(task: Task, batch_size: int) -> Callback:
    batch = next(iter(task.batches("validation", batch_size)))
    rows = batch.input[:, :_ROWS]

    def measure(step: int, model: nn.Module) -> dict[str, Any]:
        part = recurrent_part(model)
        width = part.rnn.hidden_size if isinstance(part, SequenceModel) else 1
        steps = max(2, int(_OPERATIONS / (8 * _ROWS * width**3)))
        try:
            flow = gradient_flow(part, rows[-steps:].to(next(model.parameters()).device))
        except SteadyError as error:  # a weight that is not a number any more: the trainer says so by itself
            return {"value": {}, "reason": str(error)}
        kept = _thin(len(flow.lag))
        names = ("lag", "frobenius", "spectral", "low", "high")
        return {"value": {name: _round(getattr(flow, name)[kept]) for name in names}}

    return measure


def _certificate(task: Task, batch_size: int) -> Callback:
    bound = measure_input_bound(task, batch_size)

    def measure(step: int, model: nn.Module) -> dict[str, Any]:
        found, reason = _try_certify(model, bound, "fast")
        if found is None:
            return {"value": {"contraction": None, "stable": False, "regime": "unknown"}, "reason": reason}
        return {"value": {"contraction": found.contraction, "stable": found.stable, "regime": found.regime}}

    return measure


PROBES: Mapping[str, Callable[[Task, int], Callback]] = {
    "spectrum": _spectrum,
    "gradient-flow": _gradient_flow,
    "certificate": _certificate,
}
"""Every measurement by name: from the task to what the trainer calls."""


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


def _short(name: str) -> str:
    """Return the name of a weight without the path of the layer, and without the only gate of an RNN."""
    return name.removeprefix("rnn.").removesuffix(".h")


def _round(values: Tensor) -> list[float] | list[int]:
    """Return numbers as JSON: seven digits are what a picture needs."""
    listed: list[Any] = values.tolist()
    return listed if not values.is_floating_point() else [float(f"{value:.7g}") for value in listed]


def _thin(count: int) -> Tensor:
    """Return at most so many places as are noted, first and last among them."""
    even = torch.linspace(0, count - 1, min(count, _LAGS), dtype=torch.float64)
    places: Tensor = torch.unique(even.round().long())
    return places
