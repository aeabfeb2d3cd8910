"""Learning rates over time, against their formulas."""

import math

import pytest

from steadyrnn.train.schedules import SCHEDULES, Moment, rate_factor
from steadyrnn.train.settings import ScheduleSettings


def factors(settings: ScheduleSettings, steps: int = 8, reductions: int = 0) -> list[float]:
    return [rate_factor(settings, Moment(step, epoch_steps=3, total=8, reductions=reductions)) for step in range(steps)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("constant", [1.0] * 8),
        ("decay", [1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25]),
        ("cosine", [0.5 * (1 + math.cos(math.pi * step / 8)) for step in range(8)]),
        ("inverse", [1 / t for t in range(1, 9)]),
        ("inverse-sqrt", [t**-0.5 for t in range(1, 9)]),
        ("plateau", [1.0] * 8),
    ],
)
def test_a_schedule_follows_its_formula(name: str, expected: list[float]) -> None:
    assert factors(ScheduleSettings(name, factor=0.5)) == pytest.approx(expected, rel=1e-15)


def test_cosine_ends_at_zero() -> None:
    assert rate_factor(ScheduleSettings("cosine"), Moment(8, 3, 8)) == pytest.approx(0, abs=1e-16)


def test_a_plateau_divides_once_for_every_stall() -> None:
    assert factors(ScheduleSettings("plateau", factor=0.1), steps=1, reductions=2) == pytest.approx([0.01])


@pytest.mark.parametrize("name", SCHEDULES)
def test_warm_up_rises_linearly_and_ends_at_the_schedule(name: str) -> None:
    cold, warm = factors(ScheduleSettings(name)), factors(ScheduleSettings(name, warmup=4))
    assert warm == pytest.approx([c * min(1.0, t / 4) for t, c in enumerate(cold, start=1)])


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_factor_is_between_zero_and_one(name: str) -> None:
    assert all(0 <= factor <= 1 for factor in factors(ScheduleSettings(name), reductions=3))
