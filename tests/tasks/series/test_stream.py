"""Rows of a stream: all steps once, in order, one batch behind the other."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steadyrnn.errors import DataError
from steadyrnn.tasks.series.examples import NOTHING, Flat
from steadyrnn.tasks.series.problem import Problem
from steadyrnn.tasks.series.stream import StreamPart
from tests.tasks.series.made import classes, made, make
from tests.tasks.series.test_examples import rows_in, segments_of

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=4)


def stream_of(lengths: list[int], bptt: int, horizon: int = 0) -> tuple[StreamPart, list[int]]:
    segments = segments_of(lengths)
    size = int(segments.stop.max())
    rows = torch.arange(size)
    kind = "forecasting" if horizon else "classification"
    problem = Problem(kind, True, ("a",) * max(1, horizon), horizon, bptt=bptt)
    target = rows.double().unsqueeze(1) if horizon else rows
    return StreamPart(Flat.of(rows.double().unsqueeze(1), target), segments, problem, "test"), rows_in(segments)


@given(lengths=LENGTHS, bptt=st.integers(1, 12), rows=st.integers(1, 50))
def test_each_step_is_read_and_scored_once(lengths: list[int], bptt: int, rows: int) -> None:
    stream, wanted = stream_of(lengths, bptt)
    batches = [stream.batch(number, rows) for number in range(stream.batches(rows))]
    scored = torch.cat([batch.target.flatten() for batch in batches])
    assert Counter(scored[scored != NOTHING].tolist()) == Counter(wanted)
    for batch in batches:
        assert batch.input.shape[1] == rows
        assert 1 <= len(batch.input) <= bptt
        counted = batch.target != NOTHING
        assert torch.equal(batch.input[..., 0][counted], batch.target[counted].double())
        assert not batch.input[..., 0][~counted].any()


@given(lengths=LENGTHS, bptt=st.integers(1, 12), rows=st.integers(1, 9))
def test_a_row_goes_on_in_the_next_batch_and_only_the_first_is_fresh(lengths: list[int], bptt: int, rows: int) -> None:
    stream, wanted = stream_of(lengths, bptt)
    batches = [stream.batch(number, rows) for number in range(stream.batches(rows))]
    assert [batch.fresh for batch in batches] == [True, *[False] * (len(batches) - 1)]
    whole = torch.cat([batch.target for batch in batches]).T.flatten()  # row by row
    assert whole[whole != NOTHING].tolist() == wanted


@given(lengths=LENGTHS, bptt=st.integers(1, 12), horizon=st.integers(1, 6), rows=st.integers(1, 6))
def test_a_forecast_of_a_stream_stays_in_its_segment(lengths: list[int], bptt: int, horizon: int, rows: int) -> None:
    if max(lengths) <= horizon:
        with pytest.raises(DataError, match=f"no step with {horizon} steps behind it"):
            stream_of(lengths, bptt, horizon)
        return
    stream, wanted = stream_of(lengths, bptt, horizon)
    found = 0
    for number in range(stream.batches(rows)):
        batch = stream.batch(number, rows)
        for read, ahead in zip(batch.input.flatten(0, 1), batch.target.flatten(0, 1), strict=True):
            if ahead.isnan().any():
                assert ahead.isnan().all()
                continue
            found += 1
            assert ahead.tolist() == [float(read) + step for step in range(1, horizon + 1)]
            assert {*map(int, ahead.tolist())} <= {*wanted}
    assert found == sum(max(0, n - horizon) for n in lengths)


def test_more_rows_than_steps_are_mostly_empty() -> None:
    stream, wanted = stream_of([3], 5)
    batch = stream.batch(0, 10)
    assert batch.target.flatten().tolist() == [*wanted, *[NOTHING] * 7]
    task = make(made([20], target=classes(20)), target="kind", bptt=4)
    batch = task.train_batch(0, 64)
    output = torch.zeros(*batch.target.shape, 2)
    assert float(task.loss(output, batch)) == pytest.approx(0.6931472)  # ln 2


def test_the_epochs_of_a_stream_are_all_alike_and_begin_afresh() -> None:
    task = make(made([90], target=classes(90)), target="kind", bptt=4)
    steps = task.epoch_steps(3)
    for step in range(steps):
        first, second = task.train_batch(step, 3), task.train_batch(step + steps, 3)
        assert torch.equal(first.input, second.input)
        assert first.fresh == second.fresh == (step == 0)
