"""Best so far, stalls and reasons to stop, alone and in a run."""

import math
from collections.abc import Mapping
from pathlib import Path

import pytest

from steadyrnn.tasks.addition import Addition
from steadyrnn.tasks.settings import AdditionSettings
from steadyrnn.train.settings import OptimizerSettings, ScheduleSettings, StopSettings
from steadyrnn.train.stopping import Standing, reason_to_stop
from steadyrnn.train.trainer import train
from tests.train.runs import addition, lines, new_run, plain_model, tiny

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


@pytest.mark.parametrize(
    ("stop", "reason", "steps"),
    [(StopSettings(), "finished", 14), (StopSettings(below=1e9), "below", 5), (StopSettings(patience=1), "patience", 10)],
)
def test_a_run_ends_for_its_reason(tmp_path: Path, stop: StopSettings, reason: str, steps: int) -> None:
    settings = tiny(stop=stop, optimizer=OptimizerSettings("sgd", lr=0.0))
    with new_run(tmp_path, settings) as run:
        result = train(plain_model(), addition(), settings, run=run)
    assert (result.reason, result.steps) == (reason, steps)
    assert lines(run)[-1] == {"kind": "end", "step": steps, "reason": reason}
    assert run.load("last").facts["reason"] == reason


class Saturated(Addition):
    """Has an accuracy that is perfect from the start."""

    metric, higher_is_better = "accuracy", True

    def summary(self, sums: Mapping[str, float]) -> dict[str, float]:
        return super().summary(sums) | {"accuracy": 1.0}


def test_at_equal_metrics_the_weights_with_the_lowest_loss_are_kept_and_patience_waits_for_them(tmp_path: Path) -> None:
    settings = tiny(steps=30, validate_every=3, stop=StopSettings(patience=1), optimizer=OptimizerSettings(lr=0.01))
    with new_run(tmp_path, settings) as run:
        result = train(plain_model(), Saturated(AdditionSettings(length=10, validation=24, test=24)), settings, run=run)
    losses = {line["step"]: line["loss"] for line in run.metrics() if line["kind"] == "validation"}
    assert result.best_step == min(losses, key=lambda step: losses[step]) > 3
    assert result.best["loss"] == losses[result.best_step] == run.load("best").facts["validation"]["loss"]
