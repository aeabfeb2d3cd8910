"""A chart as SVG of our own: curves, bands, guides, axes and what a pointer shows, in the page's two themes."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from .markup import Markup, element, join, place
from .numbers import number
from .scales import Scale, linear, logarithmic, whole
from .series import interpolate

__all__ = ["Band", "Chart", "Curve", "Guide", "draw"]

WIDTH, HEIGHT = 400, 250
LEFT, RIGHT, TOP, BOTTOM = 44, 390, 10, 212
STOPS = 28  # places where a pointer shows values
ROWS = 9  # lines of what it shows


@dataclass(frozen=True)
class Curve:
    """A line through points; where y is None the line has a gap."""

    label: str
    style: str  # a class of the style sheet
    x: Sequence[float]
    y: Sequence[float | None]

    def points(self) -> list[tuple[float, float]]:
        """Return the points that are there."""
        return [(x, y) for x, y in zip(self.x, self.y, strict=True) if y is not None]


@dataclass(frozen=True)
class Band:
    """The area between two lines; a None is an end that is not known, and lies beyond the picture."""

    label: str
    style: str
    x: Sequence[float]
    low: Sequence[float | None]
    high: Sequence[float | None]


@dataclass(frozen=True)
class Guide:
    """A dashed horizontal line at a value that means something."""

    label: str
    value: float


@dataclass(frozen=True)
class Chart:
    """What a chart shows.

    Args:
        title: The heading.
        x_label: What the horizontal axis counts.
        curves: Lines, in the order they are drawn.
        bands: Areas, drawn below the lines.
        guides: Horizontal lines.
        log: Whether the vertical axis is logarithmic.
        range: Values the vertical axis must show; None is those of the curves, bands and guides.
        note: A sentence below the picture.
        missing: What to say in place of a picture where there is no curve.
        legend: A class and a label each; empty is that of the curves.
    """

    title: str
    x_label: str
    curves: Sequence[Curve] = ()
    bands: Sequence[Band] = ()
    guides: Sequence[Guide] = ()
    log: bool = False
    range: Sequence[float] | None = None
    note: str = ""
    missing: str = "Nothing was recorded."
    legend: Sequence[tuple[str, str]] = ()

    def key(self) -> Sequence[tuple[str, str]]:
        """Return the legend: a class and a label each."""
        return self.legend or [(curve.style, curve.label) for curve in self.curves]


def draw(chart: Chart) -> Markup | None:
    """Return a chart as SVG, None where no curve has a point."""
    if not any(curve.points() for curve in chart.curves):
        return None
    xs = [x for curve in chart.curves for x, _ in curve.points()]
    horizontal = whole(linear(xs, ticks=5, margin=0.0))
    vertical = vertical_scale(chart)
    frame = Frame(horizontal, vertical)
    body = [
        axes(frame, chart.x_label),
        element(
            "svg",  # an inner picture cuts off what lies outside the axes
            *(area(frame, band) for band in chart.bands),
            *(guide(frame, line) for line in chart.guides),
            *(stroke(frame, curve) for curve in chart.curves),
            x=LEFT,
            y=TOP,
            width=RIGHT - LEFT,
            height=BOTTOM - TOP,
            viewBox=f"{LEFT} {TOP} {RIGHT - LEFT} {BOTTOM - TOP}",
        ),
        *(guide_label(frame, line) for line in chart.guides),
        *pointers(frame, chart),
    ]
    return element(
        "svg", *body, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=in_words(chart), class_="chart", xmlns=None
    )


@dataclass(frozen=True)
class Frame:
    """Both axes, in the picture's coordinates."""

    horizontal: Scale
    vertical: Scale

    def x(self, value: float) -> float:
        """Return a horizontal place."""
        return LEFT + (RIGHT - LEFT) * self.horizontal.at(value)

    def y(self, value: float) -> float:
        """Return a vertical place, not much outside the picture, whatever the value."""
        return BOTTOM - (BOTTOM - TOP) * min(max(self.vertical.at(value), -1.0), 2.0)


def vertical_scale(chart: Chart) -> Scale:
    """Return the vertical axis: what the chart asks for, or around all it shows."""
    values = list(chart.range or ())
    if chart.range is None:
        values += [y for curve in chart.curves for _, y in curve.points()]
        values += [y for band in chart.bands for y in (*band.low, *band.high) if y is not None]
        values += [line.value for line in chart.guides]
    return logarithmic(values) if chart.log else linear(values)


def axes(frame: Frame, x_label: str) -> Markup:
    """Return grid lines, ticks and the horizontal axis' name."""
    parts: list[Markup] = []
    for value, label in frame.vertical.ticks:
        y = frame.y(value)
        parts += [element("path", d=f"M{LEFT} {place(y)}H{RIGHT}", class_="grid")]
        parts += [element("text", label, x=LEFT - 6, y=y + 4.5, class_="tick end")]
    for value, label in frame.horizontal.ticks:
        x = frame.x(value)
        parts += [element("path", d=f"M{place(x)} {BOTTOM}v4", class_="axis")]
        parts += [element("text", label, x=x, y=BOTTOM + 18, class_="tick middle")]
    parts += [element("path", d=f"M{LEFT} {BOTTOM}H{RIGHT}", class_="axis")]
    parts += [element("text", x_label, x=RIGHT, y=HEIGHT - 4, class_="tick end name")]
    return join(parts)


def stroke(frame: Frame, curve: Curve) -> Markup:
    """Return a curve; a point alone between gaps is a dot."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for x, y in zip(curve.x, curve.y, strict=True):
        if y is None:
            pieces.append([])
        else:
            pieces[-1].append((frame.x(x), frame.y(y)))
    path = "".join(polyline(piece) + ("h0" if len(piece) == 1 else "") for piece in pieces if piece)
    alone = all(len(piece) < 2 for piece in pieces)
    return element("path", d=path, class_=f"line {curve.style}" + (" dot" if alone else ""))


def area(frame: Frame, band: Band) -> Markup:
    """Return a band; an end that is not known lies beyond the edge of the picture. An outlined one is its two ends alone."""
    over = [(frame.x(x), frame.y(y) if y is not None else TOP - 9) for x, y in zip(band.x, band.high, strict=True)]
    under = [(frame.x(x), frame.y(y) if y is not None else BOTTOM + 9) for x, y in zip(band.x, band.low, strict=True)]
    outlined = "outline" in band.style.split()
    path = polyline(over) + polyline(under) if outlined else polyline(over + under[::-1]) + "z"
    return element("path", d=path, class_=f"band {band.style}")


def polyline(points: Sequence[tuple[float, float]]) -> str:
    """Return the path through points, in steps from one to the next (shorter to write than places)."""
    rounded = [(round(x, 1), round(y, 1)) for x, y in points]
    path = [f"M{place(rounded[0][0])} {place(rounded[0][1])}"]
    for (x0, y0), (x1, y1) in pairwise(rounded):
        if (x0, y0) != (x1, y1):
            path.append(f"l{place(x1 - x0)} {place(y1 - y0)}")
    return "".join(path)


def guide(frame: Frame, line: Guide) -> Markup:
    """Return a dashed line across the picture."""
    return element("path", d=f"M{LEFT} {place(frame.y(line.value))}H{RIGHT}", class_="guide")


def guide_label(frame: Frame, line: Guide) -> Markup:
    """Return the name of a guide, above its line or below where it does not fit; nothing where the line is outside."""
    y = frame.y(line.value)
    if not TOP <= y <= BOTTOM:
        return Markup("")
    return element("text", line.label, x=RIGHT - 4, y=y - 4 if y > TOP + 16 else y + 14, class_="tick end halo")


def pointers(frame: Frame, chart: Chart) -> list[Markup]:
    """Return strips that show the values at their place while a pointer is over them."""
    xs = sorted({x for curve in chart.curves for x, _ in curve.points()})
    last = len(xs) - 1
    stops = [xs[i] for i in sorted({round(k * last / (STOPS - 1)) for k in range(STOPS)})] if last else xs
    edges = [LEFT, *((frame.x(a) + frame.x(b)) / 2 for a, b in pairwise(stops)), RIGHT]
    drawn = [(curve, curve.points()) for curve in chart.curves]
    result = []
    for stop, strip in zip(stops, pairwise(edges), strict=True):
        rows = [(curve, value) for curve, points in drawn if (value := interpolate(points, stop)) is not None]
        result.append(pointer(frame, chart.x_label, stop, strip, rows))
    return result


def pointer(frame: Frame, x_label: str, stop: float, strip: tuple[float, float], rows: Sequence[tuple[Curve, float]]) -> Markup:
    """Return one strip with its line, its dots and its box of values."""
    x = frame.x(stop)
    head = f"{x_label} {number(stop, 6)}"
    lines = [(curve.style, f"{curve.label}  {number(value)}") for curve, value in rows[:ROWS]]
    width = 7 * max(len(head), *(len(text) + 2 for _, text in lines)) + 16
    left = x + 8 if x + 8 + width <= WIDTH - 2 else max(2, x - 8 - width)
    words: list[str] = [element("tspan", head, x=left + 8, class_="strong")]
    for style, text in lines:
        words += [element("tspan", "●", x=left + 8, dy=16, class_=style), Markup(" "), text]
    dots = [element("circle", cx=x, cy=frame.y(value), class_=curve.style) for curve, value in rows]
    box = element("rect", x=left, y=TOP + 3, width=width, height=24 + 16 * len(lines), rx=5)
    line = element("path", d=f"M{place(x)} {TOP}V{BOTTOM}", class_="axis")
    shown = element("g", line, *dots, box, element("text", *words, y=TOP + 19), class_="shown")
    hit = element("rect", x=strip[0], y=TOP, width=max(strip[1] - strip[0], 0.1), height=BOTTOM - TOP, class_="hit")
    return element("g", hit, shown, class_="tip")


def in_words(chart: Chart) -> str:
    """Return what a chart shows, for those who do not see it."""
    ends = [f"{curve.label} from {number(p[0][1])} to {number(p[-1][1])}" for curve in chart.curves if (p := curve.points())]
    return f"{chart.title} by {chart.x_label}: {'; '.join(ends)}."
