"""What is asked of some series: chosen where it is open, refused in one sentence where it cannot be."""

import pytest
import torch

from steadyrnn.errors import ArgumentError, DataError
from steadyrnn.tasks.series.problem import Problem, class_codes, find_problem
from steadyrnn.tasks.series.records import RawTarget, SeriesSet
from steadyrnn.tasks.series.settings import SeriesSettings
from tests.tasks.series.made import classes, made, make, numbers


def whole(values: list[float], each: bool = False) -> RawTarget:
    return RawTarget(("n",), numbers=torch.tensor(values, dtype=torch.float64).unsqueeze(1), each=each)


def found(series: SeriesSet, **settings: object) -> Problem:
    return find_problem(series, SeriesSettings(**settings))  # type: ignore[arg-type]


KINDS = {
    "text": (classes(10, each=False), "classification", ("a", "b")),
    "minus one and one": (whole([-1.0, 1.0] * 5), "classification", ("-1", "1")),
    "floats that are whole": (whole([0.0, 2.0, 10.0, 2.0, 0.0] * 2), "classification", ("0", "2", "10")),
    "floats": (whole([0.5, 1.0] * 5), "regression", ("n",)),
    "a hundred whole numbers, rare": (whole([float(n) for n in range(100)]), "regression", ("n",)),
    "a hundred whole numbers, often": (whole([float(n) for n in range(100)] * 5), "classification", ()),
    "three hundred whole numbers, often": (whole([float(n) for n in range(300)] * 5), "regression", ("n",)),
    "commas and other letters": (
        RawTarget(("k",), texts=("a, b", "grün", "日本", "a, b", "grün")), "classification", ("a, b", "grün", "日本"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", KINDS)
def test_the_kind_follows_from_the_target(case: str) -> None:
    target, kind, outputs = KINDS[case]
    count = len(target.texts or target.numbers)  # type: ignore[arg-type]
    problem = found(made([3] * count, target=target), target="n")
    assert problem.kind == kind
    assert not problem.each
    assert not outputs or problem.outputs == outputs
    codes = class_codes(target, problem.outputs, "here") if kind == "classification" else torch.zeros(1)
    assert len(codes.unique()) == (len(problem.outputs) if kind == "classification" else 1)


def test_a_hundred_classes_of_text_are_a_hundred_outputs() -> None:
    target = RawTarget(("k",), texts=tuple(f"class {n % 100}" for n in range(500)))
    task = make(made([4] * 500, target=target), target="k")
    assert task.interface.outputs == 100
    assert torch.isfinite(task.loss(torch.zeros(8, 100), task.train_batch(0, 8)))


REFUSED: dict[str, tuple[SeriesSet, dict[str, object], str]] = {
    "kind": (made([9]), {"kind": "magic"}, "`kind`"),
    "no target": (made([9] * 5), {}, "`target` must name the columns"),
    "no fraction": (made([9]), {"horizon": 1, "test": 1.0}, "`test` must be a fraction"),
    "a negative fraction": (made([9]), {"horizon": 1, "validation": -0.1}, "`validation` must be a fraction"),
    "nothing left": (made([9]), {"horizon": 1, "validation": 0.5, "test": 0.5}, "leave something to train on"),
    "horizon 0": (made([9]), {"horizon": 0}, "`horizon` must be at least 1"),
    "window -1": (made([9]), {"horizon": 1, "window": -1}, "`window` must be at least 1"),
    "horizon of classes": (made([9]), {"kind": "classification", "horizon": 2}, "`horizon` belongs to forecasting"),
    "classes of floats": (made([3] * 9, target=numbers(9, False)), {"kind": "classification"}, "numbers that are not whole"),
    "numbers of text": (made([3] * 9, target=classes(9, each=False)), {"kind": "regression"}, "holds text"),
    "weights of a forecast": (made([9]), {"horizon": 1, "weights": "balanced"}, "`weights` belongs to classification"),
    "weights of numbers": (made([3] * 9, target=numbers(9, False)), {"weights": "balanced"}, "`weights` belongs to classif"),
    "an unknown channel": (made([9]), {"horizon": 1, "target": "price"}, "`target`"),
    "group and time": (
        made([9] * 3, target=numbers(27), groups=tuple("abc")), {"split": "time"}, "cannot both be given",
    ),
    "one series by series": (made([9], target=numbers(9)), {"split": "series"}, "`split` is by series, but there are 1"),
    "time without times": (made([9] * 9, target=numbers(9, False)), {"split": "time"}, "needs the column of times"),
    "two series, one target each": (made([9] * 2, target=classes(2, each=False)), {}, "needs the column of times"),
    "bptt of series": (made([9] * 9, target=numbers(9, False)), {"bptt": 3}, "`bptt` needs a target at every step"),
    "window of series": (made([9] * 9, target=numbers(9, False)), {"window": 3}, "`window` needs a target at every step"),
    "bptt and window": (made([9], target=numbers(9)), {"bptt": 3, "window": 3}, "cannot both be given"),
    "patch of steps": (made([9], target=numbers(9)), {"patch": 2}, "`patch` must be 1"),
    "a large patch": (made([9] * 9, target=numbers(9, False)), {"patch": 10}, "`patch` must be at most 9"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused(case: str) -> None:
    series, settings, message = REFUSED[case]
    with pytest.raises(ArgumentError, match=message) as caught:
        found(series, **settings)
    assert "\n" not in str(caught.value)


def test_a_class_that_only_the_test_file_has_is_refused() -> None:
    series = made([4] * 10, target=classes(10, 2, each=False))
    test = made([4] * 3, target=classes(3, 3, each=False))
    with pytest.raises(DataError, match="has the class 'c', but the network knows a, b only"):
        make(series, test, target="kind", test_data="more.csv")


@pytest.mark.parametrize("horizon", [9, 10, 1000])
def test_a_horizon_longer_than_the_series_is_refused(horizon: int) -> None:
    with pytest.raises(DataError, match=r"must have \d+ steps in a row"):
        make(made([10]), horizon=horizon)


@pytest.mark.parametrize("steps", [20, 50, 1000])
@pytest.mark.parametrize("horizon", [1, 2])
@pytest.mark.parametrize("more", [[], [7, 500]], ids=["alone", "beside others"])
def test_the_usual_window_fits_into_every_part(steps: int, horizon: int, more: list[int]) -> None:
    task = make(made([steps] * 12 + more), horizon=horizon)
    assert all(len(examples) for examples in task.examples.values())


def test_runs_that_are_too_short_are_said() -> None:
    task = make(made([100] * 20 + [4]), horizon=2)
    (said,) = [reason for reason in task.data_facts()["reasons"] if "of the test part" in reason]
    assert said.startswith("1 of 21 runs of the test part are shorter than")


def test_a_class_that_never_comes_in_training_is_said() -> None:
    target = RawTarget(("k",), texts=tuple("ab"[step % 2] if step < 90 else "c" for step in range(100)), each=True)
    reasons = make(made([100], target=target), target="k").data_facts()["reasons"]
    assert "no network can learn these classes, which never come in training: c" in reasons
    assert not any(
        "never come" in reason for reason in make(made([90], target=classes(90)), target="k").data_facts()["reasons"]
    )
