"""A user's series as a task: class weights, test files, ways to read, devices."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steadyrnn.errors import ArgumentError, DataError
from steadyrnn.tasks.series.prepared import prepare_as
from steadyrnn.tasks.series.records import RawTarget
from steadyrnn.tasks.series.settings import SeriesSettings
from steadyrnn.tasks.series.task import make_series_task, task_from
from tests.support.errors import assert_equal_up_to_rounding
from tests.tasks.series.made import classes, made, make, numbers


@given(seed=st.integers(0, 999), rare=st.integers(1, 9))
def test_balanced_weights_are_those_computed_by_hand(seed: int, rare: int) -> None:
    texts = tuple("b" if place % 10 < rare else "a" for place in range(60))
    series = made([5] * 60, target=RawTarget(("kind",), texts=texts))
    task = make(series, target="kind", weights="balanced", seed=seed)
    codes = task.flat.target[task.prepared.parts["train"].series]
    share = torch.stack([(codes == kind).double().mean() for kind in range(2)])
    batch = task.train_batch(0, 32)
    logits = torch.randn(32, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    each = -logits.log_softmax(-1)[torch.arange(32), batch.target]
    weight = (1 / share)[batch.target]
    assert_equal_up_to_rounding(task.loss(logits, batch).float(), ((each * weight).sum() / weight.sum()).float(), 64)


def test_every_class_counts_alike_in_the_balanced_loss_of_a_whole_epoch() -> None:
    task = make(
        made([300], target=RawTarget(("k",), texts=tuple("aaab" * 75), each=True)), target="k", bptt=300, weights="balanced"
    )
    batch = task.train_batch(0, 1)
    confident = torch.zeros(*batch.target.shape, 2)
    confident[..., 0] = 40.0  # right for a, wrong by 40 for b
    assert float(task.loss(confident, batch)) == pytest.approx(20.0)


def test_a_class_of_one_member_stays_in_training() -> None:
    texts = (*"ab" * 10, "rare")
    for seed in range(5):
        task = make(made([4] * 21, target=RawTarget(("k",), texts=texts)), target="k", weights="balanced", seed=seed)
        assert 20 in task.prepared.parts["train"].series.tolist()
        assert torch.isfinite(task.loss(torch.zeros(8, 3), task.train_batch(0, 8)))


def test_test_series_must_have_the_channels_and_the_target_of_the_others() -> None:
    series = made([5] * 6, 2, numbers(6, each=False))
    for test, message in (
        (made([5] * 3, 1, numbers(3, each=False)), "must have the channels of the training series, .*, but has"),
        (made([5] * 3, 2), "must both have a target"),
        (made([5] * 3, 2, classes(3, each=False)), "must have the target of the others"),
        (made([5] * 3, 2, numbers(3, each=False, columns=2)), "must have the target of the others"),
    ):
        with pytest.raises(DataError, match=message):
            make(series, test, target="p", test_data="more.csv")


@pytest.mark.parametrize("missing", ["mask", "interpolate"])
def test_other_series_are_prepared_as_those_of_the_training(missing: str) -> None:
    settings = SeriesSettings(target="kind", missing=missing)
    series = made([9] * 30, 2, classes(30, each=False), missing=0.2)
    trained = make(series, target="kind", missing=missing)
    other = made([9] * 4, 2, classes(4, each=False), seed=5, missing=0.2)
    found = task_from(prepare_as(other, settings, trained.data_facts()["preparation"]))
    assert found.prepared.scaling == trained.prepared.scaling
    assert found.interface == trained.interface
    scored = torch.cat([batch.target for batch in found.batches("test", 3)])
    assert scored.tolist() == [0, 1, 0, 1]
    with pytest.raises(DataError, match="must have the channels of the training series, x, y, but has no 'y'"):
        prepare_as(made([9], 1, classes(1, each=False)), settings, trained.data_facts()["preparation"])
    with pytest.raises(DataError, match="has the class 'c'"):
        prepare_as(made([9] * 3, 2, classes(3, 3, each=False)), settings, trained.data_facts()["preparation"])


@pytest.mark.parametrize(
    "damage", [{}, {"scaling": 3}, {"kind": "classification"}, {"scaling": {"mean": ["x"], "deviation": [1]}}]
)
def test_a_damaged_preparation_is_refused(damage: dict[str, object]) -> None:
    trained = make(made([9] * 30, 1, classes(30, each=False)), target="kind")
    stored = {**trained.data_facts()["preparation"], **damage} if damage and "kind" not in damage else damage
    with pytest.raises(DataError, match="What the run notes of its data is damaged"):
        prepare_as(made([9], 1, classes(1, each=False)), SeriesSettings(target="kind"), stored)


def test_the_same_series_prepared_again_are_read_alike_and_scored_once() -> None:
    series = made([40, 30], 2, numbers(70))
    trained = make(series, target="p", window=8)
    again = task_from(prepare_as(series, SeriesSettings(target="p"), trained.data_facts()["preparation"]))
    scored = sum(int((~batch.target.isnan()).sum()) for batch in again.batches("test", 4))
    assert scored == 70


def test_facts_are_json_and_say_what_was_chosen() -> None:
    facts = make(made([40, 30], 2, numbers(70)), target="p", window=8).data_facts()
    assert facts["preparation"]["window"] == 8
    assert {*facts["parts"]} == {"train", "validation", "test"}
    assert sum(part["steps"] for part in facts["parts"].values()) == 70
    assert any("split by time" in reason for reason in facts["reasons"])


def test_an_unknown_part_and_no_file_are_refused() -> None:
    task = make(made([40], 1, numbers(40)), target="p", bptt=4)
    with pytest.raises(ArgumentError, match="`split`"):
        task.batches("dev", 4)
    with pytest.raises(ArgumentError, match="`data` must name a file"):
        make_series_task(SeriesSettings())


def test_a_patch_reads_steps_side_by_side() -> None:
    series = made([6] * 12, 2, numbers(12, each=False))
    task = make(series, target="p", patch=3, scale="none")
    assert task.interface.inputs == 6
    (first, *_) = task.prepared.parts["test"].series.tolist()
    batch = next(task.batches("test", 1))
    assert torch.equal(batch.input[:, 0], torch.from_numpy(series.series[first]).float().reshape(2, 6))


@pytest.mark.parametrize("reading", [{"window": 7}, {"bptt": 5}])
def test_moving_a_task_keeps_its_batches(reading: dict[str, int]) -> None:
    task = make(made([60], 1, numbers(60)), target="p", **reading)
    before = task.train_batch(1, 4)
    after = task.to("cpu").train_batch(1, 4)
    assert torch.equal(before.input, after.input)
