"""Recall of the first number, against Lin, Wang, section 4.1, task I, and Table 8."""

import math

import pytest
import torch

from steadyrnn.errors import ArgumentError
from steadyrnn.tasks.base import Interface
from steadyrnn.tasks.recall import Recall
from steadyrnn.tasks.settings import RecallSettings


@pytest.mark.parametrize("length", [1, 20, 50, 100])
def test_the_target_is_the_first_number(length: int) -> None:
    batch = Recall(RecallSettings(length=length)).train_batch(0, 100)
    assert batch.input.shape == (length, 100)
    assert torch.equal(batch.target, batch.input[0])


def test_numbers_are_uniform_from_nought_to_m_minus_one() -> None:
    numbers = Recall(RecallSettings(symbols=10)).train_batch(0, 1000).input
    counts = numbers.flatten().bincount(minlength=10).double()
    assert len(counts) == 10
    assert ((counts - 10_000).square() / 10_000).sum() < 27.9  # chi-square, 9 degrees of freedom, one in a thousand


def test_later_numbers_say_nothing_of_the_first() -> None:
    numbers = Recall(RecallSettings(length=20, symbols=2)).train_batch(0, 20_000).input.double()
    correlations = torch.corrcoef(numbers)[0, 1:]
    assert correlations.abs().max() < 4 / math.sqrt(20_000)


@pytest.mark.parametrize(
    ("coding", "interface"),
    [
        ("token", Interface(inputs=30, outputs=10, vocabulary=10)),  # Table 8 embeds in 30 dimensions
        ("one-hot", Interface(inputs=10, outputs=10)),
        ("number", Interface(inputs=1, outputs=10)),
    ],
)
def test_a_encoding_changes_the_interface_and_not_the_answer(coding: str, interface: Interface) -> None:
    task = Recall(RecallSettings(coding=coding))
    assert task.interface == interface
    assert torch.equal(task.train_batch(3, 8).target, Recall(RecallSettings()).train_batch(3, 8).target)


def test_encodings_hold_the_same_numbers() -> None:
    tokens, hot, number = (
        Recall(RecallSettings(coding=coding)).train_batch(0, 100).input for coding in ("token", "one-hot", "number")
    )
    assert torch.equal(hot.argmax(-1), tokens)
    assert (hot.sum(-1) == 1).all()
    assert torch.equal((number[..., 0] * 9).round().long(), tokens)
    assert number.min() == 0
    assert number.max() == 1


def test_a_guess_has_the_scores_of_the_baseline() -> None:
    task = Recall(RecallSettings(length=5))
    batch = task.train_batch(0, 5000)
    logits = torch.zeros(5000, 10)
    assert task.baselines == {"loss": math.log(10), "accuracy": 0.1}
    assert task.loss(logits, batch).item() == pytest.approx(math.log(10))
    sums = {key: value.item() for key, value in task.scores(logits, batch).items()}
    assert task.summary(sums)["accuracy"] == pytest.approx(0.1, abs=0.015)


def test_one_symbol_is_refused() -> None:
    with pytest.raises(ArgumentError, match="`symbols` must be at least 2"):
        Recall(RecallSettings(symbols=1))


def test_an_unknown_encoding_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ArgumentError, match="`coding` must be one of token, one-hot, number, but is 'onehot'"):
        Recall(RecallSettings(coding="onehot"))
