"""The copy problem, against Zhang, Lei, Dhillon, section 7.1, and Note [mathematics], section 2.13."""

import math

import pytest
import torch

from steadyrnn.errors import ArgumentError
from steadyrnn.tasks.base import Batch, Interface
from steadyrnn.tasks.copying import Copying
from steadyrnn.tasks.settings import CopySettings


def symbols(batch: Batch) -> torch.Tensor:
    return batch.input.argmax(-1)


@pytest.mark.parametrize("delay", [1, 2, 100])
def test_a_sequence_is_as_the_paper_writes_it(delay: int) -> None:
    batch = Copying(CopySettings(delay=delay)).train_batch(0, 50)
    x, y = symbols(batch), batch.target  # position i of the paper is row i - 1 here
    assert batch.input.shape == (delay + 20, 50, 10)
    assert (batch.input.sum(-1) == 1).all()
    assert (x[:10] < 8).all()
    assert (x[delay + 10 - 1] == 9).all()
    rest = torch.cat([x[10 : delay + 9], x[delay + 10 :]])
    assert len(rest) == delay + 9
    assert (rest == 8).all()
    assert (y[: delay + 10] == 8).all()
    assert torch.equal(y[delay + 10 :], x[:10])


def test_the_eight_symbols_of_a_message_are_equally_likely() -> None:
    message = symbols(Copying(CopySettings(delay=1)).train_batch(0, 4000))[:10]
    counts = message.flatten().bincount(minlength=8).double()
    assert ((counts - 5000).square() / 5000).sum() < 24.3  # chi-square, 7 degrees of freedom, one in a thousand
    assert len(counts) == 8


@pytest.mark.parametrize(("delay", "loss"), [(100, 0.1733), (200, 0.0945), (500, 0.0400), (1000, 0.0204)])
def test_the_baseline_is_ten_times_the_logarithm_of_eight_over_the_length(delay: int, loss: float) -> None:
    task = Copying(CopySettings(delay=delay))
    assert task.baselines["loss"] == pytest.approx(loss, abs=5e-5)
    assert task.baselines["accuracy"] == 1 / 8


def test_what_remembers_nothing_has_the_loss_of_the_baseline() -> None:
    task = Copying(CopySettings(delay=30))
    batch = task.train_batch(0, 100)
    logits = torch.full((50, 100, 10), -1e4)
    logits[:40, :, 8] = 0
    logits[40:, :, :8] = 0
    assert task.loss(logits, batch).item() == pytest.approx(10 * math.log(8) / 50, rel=1e-5)


def test_accuracy_is_of_the_ten_symbols_alone() -> None:
    task = Copying(CopySettings(delay=30))
    batch = task.train_batch(0, 4)
    logits = torch.nn.functional.one_hot(batch.target, 10).float()
    logits[-3:] = logits[-3:].roll(1, -1)  # three of ten wrong
    logits[:20] = logits[:20].roll(1, -1)  # what comes before does not count
    sums = {key: value.item() for key, value in task.scores(logits, batch).items()}
    assert task.summary(sums)["accuracy"] == pytest.approx(0.7)
    assert task.summary(sums)["loss"] == pytest.approx(task.loss(logits, batch).item(), rel=1e-6)


def test_the_interface_is_the_alphabet_at_every_step() -> None:
    task = Copying(CopySettings())
    assert task.interface == Interface(inputs=10, outputs=10, reads="each")
    assert (task.metric, task.higher_is_better) == ("accuracy", True)


def test_a_delay_of_nothing_is_refused() -> None:
    with pytest.raises(ArgumentError, match="`delay`"):
        Copying(CopySettings(delay=0))
