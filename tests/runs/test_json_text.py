"""JSON texts: standard numbers only, one text for one value, floats bit for bit."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyrnn.errors import ArgumentError, ArgumentTypeError
from steadyrnn.runs.json_text import decode_exactly, encode_exactly, null_for_nonfinite, parse, render, render_line

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
keys = st.text() | st.sampled_from(["$float", "$$", "$", "$$float"])
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(keys, inner), max_leaves=20)


def exact(value: Any) -> Any:
    """Return a value in which floats are compared bit for bit; every NaN that Python makes counts as one."""
    if isinstance(value, float):
        return "nan" if value != value else struct.pack("<d", value)
    if isinstance(value, list):
        return [exact(item) for item in value]
    if isinstance(value, dict):
        return [(key, exact(item)) for key, item in value.items()]
    return (type(value), value)


@given(value=values)
def test_a_value_written_exactly_comes_back_bit_for_bit(value: Any) -> None:
    text = render(encode_exactly(value)).encode("ascii")
    assert exact(decode_exactly(parse(text))) == exact(value)


@given(value=values)
def test_a_value_has_one_text(value: Any) -> None:
    text = render(encode_exactly(value)).encode()
    assert render(parse(text)).encode() == text


@pytest.mark.parametrize("number", [0.1, -0.0, 5e-324, 1.7976931348623157e308, 1e16, 2.0**-1074, 3.0])
def test_finite_floats_are_plain_numbers(number: float) -> None:
    assert exact(parse(render(encode_exactly(number)).encode())) == exact(number)


def test_what_is_not_finite_becomes_null() -> None:
    record = {"a": float("nan"), "b": [float("inf"), -1.5], "c": {"d": float("-inf")}, "e": (True, 2)}
    assert null_for_nonfinite(record) == {"a": None, "b": [None, -1.5], "c": {"d": None}, "e": [True, 2]}


def test_a_line_is_one_line() -> None:
    assert render_line({"text": "two\nlines", "number": 1}) == '{"text": "two\\nlines", "number": 1}\n'


@pytest.mark.parametrize("turn", [null_for_nonfinite, encode_exactly])
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": [1, {2}]}, r"`value\.a\[1\]` must be a JSON value .*, but is of type set"),
        ({"a": {3: 1}}, r"`value\.a` must have strings as keys, but has one of type int"),
        (b"bytes", "`value` must be a JSON value .* bytes"),
    ],
)
def test_what_is_no_json_is_named_with_its_place(turn: Any, value: Any, expected: str) -> None:
    with pytest.raises(ArgumentTypeError, match=expected):
        turn(value)


def test_a_list_inside_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ArgumentError, match="holds itself"):
        encode_exactly(loop)


def test_an_integer_too_long_to_be_read_again_is_refused() -> None:
    with pytest.raises(ArgumentError, match="cannot be written as JSON"):
        render(10**5000)


@pytest.mark.parametrize("text", [b"NaN", b"[Infinity]", b"{", b"", b"\xff", b"[" * 100_000, b"1" * 5000, b'{"a": 1}x'])
def test_what_is_no_json_raises_one_error(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the messages are Python's
        parse(text)


@pytest.mark.parametrize("value", [{"$float": 1.0}, {"$float": "nan", "b": 1}, {"$other": 1}, [{"$float": "1e5"}]])
def test_a_mark_that_was_not_written_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="unknown mark"):
        decode_exactly(value)
