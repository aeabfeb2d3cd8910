"""Another file is read as the file of the training was, whatever its own values look like."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steadyrnn.errors import DataError
from steadyrnn.tasks.series.prepared import prepare_as
from steadyrnn.tasks.series.records import RawTarget, SeriesSet
from steadyrnn.tasks.series.settings import SeriesSettings
from steadyrnn.tasks.series.targets import match_target
from steadyrnn.tasks.series.task import SeriesTask, task_from
from tests.tasks.series.loading import load
from tests.tasks.series.made import classes, made, make, numbers

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=6)
FILES = {
    "classes of steps": made([60], 1, classes(60)),
    "numbers of steps": made([60], 1, numbers(60)),
    "classes of series": made([9] * 30, 1, classes(30, each=False)),
    "numbers of series": made([9] * 30, 1, numbers(30, each=False)),
}


def on(name: str, other: SeriesSet, **settings: object) -> SeriesTask:
    """Return the task of other series for a network that was trained on some of these."""
    wanted = SeriesSettings(target="t", **settings)  # type: ignore[arg-type]
    trained = make(FILES[name], target="t", **settings)
    return task_from(prepare_as(other, wanted, trained.data_facts()["preparation"]))


def scored(task: SeriesTask) -> list[float]:
    """Return the targets that count, example by example, in the units of the file."""
    found = []
    for batch in task.batches("test", 1):
        target = batch.target.flatten().double()
        found += target[target >= 0].tolist() if batch.target.dtype == torch.int64 else target[~target.isnan()].tolist()
    if task.problem.kind != "classification":
        found = task.prepared.target_scaling.undo(torch.tensor(found, dtype=torch.float64).unsqueeze(1)).flatten().tolist()
    return found


@pytest.mark.parametrize("reading", [{"window": 4}, {"bptt": 3}])
@pytest.mark.parametrize("name", ["classes of steps", "numbers of steps"])
@given(lengths=LENGTHS)
def test_a_target_that_stays_the_same_within_each_series_is_still_one_of_every_step(
    name: str, reading: dict[str, object], lengths: list[int]
) -> None:
    kind = FILES[name].target
    target = classes(len(lengths)) if kind is not None and kind.texts is not None else numbers(len(lengths))
    task = on(name, made(lengths, 1, replace(target, each=False)), **reading)
    of_series = [0, 1] * 3 if target.numbers is None else target.numbers.flatten().tolist()
    wanted = [float(of_series[number]) for number, length in enumerate(lengths) for _ in range(length)]
    assert scored(task) == pytest.approx(wanted, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", ["classes of series", "numbers of series"])
@given(lengths=LENGTHS)
def test_the_target_of_a_file_of_one_series_is_one_of_the_series(name: str, lengths: list[int]) -> None:
    kind = FILES[name].target
    of_series = classes(len(lengths), each=False) if kind is not None and kind.texts is not None else numbers(len(lengths))
    series = match_target(made(lengths, 1, replace(of_series, each=False)), each=True)
    task = on(name, series, patch=1)
    wanted = [0, 1] * 3 if of_series.numbers is None else of_series.numbers.flatten().tolist()
    assert scored(task) == pytest.approx([float(value) for value in wanted[: len(lengths)]], rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", ["classes of series", "numbers of series"])
def test_a_target_that_changes_within_a_series_is_not_one_of_the_series(name: str) -> None:
    kind = FILES[name].target
    target = classes(8) if kind is not None and kind.texts is not None else numbers(8)
    with pytest.raises(DataError, match="must be one for each series, as in training, but changes within the series 's0'"):
        on(name, made([8], 1, target))


@pytest.mark.parametrize("each", [True, False])
def test_test_series_are_read_as_the_others(each: bool) -> None:
    series = made([40] * 3, 1, classes(120)) if each else FILES["classes of series"]
    lengths = [4, 3] if each else [4]
    test = made(lengths, 1, classes(2, each=False) if each else RawTarget(("kind",), texts=("b",) * 4, each=True))
    settings = {"window": 4} if each else {}
    task = make(series, test, target="kind", test_data="more.csv", **settings)
    assert scored(task) == ([0, 0, 0, 0, 1, 1, 1] if each else [1])


@pytest.mark.parametrize("name", ["numbers of steps", "numbers of series"])
def test_texts_are_no_numbers(name: str) -> None:
    with pytest.raises(DataError, match="must hold numbers, as in training, but holds text"):
        on(name, made([8] * 2, 1, classes(2, each=False)))


@pytest.mark.parametrize("name", ["numbers of steps", "numbers of series"])
def test_a_number_that_float32_cannot_hold_is_no_target(name: str) -> None:
    target = RawTarget(("t",), numbers=torch.tensor([[1.0], [1e300]], dtype=torch.float64))
    with pytest.raises(DataError, match="value of the target 'p' is larger than float32 can hold"):
        on(name, made([8] * 2, 1, target))
    with pytest.raises(DataError, match="value of the channel 'x' is larger than float32 can hold"):
        on(name, replace(made([8], 1, numbers(1, each=False)), values=torch.full((8, 1), -1e300, dtype=torch.float64)))


def test_one_cell_that_makes_the_target_one_of_steps_is_named(tmp_path: Path) -> None:
    rows = [[name, step, "ab"[name % 2]] for name in range(4) for step in range(3)]
    rows[7][2] = "oops"
    text = "id,x,kind\n" + "".join(f"{name},{step},{kind}\n" for name, step, kind in rows)
    series = load(tmp_path, text, series="id", target="kind")
    said = "Every step has its own target, since 'kind' changes within 1 of 4 series: first in series '2', line 9."
    assert said in series.notes
    every = "id,x,kind\n" + "".join(f"{name},{step},{'ab'[step % 2]}\n" for name, step, _ in rows)
    for usual in (text.replace("oops", "a"), every):
        assert not any("own target" in note for note in load(tmp_path, usual, series="id", target="kind").notes)


def test_a_column_to_forecast_may_have_a_comma_in_its_name(tmp_path: Path) -> None:
    text = '"load, kW",y\n' + "".join(f"{step % 7},{step % 5}\n" for step in range(60))
    (tmp_path / "data.csv").write_text(text, encoding="utf-8")
    series = load(tmp_path, text, target="load, kW", horizon=1)
    task = make(series, target="load, kW", horizon=1)
    assert task.problem.outputs == ("load, kW",)
    assert task.prepared.columns == [0]
