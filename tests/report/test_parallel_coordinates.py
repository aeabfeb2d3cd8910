"""Pictures of sweeps: every value has a place, and the best line is the trial that the table has first."""

from typing import Any

import pytest

from steadyrnn.report.parallel_coordinates import Line, draw_parallel, make_axis

VALUES: list[list[Any]] = [
    [1, 2, 3], [1e-5, 1e-3, 0.1], [0.0, 1e-6, 1e-2], [-1.0, 0.0, 5.0], [4, 4], ["a", "b"], [True, False], [None, None],
    ["x" * 30 + "1", "x" * 30 + "2"], [1, "1a", "b"], [*range(50)], [f"n{i}" for i in range(50)], [1e300, -1e300],
]  # fmt: skip


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("null", [False, True])
def test_every_value_has_a_place_of_its_own_and_null_is_one(values: list[Any], null: bool) -> None:
    given = [*values, None] if null else values
    axis = make_axis("name", given)
    places = {value: axis.places[value] for value in given}
    assert all(-0.01 <= place <= 1.01 for place in places.values())
    assert len({round(place, 9) for place in places.values()}) == len({*given})
    if null and len({*values}) > 1 and all(isinstance(value, int | float) for value in values) and True not in values:
        assert min(places, key=lambda value: places[value]) is None
        assert axis.ticks[0] == (0.0, "null")


def test_numbers_stand_in_their_order() -> None:
    for values in ([3, 1, 2], [1e-5, 0.1, 1e-3], [None, 3, 1, 2], [None, 1e-5, 0.1]):
        axis = make_axis("name", values)
        known = sorted(value for value in values if value is not None)
        assert [axis.places[value] for value in known] == sorted(axis.places[value] for value in known)


@pytest.mark.parametrize("higher", [False, True])
def test_of_equal_trials_the_first_is_the_best_as_in_the_table(higher: bool) -> None:
    lines = [Line(3, {"a": 1}, 0.5), Line(9, {"a": 2}, 0.5)]
    drawn = str(draw_parallel(lines, ["a"], "loss", higher))
    assert "best 0.5 of trial 3." in drawn
    assert drawn.index("trial 9: ") < drawn.index("trial 3: ")  # the best lies above
