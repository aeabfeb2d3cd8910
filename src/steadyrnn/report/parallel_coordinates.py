"""Every trial of a sweep as a line across axes, one per setting and one for the score; the settings' importance as bars."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .markup import Markup, element, place
from .numbers import finite, number
from .scales import linear, logarithmic, wants_logarithm

__all__ = ["Line", "draw_importance", "draw_parallel"]

HEIGHT, TOP, BOTTOM = 300, 34, 268
AXIS_WIDTH, SIDE = 150, 70
FAINT, CLEAR = 0.12, 0.85
LONGEST = 22  # letters of a name or value that is shown
FEW_NUMBERS = 4  # which are ticks themselves
GAP = 0.15  # of an axis, between null and the lowest number
MOST_NAMES = 12  # of a setting whose values are names
BAR, BARS_WIDTH, BARS_LEFT = 26, 520, 190


@dataclass(frozen=True)
class Line:
    """A trial that has a score.

    Args:
        number: Its number.
        settings: What it was tried with.
        value: Its score.
    """

    number: int
    settings: Mapping[str, Any]
    value: float


@dataclass(frozen=True)
class Axis:
    """A vertical axis: where values stand, from 0 at the bottom to 1 at the top, and the ticks."""

    name: str
    places: Mapping[Any, float]
    ticks: Sequence[tuple[float, str]]


def draw_parallel(lines: Sequence[Line], names: Sequence[str], metric: str, higher: bool) -> Markup | None:
    """Return the picture of some trials; the better one is, the clearer its line, and the best stands out.

    Args:
        lines: The trials.
        names: The settings that vary, in the order of their axes.
        metric: The score, whose axis stands to the right.
        higher: Whether more of it is better.

    Returns:
        SVG; None of fewer than two trials or without a setting.
    """
    if len(lines) < 2 or not names:
        return None
    axes = [make_axis(name, [line.settings.get(name) for line in lines]) for name in names]
    axes.append(make_axis(metric, [line.value for line in lines]))
    width = 2 * SIDE + AXIS_WIDTH * (len(axes) - 1)
    worst_first = sorted(lines, key=lambda line: (line.value if higher else -line.value, -line.number))  # as the table ranks
    drawn = [trial_line(line, axes, metric, rank / max(len(lines) - 1, 1)) for rank, line in enumerate(worst_first)]
    best = worst_first[-1]
    words = f"{len(lines)} trials across {', '.join(names)} and {metric}; best {number(best.value)} of trial {best.number}."
    frame = [axis_markup(index, axis) for index, axis in enumerate(axes)]
    return element(
        "svg", *drawn, *frame, viewBox=f"0 0 {width} {HEIGHT}", role="img", aria_label=words, class_="chart", xmlns=None,
        style=f"max-width:{1.25 * width:.0f}px",
    )  # fmt: skip


def make_axis(name: str, values: Sequence[Any]) -> Axis:
    """Return the axis of some values: numbers on a scale, with null below them; everything else as names at even distances."""
    known = [value for value in values if value is not None]
    numbers = [finite(value) for value in known]
    if known and None not in numbers and len({*numbers}) > 1:
        floats = [value for value in numbers if value is not None]
        scale = logarithmic(floats) if wants_logarithm(floats) else linear(floats)
        few = sorted({*floats}) if len({*floats}) <= FEW_NUMBERS else []
        ticks = [(scale.at(value), number(value)) for value in few] or [(scale.at(at), text) for at, text in scale.ticks]
        places: dict[Any, float] = {value: scale.at(float(value)) for value in known}
        if len(known) < len(values):
            ticks = [(0.0, "null"), *((above_null(at), text) for at, text in ticks if at >= -0.01)]
            places = {None: 0.0, **{value: above_null(at) for value, at in places.items()}}
        return Axis(name, places, ticks)
    names = sorted({in_words(value) for value in values})
    count = len(names)
    at = {text: 0.5 if count == 1 else index / (count - 1) for index, text in enumerate(names)}
    shown = names if count <= MOST_NAMES else names[:: -(-count // MOST_NAMES)]
    return Axis(name, {value: at[in_words(value)] for value in values}, [(at[text], shorten(text)) for text in shown])


def above_null(at: float) -> float:
    """Return where a number stands on an axis that has null at its bottom, too."""
    return GAP + (1 - GAP) * at


def label(value: Any) -> str:
    """Return a value of a setting as an axis shows it."""
    return shorten(in_words(value))


def in_words(value: Any) -> str:
    """Return a value of a setting as a text, however long."""
    if isinstance(value, bool | None):
        return {True: "true", False: "false", None: "null"}[value]
    return number(value) if isinstance(value, int | float) else str(value)


def shorten(text: str) -> str:
    """Return a text that fits beside an axis."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def trial_line(line: Line, axes: Sequence[Axis], metric: str, rank: float) -> Markup:
    """Return a trial's line, with its numbers for a pointer; ``rank`` is 0 of the worst and 1 of the best."""
    values = [line.settings.get(axis.name) for axis in axes[:-1]] + [line.value]
    places = [y_of(axis.places[value]) for axis, value in zip(axes, values, strict=True)]
    points = [f"{place(x_of(index))} {place(y)}" for index, y in enumerate(places)]
    said = ", ".join(f"{axis.name} {label(value)}" for axis, value in zip(axes, values, strict=True))
    style = "line c1" if rank == 1 else "line thin c0"
    opacity = None if rank == 1 else f"{FAINT + (CLEAR - FAINT) * rank**2:.2f}"
    title = element("title", f"trial {line.number}: {said}")
    return element("path", title, d="M" + "L".join(points), class_=style, stroke_opacity=opacity)


def axis_markup(index: int, axis: Axis) -> Markup:
    """Return an axis with its name above it."""
    x = x_of(index)
    parts = [element("path", d=f"M{place(x)} {TOP}V{BOTTOM}", class_="axis")]
    for at, text in axis.ticks:
        if -0.01 <= at <= 1.01:
            parts.append(element("path", d=f"M{place(x)} {place(y_of(at))}h5", class_="axis"))
            parts.append(element("text", text, x=x + 8, y=y_of(at) + 4.5, class_="tick halo"))
    *groups, last = axis.name.split(".")
    parts.append(element("text", shorten(last), x=x, y=TOP - 14, class_="middle strong"))
    if groups:
        parts.append(element("text", shorten(".".join(groups)), x=x, y=HEIGHT - 8, class_="middle"))
    return element("g", *parts)


def x_of(index: int) -> float:
    """Return where an axis stands."""
    return float(SIDE + index * AXIS_WIDTH)


def y_of(at: float) -> float:
    """Return the height of a place on an axis."""
    return BOTTOM - (BOTTOM - TOP) * min(max(at, 0.0), 1.0)


def draw_importance(shares: Mapping[str, float]) -> Markup | None:
    """Return bars of how much each setting decides of the score, the largest first; None without any."""
    ranked = sorted(((name, share) for name, share in shares.items() if share >= 0), key=lambda pair: -pair[1])
    if not ranked:
        return None
    parts = []
    for row, (name, share) in enumerate(ranked):
        y = row * BAR + 4
        length = (BARS_WIDTH - BARS_LEFT - 60) * min(share, 1.0)
        parts.append(element("text", shorten_start(name), x=BARS_LEFT - 8, y=y + 15, class_="end"))
        bar = f"M{BARS_LEFT} {y + 10}h{place(length)}"
        parts.append(element("path", d=bar, class_="line c0", style="stroke-width:14;stroke-linecap:butt"))
        parts.append(element("text", f"{100 * share:.0f} %", x=BARS_LEFT + length + 6, y=y + 15))
    words = "; ".join(f"{name} {100 * share:.0f} %" for name, share in ranked)
    height = len(ranked) * BAR + 8
    return element(
        "svg", *parts, viewBox=f"0 0 {BARS_WIDTH} {height}", role="img", aria_label=f"Importance: {words}.", class_="chart",
        xmlns=None, style=f"max-width:{BARS_WIDTH}px",
    )  # fmt: skip


def shorten_start(name: str) -> str:
    """Return the end of a dotted name, which says most."""
    return name if len(name) <= LONGEST + 2 else f"…{name[-LONGEST:]}"
