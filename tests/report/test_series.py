"""Numbers over training: extraction, means over seeds, thinning, axes."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyrnn.report.numbers import duration, factor, finite, number, spread, with_spread
from steadyrnn.report.scales import linear, logarithmic, wants_logarithm, whole
from steadyrnn.report.series import POINTS, average, extract, interpolate, thin

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def test_only_finite_values_of_the_kind_are_taken_and_the_later_of_a_step_wins() -> None:
    records = [
        {"kind": "train", "step": 2, "loss": 1.0},
        {"kind": "train", "step": 1, "loss": 3.0},
        {"kind": "validation", "step": 1, "loss": 9.0},
        {"kind": "train", "step": 3, "loss": None},
        {"kind": "train", "step": 4},
        {"kind": "train", "step": 5, "loss": "high"},
        {"kind": "train", "step": 2, "loss": 2.0},
    ]
    assert extract(records, "train", "loss") == [(1.0, 3.0), (2.0, 2.0)]


def test_seeds_are_averaged_with_their_range() -> None:
    line = average([[(0, 1.0), (2, 3.0)], [(0, 3.0), (2, 5.0)]])
    assert line is not None
    assert (line.x, line.mean, line.low, line.high, line.seeds) == ([0, 2], [2.0, 4.0], [1.0, 3.0], [3.0, 5.0], 2)


def test_a_seed_counts_between_its_first_and_last_point_only() -> None:
    line = average([[(0, 0.0), (4, 4.0)], [(2, 10.0)]])
    assert line is not None
    assert line.x == [0, 2, 4]
    assert line.mean == [0.0, 6.0, 4.0]


def test_nothing_has_no_mean() -> None:
    assert average([[], []]) is None


@given(st.lists(st.lists(st.tuples(st.integers(0, 50), FINITE), min_size=1, max_size=8), min_size=1, max_size=4))
def test_a_mean_lies_between_the_lowest_and_the_highest_seed(several: list[list[tuple[int, float]]]) -> None:
    line = average([sorted((float(x), y) for x, y in dict(series).items()) for series in several])
    assert line is not None
    assert all(low <= middle <= high for low, middle, high in zip(line.low, line.mean, line.high, strict=True))


def test_between_two_points_lies_the_straight_line_and_outside_nothing() -> None:
    series = [(1.0, 10.0), (3.0, 30.0)]
    assert [interpolate(series, x) for x in (0, 1, 2, 3, 4)] == [None, 10.0, 20.0, 30.0, None]


def test_a_long_line_is_thinned_and_keeps_its_ends_and_extremes() -> None:
    noise = random.Random(0)
    line = average([[(float(x), noise.gauss(0, 1)) for x in range(20_000)] for _ in range(2)])
    assert line is not None
    thinned = thin(line)
    assert len(thinned.x) <= POINTS + 2
    assert (thinned.x[0], thinned.x[-1]) == (line.x[0], line.x[-1])
    assert (min(thinned.mean), max(thinned.mean)) == (min(line.mean), max(line.mean))
    assert (min(thinned.low), max(thinned.high)) == (min(line.low), max(line.high))


def test_a_short_line_stays_as_it_is() -> None:
    line = average([[(0.0, 1.0), (1.0, 2.0)]])
    assert line is not None
    assert thin(line) is line


@given(st.lists(FINITE, min_size=1, max_size=6))
def test_a_linear_axis_shows_every_value_of_ordinary_size(values: list[float]) -> None:
    scale = linear(values)
    assert all(-1e-6 <= scale.at(value) <= 1 + 1e-6 for value in values if abs(value) < 1e299)
    assert 1 <= len(scale.ticks) <= 12


@given(st.lists(st.floats(1e-250, 1e250), min_size=1, max_size=6))
def test_a_logarithmic_axis_shows_every_positive_value(values: list[float]) -> None:
    scale = logarithmic(values)
    assert all(-1e-6 <= scale.at(value) <= 1 + 1e-6 for value in values)
    assert 1 <= len(scale.ticks) <= 12


def test_zero_lies_below_a_logarithmic_axis() -> None:
    assert logarithmic([1e-3, 1.0]).at(0.0) < 0


@pytest.mark.parametrize(
    ("values", "wanted"), [([1e-4, 1.0], True), ([0.5, 1.0], False), ([0.0, 1.0], False), ([-1.0, 100.0], False), ([], False)]
)
def test_a_logarithm_is_taken_of_positive_values_far_apart(values: list[float], wanted: bool) -> None:
    assert wants_logarithm(values) is wanted


@pytest.mark.parametrize("value", [None, "1", True, math.nan, math.inf, -math.inf, 10**400, [1.0]])
def test_what_is_no_finite_number_is_none(value: object) -> None:
    assert finite(value) is None


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([], "–"),
        ([0.25], "0.25"),
        ([0.25, 0.25], "0.25"),
        ([98.1, 98.5], "98.30 ± 0.28"),
        ([-1.0, -3.0], "−2.0 ± 1.4"),
        ([2e-6, 4e-6], "(3.0 ± 1.4)e-6"),
        ([-1.7e308, 1.7e308], "0"),
    ],
)
def test_a_mean_is_written_with_its_spread(values: list[float], text: str) -> None:
    assert with_spread(values) == text


def test_the_spread_is_the_sample_standard_deviation() -> None:
    assert spread([1.0, 2.0, 3.0]) == pytest.approx(1.0)
    assert spread([1.0]) is None


def test_numbers_are_short() -> None:
    assert [number(x) for x in (1 / 3, 12345.678, -0.5, 1e-7, None)] == ["0.3333", "1.235e4", "−0.5", "1e-7", "–"]
    assert [duration(x) for x in (0.04, 59.99, 3600, None)] == ["0.0 s", "1 min 0 s", "1 h 0 min", "–"]


def test_values_that_differ_by_rounding_alone_are_shown_as_one() -> None:
    scale = linear([1.0, 1 + 3e-7])
    assert scale.high - scale.low > 0.1


@given(st.floats(1e-9, 1e9), st.floats(1e-4, 10))
def test_the_ticks_of_an_axis_differ(low: float, span: float) -> None:
    labels = [label for _, label in linear([low, low * (1 + span)]).ticks]
    assert len(set(labels)) == len(labels)


def test_an_axis_of_steps_has_whole_numbers_alone() -> None:
    assert [label for _, label in whole(linear([0.0])).ticks] == ["0"]
    assert [label for _, label in whole(linear([0, 3], margin=0.0)).ticks] == ["0", "1", "2", "3"]


@pytest.mark.parametrize(("value", "text"), [(0.99999, "0.99999"), (1.0000004, "1.0000004"), (1.0, "1"), (None, "–")])
def test_a_contraction_is_written_on_its_side_of_1(value: float | None, text: str) -> None:
    assert factor(value) == text
