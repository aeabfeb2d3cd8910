import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steadyrnn.errors import ArgumentError, ArgumentTypeError
from steadyrnn.tasks.hashing import Stream, permutation
from steadyrnn.tasks.settings import AdditionSettings
from steadyrnn.tasks.splits import EpochOrder, cut, split_counts, stream_rows


@given(step=st.integers(0, 10**6), size=st.integers(1, 1000))
def test_batches_of_a_stream_follow_each_other_without_a_gap(step: int, size: int) -> None:
    here, following = stream_rows(step, size), stream_rows(step + 1, size)
    assert len(here) == size
    assert here.stop == following.start


@given(count=st.integers(1, 50), size=st.integers(1, 60))
def test_a_cut_covers_a_split_once_and_in_order(count: int, size: int) -> None:
    cuts = cut("test", {"test": count}, size)
    assert [row for rows in cuts for row in rows] == list(range(count))
    assert all(len(rows) == size for rows in cuts[:-1])


def test_an_unknown_split_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ArgumentError, match="`split` must be one of validation, test, but is 'train'"):
        cut("train", {"validation": 1, "test": 1}, 1)


@pytest.mark.parametrize("value", [0, -3])
def test_a_split_without_examples_is_refused_by_name(value: int) -> None:
    with pytest.raises(ArgumentError, match="`validation`"):
        split_counts(AdditionSettings(validation=value), "validation", "test")


@given(count=st.integers(1, 12), size=st.integers(1, 30), start=st.integers(0, 5))
def test_an_epoch_has_every_example_once_in_the_order_of_its_permutation(count: int, size: int, start: int) -> None:
    order = EpochOrder(seed=3, count=count)
    first, last = start * count, 3 * count + start * count  # three epochs
    steps = range(first // size, last // size + 1)
    rows = torch.cat([order.rows(step, size) for step in steps])[first - steps[0] * size :][: 3 * count].view(3, count)
    expected = [permutation(3, Stream.ORDER, count, index=start + epoch) for epoch in range(3)]
    assert torch.equal(rows, torch.stack(expected))


@given(count=st.integers(1, 12), size=st.integers(1, 30), step=st.integers(0, 100), other=st.integers(0, 100))
def test_an_order_does_not_depend_on_what_was_requested_before(count: int, size: int, step: int, other: int) -> None:
    order = EpochOrder(seed=0, count=count)
    order.rows(other, size + 1)
    assert torch.equal(order.rows(step, size), EpochOrder(seed=0, count=count).rows(step, size))
    assert len(order.rows(step, size)) == size


@pytest.mark.parametrize(("count", "size", "steps"), [(10, 3, 4), (10, 10, 1), (10, 11, 1), (1, 1, 1), (700, 10, 70)])
def test_an_epoch_has_as_many_steps_as_it_takes_to_see_all(count: int, size: int, steps: int) -> None:
    assert EpochOrder(seed=0, count=count).steps(size) == steps


def test_a_set_without_examples_has_no_order() -> None:
    with pytest.raises(ArgumentError, match="`count`"):
        EpochOrder(seed=0, count=0)


def test_a_step_that_is_no_integer_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="`step`"):
        stream_rows(True, 3)
