"""What of a batch each part counts for: the loss of a whole batch is made up of those of its parts, for every task."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from steadyrnn.errors import ArgumentError
from steadyrnn.layers.rnn import RNN
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.tasks.base import Batch, Task
from steadyrnn.tasks.multilabel import MultiLabel
from steadyrnn.tasks.registry import TASKS
from steadyrnn.tasks.series.records import RawTarget
from steadyrnn.tasks.series.task import task_from
from steadyrnn.tasks.text import Language
from steadyrnn.train.model_call import cut
from steadyrnn.train.parts_check import check_parts
from steadyrnn.train.settings import OptimizerSettings
from steadyrnn.train.step import Stepper
from steadyrnn.train.trainer import train
from tests.support.errors import assert_equal_up_to_rounding
from tests.support.tasks import WideTask
from tests.tasks.series.made import classes, made, make, numbers
from tests.train.runs import RunningSum, addition, plain_model, tiny
from tests.train.test_tasks import model_of, task_of

LENGTHS = [*range(2, 14), *range(3, 9)]
KINDS = RawTarget(("k",), texts=tuple("aaab"[place % 4] for place in range(sum(LENGTHS))), each=True)


def weighted() -> Task:
    """Return a task whose classes weigh what they are given."""
    task = make(made(LENGTHS, target=classes(len(LENGTHS), each=False)), target="k")
    return task_from(replace(task.prepared, class_weights=(1.0, 7.0)))


SERIES: dict[str, Callable[[], Task]] = {
    "a class per series": lambda: make(made(LENGTHS, target=classes(len(LENGTHS), each=False)), target="k"),
    "balanced": lambda: make(made(LENGTHS, target=classes(len(LENGTHS), each=False)), target="k", weights="balanced"),
    "weighted": weighted,
    "a class per step": lambda: make(made(LENGTHS, target=KINDS), target="k"),
    "a class per step, balanced": lambda: make(made(LENGTHS, target=KINDS), target="k", weights="balanced"),
    "a number per step": lambda: make(made(LENGTHS, target=numbers(sum(LENGTHS))), target="p"),
    "forecasts": lambda: make(made([200, 170]), horizon=3, window=8),
    "a stream of classes": lambda: make(made([300], target=RawTarget(("k",), texts=tuple("aaab" * 75), each=True)), target="k",
                                        bptt=10, weights="balanced"),
    "a stream of forecasts": lambda: make(made([90, 100]), horizon=5, bptt=10),
}  # fmt: skip


def text() -> tuple[Task, Batch]:
    """Return the task of a text, with a batch in which some words do not count."""
    task = Language.__new__(Language)
    Task.__init__(task)
    task.__dict__.update(vocabulary=range(5), corpus=SimpleNamespace(embedding=4))
    target = torch.arange(24).view(4, 6) % 5
    return task, Batch(target, target.masked_fill(torch.arange(24).view(4, 6) % 7 == 3, -100))


def labels() -> tuple[Task, Batch]:
    task = MultiLabel.__new__(MultiLabel)
    Task.__init__(task)
    task.__dict__.update(sizes=SimpleNamespace(features=3, labels=4))
    return task, Batch(torch.randn(6, 3), (torch.arange(24).view(6, 4) % 3 == 0).float())


def outputs(task: Task, batch: Batch) -> Tensor:
    """Return some output in float64, with a gradient."""
    rows, own = batch.count_rows(task.interface), task.interface
    steps = [len(batch.input)] if own.reads == "each" else []
    return torch.randn(*steps, rows, own.outputs, dtype=torch.float64, requires_grad=True)


def assert_parts_make_up_the_whole(task: Task, batch: Batch) -> None:
    """Compare loss, weight and the gradient by the output, in float64, of parts and of the whole."""
    output = outputs(task, batch)
    whole = task.loss(output, batch)
    (wanted,) = torch.autograd.grad(whole, output)
    along = 1 if task.interface.reads == "each" else 0
    rounding = 8 * torch.finfo(torch.float64).eps * output.numel()
    if whole.dtype == torch.float32:  # a target in float32 that a loss does not widen
        rounding = 8 * torch.finfo(torch.float32).eps * output.numel()
    for parts in (2, 3, 6):
        pieces = [part.batch for part in cut(batch, None, parts, task.interface)]
        weights = [float(task.batch_weight(piece)) for piece in pieces]
        total = float(task.batch_weight(batch))
        assert sum(weights) == pytest.approx(total, rel=1e-6)
        made_up = sum(
            task.loss(own, piece) * (weight / total)
            for own, piece, weight in zip(output.tensor_split(parts, along), pieces, weights, strict=True)
            if weight > 0
        )
        assert isinstance(made_up, Tensor)
        assert float((made_up - whole).detach().abs()) <= rounding * float(whole.detach().abs())
        (found,) = torch.autograd.grad(made_up, output)
        assert float((found - wanted).abs().max()) <= rounding * float(wanted.abs().max())


@pytest.mark.parametrize("name", TASKS)
def test_parts_of_a_registered_task_make_up_a_batch(name: str) -> None:
    task = task_of(name)
    assert_parts_make_up_the_whole(task, task.train_batch(0, 6))


@pytest.mark.parametrize("name", SERIES)
def test_parts_of_a_batch_count_by_what_the_loss_is_divided_by(name: str) -> None:
    task = SERIES[name]()
    for step in (0, task.epoch_steps(6) - 1):  # the last batch of a stream has few steps in its last rows
        assert_parts_make_up_the_whole(task, task.train_batch(step, 6))


@pytest.mark.parametrize("make_case", [text, labels])
def test_parts_of_tasks_on_stored_data_make_up_a_batch(make_case: Callable[[], tuple[Task, Batch]]) -> None:
    assert_parts_make_up_the_whole(*make_case())


@pytest.mark.parametrize("name", SERIES)
def test_a_step_on_series_in_parts_is_the_step_on_the_whole_batch(name: str) -> None:
    task, gradients = WideTask(SERIES[name]()), []
    for parts in (1, 3):
        torch.manual_seed(0)
        model = model_of(task.interface).double()
        stepper = Stepper(model, task, tiny(accumulate=parts, optimizer=OptimizerSettings("sgd", lr=0.0)), model)
        for step in range(2):
            stepper.step(step + 1, task.train_batch(step, 6), 1.0)
        gradients.append([parameter.grad for parameter in model.parameters()])
    terms = task.train_batch(1, 6).input.numel()  # a gradient is a sum over all numbers of a batch
    for whole, made_up in zip(*gradients, strict=True):
        assert_equal_up_to_rounding(made_up, whole, terms)


def test_a_batch_of_which_nothing_counts_has_no_gradient() -> None:
    task = SERIES["a number per step"]()
    batch = task.train_batch(0, 4)
    empty = Batch(batch.input, torch.full_like(batch.target, float("nan")), batch.lengths)
    model = model_of(task.interface)
    stepper = Stepper(model, task, tiny(accumulate=2, optimizer=OptimizerSettings("sgd", lr=0.0)), model)
    stepper.step(1, empty, 1.0)
    assert all(bool((parameter.grad == 0).all()) for parameter in model.parameters() if parameter.grad is not None)
    assert float(stepper.average.loss) == 0.0


class Masked(RunningSum):
    """A task of one's own that leaves steps out of its loss: of some rows more than of others."""

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        counts = self.counts(batch)
        return ((output - batch.target).square() * counts).sum() / counts.sum()

    @staticmethod
    def counts(batch: Batch) -> Tensor:
        return 0.05 + (batch.target > 0).to(batch.target.dtype)


class Said(Masked):
    """The same, and it says so."""

    def batch_weight(self, batch: Batch) -> Tensor | float:
        return self.counts(batch).sum()


class Paired(RunningSum):
    """A loss in which each row is compared with the others."""

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        return (output - output.mean(1, keepdim=True)).square().mean() + (output - batch.target).square().mean()


def carrying() -> nn.Module:
    torch.manual_seed(0)
    return SequenceModel(RNN(1, 4), 1, readout="each")


@pytest.mark.parametrize("kind", [Masked, Paired])
def test_a_task_whose_parts_do_not_make_up_a_batch_is_refused(kind: type[Task]) -> None:
    train(carrying(), kind(), tiny(steps=2))
    with pytest.raises(ArgumentError, match=r"A batch of \w+ cannot be cut into parts.*Define `batch_weight\(batch\)`"):
        train(carrying(), kind(), tiny(steps=2, accumulate=2))


def test_a_task_that_says_how_its_parts_count_is_trained_in_parts() -> None:
    found: list[Any] = []
    for parts in (1, 3):
        model, task, settings = carrying().double(), WideTask(Said()), tiny(accumulate=parts)
        train(model, task, settings)
        found.append([*model.parameters()])
    terms = settings.steps * task.train_batch(0, settings.batch_size).input.numel()
    for whole, made_up in zip(*found, strict=True):
        assert_equal_up_to_rounding(made_up, whole, terms)


class Rare(Said):
    """A mean over the rows whose number is among those that count; of most parts none is, and their mean is 0/0."""

    @staticmethod
    def counts(batch: Batch) -> Tensor:
        return (batch.input[:1].abs() > 1.2).expand_as(batch.target)


class RareInPython(Rare):
    def batch_weight(self, batch: Batch) -> Tensor | float:
        return float(self.counts(batch).sum())


@pytest.mark.parametrize("kind", [Rare, RareInPython])
def test_parts_of_which_nothing_counts_have_no_gradient_and_the_others_their_exact_share(kind: type[Task]) -> None:
    found, task = [], kind()
    batch = task.train_batch(0, 7)
    batch.input[0, :, 0] = torch.tensor([2.0, 0.0, 0.0, 3.0, 2.0, 0.0, 0.0])
    batch = replace(batch, input=batch.input.double(), target=batch.target.double())
    assert [int(task.batch_weight(part.batch)) for part in cut(batch, None, 5, task.interface)] == [5, 5, 5, 0, 0]
    for parts in (1, 5):
        model = carrying().double()
        stepper = Stepper(model, task, tiny(accumulate=parts, optimizer=OptimizerSettings("sgd", lr=0.0)), model)
        stepper._compute(batch, None, False)
        found.append([parameter.grad for parameter in model.parameters()])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


def test_single_rows_are_seen_together() -> None:
    train(carrying(), Masked(), tiny(steps=1, batch_size=3))
    with pytest.raises(ArgumentError, match="cannot be cut into parts"):
        train(carrying(), Masked(), tiny(steps=1, batch_size=3, accumulate=3))


class Late(Masked):
    """All targets of the first batches count the same."""

    @staticmethod
    def counts(batch: Batch) -> Tensor:
        return torch.ones_like(batch.target) if batch.fresh else Masked.counts(batch)


def test_a_first_batch_that_tells_nothing_does_not_decide() -> None:
    train(carrying(), Late(), tiny(steps=1, accumulate=2))
    with pytest.raises(ArgumentError, match="cannot be cut into parts"):
        train(carrying(), Late(), tiny(steps=4, accumulate=2))


def test_one_row_tells_nothing_and_is_not_refused() -> None:
    task = Masked()
    check_parts(task, torch.zeros(5, 1, 1), task.train_batch(0, 1))


def test_half_precision_is_no_reason_to_refuse() -> None:
    model = plain_model()
    task = addition()
    batch = task.train_batch(0, 64)
    with torch.autocast("cpu", torch.bfloat16):
        output, _ = model(batch.input)
    check_parts(task, output.detach().to(torch.bfloat16), batch)
