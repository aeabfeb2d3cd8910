"""Packed trapezoids: counts, places, and the way there and back."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from steadyrnn.errors import ArgumentError, ShapeError
from steadyrnn.linalg.packing import (
    _shared_index,
    pack,
    pack_difference,
    pack_skew,
    packed_size,
    trapezoid_index,
    unpack,
    unpack_below,
    unpack_skew,
)
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


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_skew_matrix_and_its_packed_entries(size: int) -> None:
    packed, g = gaussian(packed_size(size - 1, size - 1)).requires_grad_(), gaussian(size, size, seed=1)
    skew = unpack_skew(packed, size)
    assert torch.equal(skew, -skew.mT)
    assert torch.equal(pack_skew(skew), packed)
    assert torch.equal(pack_difference(skew), 2 * packed)
    assert torch.equal(torch.autograd.grad(skew, packed, g)[0], pack_difference(g))


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


@pytest.fixture
def _nothing_known() -> Iterator[None]:
    """Forget the indices that are shared, before and after."""
    _shared_index.cache_clear()
    yield
    _shared_index.cache_clear()


class Wrapped(Tensor):
    """A tensor of a kind of its own."""


class Wrapping(TorchDispatchMode):
    """Makes every tensor a :class:`Wrapped` one."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result.as_subclass(Wrapped) if isinstance(result, Tensor) else result


def under_inference(p: Tensor) -> Any:
    with torch.inference_mode():
        return unpack(p, 4, 2)


def under_fake(p: Tensor) -> Any:
    with FakeTensorMode() as mode:
        assert isinstance(unpack(mode.from_tensor(p), 4, 2), FakeTensor)


def under_mode(p: Tensor) -> Any:
    with Wrapping():
        return unpack(p, 4, 2)


def under_meta(p: Tensor) -> Any:
    with torch.device("meta"):
        assert not unpack(p, 4, 2).is_meta
    assert unpack(p.to("meta"), 4, 2).is_meta


def under_compile(p: Tensor) -> Any:
    torch._dynamo.reset()
    return torch.compile(lambda t: unpack(t, 4, 2), fullgraph=True, backend="aot_eager")(p)


class Unpacks(torch.nn.Module):
    """As a module, to be exported."""

    def forward(self, p: Tensor) -> Tensor:
        return unpack(p, 4, 2)


SURROUNDINGS: dict[str, Callable[[Tensor], Any]] = {
    "inference mode": under_inference,
    "fake tensors": under_fake,
    "a mode": under_mode,
    "meta": under_meta,
    "vmap": lambda p: torch.vmap(lambda t: unpack(t, 4, 2))(p.expand(3, -1)),
    "grad": lambda p: torch.func.grad(lambda t: unpack(t, 4, 2).sum())(p),
    "jvp of vmap": lambda p: torch.func.jvp(torch.vmap(lambda t: unpack(t, 4, 2)), (p.expand(2, -1),), (p.expand(2, -1),)),
    "functionalize": lambda p: torch.func.functionalize(lambda t: unpack(t, 4, 2))(p),
    "compile": under_compile,
    "export": lambda p: torch.export.export(Unpacks(), (p,)).module()(p),
    "strict export": lambda p: torch.export.export(Unpacks(), (p,), strict=True).module()(p),
    "jit trace": lambda p: torch.jit.trace(Unpacks(), (p,), check_trace=False)(p),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("surroundings", SURROUNDINGS)
@pytest.mark.usefixtures("_nothing_known")
def test_whoever_asks_first_leaves_an_index_that_serves_all(surroundings: str) -> None:
    packed = gaussian(packed_size(4, 2)).requires_grad_()
    SURROUNDINGS[surroundings](packed.detach().clone())
    for index in (_shared_index(4, 2, (2, 1, 0), torch.device("cpu")), trapezoid_index(4, 2)):
        assert type(index) is Tensor
        assert index.device.type == "cpu"
        assert not index.is_inference()
        assert torch.equal(copy.deepcopy(index), torch.tensor([0, 2, 3, 4, 5, 6, 7]))
    columns = unpack(packed, 4, 2)
    columns.square().sum().backward()
    assert torch.equal(packed.grad, 2 * packed)
    # and what is known already serves those surroundings
    SURROUNDINGS[surroundings](packed.detach().clone())


@pytest.mark.usefixtures("_nothing_known")
def test_an_index_is_made_once_for_its_sizes_and_device() -> None:
    assert trapezoid_index(4, 2) is trapezoid_index(4, 2, torch.device("cpu"))
    assert trapezoid_index(4, 2) is not trapezoid_index(4, 3)
    assert trapezoid_index(4, 2, "meta").is_meta
    for size in range(2 * _shared_index.cache_parameters()["maxsize"]):
        trapezoid_index(size, 0)
    assert _shared_index.cache_info().currsize == _shared_index.cache_parameters()["maxsize"]


@pytest.mark.gpu
@pytest.mark.usefixtures("_nothing_known")
def test_an_index_that_is_made_while_a_graph_is_captured_is_the_graphs_own() -> None:
    packed = gaussian(packed_size(40, 5)).cuda()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = unpack(packed, 40, 5)
    assert _shared_index.cache_info().currsize == 0
    assert torch.equal(pack(unpack(packed, 40, 5)), packed)
    graph.replay()
    assert torch.equal(pack(found), packed)


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_entries_below_the_diagonal_are_spread_row_by_row(size: int) -> None:
    packed = torch.arange(1.0, size * (size - 1) // 2 + 1)
    below = unpack_below(packed, size)
    assert torch.equal(below, below.tril(-1))
    assert torch.equal(below[1:, : size - 1], unpack(packed, size - 1, size - 1))
    with pytest.raises(ShapeError, match="`packed` must have shape"):
        unpack_below(torch.zeros(len(packed) + 1), size)
