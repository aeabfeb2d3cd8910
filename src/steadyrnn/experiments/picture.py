"""The picture of an experiment, drawn from its stored record alone; free of torch."""

import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from sys import float_info
from typing import TYPE_CHECKING, Any, Literal

from steadyrnn.errors import RunError
from steadyrnn.runs.files import make_folder, remove_quietly, write_atomically

from .curves import Axis, Line, Mark, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

__all__ = ["render_picture", "write_picture"]

_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
"""Of Okabe and Ito, and grey: people with any colour vision can tell them apart."""
_DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
_MARKERS = "osD^vPX*"
_MARK_DASHES: tuple[Any, ...] = ((0, (7, 3)), (0, (1, 2)), (0, (7, 2, 1, 2)), (0, (3, 2)))
_MARK_COLOR = "#444444"
_FARTHEST = 220
"""A logarithmic axis ends at 10 to plus or minus this: the ticks that matplotlib puts beyond its end must not overflow."""
_FEW = 20
"""A line of at most this many points shows each of them."""
_WIDTHS, _HEIGHT, _LEGEND_ROW = {1: 7.0, 2: 5.2}, 3.3, 0.19
"""Width of a panel by the number of columns, its height, and that of a row of its legend, in inches."""
_MOST_ACROSS = 8
"""More names of rows of a table stand upright below their axis."""
_LETTERS = 0.078
"""Width of a letter of a legend, in inches, rather more than less."""
_SETTINGS = {
    "svg.hashsalt": "steadyrnn", "svg.fonttype": "none", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3,
}  # fmt: skip
"""The same bytes each time; text stays text."""


def write_picture(record: Mapping[str, Any], path: str | Path) -> bool:
    """Write the picture of a record to an SVG file; the same record gives the same bytes.

    Needs matplotlib (the extra ``report``).

    Args:
        record: As :func:`steadyrnn.jobs.reproduce.reproduce` stores it.
        path: The file; its folder is made. One that is there is replaced, or removed where the record has no curves.

    Returns:
        Whether there is a picture.

    Raises:
        RunError: The curves of the record are damaged, or the file cannot be written.

    Example:
        >>> write_picture({"id": "lin-table2", "curves": []}, "records/lin-table2.svg")
        False
    """
    path, data = Path(path), render_picture(record)
    if data is None:
        remove_quietly(path)
        return False
    make_folder(path.parent)
    write_atomically(path, data)
    return True


def render_picture(record: Mapping[str, Any]) -> bytes | None:
    """Return the picture of a record as SVG, None for a record without curves.

    Raises:
        RunError: The curves of the record are damaged.

    Example:
        >>> render_picture({"id": "lin-table2", "curves": []}) is None
        True
    """
    panels = _read_panels(record)
    if not panels:
        return None
    import matplotlib.style  # an extra

    with matplotlib.style.context(["default", _SETTINGS]):
        data = io.BytesIO()
        _draw_figure(record, panels).savefig(data, format="svg", metadata={"Date": None, "Creator": "steadyrnn"})
    return b"\n".join(line.rstrip() for line in data.getvalue().splitlines()) + b"\n"


def _read_panels(record: Mapping[str, Any]) -> list[Panel]:
    try:
        panels = [Panel.from_dict(stored) for stored in record["curves"]]
        return panels if panels and [record[key] for key in ("id", "title", "place", "mode")] else []
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise RunError(
            f"The curves of `{record.get('id')}` cannot be drawn ({type(error).__name__}: {error}). The record was changed, or "
            "an earlier release wrote it. `steadyrnn reproduce` with its ID judges its numbers anew and repeats nothing."
        ) from error


def _draw_figure(record: Mapping[str, Any], panels: Sequence[Panel]) -> "Figure":
    from matplotlib.figure import Figure  # an extra
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    columns = min(len(panels), 2)
    rows = math.ceil(len(panels) / columns)
    width, legends = _WIDTHS[columns], [_arrange_legend(panel, _WIDTHS[columns]) for panel in panels]
    names = [len(one) for panel in panels if len(panel.x.names) > _MOST_ACROSS for one in panel.x.names]
    height = _HEIGHT + _LEGEND_ROW * max(legend[1] for legend in legends) + _LETTERS * max(names, default=0)
    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08)
    figure = Figure(figsize=(width * columns, height * rows + 0.4), layout=layout)
    grid = figure.subfigures(rows, columns, squeeze=False).flatten()
    known = [*dict.fromkeys(line.label for panel in panels for line in panel.lines)]  # one look each, in every panel
    for panel, part, legend in zip(panels, grid, legends, strict=False):
        _draw_panel(panel, part, legend[0], known)
    quick = " (quick run)" if record["mode"] == "quick" else ""
    place = str(record["place"]).replace(" ", "\N{NO-BREAK SPACE}")
    title = f"{record['id']}{quick}: {record['title']} ({place})"
    figure.suptitle(textwrap.fill(title, int(11.6 * width * columns)), fontsize=10)
    return figure


def _arrange_legend(panel: Panel, width: float) -> tuple[int, int]:
    """Return columns and rows of the legend: as many columns as fit below the panel."""
    labels = {*(line.label for line in panel.lines), *(mark.label for mark in panel.marks)}
    columns = max(1, min(len(labels), int(width / (0.55 + _LETTERS * max(map(len, labels))))))
    return columns, math.ceil(len(labels) / columns)


def _draw_panel(panel: Panel, part: "SubFigure", legend_columns: int, known: Sequence[str]) -> None:
    axes = part.add_subplot()
    axes.set_title(textwrap.fill(panel.title, 62), fontsize=9)
    axes.set_axisbelow(True)
    _set_axis(axes, "x", panel.x)
    _set_axis(axes, "y", panel.y)
    if panel.x.scale == "linear" and not panel.x.names and all(isinstance(x, int) for line in panel.lines for x in line.x):
        axes.locator_params(axis="x", integer=True)
    axes.set_ylim(*_limits(panel))  # first: what is drawn later does not move it
    labels = [*dict.fromkeys(line.label for line in panel.lines)]
    for slot, label in enumerate(labels):
        alike = [line for line in panel.lines if line.label == label]
        for number, line in enumerate(alike):
            named = label if number == 0 else "_"
            look = _Look(known.index(label), slot, len(labels), named, len(alike) == 1, panel.y.scale == "log")
            _DRAW[line.style](line, look, axes)
    for index, mark in enumerate(panel.marks):
        _draw_mark(mark, index, axes)
    handles, found = axes.get_legend_handles_labels()
    order = [found.index(label) for label in dict.fromkeys([*labels, *(mark.label for mark in panel.marks)])]
    part.legend(
        [handles[i] for i in order], [found[i] for i in order], loc="outside lower center",
        ncols=legend_columns, fontsize=8, frameon=False, handlelength=2.8,
    )  # fmt: skip


def _set_axis(axes: "Axes", name: Literal["x", "y"], axis: Axis) -> None:
    axes.set(**{f"{name}label": axis.label, f"{name}scale": axis.scale})
    if axis.names:
        count = len(axis.names)
        upright = name == "x" and count > _MOST_ACROSS
        texts = [one if upright else textwrap.fill(one, max(8, 66 // count)) for one in axis.names]
        axes.set(**{f"{name}ticks": range(count), f"{name}ticklabels": texts, f"{name}lim": (-0.5, count - 0.5)})
        axes.tick_params(axis=name, labelsize=8, labelrotation=90 if upright else 0)


@dataclass(frozen=True)
class _Look:
    """How a line looks: by its label's number in the picture, its place among those of its panel, what the legend gets."""

    index: int
    slot: int
    count: int
    label: str
    alone: bool
    log: bool

    @property
    def color(self) -> str:
        return _COLORS[self.index % len(_COLORS)]

    @property
    def marker(self) -> str:
        return _MARKERS[self.index % len(_MARKERS)]


def _draw_bars(line: Line, look: _Look, axes: "Axes") -> None:
    places = sorted({*line.x})
    width = 0.8 * min((after - before for before, after in pairwise(places)), default=1.0) / look.count
    x = [one + (look.slot - (look.count - 1) / 2) * width for one in line.x]
    hatch = ("", "//", "..", "xx")[look.index % 4]
    axes.bar(x, _heights(line), 0.92 * width, color=look.color, hatch=hatch, edgecolor="white", label=look.label)
    if line.spread is not None:
        axes.errorbar(x, _heights(line), _reach(line, look.log), fmt="none", ecolor="black", capsize=2)


def _draw_points(line: Line, look: _Look, axes: "Axes") -> None:
    reach = None if line.spread is None else _reach(line, look.log)
    axes.errorbar(
        line.x, _heights(line), reach, fmt=look.marker, color=look.color, markersize=5, capsize=2, label=look.label
    )  # fmt: skip


def _draw_line(line: Line, look: _Look, axes: "Axes") -> None:
    marker = look.marker if len(line.x) <= _FEW and look.alone else None
    axes.plot(
        line.x, _heights(line), label=look.label, color=look.color, linestyle=_DASHES[look.index % len(_DASHES)],
        marker=marker, markersize=3.5, linewidth=1.6 if look.alone else 0.8, alpha=1.0 if look.alone else 0.7,
    )  # fmt: skip
    if line.spread is not None:
        axes.fill_between(line.x, *_ends(line, look.log), color=look.color, alpha=0.15, linewidth=0)


_DRAW = {"line": _draw_line, "points": _draw_points, "bars": _draw_bars}


def _draw_mark(mark: Mark, index: int, axes: "Axes") -> None:
    look: dict[str, Any] = {
        "color": _MARK_COLOR, "linewidth": 1.2, "linestyle": _MARK_DASHES[index % len(_MARK_DASHES)], "label": mark.label,
    }  # fmt: skip
    if mark.y is not None:
        axes.axhline(mark.y, **look)
    else:
        axes.axvline(mark.x or 0.0, **look)


def _heights(line: Line) -> list[float]:
    """Return y with NaN for a gap."""
    return [math.nan if one is None else one for one in line.y]


def _ends(line: Line, log: bool) -> tuple[list[float], list[float]]:
    """Return y less and plus its spread; on a logarithmic axis by the same factor down as up, which ends above 0."""
    pairs = [(y, off or 0.0) for y, off in zip(_heights(line), line.spread or [0.0] * len(line.y), strict=True)]
    low = [max(y * (y / (y + off)), float_info.min) if log and off else y - off for y, off in pairs]
    return low, [y + off for y, off in pairs]


def _reach(line: Line, log: bool) -> list[list[float]]:
    """Return how far error bars reach down and up."""
    return [[abs(y - end) for y, end in zip(_heights(line), ends, strict=True)] for ends in _ends(line, log)]


def _limits(panel: Panel) -> tuple[float, float]:
    """Return the ends of the vertical axis: around all numbers, their spreads and the marks."""
    log = panel.y.scale == "log"
    values = [mark.y for mark in panel.marks if mark.y is not None]
    for line in panel.lines:
        values += [end for ends in _ends(line, log) for end in ends if not math.isnan(end)]
        values += [0.0] if line.style == "bars" and not log else []
    if not values:
        return (0.1, 1.0) if log else (0.0, 1.0)
    low, high = (math.log10(one) if log else one for one in (min(values), max(values)))
    margin = 0.06 * (high - low) or 0.5
    if log:
        return 10.0 ** max(low - margin, -_FARTHEST), 10.0 ** min(high + margin, _FARTHEST)
    return low - margin, high + margin
