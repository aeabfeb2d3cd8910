"""Series in a run folder: the same task comes back, and what is not one is refused."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from steadyrnn.errors import SteadyError
from steadyrnn.tasks.base import StoredData
from steadyrnn.tasks.series.records import RawTarget, SeriesSet
from steadyrnn.tasks.series.settings import SeriesSettings
from steadyrnn.tasks.series.task import SeriesTask, task_of
from steadyrnn.tasks.stored import restore_task


def series(target: RawTarget | None, holes: bool = False) -> SeriesSet:
    values = torch.randn(200, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    if holes:
        values[::17, 1] = torch.nan
    lengths = torch.tensor([8, 12] * 10)
    return SeriesSet(values, lengths, ("a", "b"), tuple(map(str, range(20))), target)


CLASSES = RawTarget(("kind",), texts=("up", "down") * 10)
NUMBERS = RawTarget(("size", "age"), numbers=torch.arange(40, dtype=torch.float64).view(20, 2))
STEPS = RawTarget(("state",), texts=("on", "off") * 100, each=True)
TASKS: dict[str, Callable[[], SeriesTask]] = {
    "classes": lambda: task_of(series(CLASSES), SeriesSettings(seed=3)),
    "balanced": lambda: task_of(series(CLASSES, True), SeriesSettings(weights="balanced", missing="mask")),
    "numbers": lambda: task_of(series(NUMBERS), SeriesSettings(scale="none")),
    "steps": lambda: task_of(series(STEPS), SeriesSettings()),
    "forecasts": lambda: task_of(series(None), SeriesSettings(horizon=1, window=1, target="b", validation=0.3, test=0.3)),
    "streams": lambda: task_of(series(None), SeriesSettings(horizon=1, bptt=4, validation=0.3, test=0.3)),
}


@pytest.mark.parametrize("name", TASKS)
def test_the_same_task_comes_back(name: str) -> None:
    task = TASKS[name]()
    again = restore_task(task.stored())
    assert type(again) is type(task)
    assert again.interface == task.interface
    for split in ("train", "validation", "test"):
        for one, other in zip(task.batches(split, 3), again.batches(split, 3), strict=True):
            assert torch.equal(one.input, other.input)
            assert torch.equal(one.target.nan_to_num(), other.target.nan_to_num())
    assert torch.equal(task.train_batch(5, 3).input, again.train_batch(5, 3).input)
    assert again.baselines == task.baselines


def with_fact(**facts: Any) -> Callable[[StoredData], StoredData]:
    return lambda data: replace(data, facts={**data.facts, **facts})


def with_problem(**facts: Any) -> Callable[[StoredData], StoredData]:
    return lambda data: replace(data, facts={**data.facts, "problem": {**data.facts["problem"], **facts}})


def with_setting(**facts: Any) -> Callable[[StoredData], StoredData]:
    return lambda data: replace(data, facts={**data.facts, "settings": {**data.facts["settings"], **facts}})


def with_tensor(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[StoredData], StoredData]:
    return lambda data: replace(data, tensors={**data.tensors, name: change(data.tensors[name].clone())})


def without(name: str) -> Callable[[StoredData], StoredData]:
    return lambda data: replace(data, tensors={key: value for key, value in data.tensors.items() if key != name})


BAD: dict[str, Callable[[StoredData], StoredData]] = {
    "a fact more": with_fact(more=1),
    "no problem": with_fact(problem=None),
    "a problem with more": with_problem(more=1),
    "another kind": with_problem(kind="dreams"),
    "a forecast without horizon": with_problem(kind="forecasting"),
    "a horizon without forecast": with_problem(horizon=3),
    "a patch of 0": with_problem(patch=0),
    "a patch that is true": with_problem(patch=True),
    "a window of text": with_problem(window="9"),
    "each as a number": with_problem(each=1),
    "outputs as a text": with_problem(outputs="ab"),
    "a class twice": with_problem(outputs=["up", "up"]),
    "a class too few": with_problem(outputs=["up"]),
    "a setting more": with_setting(data="/etc/passwd"),
    "a seed of text": with_setting(seed="1"),
    "an unknown scale": with_setting(scale="max"),
    "channels of numbers": with_fact(channels=[1, 2]),
    "a channel too few": with_fact(channels=["a"]),
    "weights of another number": with_fact(class_weights=[1.0]),
    "weights below 0": with_fact(class_weights=[1.0, -1.0]),
    "values of float32": with_tensor("values", torch.Tensor.float),
    "values that are infinite": with_tensor("values", lambda x: x.fill_(torch.inf)),
    "values that are missing": with_tensor("values", lambda x: x.fill_(torch.nan)),
    "a length of 0": with_tensor("lengths", lambda x: x.fill_(0)),
    "lengths of another sum": with_tensor("lengths", lambda x: x + 1),
    "a huge length": with_tensor("lengths", lambda x: x.fill_(2**62)),
    "no lengths": with_tensor("lengths", lambda x: x[:0]),
    "classes out of range": with_tensor("target", lambda x: x + 5),
    "classes of another number": with_tensor("target", lambda x: x[:3]),
    "classes as numbers": with_tensor("target", torch.Tensor.double),
    "a part outside its series": with_tensor("train", lambda x: x + torch.tensor([0, 1, 0])),
    "a part of no series": with_tensor("test", lambda x: x + torch.tensor([0, 0, 90])),
    "an empty part": with_tensor("validation", lambda x: x[:0]),
    "a part of another shape": with_tensor("validation", lambda x: x[:, :2]),
    "no target": without("target"),
    "no test": without("test"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_task_is_refused(name: str) -> None:
    with pytest.raises(SteadyError):
        restore_task(BAD[name](TASKS["classes"]().stored()))
