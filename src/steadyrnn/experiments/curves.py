"""What the picture of an experiment shows, as its record stores it: panels of lines and marks; free of torch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

from steadyrnn.errors import ArgumentError

__all__ = ["SCALES", "STYLES", "Axis", "Line", "Mark", "Panel", "mean_curve", "mean_line"]

SCALES = ("linear", "log")
"""How an axis can run."""

STYLES = ("line", "points", "bars")
"""How a line can be drawn."""


@dataclass(frozen=True)
class Axis:
    """An axis of a panel.

    Args:
        label: What it counts, with the unit where there is one.
        scale: One of :data:`SCALES`; use ``"log"`` where numbers span decades.
        names: What stands at 0, 1, 2 and so on in place of numbers, for rows of a table; empty for numbers.

    Raises:
        ArgumentError: The label is not a plain text, the scale is another word, or a logarithmic axis has names.

    Example:
        >>> Axis("loss", "log").to_dict()
        {'label': 'loss', 'scale': 'log'}
    """

    label: str
    scale: str = "linear"
    names: Sequence[str] = ()

    def __post_init__(self) -> None:
        _check_text("label of an axis", self.label)
        if self.scale not in SCALES:
            raise ArgumentError(f"`scale` must be one of {', '.join(SCALES)}, but is {self.scale!r}.")
        if self.names and self.scale == "log":
            raise ArgumentError("`names` stand at 0, 1, 2 and so on, so `scale` must be linear, but is 'log'.")

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"label": self.label, "scale": self.scale, **({"names": [*self.names]} if self.names else {})}


@dataclass(frozen=True)
class Line:
    """Points that belong together.

    Lines of the same label look alike, and stand in the legend once: so single runs of one kind are drawn.

    Args:
        label: What the legend calls it.
        x: Finite numbers.
        y: As many; None is a gap, such as a run that diverged.
        spread: Standard deviation of each y over seeds; None where y is a gap, and in place of all where there is none.
        style: One of :data:`STYLES`. Bars of several lines stand side by side.

    Raises:
        ArgumentError: The label is not a plain text, there is no point, lengths differ, a number is not finite, a spread is
            negative, or the style is another word.

    Example:
        >>> Line("ours", [1, 2], [0.5, None], style="points").to_dict()
        {'label': 'ours', 'x': [1, 2], 'y': [0.5, None], 'style': 'points'}
    """

    label: str
    x: Sequence[float]
    y: Sequence[float | None]
    spread: Sequence[float | None] | None = None
    style: str = "line"

    def __post_init__(self) -> None:
        _check_text("label of a line", self.label)
        if self.style not in STYLES:
            raise ArgumentError(f"`style` must be one of {', '.join(STYLES)}, but is {self.style!r}.")
        if not self.x:
            raise ArgumentError(f"`x` of the line {self.label!r} must have a point, but is empty.")
        for name, values in (("y", self.y), ("spread", self.spread)):
            if values is not None and len(values) != len(self.x):
                raise ArgumentError(
                    f"`x` and `{name}` of the line {self.label!r} must have equal lengths, "
                    f"but have {len(self.x)} and {len(values)}."
                )
        for name, numbers in (("x", self.x), ("y", self.y), ("spread", self.spread or ())):
            _check_finite(f"`{name}` of the line {self.label!r}", [one for one in numbers if one is not None or name == "x"])
        if any(one is not None and one < 0 for one in self.spread or ()):
            raise ArgumentError(f"`spread` of the line {self.label!r} must not be negative.")

    def skip_zeros(self) -> "Line":
        """Return the line with a gap where y is exactly 0, for a logarithmic axis.

        Example:
            >>> Line("ours", [1, 2], [0.5, 0.0]).skip_zeros().y
            [0.5, None]
        """
        return replace(self, y=[one if one != 0 else None for one in self.y])

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON, numbers with six digits: a picture shows no more."""
        spread = {} if self.spread is None else {"spread": _shorten(self.spread)}
        return {"label": self.label, "x": _shorten(self.x), "y": _shorten(self.y), **spread, "style": self.style}


@dataclass(frozen=True)
class Mark:
    """A straight line across the panel at a number that means something: a published value, a baseline, a bound.

    Args:
        label: What it is.
        x: Where a vertical line stands.
        y: Where a horizontal line lies. One of the two is given.

    Raises:
        ArgumentError: The label is not a plain text, both or neither are given, or the number is not finite.

    Example:
        >>> Mark("published", y=14.14).to_dict()
        {'label': 'published', 'y': 14.14}
    """

    label: str
    x: float | None = None
    y: float | None = None

    def __post_init__(self) -> None:
        _check_text("label of a mark", self.label)
        if (self.x is None) == (self.y is None):
            raise ArgumentError(f"The mark {self.label!r} must have `x` or `y`, and not both.")
        _check_finite(f"The mark {self.label!r}", [self.y if self.x is None else self.x])

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"label": self.label, **({"y": self.y} if self.x is None else {"x": self.x})}


@dataclass(frozen=True)
class Panel:
    """One pair of axes with lines and marks; a picture is a list of panels.

    Args:
        title: What it shows.
        x: The horizontal axis.
        y: The vertical axis.
        lines: At least one.
        marks: Reference lines.

    Raises:
        ArgumentError: The title is not a plain text, there is no line, a mark has the label of another one or of a line, or a
            number on a logarithmic axis is not above 0. :meth:`Line.skip_zeros` makes gaps of zeros.

    Example:
        >>> panel = Panel("Gradient", Axis("lag k"), Axis("norm", "log"), [Line("ours", [0, 1], [1.0, 0.1])])
        >>> Panel.from_dict(panel.to_dict()).to_dict() == panel.to_dict()
        True
    """

    title: str
    x: Axis
    y: Axis
    lines: Sequence[Line]
    marks: Sequence[Mark] = ()

    def __post_init__(self) -> None:
        _check_text("title of a panel", self.title)
        if not self.lines:
            raise ArgumentError(f"`lines` of the panel {self.title!r} must have a line, but is empty.")
        names = [*{line.label for line in self.lines}, *(mark.label for mark in self.marks)]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ArgumentError(
                f"`marks` of the panel {self.title!r} must have labels of their own, but {twice[0]!r} is taken."
            )
        for line in self.lines:
            self._check_scales(line.label, line.x, line.y)
        for mark in self.marks:
            self._check_scales(mark.label, [mark.x], [mark.y])

    def _check_scales(self, label: str, x: Sequence[float | None], y: Sequence[float | None]) -> None:
        for name, axis, values in (("x", self.x, x), ("y", self.y, y)):
            low = [one for one in values if one is not None and one <= 0]
            if axis.scale == "log" and low:
                raise ArgumentError(
                    f"`{name}` of {label!r} must be above 0 on the logarithmic axis of the panel {self.title!r}, "
                    f"but is {low[0]!r}. Leave the point out; `Line.skip_zeros` makes gaps of zeros."
                )

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "title": self.title, "x": self.x.to_dict(), "y": self.y.to_dict(),
            "lines": [line.to_dict() for line in self.lines], "marks": [mark.to_dict() for mark in self.marks],
        }  # fmt: skip

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "Panel":
        """Return the panel that :meth:`to_dict` stored.

        Raises:
            ArgumentError: It breaks a rule of a panel.
            LookupError: A part is missing.
            TypeError: A part is of another type, or not one of a panel.
        """
        lines, marks = [Line(**line) for line in stored["lines"]], [Mark(**mark) for mark in stored["marks"]]
        return cls(stored["title"], Axis(**stored["x"]), Axis(**stored["y"]), lines, marks)


def mean_line(label: str, runs: Sequence[tuple[Sequence[float], Sequence[float | None]]], style: str = "line") -> Line:
    """Return the mean over seeds of curves with the same x, with the standard deviation as spread.

    Where a run has no finite number the mean has a gap, rather than being that of the others.

    Args:
        label: What the legend calls it.
        runs: ``(x, y)`` of each seed.
        style: One of :data:`STYLES`.

    Raises:
        ArgumentError: `runs` is empty, or two of them differ in x.

    Example:
        >>> mean_line("ours", [([1, 2], [1.0, 5.0]), ([1, 2], [3.0, float("inf")])]).to_dict()
        {'label': 'ours', 'x': [1, 2], 'y': [2.0, None], 'spread': [1.41421, None], 'style': 'line'}
    """
    if not runs:
        raise ArgumentError(f"`runs` of the line {label!r} must have a run, but is empty.")
    x = [*runs[0][0]]
    if any([*other] != x for other, _ in runs):
        raise ArgumentError(f"`runs` of the line {label!r} must have the same x, but two of them differ.")
    if any(len(y) != len(x) for _, y in runs):
        raise ArgumentError(f"`runs` of the line {label!r} must have as many y as x, {len(x)}, but one has not.")
    columns = [_numbers(column) for column in zip(*(y for _, y in runs), strict=True)]
    mean = [None if column is None else fmean(column) for column in columns]
    spread = [None if column is None else stdev(column) for column in columns] if len(runs) > 1 else None
    return Line(label, x, mean, spread, style)


def mean_curve(label: str, runs: Sequence[Sequence[Sequence[float]]]) -> Line | None:
    """Return the mean over seeds of what was logged, up to the end of the shortest run; None where a run logged nothing.

    A run that diverged ends early. Beyond its end there is no mean, rather than that of the others.

    Args:
        label: What the legend calls it.
        runs: Pairs ``[x, y]`` of each seed.

    Example:
        >>> mean_curve("ours", [[[1, 1.0], [2, 5.0]], [[1, 3.0]]]).to_dict()["y"]
        [2.0]
        >>> mean_curve("ours", [[[1, 1.0]], []]) is None
        True
    """
    curves = [{point[0]: point[1] for point in run} for run in runs]
    shared = sorted(set.intersection(*(set(curve) for curve in curves)))
    return mean_line(label, [(shared, [curve[x] for x in shared]) for curve in curves]) if shared else None


def _numbers(column: Sequence[float | None]) -> list[float] | None:
    """Return the numbers of all seeds, None where one of them is not there or not finite."""
    found = [one for one in column if one is not None and math.isfinite(one)]
    return found if len(found) == len(column) else None


def _check_text(name: str, text: str) -> None:
    if not text or text.startswith("_") or "$" in text:  # matplotlib hides the one, and takes the other for a formula
        raise ArgumentError(f"The {name} must be a text without `$` that does not start with `_`, but is {text!r}.")


def _check_finite(name: str, values: Sequence[float | None]) -> None:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ArgumentError(f"{name} must be finite numbers, but one is {value!r}.")


def _shorten(values: Sequence[float | None]) -> list[float | None]:
    """Return numbers with six digits; whole numbers and gaps as they are."""
    return [float(f"{one:.6g}") if isinstance(one, float) else one for one in values]
