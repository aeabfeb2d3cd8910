"""A picture is drawn from the record alone, shows every label, and has the same bytes each time."""

import json
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import pytest

from steadyrnn.errors import RunError
from steadyrnn.experiments.curves import SCALES, STYLES, Axis, Line, Mark, Panel, mean_line
from steadyrnn.experiments.picture import render_picture, write_picture

RESULTS = Path(__file__).parents[2] / "results"
RECORDS = {path.stem: json.loads(path.read_bytes()) for path in sorted(RESULTS.glob("*.json"))}
DRAWN = [name for name, record in RECORDS.items() if record.get("curves")]


def make_record(*panels: Panel) -> dict[str, Any]:
    head = {"id": "lin-fig1", "title": "recall", "place": "Figure 1", "mode": "full"}
    return {**head, "curves": [panel.to_dict() for panel in panels]}


def make_panel(scale: str = "linear", style: str = "line") -> Panel:
    runs = [([1, 2, 3], [4.0, 2.0, 1.0]), ([1, 2, 3], [5.0, 1.0, math.inf])]
    lines = [mean_line("ours", runs, style), Line("theirs", [1, 2, 3], [3.0, 3.0, None], style=style)]
    marks = [Mark("published", y=0.5), Mark("last epoch", x=2)]
    return Panel("Loss while training", Axis("epoch", scale), Axis("loss in nats", scale), lines, marks)


def texts(picture: bytes | None) -> str:
    """Return all text of a picture, lines joined."""
    assert picture is not None
    return " ".join(
        " ".join(
            "".join(text.itertext()) for text in ElementTree.fromstring(picture).iter() if text.tag.endswith("}text")
        ).split()
    )


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("scale", SCALES)
def test_a_picture_has_every_label(scale: str, style: str) -> None:
    found = texts(render_picture(make_record(make_panel(scale, style))))
    for label in ("ours", "theirs", "published", "last epoch", "epoch", "loss in nats", "Loss while training"):
        assert label in found
    assert "lin-fig1: recall (Figure 1)" in found
    assert "nan" not in found


def test_a_label_that_several_lines_have_stands_once() -> None:
    lines = [Line("descent", [0, 1], [1.0, 0.5]), Line("descent", [0, 1], [2.0, 0.1])]
    found = texts(render_picture(make_record(Panel("Loss", Axis("round"), Axis("loss"), lines))))
    assert found.count("descent") == 1


@pytest.mark.parametrize("style", STYLES)
def test_a_label_looks_the_same_in_every_panel(style: str) -> None:
    """A model that diverged has no line in one panel; the others must not take its colour there."""

    def panel(*labels: str) -> Panel:
        return Panel("Loss", Axis("step"), Axis("loss"), [Line(label, [0, 1], [1.0, 0.5], style=style) for label in labels])

    def colors(one: Panel, *others: Panel) -> set[str]:
        picture = render_picture(make_record(*others, one))
        assert picture is not None
        return {color for color in ("#0072b2", "#d55e00", "#009e73") if color in picture.decode().lower()}

    both = panel("diverging", "steady")
    assert colors(panel("steady"), both) == colors(both) == {"#0072b2", "#d55e00"}
    assert colors(panel("steady")) == {"#0072b2"}


@pytest.mark.parametrize("name", DRAWN)
def test_a_stored_record_gives_the_same_bytes_with_any_settings(name: str) -> None:
    one = render_picture(RECORDS[name])
    with matplotlib.rc_context({"font.size": 20, "lines.linewidth": 5, "svg.hashsalt": "other"}):
        assert render_picture(RECORDS[name]) == one


@pytest.mark.parametrize("name", DRAWN)
def test_a_stored_record_shows_every_label(name: str) -> None:
    found = texts(render_picture(RECORDS[name]))
    for panel in RECORDS[name]["curves"]:
        for label in (panel["title"], panel["x"]["label"], panel["y"]["label"]):
            assert label in found
        for one in (*panel["lines"], *panel["marks"]):
            assert one["label"] in found


def test_another_number_gives_another_picture() -> None:
    record = make_record(make_panel())
    one = render_picture(record)
    record["curves"][0]["lines"][1]["y"][0] = 2.5
    assert render_picture(record) != one


def test_a_picture_has_no_date() -> None:
    picture = render_picture(make_record(make_panel()))
    assert picture is not None
    assert b"<dc:date>" not in picture


def test_a_spread_down_to_nothing_stays_on_a_logarithmic_axis() -> None:
    line = Line("ours", [1, 2], [1e-3, 1e-2], [1.0, 1.0])  # less the spread both are below 0
    found = texts(render_picture(make_record(Panel("Gap", Axis("k"), Axis("gap", "log"), [line]))))
    assert "1 0 − 6" in found  # as far down as up: 1e-3 over 1000
    assert "1 0 − 8" not in found


@pytest.mark.parametrize("spread", [None, [1e300, 1e300]])
def test_the_largest_and_smallest_numbers_can_be_drawn(spread: list[float] | None) -> None:
    line = Line("ours", [1, 2], [1e-307, 1e307], spread)
    assert "ours" in texts(render_picture(make_record(Panel("Size", Axis("i"), Axis("size", "log"), [line]))))


def test_a_record_without_curves_gives_no_picture_and_removes_an_old_one(tmp_path: Path) -> None:
    path = tmp_path / "pictures" / "lin-fig1.svg"
    assert write_picture(make_record(make_panel()), path)
    assert path.read_bytes() == render_picture(make_record(make_panel()))
    assert not write_picture(make_record(), path)
    assert not path.exists()
    assert render_picture(make_record()) is None


@pytest.mark.parametrize(
    "curves",
    [
        {"gradient/linear": {"x": [1], "mean": [1.0]}},  # as earlier releases stored them
        [{"title": "Loss"}],
        [{**make_panel().to_dict(), "lines": [{"label": "ours", "x": [1, 2], "y": [1.0]}]}],
        [{**make_panel().to_dict(), "y": {"label": "loss", "scale": "cubic"}}],
        [{**make_panel().to_dict(), "lines": [{"label": "ours", "x": [1], "y": ["1"]}]}],
        [{**make_panel().to_dict(), "title": 3}],
        [3],
        None,
    ],
)
def test_damaged_curves_are_refused_and_nothing_is_written(curves: Any, tmp_path: Path) -> None:
    path = tmp_path / "lin-fig1.svg"
    with pytest.raises(RunError, match="The curves of `lin-fig1` cannot be drawn"):
        write_picture({**make_record(), "curves": curves}, path)
    assert not path.exists()


@pytest.mark.parametrize(("count", "upright"), [(8, False), (9, True)])
def test_many_names_stand_upright(count: int, upright: bool) -> None:
    names = [f"set {i}" for i in range(count)]
    line = Line("ours", list(range(count)), [1.0] * count, style="points")
    picture = render_picture(make_record(Panel("Sets", Axis("set", names=names), Axis("accuracy"), [line])))
    assert picture is not None
    turned = [text for text in ElementTree.fromstring(picture).iter() if "rotate(-90" in text.get("transform", "")]
    assert len([text for text in turned if "".join(text.itertext()) in names]) == (count if upright else 0)
