"""The k-th largest number, against Lin, Wang, section 4.1, task II, and Note [mathematics], section 3.4."""

import math
from fractions import Fraction
from itertools import pairwise, product

import pytest
import torch

from steadyrnn.errors import ArgumentError
from steadyrnn.tasks.base import Interface
from steadyrnn.tasks.largest import Largest, answer_distribution
from steadyrnn.tasks.settings import LargestSettings


def exact(length: int, k: int) -> list[float]:
    """The distribution in rational numbers."""
    counts = [
        sum(math.comb(length, j) * (length - 1 - v) ** j * (v + 1) ** (length - j) for j in range(k)) for v in range(-1, length)
    ]
    return [float(Fraction(high - low, length**length)) for low, high in pairwise(counts)]


@pytest.mark.parametrize(("length", "k"), [(2, 1), (7, 3), (100, 10), (100, 100)])
def test_the_target_is_the_k_th_of_the_numbers_from_the_largest_down(length: int, k: int) -> None:
    batch = Largest(LargestSettings(length=length, k=k)).train_batch(0, 20)
    for column, target in zip(batch.input.unbind(1), batch.target.tolist(), strict=True):
        assert sorted(column.tolist(), reverse=True)[k - 1] == target


def test_numbers_are_drawn_with_replacement_from_nought_to_n_minus_one() -> None:
    numbers = Largest(LargestSettings(length=100)).train_batch(0, 500).input
    different = torch.tensor([len(column.unique()) for column in numbers.unbind(1)]).double()
    assert different.mean() == pytest.approx(100 * (1 - 0.99**100), abs=0.6)  # of a permutation: 100
    counts = numbers.flatten().bincount(minlength=100).double()
    assert len(counts) == 100
    assert ((counts - 500).square() / 500).sum() < 148.2  # chi-square, 99 degrees of freedom, one in a thousand


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_the_distribution_is_that_of_all_sequences_of_four(k: int) -> None:
    answers = [sorted(numbers, reverse=True)[k - 1] for numbers in product(range(4), repeat=4)]
    assert answer_distribution(4, k) == pytest.approx([answers.count(v) / 256 for v in range(4)])


@pytest.mark.parametrize(("length", "k"), [(2, 2), (100, 1), (100, 10), (200, 10), (400, 399)])
def test_the_distribution_is_the_exact_one(length: int, k: int) -> None:
    assert answer_distribution(length, k) == pytest.approx(exact(length, k), abs=1e-11)


def test_a_length_whose_binomials_outgrow_a_float_has_a_distribution() -> None:
    chances = answer_distribution(3000, 1500)
    assert sum(chances) == pytest.approx(1)
    assert min(chances) >= 0


def test_the_baselines_are_the_entropy_and_the_most_likely_answer() -> None:
    baselines = Largest(LargestSettings(length=100, k=10)).baselines
    chances = exact(100, 10)
    assert baselines["accuracy"] == pytest.approx(max(chances))
    assert baselines["loss"] == pytest.approx(-sum(p * math.log(p) for p in chances if p > 0))
    assert baselines == pytest.approx({"accuracy": 0.13, "loss": 2.49}, abs=0.0065)  # near those of Note [mathematics], 3.4


def test_the_best_constant_guess_has_the_scores_of_the_baseline() -> None:
    task = Largest(LargestSettings(length=100, k=10))
    chances = torch.tensor(answer_distribution(100, 10)).clamp(min=1e-12)
    sums: dict[str, float] = {}
    for step in range(10):
        batch = task.train_batch(step, 1000)
        for key, value in task.scores(chances.log().expand(1000, 100), batch).items():
            sums[key] = sums.get(key, 0.0) + value.item()
    assert task.summary(sums) == pytest.approx(dict(task.baselines), abs=0.02)


def test_the_interface_has_as_many_classes_as_steps() -> None:
    assert Largest(LargestSettings(length=50, k=5)).interface == Interface(inputs=30, outputs=50, vocabulary=50)
    assert Largest(LargestSettings(length=50, k=5, coding="one-hot")).interface == Interface(inputs=50, outputs=50)


@pytest.mark.parametrize(("length", "k"), [(1, 1), (10, 11), (10, 0)])
def test_a_k_that_no_sequence_has_is_refused(length: int, k: int) -> None:
    with pytest.raises(ArgumentError, match=r"`k`|`length`"):
        Largest(LargestSettings(length=length, k=k))
