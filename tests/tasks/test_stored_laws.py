"""The laws of tasks, over every task on stored data, on made-up files."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from steadyrnn.errors import ArgumentError, ArgumentTypeError
from steadyrnn.tasks.base import Batch, Task
from steadyrnn.tasks.registry import TASKS, make_task
from tests.support.stored_data import SETTINGS, STORED, make_folder
from tests.tasks.small import SYNTHETIC

Make = Callable[..., Task]
CLASSIFIED = [name for name in STORED if name not in ("ptb", "wikitext-2")]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    make_folder(tmp_path, monkeypatch)
    return lambda name, **settings: make_task(name, **{**SETTINGS.get(name, {}), **settings})


def answer(task: Task, batch: Batch) -> Tensor:
    """Return an output of the right shape that depends on nothing but each example's own input and target."""
    names = torch.arange(task.interface.outputs) + 1.0
    value = (batch.target * 13 % 7).float()
    if batch.target.is_floating_point():
        value = (batch.target * 3).sum(-1)
    return (value.unsqueeze(-1) * names).sin()


def same(one: Batch, other: Batch) -> bool:
    return one.input.equal(other.input) and one.target.equal(other.target) and one.fresh == other.fresh


def total(task: Task, split: str, batch_size: int) -> dict[str, float]:
    sums: Counter[str] = Counter()
    for batch in task.batches(split, batch_size):
        sums.update({name: float(value) for name, value in task.scores(answer(task, batch), batch).items()})
    return task.summary(sums)


def select_targets(target: Tensor) -> Tensor:
    """Return the targets that count: classes, (N,), or sets of labels, (N, C)."""
    return target if target.is_floating_point() else target[target != -100]


def rows(batch: Batch) -> list[tuple[float, ...]]:
    """Return the examples of a batch, each flattened."""
    examples = batch.input if batch.input.dim() == 2 else batch.input.transpose(0, 1)
    return [tuple(row) for row in examples.flatten(1).tolist()]


def test_every_stored_task_is_covered() -> None:
    own = {name for name, record in TASKS.items() if record.data == "own"}  # in tests/tasks/series
    assert set(TASKS) - set(SYNTHETIC) - own == set(STORED)


@pytest.mark.parametrize("name", STORED)
def test_a_training_batch_depends_on_settings_step_and_size_alone(make: Make, name: str) -> None:
    task, other = make(name), make(name)
    want = [task.train_batch(step, 4) for step in range(7)]
    torch.manual_seed(123)
    before = torch.get_rng_state()
    assert all(same(other.train_batch(step, 4), want[step]) for step in (5, 0, 6, 3, 3, 1))
    assert torch.get_rng_state().equal(before)


@pytest.mark.parametrize("name", STORED)
def test_a_batch_has_the_shape_the_interface_says(make: Make, name: str) -> None:
    task = make(name)
    batch, face = task.train_batch(0, 4), task.interface
    if face.vocabulary is not None:
        assert batch.input.shape == batch.target.shape == (3, 4)
        assert int(batch.input.min()) >= 0
        assert int(batch.input.max()) < face.vocabulary == face.outputs
    else:
        assert batch.input.shape[-2:] == (4, face.inputs)
        assert batch.input.dim() == (2 if face.reads == "row" else 3)
        assert batch.input.dtype == torch.float32
        assert batch.input.is_contiguous()


@pytest.mark.parametrize("name", CLASSIFIED)
def test_an_epoch_sees_every_training_example_once_in_an_order_of_its_own(make: Make, name: str) -> None:
    task = make(name)
    count = len([row for batch in task.batches("train", 5) for row in rows(batch)])
    epochs = [rows(task.train_batch(step, count)) for step in (0, 1)]
    assert task.epoch_steps(count) == 1
    assert task.epoch_steps(2) == -(-count // 2)
    assert len(set(epochs[0])) == count
    assert Counter(epochs[0]) == Counter(epochs[1])
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize("name", CLASSIFIED)
def test_no_example_is_in_two_splits(make: Make, name: str) -> None:
    task = make(name)
    splits = [{row for batch in task.batches(split, 3) for row in rows(batch)} for split in ("train", "validation")]
    assert splits[1]
    assert not splits[0] & splits[1]


@pytest.mark.parametrize("name", CLASSIFIED)
def test_another_seed_draws_another_validation_split_and_order_but_keeps_the_test(make: Make, name: str) -> None:
    one, other = make(name, seed=0), make(name, seed=1)
    held = [
        {row for batch in task.batches("validation", 3) for row in rows(batch)} for task in (one, other, make(name, seed=2))
    ]
    assert not held[0] == held[1] == held[2]
    assert not same(one.train_batch(0, 4), other.train_batch(0, 4))
    assert all(same(a, b) for a, b in zip(one.batches("test", 4), other.batches("test", 4), strict=True))


@pytest.mark.parametrize("split", ["train", "validation", "test"])
@pytest.mark.parametrize("name", STORED)
def test_scores_do_not_depend_on_how_a_split_is_cut(make: Make, name: str, split: str) -> None:
    task = make(name)
    want = total(task, split, 1000)
    assert total(task, split, 1) == pytest.approx(want, rel=1e-6)
    assert total(task, split, 4) == pytest.approx(want, rel=1e-6)
    assert {"loss", task.metric} <= set(want)


@pytest.mark.parametrize("name", STORED)
def test_the_loss_of_a_batch_is_the_loss_of_its_scores(make: Make, name: str) -> None:
    task = make(name)
    batch = task.train_batch(1, 4)
    output = answer(task, batch)
    sums = {key: float(value) for key, value in task.scores(output, batch).items()}
    assert float(task.loss(output, batch)) == pytest.approx(task.summary(sums)["loss"], rel=1e-6)
    assert float(task.loss(output.bfloat16(), batch)) == pytest.approx(task.summary(sums)["loss"], rel=2e-2)


@pytest.mark.parametrize("name", STORED)
def test_a_guess_without_looking_reaches_the_baseline_and_no_other_guess_does_better(make: Make, name: str) -> None:
    task = make(name)
    wanted = torch.cat([select_targets(batch.target) for batch in task.batches("test", 50)])
    if wanted.dim() == 2:
        guess = wanted.double().mean(0).logit().clamp(-40, 40)
    else:
        guess = (torch.bincount(wanted, minlength=task.interface.outputs) / len(wanted)).log().clamp(min=-50)

    def scored(logits: Tensor) -> dict[str, float]:
        sums: Counter[str] = Counter()
        for batch in task.batches("test", 50):
            shape = batch.target.shape[:1] if wanted.dim() == 2 else batch.target.shape
            output = logits.expand(*shape, -1)
            sums.update({key: float(value) for key, value in task.scores(output, batch).items()})
        return task.summary(sums)

    best = scored(guess)
    assert {key: best[key] for key in task.baselines} == pytest.approx(dict(task.baselines), rel=1e-5)
    assert scored(guess + torch.linspace(0, 1, len(guess)))["loss"] > best["loss"]


@pytest.mark.parametrize("name", STORED)
def test_a_task_moves_whole_to_a_device(make: Make, name: str) -> None:
    task = make(name)
    assert task.to("meta") is task
    batches = [task.train_batch(0, 2), next(iter(task.batches("test", 2)))]
    assert {tensor.device.type for batch in batches for tensor in (batch.input, batch.target)} == {"meta"}


@pytest.mark.parametrize("name", STORED)
@pytest.mark.parametrize(("split", "size", "word"), [("tests", 4, "split"), ("test", 0, "batch_size")])
def test_a_wrong_split_or_size_is_named(make: Make, name: str, split: str, size: int, word: str) -> None:
    with pytest.raises(ArgumentError, match=f"`{word}`"):
        list(make(name).batches(split, size))


@pytest.mark.parametrize("name", STORED)
@pytest.mark.parametrize(
    ("step", "size", "error"),
    [(-1, 2, ArgumentError), (0, 0, ArgumentError), (1.0, 2, ArgumentTypeError), (True, 2, ArgumentTypeError)],
)
def test_a_wrong_step_or_batch_size_is_refused(make: Make, name: str, step: int, size: int, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"`step`|`batch_size`"):
        make(name).train_batch(step, size)


@pytest.mark.parametrize("name", STORED)
@pytest.mark.parametrize("size", [1, 3, 13])
def test_a_step_far_out_has_full_batches_that_do_not_depend_on_the_past(make: Make, name: str, size: int) -> None:
    far = make(name).train_batch(10**9, size)
    assert far.input.shape[-2 if far.input.is_floating_point() else -1] == size
    task = make(name)
    task.train_batch(0, size)
    assert same(task.train_batch(10**9, size), far)


@pytest.mark.parametrize("name", CLASSIFIED)
@pytest.mark.parametrize("held", [0, 1000, 0.0, 1.0, float("nan")])
def test_a_validation_split_that_leaves_nothing_is_refused(make: Make, name: str, held: float) -> None:
    with pytest.raises((ArgumentError, ArgumentTypeError), match="`validation`"):  # of digits, a number of them
        make(name, validation=held)


@pytest.mark.gpu
@pytest.mark.parametrize("name", STORED)
def test_a_gpu_gives_the_same_batches_bit_for_bit(make: Make, name: str) -> None:
    here, there = make(name), make(name).to("cuda")
    for step in range(8):
        one, other = here.train_batch(step, 5), there.train_batch(step, 5)
        assert one.input.equal(other.input.cpu())
        assert one.target.equal(other.target.cpu())
