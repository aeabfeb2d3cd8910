"""Packed trapezoids: counts, places, and the way there and back."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steadyrnn.errors import ArgumentError, ShapeError
from steadyrnn.linalg.packing import pack, packed_size, trapezoid_index, unpack
from tests.linalg.matrices import gaussian

sizes = st.integers(0, 9).flatmap(lambda rows: st.tuples(st.just(rows), st.integers(0, rows)))


@given(sizes)
def test_packed_size_counts_the_entries_on_and_below_the_diagonal(size: tuple[int, int]) -> None:
    rows, count = size
    assert packed_size(rows, count) == int(torch.ones(rows, count).tril().sum())


def test_packed_size_of_a_spectral_rnn_with_sixteen_reflectors() -> None:
    assert packed_size(128, 16) == 128 * 16 - 120


@given(sizes)
def test_the_index_lists_each_free_place_once_in_ascending_order(size: tuple[int, int]) -> None:
    rows, count = size
    mask = torch.ones(rows, count).tril().flatten()
    assert trapezoid_index(rows, count).tolist() == mask.nonzero().flatten().tolist()


@given(sizes)
def test_pack_undoes_unpack(size: tuple[int, int]) -> None:
    packed = gaussian(packed_size(*size))
    assert torch.equal(pack(unpack(packed, *size)), packed)


@given(sizes)
def test_unpack_puts_zeros_above_the_diagonal(size: tuple[int, int]) -> None:
    columns = unpack(gaussian(packed_size(*size)), *size)
    assert torch.equal(columns, columns.tril())


def test_the_gradient_of_unpack_is_pack() -> None:
    packed, g = gaussian(packed_size(5, 3)).requires_grad_(), gaussian(5, 3, seed=1)
    unpack(packed, 5, 3).backward(g)
    assert torch.equal(packed.grad, pack(g))


def test_unpack_has_first_and_second_derivatives() -> None:
    packed = gaussian(packed_size(4, 2)).requires_grad_()
    assert torch.autograd.gradcheck(lambda p: unpack(p, 4, 2), packed)
    assert torch.autograd.gradgradcheck(lambda p: unpack(p, 4, 2).pow(3), packed)


def test_unpack_compiles_as_one_graph() -> None:
    compiled = torch.compile(lambda p: unpack(p, 4, 2), fullgraph=True, backend="aot_eager")
    packed = gaussian(packed_size(4, 2))
    assert torch.equal(compiled(packed), unpack(packed, 4, 2))


@pytest.mark.parametrize(("rows", "count"), [(3, 4), (3, -1)])
def test_a_count_outside_the_rows_is_refused(rows: int, count: int) -> None:
    with pytest.raises(ArgumentError, match="`count`"):
        packed_size(rows, count)
    with pytest.raises(ArgumentError, match="`count`"):
        trapezoid_index(rows, count)


def test_unpack_refuses_a_vector_of_the_wrong_length() -> None:
    with pytest.raises(ShapeError, match="`packed`"):
        unpack(torch.zeros(4), 3, 2)


@pytest.mark.parametrize("shape", [(2, 4), (4,), (4, 2, 1)])
def test_pack_refuses_what_is_no_trapezoid(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="`columns`"):
        pack(torch.zeros(shape))
