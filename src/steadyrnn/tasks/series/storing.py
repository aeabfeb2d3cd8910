"""Series as a run folder keeps them: tensors and JSON, from which the same task is made again."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import torch
from torch import Tensor

from steadyrnn.errors import ArgumentError, DtypeError, ShapeError

from ..base import StoredData
from .prepared import Prepared, prepare_parts
from .problem import KINDS, Problem, check_words
from .records import RawTarget, SeriesSet
from .settings import SeriesSettings
from .split import PARTS, Segments

__all__ = ["SERIES", "restore", "store"]

SERIES = "series"
"""How stored series are called."""

_KEPT = ("seed", "target", "missing", "scale", "weights")
"""Settings that matter once series are read and split."""
_FACTS = {"settings", "problem", "channels", "targets", "class_weights"}


def store(prepared: Prepared) -> StoredData:
    """Return what :func:`restore` makes the same series of: values as they were read, parts, and what is asked."""
    series, problem = prepared.series, prepared.problem
    tensors = {"values": series.values, "lengths": series.lengths}
    for part, found in prepared.parts.items():
        tensors[part] = torch.stack([found.start, found.stop, found.series], 1)
    if problem.kind == "classification":
        tensors["target"] = prepared.flat.target.cpu()
    elif problem.kind == "regression" and series.target is not None and series.target.numbers is not None:
        tensors["target"] = series.target.numbers
    weights = prepared.class_weights
    facts = {
        "settings": {name: getattr(prepared.settings, name) for name in _KEPT},
        "problem": {name: [*value] if isinstance(value, tuple) else value for name, value in asdict(problem).items()},
        "channels": [*series.channels],
        "targets": [] if series.target is None else [*series.target.names],
        "class_weights": None if weights is None else [*weights],
    }
    return StoredData(SERIES, facts, tensors)


def restore(data: StoredData) -> Prepared:
    """Return the series of a run folder; what came from a file is checked.

    Raises:
        SteadyError: The data are not those of some series.
    """
    facts, tensors = data.facts, data.tensors
    problem = _read_problem(facts)
    kept = facts["settings"]
    if not isinstance(kept, dict) or kept.keys() != {*_KEPT}:
        raise ArgumentError(f"The stored settings of series must be {', '.join(_KEPT)}, but are others.")
    settings = SeriesSettings(**kept, kind=problem.kind, horizon=problem.horizon or None)
    check_words(settings)
    wanted = {"values", "lengths", *PARTS} | (set() if problem.kind == "forecasting" else {"target"})
    if tensors.keys() != wanted:
        raise ArgumentError(f"The stored series must have {', '.join(sorted(wanted))}, but have {', '.join(sorted(tensors))}.")
    channels = _texts(facts, "channels")
    series = _read_series(tensors, channels, settings.missing)
    if problem.kind != "forecasting":
        series = SeriesSet(
            series.values, series.lengths, channels, series.names, _read_target(tensors["target"], series, problem, facts)
        )
    parts = {part: _read_segments(part, tensors[part], series) for part in PARTS}
    return prepare_parts(series, settings, problem, parts, class_weights=_read_weights(facts, problem))


def _read_problem(facts: Mapping[str, Any]) -> Problem:
    """Return what is asked, every field checked."""
    stored = facts.get("problem")
    names = {field.name for field in fields(Problem)}
    if facts.keys() != _FACTS or not isinstance(stored, dict) or stored.keys() != names:
        raise ArgumentError(f"The stored facts of series must be {', '.join(sorted(_FACTS))}, but are others.")
    for name in ("horizon", "stride", "patch", "window", "bptt"):
        least, value = int(name != "horizon"), stored[name]
        if not (value is None and name in ("window", "bptt")) and not (type(value) is int and value >= least):
            raise ArgumentError(f"`problem.{name}` of stored series must be an integer from {least} on, but is {value!r}.")
    for name in ("each", "by_time"):
        if not isinstance(stored[name], bool):
            raise ArgumentError(f"`problem.{name}` of stored series must be true or false, but is {stored[name]!r}.")
    forecasts = stored["kind"] == "forecasting"
    if stored["kind"] not in KINDS or forecasts != (stored["horizon"] > 0) or (forecasts and not _cuts(stored)):
        raise ArgumentError("`problem` of stored series must be one of classes, numbers, or forecasts with a horizon.")
    return Problem(**{**stored, "outputs": _texts(stored, "outputs"), "reasons": _texts(stored, "reasons")})


def _cuts(stored: Mapping[str, Any]) -> bool:
    return stored["window"] is not None or stored["bptt"] is not None


def _texts(stored: Mapping[str, Any], name: str) -> tuple[str, ...]:
    found = stored.get(name)
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise ArgumentError(f"`{name}` of stored series must be a list of texts, but is of type {type(found).__name__}.")
    return tuple(found)


def _read_series(tensors: Mapping[str, Tensor], channels: tuple[str, ...], missing: str) -> SeriesSet:
    """Return the series without their targets."""
    values, lengths = tensors["values"], tensors["lengths"]
    if values.dtype != torch.float64 or lengths.dtype != torch.int64:
        raise DtypeError(f"Stored series must be float64 and lengths int64, but are {values.dtype} and {lengths.dtype}.")
    if lengths.dim() != 1 or not len(lengths) or int(lengths.min()) < 1 or int(lengths.max()) > len(values):
        raise ShapeError(f"`lengths` of stored series must be counts from 1 on, but have shape {tuple(lengths.shape)}.")
    if not channels or values.shape != (int(lengths.sum()), len(channels)):
        wanted = (int(lengths.sum()), len(channels))
        raise ShapeError(f"`values` of stored series must have shape {wanted}, but have {tuple(values.shape)}.")
    if bool(values.isinf().any()) or (missing == "refuse" and bool(values.isnan().any())):
        raise ArgumentError("`values` of stored series must be finite, but are not.")
    return SeriesSet(values, lengths, channels, tuple(map(str, range(len(lengths)))))


def _read_target(target: Tensor, series: SeriesSet, problem: Problem, facts: Mapping[str, Any]) -> RawTarget:
    """Return the targets: texts of classes, or numbers."""
    count, names = len(series.values) if problem.each else series.count, _texts(facts, "targets")
    classes = problem.kind == "classification"
    shape = (count,) if classes else (count, len(problem.outputs))
    if tuple(target.shape) != shape or target.dtype != (torch.int64 if classes else torch.float64):
        raise ShapeError(f"`target` of stored series must have shape {shape}, but has {tuple(target.shape)}, {target.dtype}.")
    if not classes:
        if not bool(target.isfinite().all()):
            raise ArgumentError("`target` of stored series must be finite, but is not.")
        return RawTarget(names, numbers=target, each=problem.each)
    outputs = problem.outputs
    if len({*outputs}) < len(outputs) or int(target.min()) < 0 or int(target.max()) >= len(outputs):
        raise ArgumentError(f"`target` of stored series must hold classes from 0 to {len(outputs) - 1}, but holds others.")
    return RawTarget(names, texts=tuple(outputs[code] for code in target.tolist()), each=problem.each)


def _read_segments(part: str, rows: Tensor, series: SeriesSet) -> Segments:
    """Return the segments of a part, each of which lies inside its series."""
    if rows.dtype != torch.int64 or rows.dim() != 2 or rows.shape[1] != 3 or not len(rows):
        raise ShapeError(f"`{part}` of stored series must be int64 of shape (K, 3), but has shape {tuple(rows.shape)}.")
    start, stop, number = rows.unbind(1)
    if int(number.min()) < 0 or int(number.max()) >= series.count:
        raise ArgumentError(f"`{part}` of stored series must name series from 0 to {series.count - 1}, but names others.")
    first, last = series.starts[number], (series.starts + series.lengths)[number]
    if not bool(((first <= start) & (start < stop) & (stop <= last)).all()):
        raise ArgumentError(f"`{part}` of stored series must lie inside them, but does not.")
    return Segments(start, stop, number)


def _read_weights(facts: Mapping[str, Any], problem: Problem) -> tuple[float, ...] | None:
    weights = facts["class_weights"]
    if weights is None:
        return None
    fitting = isinstance(weights, list) and len(weights) == len(problem.outputs)
    if not fitting or not all(type(weight) in (int, float) and weight >= 0 for weight in weights):
        raise ArgumentError("`class_weights` of stored series must be a number from 0 on for each class, but are not.")
    return tuple(map(float, weights))
