"""The addition problem, against Zhang, Lei, Dhillon, section 7.1, and Note [mathematics], section 2.13."""

import pytest
import torch

from steadyrnn.errors import ArgumentError, ArgumentTypeError
from steadyrnn.tasks.addition import Addition
from steadyrnn.tasks.base import Interface
from steadyrnn.tasks.settings import AdditionSettings

LENGTHS = [2, 3, 30, 100, 101]


@pytest.mark.parametrize("length", LENGTHS)
def test_two_numbers_are_marked_one_in_each_half(length: int) -> None:
    batch = Addition(AdditionSettings(length=length)).train_batch(0, 500)
    marks = batch.input[..., 1]
    assert set(marks.unique().tolist()) <= {0.0, 1.0}
    assert (marks[: length // 2].sum(0) == 1).all()
    assert (marks[length // 2 :].sum(0) == 1).all()


@pytest.mark.parametrize("length", LENGTHS)
def test_the_target_is_the_sum_of_the_marked_numbers(length: int) -> None:
    batch = Addition(AdditionSettings(length=length)).train_batch(1, 500)
    numbers, marks = batch.input.double().unbind(-1)
    assert batch.target.shape == (500, 1)
    torch.testing.assert_close(batch.target[:, 0].double(), (numbers * marks).sum(0), atol=2**-23, rtol=0)


def test_numbers_are_uniform_on_the_unit_interval() -> None:
    numbers = Addition(AdditionSettings()).train_batch(0, 1000).input[..., 0].double()
    assert 0 <= numbers.min() < 1e-4
    assert 1 - 1e-4 < numbers.max() < 1
    assert abs(numbers.mean() - 1 / 2) < 0.005
    assert abs(numbers.var() - 1 / 12) < 0.001


def test_every_place_of_a_half_is_marked_equally_often() -> None:
    shares = Addition(AdditionSettings(length=7)).train_batch(0, 20000).input[..., 1].mean(1)
    expected = torch.tensor([1 / 3] * 3 + [1 / 4] * 4)
    assert (shares - expected).abs().max() < 0.015


def test_answering_one_has_the_error_of_the_baseline() -> None:
    task = Addition(AdditionSettings(test=50_000, length=10))
    (batch,) = task.batches("test", 50_000)
    error = task.loss(torch.ones_like(batch.target), batch).item()
    assert task.baselines == {"loss": 1 / 6}
    assert error == pytest.approx(1 / 6, rel=0.02)


def test_the_interface_is_two_features_and_one_number() -> None:
    task = Addition(AdditionSettings())
    assert task.interface == Interface(inputs=2, outputs=1, reads="last")
    assert (task.metric, task.higher_is_better) == ("loss", False)


def test_numbers_do_not_depend_on_the_length() -> None:
    short, long = (Addition(AdditionSettings(length=n)).train_batch(0, 5).input[..., 0] for n in (20, 50))
    assert torch.equal(short, long[:20])


@pytest.mark.parametrize("length", [1, 0, -4])
def test_a_length_without_room_for_two_marks_is_refused(length: int) -> None:
    with pytest.raises(ArgumentError, match="`length`"):
        Addition(AdditionSettings(length=length))


def test_a_length_that_is_no_integer_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="`length` must be an integer, but is of type float"):
        Addition(AdditionSettings(length=10.0))  # type: ignore[arg-type]
