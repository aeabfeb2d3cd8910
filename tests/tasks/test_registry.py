"""The laws of `Task`, over every task that needs no stored data."""

import subprocess
import sys
from dataclasses import fields
from pkgutil import resolve_name
from typing import Any

import pytest
import torch

from steadyrnn.errors import ArgumentError, ArgumentTypeError, ShapeError
from steadyrnn.tasks.base import Batch, Task
from steadyrnn.tasks.locate import DATA_SETS
from steadyrnn.tasks.registry import TASKS, TaskRecord, make_task
from steadyrnn.tasks.settings import AdditionSettings, StoredSettings
from tests.tasks.small import LONG, SMALL, SPLITS, SYNTHETIC, answer, small_task, totals

FINITE = [name for name in SYNTHETIC if "train" in SMALL[name]]


def same(a: Batch, b: Batch) -> bool:
    return torch.equal(a.input, b.input) and torch.equal(a.target, b.target)


def test_every_synthetic_task_has_small_settings_here() -> None:
    assert set(SYNTHETIC) == set(SMALL)


@pytest.mark.parametrize("name", TASKS)
def test_a_record_names_a_task_its_data_and_settings(name: str) -> None:
    record = TASKS[name]
    assert record.name == name
    assert record.data in (None, "own") or record.data in DATA_SETS
    assert record.data == "own" or issubclass(resolve_name(record.path), Task)
    assert (record.data in DATA_SETS) == issubclass(record.settings, StoredSettings)
    assert record.description.endswith(".")


@pytest.mark.parametrize("name", SYNTHETIC)
def test_a_record_says_what_the_task_reads(name: str) -> None:
    assert (TASKS[name].reads == "row") == (small_task(name).interface.reads == "row")


def test_a_task_from_outside_the_package_is_made_by_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    record = TaskRecord("toy", AdditionSettings, "steadyrnn.tasks.addition:Addition", {})
    monkeypatch.setitem(TASKS, "toy", record)
    assert make_task("toy", length=3).train_batch(0, 2).input.shape == (3, 2, 2)


def test_an_unknown_task_is_refused_with_the_known_names() -> None:
    with pytest.raises(ArgumentError, match=f"must be one of {', '.join(TASKS)}, but is 'adding'"):
        make_task("adding")


def test_an_unknown_setting_is_refused_by_name() -> None:
    with pytest.raises(
        ArgumentError, match=r"'addition' has no setting `lenght`; it has seed, curriculum, .*, length, validation, test"
    ):
        make_task("addition", lenght=10)


def test_settings_are_read_without_torch() -> None:
    code = "import sys, steadyrnn.tasks.settings; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", SYNTHETIC)
def test_settings_are_documented_one_by_one(name: str) -> None:
    settings = TASKS[name].settings
    text = "".join(cls.__doc__ or "" for cls in settings.__mro__)  # of what it inherits, where it comes from
    assert all(f" {field.name}: " in text for field in fields(settings))


@pytest.mark.parametrize("name", SYNTHETIC)
def test_a_batch_is_what_the_interface_says(name: str) -> None:
    task = small_task(name)
    batch, interface = task.train_batch(0, 3), task.interface
    assert batch.input.shape[1] == 3
    assert batch.lengths is None
    assert batch.fresh
    if interface.vocabulary is None:
        assert batch.input.dtype == torch.float32
        assert batch.input.shape[2:] == (interface.inputs,)
    else:
        assert batch.input.dtype == torch.int64
        assert batch.input.dim() == 2
        assert 0 <= batch.input.min() <= batch.input.max() < interface.vocabulary
    assert task.loss(answer(task, batch), batch).shape == ()


@pytest.mark.parametrize("name", SYNTHETIC)
def test_a_training_batch_is_a_pure_function_of_its_arguments(name: str) -> None:
    task = small_task(name)
    late = task.train_batch(23, 4)
    for step in (0, 5, 22):
        task.train_batch(step, 3)
    list(task.batches("test", 5))
    torch.rand(3)
    assert same(task.train_batch(23, 4), late)
    assert same(small_task(name).train_batch(23, 4), late)


@pytest.mark.parametrize("name", SYNTHETIC)
def test_parts_of_a_batch_hold_the_examples_of_the_batch(name: str) -> None:
    task = small_task(name)
    whole = task.train_batch(7, 6)
    parts = [task.train_batch(7 * 3 + j, 2) for j in range(3)]
    assert torch.equal(torch.cat([part.input for part in parts], 1), whole.input)
    dim = 1 if task.interface.reads == "each" else 0
    torch.testing.assert_close(torch.cat([part.target for part in parts], dim), whole.target)


@pytest.mark.parametrize("name", SYNTHETIC)
def test_a_seed_changes_the_data(name: str) -> None:
    assert not same(small_task(name, seed=1).train_batch(0, 4), small_task(name).train_batch(0, 4))


@pytest.mark.parametrize("name", SYNTHETIC)
def test_no_example_is_in_two_splits(name: str) -> None:
    task = small_task(name, **LONG.get(name, {}))
    train = [task.train_batch(step, 20) for step in range(5)]
    splits = [[tuple(x.flatten().tolist()) for x in b.input.unbind(1)] for s in SPLITS for b in task.batches(s, 5)]
    held = [row for rows in splits for row in rows]
    seen = {tuple(x.flatten().tolist()) for batch in train for x in batch.input.unbind(1)}
    assert len(held) == len(set(held)) == sum(SPLITS.values())
    assert not seen & set(held)


@pytest.mark.parametrize("name", [name for name in SYNTHETIC if name not in FINITE])
def test_a_stream_never_repeats_an_example(name: str) -> None:
    task = small_task(name, **LONG.get(name, {}))
    rows = [tuple(x.flatten().tolist()) for step in range(50) for x in task.train_batch(step, 10).input.unbind(1)]
    assert len(set(rows)) == 500
    assert task.epoch_steps(10) == 100


@pytest.mark.parametrize("name", FINITE)
def test_an_epoch_of_a_finite_set_holds_every_example_once(name: str) -> None:
    task = small_task(name)
    assert [task.epoch_steps(size) for size in (5, 7, 20, 30)] == [4, 3, 1, 1]
    everything = {tuple(x.flatten().tolist()) for batch in task.batches("train", 7) for x in batch.input.unbind(1)}
    assert len(everything) == 20
    epochs = [
        [tuple(x.flatten().tolist()) for step in range(4 * e, 4 * e + 4) for x in task.train_batch(step, 5).input.unbind(1)]
        for e in range(2)
    ]
    assert set(epochs[0]) == set(epochs[1]) == everything
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize("name", FINITE)
def test_a_batch_larger_than_a_finite_set_repeats_it(name: str) -> None:
    rows = [tuple(x.flatten().tolist()) for x in small_task(name).train_batch(0, 45).input.unbind(1)]
    counts = sorted(rows.count(row) for row in set(rows))
    assert counts == [2] * 15 + [3] * 5


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", SYNTHETIC)
def test_a_summary_does_not_depend_on_how_the_split_is_cut(name: str, split: str) -> None:
    task = small_task(name)
    whole = totals(task, split, 100)
    assert {"loss", task.metric} <= set(whole)
    for size in (1, 4, 13):
        assert totals(task, split, size) == pytest.approx(whole, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", SYNTHETIC)
def test_batches_of_a_split_come_in_a_fixed_order_and_cover_it_once(name: str, split: str) -> None:
    task = small_task(name)
    cuts = [torch.cat([batch.input for batch in task.batches(split, size)], 1) for size in (1, 4, 100)]
    assert cuts[0].shape[1] == SPLITS[split]
    assert torch.equal(cuts[0], cuts[1])
    assert torch.equal(cuts[0], cuts[2])


@pytest.mark.parametrize("name", SYNTHETIC)
def test_the_summary_of_one_batch_has_the_loss_of_the_batch(name: str) -> None:
    task = small_task(name)
    (batch,) = task.batches("test", 100)
    output = answer(task, batch)
    sums = {key: float(value) for key, value in task.scores(output, batch).items()}
    assert all(value.shape == () for value in task.scores(output, batch).values())
    assert task.summary(sums)["loss"] == pytest.approx(task.loss(output, batch).item(), rel=1e-5)


@pytest.mark.parametrize("name", SYNTHETIC)
def test_the_loss_of_half_precision_outputs_is_taken_in_float32(name: str) -> None:
    task = small_task(name)
    batch = task.train_batch(0, 3)
    output = answer(task, batch).bfloat16()
    assert task.loss(output, batch).dtype == torch.float32
    assert task.loss(output, batch) == task.loss(output.float(), batch)


@pytest.mark.parametrize("name", SYNTHETIC)
def test_an_output_of_the_wrong_shape_is_refused(name: str) -> None:
    task = small_task(name)
    batch = task.train_batch(0, 3)
    wrong = answer(task, batch)[..., 0]
    for score in (task.loss, task.scores):
        with pytest.raises(ShapeError, match="must have shape"):
            score(wrong, batch)


@pytest.mark.parametrize("name", SYNTHETIC)
@pytest.mark.parametrize(
    ("step", "size", "error"), [(-1, 2, ArgumentError), (0, 0, ArgumentError), (0.5, 2, ArgumentTypeError)]
)
def test_a_wrong_step_or_batch_size_is_refused(name: str, step: Any, size: int, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"`step`|`batch_size`"):
        small_task(name).train_batch(step, size)


@pytest.mark.parametrize("name", SYNTHETIC)
@pytest.mark.parametrize(("size", "error"), [(0, ArgumentError), (2.0, ArgumentTypeError)])
def test_an_epoch_of_batches_of_a_wrong_size_is_refused(name: str, size: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="`batch_size`"):
        small_task(name).epoch_steps(size)


@pytest.mark.parametrize("name", SYNTHETIC)
@pytest.mark.parametrize("size", [1, 7, 129])
def test_a_step_far_out_has_batches_like_any_other(name: str, size: int) -> None:
    task = small_task(name)
    far = task.train_batch(10**9, size)
    assert far.input.shape == task.train_batch(0, size).input.shape
    assert same(small_task(name).train_batch(10**9, size), far)
    assert not same(task.train_batch(10**9 + 1, size), far)


@pytest.mark.parametrize("name", SYNTHETIC)
def test_an_unknown_split_is_refused_when_requested(name: str) -> None:
    with pytest.raises(ArgumentError, match=r"`split` must be one of .*validation, test, but is 'dev'"):
        small_task(name).batches("dev", 4)


@pytest.mark.parametrize("name", SYNTHETIC)
@pytest.mark.parametrize("setting", ["validation", "test"])
def test_an_empty_split_is_refused_by_name(name: str, setting: str) -> None:
    with pytest.raises(ArgumentError, match=f"`{setting}` must be greater than zero"):
        small_task(name, **{setting: 0})


@pytest.mark.parametrize("name", SYNTHETIC)
def test_baselines_are_named_as_scores(name: str) -> None:
    task = small_task(name)
    assert task.metric in task.baselines
    assert set(task.baselines) <= set(totals(task, "test", 100))


@pytest.mark.gpu
@pytest.mark.parametrize("name", SYNTHETIC)
def test_a_gpu_has_the_same_data(name: str) -> None:
    task, moved = small_task(name), small_task(name).to("cuda")
    for here, there in [
        (task.train_batch(3, 6), moved.train_batch(3, 6)),
        *zip(task.batches("test", 5), moved.batches("test", 5), strict=True),
    ]:
        assert there.input.is_cuda
        assert there.target.is_cuda
        if name == "stable-system":  # Gaussian numbers are not promised to be bit-equal
            torch.testing.assert_close(there.input.cpu(), here.input, atol=1e-5, rtol=0)
            torch.testing.assert_close(there.target.cpu(), here.target, atol=1e-4, rtol=1e-5)
        else:
            assert torch.equal(there.input.cpu(), here.input)
            assert torch.equal(there.target.cpu(), here.target)
