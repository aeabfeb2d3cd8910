"""Best so far, stalls and reasons to stop."""

import math

import pytest

from steadyrnn.train.settings import ScheduleSettings, StopSettings
from steadyrnn.train.stopping import Standing, reason_to_stop

PLATEAU = ScheduleSettings("plateau", patience=2)


def after(values: list[float], higher: bool = False, schedule: ScheduleSettings = PLATEAU) -> Standing:
    """Return the standing after validations in which the metric is the loss."""
    standing = Standing()
    for step, value in enumerate(values, start=1):
        standing = standing.after(step, loss=value, metric=value, higher=higher, schedule=schedule)
    return standing


@pytest.mark.parametrize(
    ("values", "higher", "step"), [([3.0, 1.0, 2.0], False, 2), ([3.0, 1.0, 2.0], True, 1), ([1.0, 1.0], False, 1)]
)
def test_the_best_is_the_first_that_was_not_beaten(values: list[float], higher: bool, step: int) -> None:
    standing = after(values, higher)
    assert (standing.best, standing.best_step, standing.stale) == (values[step - 1], step, len(values) - step)


@pytest.mark.parametrize("higher", [False, True])
@pytest.mark.parametrize(("values", "step"), [([math.nan, 1.0], 2), ([1.0, math.nan], 1), ([math.nan, math.nan], 1)])
def test_nan_is_worse_than_any_number(values: list[float], step: int, higher: bool) -> None:
    assert after(values, higher).best_step == step


@pytest.mark.parametrize("metric", [1.0, math.inf, math.nan])
@pytest.mark.parametrize("higher", [False, True])
@pytest.mark.parametrize(
    ("losses", "step"),
    [([3.0, 2.0, 1.0], 3), ([3.0, 1.0, 2.0], 2), ([1.0, 1.0], 1), ([math.nan, 5.0], 2), ([5.0, math.nan], 1)],
)
def test_of_equal_metrics_the_lowest_loss_is_the_best_and_ends_the_wait(
    losses: list[float], step: int, higher: bool, metric: float
) -> None:
    standing = Standing()
    for number, loss in enumerate(losses, start=1):
        standing = standing.after(number, loss=loss, metric=metric, higher=higher, schedule=PLATEAU)
    assert (standing.best_step, standing.stale) == (step, len(losses) - step)
    assert standing.best == metric or math.isnan(metric)


@pytest.mark.parametrize("higher", [False, True])
def test_a_lower_loss_does_not_make_up_for_a_worse_metric(higher: bool) -> None:
    worse = 0.4 if higher else 0.6
    first = Standing().after(1, loss=2.0, metric=0.5, higher=higher, schedule=PLATEAU)
    assert first.after(2, loss=0.1, metric=worse, higher=higher, schedule=PLATEAU).best_step == 1


def test_the_loss_of_a_tie_is_that_of_the_best_not_the_lowest_of_all() -> None:
    standing = Standing()
    for step, (metric, loss) in enumerate([(0.5, 0.1), (0.9, 2.0), (0.9, 1.0)], start=1):
        standing = standing.after(step, loss=loss, metric=metric, higher=True, schedule=PLATEAU)
    assert (standing.best_step, standing.stale) == (3, 0)


def test_a_loss_that_stalls_as_long_as_allowed_reduces_the_rate_and_waits_anew() -> None:
    reductions = [after([1.0] * count).reductions for count in range(1, 8)]
    assert reductions == [0, 0, 1, 1, 2, 2, 3]


def test_a_better_loss_ends_the_stall() -> None:
    assert after([1.0, 1.0, 0.5, 0.5]).reductions == 0


def test_only_the_plateau_schedule_counts_stalls() -> None:
    assert after([1.0] * 9, schedule=ScheduleSettings("cosine", patience=2)).reductions == 0


@pytest.mark.parametrize(
    ("settings", "values", "reason"),
    [
        (StopSettings(), [1.0] * 9, None),
        (StopSettings(patience=3), [1.0] * 3, None),
        (StopSettings(patience=3), [1.0] * 4, "patience"),
        (StopSettings(below=0.5), [0.5], None),
        (StopSettings(below=0.5), [0.4], "below"),
        (StopSettings(below=0.5), [math.nan], None),
    ],
)
def test_a_run_stops_when_its_settings_say_so(settings: StopSettings, values: list[float], reason: str | None) -> None:
    assert reason_to_stop(settings, after(values), values[-1]) == reason
