"""Tensors come back bit for bit, whatever their dtype, shape and strides; tied ones stay tied."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from steadyrnn.errors import ArgumentError, ArgumentTypeError
from steadyrnn.runs.tensors import pack, unpack

DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.bool, torch.complex64, torch.complex128, torch.complex32),
]

SHAPES: dict[str, Callable[[Tensor], Tensor]] = {  # of a (4, 6)
    "as it is": lambda x: x,
    "transposed": lambda x: x.mT,
    "every second column": lambda x: x[:, ::2],
    "a slice in the middle": lambda x: x[1:3, 2:5],
    "expanded": lambda x: x[:1].expand(5, 6),
    "of no dimension": lambda x: x[1, 2],
    "empty": lambda x: x[:0],
    "a parameter's kind": lambda x: x.unsqueeze(0),
}


def bits(tensor: Tensor) -> Tensor:
    real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    return real.resolve_neg().contiguous().reshape(-1).view(torch.uint8)


def round_trip(**tensors: Tensor) -> dict[str, Tensor]:
    packed = pack(tensors)
    return unpack(packed.data, packed.table)


def random_bits(dtype: torch.dtype) -> Tensor:
    if dtype == torch.bool:
        return torch.randint(0, 2, (4, 6)) > 0
    size = torch.empty((), dtype=dtype).element_size()
    real = torch.randint(0, 256, (4, 6 * size), dtype=torch.uint8)
    return real.view(dtype)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_in_every_shape_comes_back_bit_for_bit(dtype: torch.dtype, shape: str) -> None:
    tensor = SHAPES[shape](random_bits(dtype))
    back = round_trip(a=tensor)["a"]
    assert back.dtype == tensor.dtype
    assert back.shape == tensor.shape
    assert back.is_contiguous()
    assert torch.equal(bits(back), bits(tensor))


@given(payload=st.integers(1, 2**52 - 1), sign=st.booleans())
def test_the_payload_of_a_nan_comes_back(payload: int, sign: bool) -> None:
    pattern = (0x7FF << 52 | payload) - (2**63 if sign else 0)
    nan = torch.tensor([pattern], dtype=torch.int64).view(torch.float64)
    assert nan.isnan().all()
    assert torch.equal(round_trip(a=nan)["a"].view(torch.int64), nan.view(torch.int64))


def test_conjugates_and_negatives_are_stored_as_they_read() -> None:
    z = torch.randn(3, dtype=torch.complex64)
    back = round_trip(z=z, conjugate=z.conj(), negative=z.conj().imag)
    assert torch.equal(back["conjugate"], z.conj())
    assert torch.equal(back["negative"], -z.imag)
    assert torch.equal(back["z"], z)


def test_a_tied_tensor_is_stored_once_and_comes_back_tied() -> None:
    weight = nn.Parameter(torch.randn(50, 40))
    once, tied = pack({"a": weight}), pack({"a": weight, "b": weight, "c": weight.detach(), "d": weight.view(50, 40)})
    assert tied.table["b"] == tied.table["c"] == tied.table["d"] == {"alias": "a"}
    assert tied.data == once.data
    back = unpack(tied.data, tied.table)
    assert back["a"] is back["b"] is back["c"] is back["d"]


@pytest.mark.parametrize(
    "view", [lambda x: x.mT, lambda x: x[1:], lambda x: x.flatten(), lambda x: x[:, :2], lambda x: x.view(torch.int32)]
)
def test_another_view_of_the_same_storage_is_stored_apart(view: Callable[[Tensor], Tensor]) -> None:
    whole = torch.randn(4, 4)
    packed = pack({"whole": whole, "part": view(whole)})
    back = unpack(packed.data, packed.table)
    assert "alias" not in packed.table["part"]
    assert torch.equal(back["part"], view(whole))
    back["part"].zero_()
    assert torch.equal(back["whole"], whole)


def test_empty_tensors_are_never_tied() -> None:
    empty = torch.empty(0, 3)
    back = round_trip(a=empty, b=empty)
    assert back["a"] is not back["b"]


def test_names_come_back_in_order() -> None:
    one, names = torch.ones(1), ["z", "a.b", "é", "", "m"]
    packed = pack({name: one if name in "zm" else torch.ones(2) for name in names})
    assert list(unpack(packed.data, packed.table)) == names


def test_what_comes_back_may_be_written_to() -> None:
    back = round_trip(a=torch.zeros(3))
    back["a"].add_(1)
    assert back["a"].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        ({"a": [1.0]}, r"`tensors\['a'\]` must be a tensor, but is of type list"),
        ({1: torch.ones(1)}, "strings as names, but has one of type int"),
        ({"a": torch.ones(2, device="meta")}, "must be dense and hold data"),
        ({"a": torch.eye(2).to_sparse()}, "must be dense and hold data"),
    ],
)
def test_what_is_no_tensor_with_data_is_named(tensors: dict[str, Tensor], expected: str) -> None:
    with pytest.raises(ArgumentTypeError, match=expected):
        pack(tensors)


@pytest.mark.parametrize("name", ["__metadata__", "\ud800"])
def test_a_name_that_the_format_cannot_store_is_refused(name: str) -> None:
    with pytest.raises(ArgumentError, match="cannot store"):
        pack({name: torch.ones(1)})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"dtype": "int32"}, "`a` is of dtype torch.float32, which is not what the table says"),
        ({"dtype": ["float32"]}, "`a` is of dtype"),
        ({"dtype": "complex64"}, r"`a` has shape \[2\], which is not"),
        ({"shape": [3, 2]}, r"`a` has shape \[2, 3\], which is not"),
        ({"shape": "2"}, r"`a` has shape"),
        ({"sha256": "0" * 64}, "`a` is damaged"),
        ({"sha256": None}, "`a` is damaged"),
    ],
)
def test_a_table_that_says_something_else_is_refused(change: dict[str, object], expected: str) -> None:
    packed = pack({"a": torch.randn(2, 3)})
    with pytest.raises(ValueError, match=expected):
        unpack(packed.data, {"a": packed.table["a"] | change})


@pytest.mark.parametrize("table", [{}, {"a": {}, "c": {}}, {"b": {}}])
def test_tensors_missing_or_left_over_are_named(table: dict[str, dict[str, str]]) -> None:
    packed = pack({"a": torch.randn(2, 3)})
    with pytest.raises(ValueError, match="missing or left over: "):
        unpack(packed.data, table)


@pytest.mark.parametrize("original", ["c", "b", 3, ["a"]])
def test_an_alias_of_nothing_is_refused(original: object) -> None:
    packed = pack({"a": torch.randn(2, 3)})
    with pytest.raises(ValueError, match="`b` is tied to a tensor that is not there"):
        unpack(packed.data, packed.table | {"b": {"alias": original}})


@pytest.mark.gpu
def test_a_gpu_tensor_comes_back_on_the_cpu() -> None:
    weight = torch.randn(5, 3, device="cuda").mT
    back = round_trip(a=weight, b=weight)
    assert back["a"] is back["b"]
    assert torch.equal(back["a"], weight.cpu())
