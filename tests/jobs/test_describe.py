"""What is understood of a file before anything is trained equals what training makes of it."""

from pathlib import Path
from typing import Any

import pytest
import torch

from steadyrnn.errors import DataError
from steadyrnn.jobs.describe import describe_data
from steadyrnn.tasks.series.settings import SeriesSettings
from steadyrnn.tasks.series.task import make_series_task
from tests.cli.series_files import steps_of_one, waves


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    waves()
    steps_of_one()


CASES: dict[str, dict[str, Any]] = {
    "classes of series": {"data": "waves.csv", "series": "id", "target": "kind"},
    "classes of steps": {"data": "long.csv", "target": "label", "window": 8},
    "a stream": {"data": "long.csv", "target": "label", "bptt": 8},
    "numbers": {"data": "long.csv", "target": "level"},
    "a forecast": {"data": "long.csv", "channels": "x,y", "horizon": 3},
    "a mask": {"data": "long.csv", "target": "level", "missing": "mask"},
}


@pytest.mark.parametrize("case", CASES)
def test_parts_and_interface_are_those_of_training(case: str) -> None:
    settings = SeriesSettings(**{"validation": 0.25, **CASES[case]})  # a fraction of one's own is kept to
    found, task = describe_data(settings), make_series_task(settings)
    assert found.problem is None
    assert found.interface == vars(task.interface)
    assert found.kind == task.problem.kind
    for part, noted in task.data_facts()["parts"].items():
        assert {name: found.parts[part][name] for name in noted} == noted
        if task.problem.kind == "classification":
            counted = found.parts[part]["classes"]  # each step once, though windows of training overlap
            assert sum(counted.values()) == noted["steps" if task.problem.each else "runs"]
            target = torch.cat([batch.target.flatten() for batch in task.batches(part, 9)])
            if part != "train" or task.problem.window is None:
                assert [*counted.values()] == torch.bincount(target[target >= 0], minlength=2).tolist()


def test_channels_are_those_of_the_file() -> None:
    Path("holes.csv").write_text("t,x,y\n0,1,\n1,,2\n4,3,6\n", encoding="utf-8")
    found = describe_data(SeriesSettings(data="holes.csv", time="t", horizon=1))
    x, y = found.channels
    assert (x.name, x.missing, x.mean, x.deviation, x.smallest, x.largest) == ("x", 1, 2.0, 1.0, 1.0, 3.0)
    assert (y.name, y.missing, y.mean, y.deviation, y.smallest, y.largest) == ("y", 1, 4.0, 2.0, 2.0, 6.0)
    assert found.intervals is not None
    assert (found.intervals.smallest, found.intervals.largest) == (1.0, 3.0)
    assert found.problem is not None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data": "waves.csv", "series": "id"}, "`target` must name"),
        ({"data": "long.csv", "channels": "x,y", "horizon": 90}, "steps in a row"),
        ({"data": "waves.csv", "series": "id", "target": "kind", "window": 3}, "`window` needs a target at every step"),
    ],
)
def test_what_hinders_training_is_said(settings: dict[str, Any], message: str) -> None:
    found = describe_data(SeriesSettings(**settings))
    assert found.problem is not None
    assert message in found.problem
    assert found.series > 0
    assert found.channels


def test_a_target_that_a_file_lacks_is_refused() -> None:
    with pytest.raises(DataError, match="label"):
        describe_data(SeriesSettings(data="long.csv", target="label", horizon=3))
