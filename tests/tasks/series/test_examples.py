"""Windows and whole series: each step of validation and test is scored once, and a ragged batch is its series one by one."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steadyrnn.errors import DataError
from steadyrnn.tasks.series.examples import NOTHING, Examples, Flat, cut_examples
from steadyrnn.tasks.series.problem import Problem
from steadyrnn.tasks.series.split import Segments
from tests.tasks.series.made import classes, made, make, numbers

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=5)


def segments_of(lengths: list[int], gap: int = 3) -> Segments:
    """Return segments with rows between them that belong to another part."""
    stops = (torch.tensor(lengths) + gap).cumsum(0)
    return Segments(stops - torch.tensor(lengths), stops, torch.arange(len(lengths)))


def rows_in(segments: Segments) -> list[int]:
    return [row for a, b in zip(segments.start.tolist(), segments.stop.tolist(), strict=True) for row in range(a, b)]


@given(lengths=LENGTHS, window=st.integers(1, 25), part=st.sampled_from(["validation", "test"]))
def test_windows_score_each_step_of_a_held_out_part_once(lengths: list[int], window: int, part: str) -> None:
    segments, problem = segments_of(lengths), Problem("classification", True, ("a", "b"), window=window)
    examples = cut_examples(segments, problem, part)
    size = int(segments.stop.max()) + 50
    flat = Flat.of(torch.zeros(size, 1), torch.arange(size))  # the class of a step is its row
    scored = Counter[int]()
    for place in range(0, len(examples), 3):
        target = examples.batch(flat, problem, slice(place, place + 3)).target
        scored.update(target[target != NOTHING].tolist())
    assert scored == Counter(rows_in(segments))


@given(lengths=LENGTHS, window=st.integers(1, 25), stride=st.integers(1, 25))
def test_training_windows_cover_each_step_unless_the_stride_jumps_over_it(lengths: list[int], window: int, stride: int) -> None:
    segments = segments_of(lengths)
    examples = cut_examples(segments, Problem("classification", True, ("a",), window=window, stride=stride), "train")
    read = {row for a, n in zip(examples.start.tolist(), examples.length.tolist(), strict=True) for row in range(a, a + n)}
    assert read <= {*rows_in(segments)}
    if stride <= window:
        assert read == {*rows_in(segments)}


@given(lengths=LENGTHS, window=st.integers(1, 8), horizon=st.integers(1, 6), stride=st.integers(1, 5))
def test_a_forecast_and_its_window_lie_in_one_segment_and_each_step_is_forecast_once(
    lengths: list[int], window: int, horizon: int, stride: int
) -> None:
    segments = segments_of(lengths)
    problem = Problem("forecasting", False, ("x",) * horizon, horizon, window, stride)
    if max(lengths) < window + horizon:
        with pytest.raises(DataError, match=f"must have {window + horizon} steps in a row"):
            cut_examples(segments, problem, "test")
        return
    owner = {row: place for place in range(len(lengths)) for row in range(segments.start[place], segments.stop[place])}
    size = int(segments.stop.max())
    flat = Flat.of(torch.arange(size, dtype=torch.float64).unsqueeze(1), torch.arange(size, dtype=torch.float64).unsqueeze(1))
    for part in ("train", "test"):
        batch = cut_examples(segments, problem, part).batch(flat, problem, slice(None))
        for read, wanted in zip(batch.input[:, :, 0].T.tolist(), batch.target.tolist(), strict=True):
            assert [*read, *wanted] == [read[0] + step for step in range(window + horizon)]
            assert len({owner[int(row)] for row in (*read, *wanted)}) == 1
        if part == "test":
            found = Counter(batch.target.flatten().tolist())
            assert {*found.values()} == {1}
            forecast = sum(max(0, (n - window) // horizon) * horizon for n in lengths)
            assert found.total() == forecast


@given(lengths=LENGTHS, patch=st.integers(1, 6), seed=st.integers(0, 99))
def test_a_ragged_batch_is_its_series_one_by_one_and_zero_behind_them(lengths: list[int], patch: int, seed: int) -> None:
    series = made(lengths, 2, seed=seed)
    examples = Examples(series.starts, series.lengths, torch.arange(len(lengths)), torch.zeros(len(lengths)).long())
    flat = Flat.of(series.values.float(), torch.arange(len(lengths)))
    problem = Problem("classification", False, ("a", "b"), patch=patch)
    batch = examples.batch(flat, problem, slice(None))
    steps = [-(-n // patch) for n in lengths]
    assert batch.input.shape == (max(steps), len(lengths), 2 * patch)
    assert (batch.lengths is None) == (len({*steps}) == 1)
    assert batch.lengths is None or batch.lengths.tolist() == steps
    for place, own in enumerate(series.series):
        read = batch.input[:, place].reshape(-1, 2)  # the steps of a patch stand side by side
        assert torch.equal(read[: len(own)], torch.from_numpy(own).float())
        assert not read[len(own) :].any()
    assert torch.equal(batch.target, torch.arange(len(lengths)))


@pytest.mark.parametrize("settings", [{"window": 7}, {"bptt": 5}, {}], ids=["window", "bptt", "whole"])
def test_a_training_batch_is_a_pure_function_of_step_and_size(settings: dict[str, int]) -> None:
    series = made([30] * 12, target=numbers(360 if settings else 12, each=bool(settings)))
    first, second = (make(series, target="p", **settings) for _ in range(2))
    batches = [first.train_batch(step, size) for step in (0, 5, 2) for size in (3, 8)]
    again = [second.train_batch(step, size) for step, size in ((0, 3), (0, 8), (5, 3), (5, 8), (2, 3), (2, 8))]
    for ours, theirs in zip(batches, again, strict=True):
        assert torch.equal(ours.input, theirs.input)
        assert torch.equal(ours.target.nan_to_num(9), theirs.target.nan_to_num(9))


def test_an_epoch_reads_every_training_window_once() -> None:
    task = make(made([200], target=classes(200)), target="kind", window=10)
    count = len(task.examples["train"])
    starts = torch.cat([task.order.rows(step, 1) for step in range(count)])
    assert sorted(starts.tolist()) == [*range(count)]
    assert task.epoch_steps(1) == count


def test_a_window_longer_than_a_part_reads_the_part() -> None:
    task = make(made([40], target=classes(40)), target="kind", window=100)
    for part, segments in task.prepared.parts.items():
        assert task.examples[part].length.tolist() == segments.lengths.tolist()


def test_a_missing_value_is_zero_and_one_in_its_mask() -> None:
    series = made([50] * 6, 2, numbers(6, each=False), missing=0.3)
    task = make(series, target="p", missing="mask")
    gaps = series.values.isnan()
    values, mask = task.flat.padded[:-1].split(2, dim=1)
    assert torch.equal(mask, gaps.float())
    assert not values[gaps].any()
    assert torch.equal(values[~gaps], task.prepared.scaling.apply(series.values)[~gaps].float())
    assert task.interface.inputs == 4 * task.problem.patch


def test_a_series_of_one_step_and_one_of_many() -> None:
    task = make(made([1, 50, 1, 7, 9, 1, 3, 2], target=numbers(8, each=False)), target="p", patch=2)
    lengths = torch.cat([task.train_batch(0, 8).lengths, torch.zeros(0).long()])
    assert int(lengths.min()) >= 1
    assert sum(len(batch.target) for part in task.prepared.parts for batch in task.batches(part, 3)) == 8
