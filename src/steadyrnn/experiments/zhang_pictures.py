"""Pictures of networks on sequences, after Zhang, Lei and Dhillon: scores and gradients during training; free of torch."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from .curves import Axis, Line, Mark, Panel, mean_line

__all__ = ["draw_addition", "draw_copy", "draw_margins", "draw_pixels"]

_Points = Sequence[tuple[float, float | None]]


def draw_addition(cells: Mapping[str, Any]) -> list[Panel]:
    """Return error and first gradient during training, one panel each per length."""
    panels = list[Panel]()
    for name, length in _find_groups(cells, "L"):
        baseline = Mark("always 1", y=_baseline(cells, name, "loss"))
        lines = _draw(cells, name, _read_loss)
        panels += _make_panel(f"Addition, L = {length}", Axis("validation error", "log"), lines, [baseline])
    for name, length in _find_groups(cells, "L"):
        lines = _draw(cells, name, _read_gradient)
        panels += _make_panel(f"First gradient, L = {length}", Axis("norm of dL/dh_0", "log"), lines)
    return panels


def draw_copy(cells: Mapping[str, Any]) -> list[Panel]:
    """Return the cross-entropy during training, one panel per lag."""
    return [
        panel
        for name, lag in _find_groups(cells, "T")
        for panel in _make_panel(
            f"Copy, T = {lag}", Axis("validation cross-entropy", "log"), _draw(cells, name, _read_loss),
            [Mark("without memory", y=_baseline(cells, name, "loss"))],
        )
    ]  # fmt: skip


def draw_pixels(cells: Mapping[str, Any]) -> list[Panel]:
    """Return the accuracy during training, one panel per way to read the digits."""
    return [
        panel
        for name, kind in _find_groups(cells, "")
        for panel in _make_panel(
            f"Digits: {kind.replace('-', ', ')} steps", Axis("validation accuracy"), _draw(cells, name, _read_accuracy)
        )
    ]


def draw_margins(cells: Mapping[str, Any]) -> list[Panel]:
    """Return the distance of singular values from 1, and the first gradient, during training."""
    names = [*dict.fromkeys(name.rpartition("/seed")[0] for name in cells if "/seed" in name)]
    margins = [line for name in names for line in _draw_line(cells, name, name, _read_margin)]
    gradients = [line for name in names for line in _draw_line(cells, name, name, _read_gradient)]
    return [
        *_make_panel("Spectral margin", Axis("largest |sigma - 1|", "log"), margins),
        *_make_panel("First gradient", Axis("norm of dL/dh_0", "log"), gradients),
    ]


def _find_groups(cells: Mapping[str, Any], letter: str) -> list[tuple[str, str]]:
    """Return the middle part of the names MODEL/GROUP/seedN, each once, and what it says behind a letter."""
    groups = dict.fromkeys(name.split("/")[1] for name in cells if name.count("/") == 2)
    return [(group, group.removeprefix(letter)) for group in groups]


def _draw(cells: Mapping[str, Any], group: str, read: Callable[[Mapping[str, Any]], _Points]) -> list[Line]:
    """Return one line per model of a group."""
    models = dict.fromkeys(name.split("/")[0] for name in cells if name.count("/") == 2 and name.split("/")[1] == group)
    return [line for model in models for line in _draw_line(cells, f"{model}/{group}", model, read)]


def _draw_line(cells: Mapping[str, Any], series: str, label: str, read: Callable[[Mapping[str, Any]], _Points]) -> list[Line]:
    """Return the mean over seeds, a run that ended early leaves gaps; no line where no run came to a measurement."""
    runs = [dict(read(cell)) for name, cell in cells.items() if name.startswith(f"{series}/seed")]
    x = sorted({step for run in runs for step in run})
    return [mean_line(label, [(x, [run.get(step) for step in x]) for run in runs])] if x else []


def _make_panel(title: str, y: Axis, lines: Sequence[Line], marks: Sequence[Mark] = ()) -> list[Panel]:
    """Return the panel of some lines, nothing where there is none."""
    return [Panel(title, Axis("step"), y, lines, marks)] if lines else []


def _read_loss(cell: Mapping[str, Any]) -> _Points:
    return [(step, _positive(value)) for step, value in cell["curve"].get("validation loss", ())]


def _read_accuracy(cell: Mapping[str, Any]) -> _Points:
    return [(step, value) for step, value in cell["curve"].get("validation accuracy", ())]


def _read_gradient(cell: Mapping[str, Any]) -> _Points:
    return [(record["step"], _positive(record["value"].get("mean"))) for record in cell["probes"].get("gradient-h0", ())]


def _read_margin(cell: Mapping[str, Any]) -> _Points:
    records = cell["probes"].get("margin", ())
    return [(record["step"], _positive(_largest(record["value"].values()))) for record in records]


def _largest(values: Collection[float | None]) -> float | None:
    """Return the largest value, None where one is not a number."""
    known = [value for value in values if value is not None]
    return max(known) if known and len(known) == len(values) else None


def _positive(value: float | None) -> float | None:
    """Return the value, None where a logarithmic axis cannot show it."""
    return value if value is not None and math.isfinite(value) and value > 0 else None


def _baseline(cells: Mapping[str, Any], group: str, score: str) -> float:
    found: float = next(cell["baselines"][score] for name, cell in cells.items() if f"/{group}/" in name)
    return found
