"""Panels are what a picture can show: what it cannot is refused with a sentence, and nothing is lost on the way to JSON."""

import json
import math
from collections.abc import Callable
from statistics import fmean, stdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyrnn.errors import ArgumentError
from steadyrnn.experiments.curves import SCALES, STYLES, Axis, Line, Mark, Panel, mean_curve, mean_line

X, Y, LOG = Axis("step"), Axis("loss"), Axis("loss", "log")
GOOD = Line("ours", [1, 2], [0.5, 0.25])
NUMBERS = st.floats(-1e6, 1e6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Axis("loss", "cubic"), "`scale` must be one of linear, log, but is 'cubic'"),
        (lambda: Axis(""), "The label of an axis must be a text"),
        (lambda: Axis("loss", "log", ["a"]), "`scale` must be linear"),
        (lambda: Line("ours", [1, 2], [0.5]), "`x` and `y` of the line 'ours' must have equal lengths, but have 2 and 1"),
        (lambda: Line("ours", [1, 2], [1.0, 2.0], [0.1]), "`x` and `spread` of the line 'ours' must have equal lengths"),
        (lambda: Line("ours", [], []), "`x` of the line 'ours' must have a point"),
        (lambda: Line("ours", [1], [1.0], style="dots"), "`style` must be one of line, points, bars, but is 'dots'"),
        (lambda: Line("ours", [1], [math.inf]), "`y` of the line 'ours' must be finite numbers, but one is inf"),
        (lambda: Line("ours", [math.nan], [1.0]), "`x` of the line 'ours' must be finite numbers, but one is nan"),
        (lambda: Line("ours", [1], [1.0], [-0.1]), "`spread` of the line 'ours' must not be negative"),
        (lambda: Line("_ours", [1], [1.0]), "does not start with `_`, but is '_ours'"),
        (lambda: Line("$a$", [1], [1.0]), "a text without `\\$`"),
        (lambda: Mark("published"), "must have `x` or `y`, and not both"),
        (lambda: Mark("published", x=1, y=1), "must have `x` or `y`, and not both"),
        (lambda: Mark("published", y=math.nan), "The mark 'published' must be finite numbers, but one is nan"),
        (lambda: Panel("", X, Y, [GOOD]), "The title of a panel must be a text"),
        (lambda: Panel("Loss", X, Y, []), "`lines` of the panel 'Loss' must have a line"),
        (lambda: Panel("Loss", X, LOG, [Line("ours", [1], [0.0])]), "`y` of 'ours' must be above 0 on the logarithmic axis"),
        (lambda: Panel("Loss", X, LOG, [Line("ours", [1], [-1.0])]), "but is -1.0"),
        (lambda: Panel("Loss", Axis("n", "log"), Y, [Line("ours", [0], [1.0])]), "`x` of 'ours' must be above 0"),
        (lambda: Panel("Loss", X, LOG, [GOOD], [Mark("chance", y=0.0)]), "`y` of 'chance' must be above 0"),
        (lambda: Panel("Loss", X, Y, [GOOD], [Mark("ours", y=1.0)]), "must have labels of their own, but 'ours' is taken"),
        (lambda: Panel("Loss", X, Y, [GOOD], [Mark("a", y=1.0), Mark("a", y=2.0)]), "but 'a' is taken"),
        (lambda: mean_line("ours", []), "`runs` of the line 'ours' must have a run"),
        (lambda: mean_line("ours", [([1], [1.0]), ([2], [1.0])]), "must have the same x, but two of them differ"),
        (lambda: mean_line("ours", [([1, 2], [1.0])]), "must have as many y as x, 2, but one has not"),
    ],
)  # fmt: skip
def test_what_no_picture_can_show_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("scale", SCALES)
def test_a_panel_comes_back_from_json(scale: str, style: str) -> None:
    lines = [Line("a", [1, 2], [0.5, None], [0.1, None], style), Line("b", [1.5], [3.0], style=style)]
    panel = Panel("Loss", Axis("step", scale), Axis("loss", scale), lines, [Mark("chance", y=2.0), Mark("end", x=2)])
    stored = json.loads(json.dumps(panel.to_dict()))
    assert Panel.from_dict(stored).to_dict() == stored
    assert stored["lines"][0] == {"label": "a", "x": [1, 2], "y": [0.5, None], "spread": [0.1, None], "style": style}
    assert "spread" not in stored["lines"][1]
    assert stored["marks"] == [{"label": "chance", "y": 2.0}, {"label": "end", "x": 2}]


def test_names_of_an_axis_come_back() -> None:
    panel = Panel("Loss", Axis("model", names=["RNN", "LSTM"]), Y, [Line("ours", [0, 1], [1.0, 2.0], style="bars")])
    assert [*Panel.from_dict(panel.to_dict()).x.names] == ["RNN", "LSTM"]


@given(st.lists(NUMBERS, min_size=1, max_size=8))
def test_stored_numbers_have_six_digits(numbers: list[float]) -> None:
    stored = Line("ours", numbers, numbers).to_dict()
    for before, after in zip(numbers * 2, stored["x"] + stored["y"], strict=True):
        assert after == float(f"{before:.5e}")


@given(st.integers(1, 5), st.integers(1, 4), st.data())
def test_the_mean_line_has_mean_and_spread_of_each_point(points: int, seeds: int, data: st.DataObject) -> None:
    curve = st.lists(NUMBERS, min_size=points, max_size=points)
    curves = data.draw(st.lists(curve, min_size=seeds, max_size=seeds))
    line = mean_line("ours", [([*range(points)], one) for one in curves])
    columns = [*zip(*curves, strict=True)]
    assert line.y == [fmean(column) for column in columns]
    assert line.spread == ([stdev(column) for column in columns] if seeds > 1 else None)


@pytest.mark.parametrize("bad", [None, math.inf, -math.inf, math.nan])
def test_a_run_that_diverged_leaves_a_gap_and_is_not_left_out(bad: float | None) -> None:
    line = mean_line("ours", [([1, 2], [1.0, 2.0]), ([1, 2], [3.0, bad])])
    assert line.y == [2.0, None]


def test_zeros_become_gaps_and_nothing_else_does() -> None:
    assert Line("ours", [1, 2, 3, 4], [0.0, 1e-300, -1.0, None]).skip_zeros().y == [None, 1e-300, -1.0, None]


def test_the_mean_of_curves_ends_with_the_shortest_run() -> None:
    whole, short = [[1, 2.0], [2, 4.0], [3, 6.0]], [[1, 4.0], [2, 4.0]]
    line = mean_curve("ours", [whole, short])
    assert line is not None
    assert (line.x, line.y) == ([1, 2], [3.0, 4.0])
    assert mean_curve("ours", [whole, []]) is None
