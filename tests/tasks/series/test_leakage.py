"""Nothing of validation and test reaches training: not its batches, its scaling, its weights, nor what fills its gaps."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steadyrnn.models.settings import ModelSettings
from steadyrnn.models.systems import build_model
from steadyrnn.tasks.series.prepared import prepare
from steadyrnn.tasks.series.records import RawTarget, SeriesSet
from steadyrnn.tasks.series.settings import SeriesSettings
from steadyrnn.tasks.series.split import PARTS, Segments
from steadyrnn.tasks.series.task import SeriesTask, task_from
from steadyrnn.train.settings import OptimizerSettings, TrainSettings
from steadyrnn.train.trainer import train
from tests.tasks.series.made import classes, made, make, numbers

WAYS = {
    "classes of steps, windows": {"target": "kind", "window": 6, "weights": "balanced"},
    "classes of steps, stream": {"target": "kind", "bptt": 4, "weights": "balanced"},
    "numbers of steps": {"target": "p"},
    "forecast": {"horizon": 2, "window": 3},
    "forecast, stream": {"horizon": 2, "bptt": 4},
    "classes of series": {"target": "kind", "weights": "balanced"},
    "numbers of series": {"target": "p"},
}


def series_for(way: str, seed: int, missing: float) -> SeriesSet:
    each = way.endswith("of steps") or "of steps," in way
    lengths = [31, 40, 28, 33, 36, 30, 29, 32, 30, 30]
    count = sum(lengths) if each else len(lengths)
    target = None if "forecast" in way else classes(count, each=each) if "class" in way else numbers(count, each)
    return made(lengths, 2, target, seed, missing)


def spoil(series: SeriesSet, segments: list[Segments], kind: bool) -> SeriesSet:
    """Return the series with other values, and other targets, at all steps of some segments."""
    values, target = series.values.clone(), series.target
    texts = None if target is None or target.texts is None else [*target.texts]
    wanted = None if target is None or target.numbers is None else target.numbers.clone()
    for part in segments:
        for start, stop, row in zip(part.start.tolist(), part.stop.tolist(), part.series.tolist(), strict=True):
            values[start:stop] = 1e3 + torch.arange(start, stop).unsqueeze(1)
            places = range(start, stop) if target is not None and target.each else [row]
            for place in places:
                if texts is not None and kind:
                    texts[place] = "b" if texts[place] == "a" else "a"
                if wanted is not None:
                    wanted[place] = 1e6
    if target is not None:
        target = replace(target, texts=None if texts is None else tuple(texts), numbers=wanted)
    return replace(series, values=values, target=target)


@pytest.mark.parametrize("missing", ["refuse", "mask", "interpolate"])
@pytest.mark.parametrize("way", WAYS)
@given(seed=st.integers(0, 1000))
def test_training_is_the_same_bit_for_bit_whatever_validation_and_test_hold(way: str, missing: str, seed: int) -> None:
    series = series_for(way, seed, 0.0 if missing == "refuse" else 0.3)
    settings = SeriesSettings(missing=missing, **WAYS[way])
    before = prepare(series, settings)
    by_class = "classes of series" in way  # which decide the draw itself
    spoiled = spoil(series, [before.parts["validation"], before.parts["test"]], kind=not by_class)
    after = prepare(spoiled, settings)
    assert before.scaling == after.scaling
    assert before.target_scaling == after.target_scaling
    assert before.problem == after.problem
    first, second = task_from(before), task_from(after)
    for step in range(first.epoch_steps(8) + 1):
        ours, theirs = first.train_batch(step, 8), second.train_batch(step, 8)
        assert torch.equal(ours.input, theirs.input)
        assert torch.equal(ours.target.nan_to_num(1e9), theirs.target.nan_to_num(1e9))
        output = torch.zeros(*_shape(first, ours.target))
        assert torch.equal(first.loss(output, ours), second.loss(output, theirs))
    assert not torch.equal(first.flat.padded, second.flat.padded)


@pytest.mark.parametrize("missing", ["mask", "interpolate"])
@pytest.mark.parametrize("way", WAYS)
def test_validation_is_the_same_whatever_the_test_holds(way: str, missing: str) -> None:
    series = series_for(way, 1, 0.3)
    settings = SeriesSettings(missing=missing, **WAYS[way])
    before = prepare(series, settings)
    after = prepare(spoil(series, [before.parts["test"]], kind="classes of series" not in way), settings)
    pairs = [*zip(task_from(before).batches("validation", 5), task_from(after).batches("validation", 5), strict=True)]
    assert pairs
    for ours, theirs in pairs:
        assert torch.equal(ours.input, theirs.input)
        assert torch.equal(ours.target.nan_to_num(1e9), theirs.target.nan_to_num(1e9))


def _shape(task: SeriesTask, target: torch.Tensor) -> tuple[int, ...]:
    return (*target.shape, task.interface.outputs) if target.dtype == torch.int64 else tuple(target.shape)


@pytest.mark.parametrize("missing", ["mask", "interpolate"])
@pytest.mark.parametrize("bptt", [None, 4])
def test_what_a_forecast_reads_does_not_depend_on_what_comes_later(missing: str, bptt: int | None) -> None:
    series = made([60], 2, missing=0.5)
    window = {"bptt": bptt} if bptt else {"window": 6, "stride": 1}
    settings = SeriesSettings(horizon=3, missing=missing, scale="none", **window)  # type: ignore[arg-type]
    values = prepare(series, settings).flat.padded
    for step in range(1, 39):  # of training
        later = series.values.clone()
        later[step:] = 7.0
        found = prepare(replace(series, values=later), settings).flat.padded
        assert torch.equal(found[:step], values[:step])


@pytest.mark.parametrize("missing", ["mask", "interpolate"])
@pytest.mark.parametrize("bptt", [None, 4])
def test_a_missing_value_is_no_target_of_a_forecast(missing: str, bptt: int | None) -> None:
    series = made([60], 1, missing=0.5)
    window = {"bptt": bptt} if bptt else {"window": 3}
    task = make(series, horizon=2, missing=missing, scale="none", **window)
    known = {round(value, 4) for value in series.values.float().flatten().tolist() if value == value}
    for part in PARTS:
        found = torch.cat([batch.target.flatten() for batch in task.batches(part, 4)])
        found = found[~found.isnan()]
        assert len(found)
        assert {round(value, 4) for value in found.tolist()} <= known


def shifted(steps: int, shift: int, copies: int = 1) -> SeriesSet:
    """Return random classes of each step, and as a channel the classes of ``shift`` steps later."""
    draw = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 2, (steps,), generator=draw)
    feature = torch.roll(labels, -shift).double()
    feature[-shift:] = torch.randint(0, 2, (shift,), generator=draw).double()
    target = RawTarget(("kind",), texts=tuple("ab"[label] for label in labels.tolist()), each=True)
    names = tuple(f"s{place}" for place in range(copies))
    lengths = torch.full((copies,), steps // copies)
    return SeriesSet(feature.unsqueeze(1), lengths, ("x",), names, target)


def accuracy_of_memory(task: SeriesTask, shift: int) -> float:
    """Return the test accuracy of someone who knows every step that training reads, and that the label is ``shift`` later.

    A feature at step t is the label of t + shift. Who has seen the feature of t in training knows that label of the test.
    """
    seen: dict[int, int] = {}
    starts = task.examples["train"]
    for start, length in zip(starts.start.tolist(), starts.length.tolist(), strict=True):
        for row in range(start, start + length):
            seen[row + shift] = int(task.prepared.series.values[row, 0])
    right = total = 0
    tests = task.examples["test"]
    for start, length, silent in zip(tests.start.tolist(), tests.length.tolist(), tests.silent.tolist(), strict=True):
        for row in range(start + silent, start + length):
            right += int(seen.get(row, 0) == int(task.flat.target[row]))
            total += 1
    return right / total


def test_a_feature_that_is_a_later_label_is_found_across_a_random_split_and_not_across_one_by_time() -> None:
    steps, shift = 2000, 300  # as many as validation has: no feature of training is the label of a step of the test
    series = shifted(steps, shift)
    honest = make(series, target="kind", window=20)
    assert honest.problem.by_time
    leaking = make(shifted(steps, shift, copies=100), target="kind", split="series", window=20)
    # half of the labels are right by chance; three standard errors of 400 steps are 0.075
    assert accuracy_of_memory(honest, shift) < 0.5 + 0.075
    assert accuracy_of_memory(leaking, shift) > 0.5 + 3 * 0.075


class TestTrained:
    """A whole run: a network is trained where the feature is the label of a few steps later."""

    @staticmethod
    def score(task: SeriesTask) -> float:
        torch.manual_seed(0)
        model = build_model(ModelSettings("gru", width=16), task.interface)
        settings = TrainSettings(
            steps=300, batch_size=16, validate_every=100, log_every=100, device="cpu", optimizer=OptimizerSettings(lr=0.01)
        )
        return train(model, task, settings).test["accuracy"]

    def test_a_label_that_the_window_has_read_is_learnt_and_a_later_one_is_not(self) -> None:
        # the feature of a step is the label of 3 steps later: known inside a window
        inside = make(shifted(1500, 3), target="kind", window=16)
        assert self.score(inside) > 0.75
        # the feature is that of 40 steps later, and windows have 16: what would tell it lies in another window
        outside = make(shifted(1500, 40), target="kind", window=16)
        assert abs(self.score(outside) - 0.5) < 3 * 0.5 / 300**0.5
