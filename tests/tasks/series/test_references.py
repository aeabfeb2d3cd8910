"""Simple methods that a network is shown beside: each against the same computed another way."""

import numpy as np
import pytest
import torch

from steadyrnn.tasks.series.records import RawTarget
from tests.tasks.series.made import classes, made, make, numbers


def test_the_commonest_class_is_that_of_training() -> None:
    series = made([5] * 30, target=RawTarget(("kind",), texts=tuple("aab"[place % 3] for place in range(30))))
    task = make(series, target="kind")
    test = task.flat.target[task.prepared.parts["test"].series]
    share = float((test == 0).double().mean())
    assert task.baselines["accuracy"] == pytest.approx(share)
    assert task.baselines == task.references()["commonest class"]
    assert task.baselines["balanced_accuracy"] == pytest.approx(0.5)


def test_the_mean_is_that_of_training_and_in_the_units_of_the_file() -> None:
    series = made([5] * 40, target=numbers(40, each=False))
    task = make(series, target="p")
    assert series.target is not None
    values = series.target.numbers[:, 0]  # type: ignore[index]
    train, test = (values[task.prepared.parts[part].series] for part in ("train", "test"))
    assert task.baselines["rmse"] == pytest.approx(float((test - train.mean()).square().mean().sqrt()))
    assert task.baselines["mae"] == pytest.approx(float((test - train.mean()).abs().mean()))


@pytest.mark.parametrize("patch", [1, 2, 3])
@pytest.mark.parametrize("target", [None, "y"])
def test_the_last_value_repeats_what_a_window_ends_with(patch: int, target: str | None) -> None:
    series = made([200], 2)
    task = make(series, horizon=2, window=7, patch=patch, target=target)
    columns = [1] if target else [0, 1]
    tests = task.examples["test"]
    last = series.values[tests.start + tests.length - 1][:, columns]
    truth = torch.stack([series.values[tests.start + tests.length + step][:, columns] for step in range(2)], 1)
    error = (last.unsqueeze(1) - truth).square().mean((0, 1)).sqrt()
    found = task.references()["last value"]
    marks = [""] if target else [" x", " y"]
    for mark, wanted in zip(marks, error.tolist(), strict=True):
        assert found[f"rmse{mark}"] == pytest.approx(wanted, rel=1e-5)


def test_the_linear_model_finds_what_is_linear() -> None:
    series = made([6] * 200, 1)
    values = np.stack([own[:, 0] for own in series.series])
    wanted = torch.from_numpy(values @ np.arange(1.0, 7.0)).unsqueeze(1)
    task = make(made([6] * 200, 1, RawTarget(("p",), numbers=wanted)), target="p")
    scores = task.references()
    assert scores["linear model"]["rmse"] < 0.02 * scores["mean"]["rmse"]  # the smallest penalty is 0.001


CASES = {
    "classes of ragged series": (made([3, 9, 1, 12] * 6, 2, classes(24, each=False)), {"target": "kind"}),
    "classes of steps": (made([60], 2, classes(60)), {"target": "kind", "window": 5}),
    "classes of a stream": (made([60], 2, classes(60)), {"target": "kind", "bptt": 5}),
    "numbers of steps": (made([60], 2, numbers(60, columns=2)), {"target": "p,q"}),
    "a forecast": (made([60], 2), {"horizon": 3}),
    "a forecast of a stream": (made([60], 2), {"horizon": 3, "bptt": 6}),
    "a forecast with gaps": (made([60], 2, missing=0.3), {"horizon": 3, "missing": "mask"}),
}


@pytest.mark.parametrize("case", CASES)
def test_each_has_the_scores_of_the_task(case: str) -> None:
    series, settings = CASES[case]
    task = make(series, **settings)
    found = task.references()
    assert {*found} >= {"linear model"}
    names = {*task.summary(dict.fromkeys(task.scores(*_guess(task)), 1.0))}
    for scores in found.values():
        assert {*scores} == names
        assert all(value == value and abs(value) < 1e6 for value in scores.values())


def _guess(task):  # type: ignore[no-untyped-def]
    batch = next(iter(task.batches("test", 2)))
    shape = (*batch.target.shape, task.interface.outputs) if batch.target.dtype == torch.int64 else batch.target.shape
    return torch.zeros(*shape), batch
