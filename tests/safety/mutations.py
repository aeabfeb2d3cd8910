"""Valid files, damaged in the ways that files are: by accident, by a program that was killed, by malice."""

import re

from hypothesis import strategies as st

HUGE = [
    b"9" * 5000,
    b"-" + b"9" * 400,
    b"1e999",
    b"-1",
    b"0",
    b"1e308",
    b"4294967296",
    b"18446744073709551616",
    b"NaN",
    b"Infinity",
]
STRANGE = [
    *(
        b"\0",
        b"\xff\xfe",
        b"\xed\xa0\x80",
        b"\xe2\x80\xae",
        b"\x1b[2J\x1b]0;x\x07",
        b"\xc2\x9b31m",
        b"\r\n",
        b"\n",
        b"[red]",
        b"\t",
    ),
    *(
        b"'",
        b'"',
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"&a",
        b"*a",
        b"!!python/object:os.system",
        b"<<",
        b"%",
        b"@data",
        b"null",
    ),
]
NESTED = [b"[" * 3000 + b"]" * 3000, b'{"a":' * 2000 + b"1" + b"}" * 2000, b"[" * 100_000, b"(" * 500, b"- " * 2000]
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:e-?\d+)?")
TEXT = re.compile(rb'"[^"\n]*"')


@st.composite
def damaged(draw: st.DrawFn, valid: bytes) -> bytes:
    """Return a valid file after one to three changes."""
    data = valid
    for _ in range(draw(st.integers(1, 3))):
        data = draw(st.sampled_from(CHANGES))(draw, data)
    return data


def _flip(draw: st.DrawFn, data: bytes) -> bytes:
    if not data:
        return data
    at = draw(st.integers(0, len(data) - 1))
    return data[:at] + bytes([data[at] ^ draw(st.integers(1, 255))]) + data[at + 1 :]


def _cut(draw: st.DrawFn, data: bytes) -> bytes:
    return data[: draw(st.integers(0, len(data)))]


def _splice(draw: st.DrawFn, data: bytes) -> bytes:
    a, b = sorted((draw(st.integers(0, len(data))), draw(st.integers(0, len(data)))))
    at = draw(st.integers(0, len(data)))
    return data[:at] + data[a:b] + data[at:]


def _remove(draw: st.DrawFn, data: bytes) -> bytes:
    a, b = sorted((draw(st.integers(0, len(data))), draw(st.integers(0, len(data)))))
    return data[:a] + data[b:]


def _insert(draw: st.DrawFn, data: bytes) -> bytes:
    at = draw(st.integers(0, len(data)))
    return data[:at] + draw(st.sampled_from([*STRANGE, *HUGE, *NESTED]) | st.binary(max_size=8)) + data[at:]


def _swap(pattern: "re.Pattern[bytes]", draw: st.DrawFn, data: bytes, others: list[bytes]) -> bytes:
    found = list(pattern.finditer(data))
    if not found:
        return data
    one = draw(st.sampled_from(found))
    return data[: one.start()] + draw(st.sampled_from(others)) + data[one.end() :]


def _swap_number(draw: st.DrawFn, data: bytes) -> bytes:
    return _swap(NUMBER, draw, data, [*HUGE, b'"x"', b"null", b"true", b"[]", b"{}", b"1.5", b"-7", b"100000", *NESTED[:2]])


def _swap_text(draw: st.DrawFn, data: bytes) -> bytes:
    return _swap(TEXT, draw, data, [b"3", b"null", b"[]", b"{}", b'""', b'"\\u001b[2J"', b'"\\ud800"', b'"../x"', *NESTED[:2]])


def _repeat_line(draw: st.DrawFn, data: bytes) -> bytes:
    lines = data.split(b"\n")
    at = draw(st.integers(0, len(lines) - 1))
    return b"\n".join([*lines[:at], *[lines[at]] * draw(st.sampled_from([2, 3, 50])), *lines[at + 1 :]])


CHANGES = [_flip, _cut, _splice, _remove, _insert, _swap_number, _swap_text, _repeat_line]
