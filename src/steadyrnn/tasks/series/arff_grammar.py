"""The grammar of ARFF: attributes with their types, and rows of values that may be in quotes."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from steadyrnn.errors import DataError

from .listed_names import first_repeated

__all__ = ["Attribute", "read_header", "read_values", "unquoted"]

_ATTRIBUTE = re.compile(r"@attribute\s+('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\s{]+)\s*(.*)", re.IGNORECASE)
_VALUE = re.compile(r"\s*('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^,'\"]*)\s*(,|$)")
_NUMBERS = {"numeric", "real", "integer"}


@dataclass(frozen=True)
class Attribute:
    """A column of an ARFF file.

    Args:
        name: Of it.
        kind: ``numbers``, ``nominal``, ``string`` or ``relational``.
        values: The texts that a nominal attribute may have.
        length: Of a relational attribute: numbers that each of its rows has.
    """

    name: str
    kind: str
    values: tuple[str, ...] = ()
    length: int = 0


def read_header(lines: list[str], path: object) -> tuple[list[Attribute], int]:
    """Return the attributes, and the number of lines up to and with ``@data``."""
    found: list[Attribute] = []
    outer: Attribute | None = None  # the relational one that is open
    inner = 0
    for number, line in enumerate(lines, 1):
        where, text = f"{path}, line {number}", line.strip()
        tag = text.split(None, 1)[0].lower() if text else ""
        if not text or text[0] == "%" or tag == "@relation":
            continue
        if tag == "@data" and outer is None:
            return _checked(found, where), number
        if tag == "@end" and outer is not None:
            found.append(Attribute(outer.name, outer.kind, length=inner))
            outer, inner = None, 0
        elif tag == "@attribute":
            one = _attribute(text, where)
            if outer is not None and one.kind != "numbers":
                raise DataError(f"{where} must be a numeric attribute inside {outer.name!r}, but is {one.kind}.")
            inner += outer is not None
            if outer is None and one.kind == "relational":
                outer = one
            elif outer is None:
                found.append(one)
        else:
            raise DataError(f"{where} must be @attribute, @data or a comment behind %, but is {text[:40]!r}.")
    raise DataError(f"{path} must have a line @data, but has none. It is cut off, or not of the format ARFF.")


def read_values(line: str, where: str) -> list[str]:
    r"""Return the values of a row as they stand, quotes included.

    Example:
        >>> read_values(r"1, 'a, b\'s', ?", "a.arff, line 9")
        ['1', "'a, b\\'s'", '?']
    """
    if line.startswith("{"):
        raise DataError(f"{where} must hold the values between commas, but is sparse ({{...}}), which is not read. Write CSV.")
    if "'" not in line and '"' not in line:
        return [value.strip() for value in line.split(",")]
    return [*_quoted(line, where)]


def unquoted(value: str) -> str:
    r"""Return a value without the quotes around it and without backslashes.

    Example:
        >>> unquoted(r"'it\'s'"), unquoted("walking")
        ("it's", 'walking')
    """
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if len(value) > 1 and value[0] in "'\"" and value[-1] == value[0] else value


def _quoted(line: str, where: str) -> Iterator[str]:
    start = 0
    while True:
        match = _VALUE.match(line, start)
        if match is None:
            raise DataError(
                f"{where}, character {start + 1} must be a value between commas; a quote does not end, or is inside."
            )
        yield match[1].strip()
        start = match.end()
        if not match[2]:
            return


def _attribute(text: str, where: str) -> Attribute:
    """Return the attribute of a line."""
    match = _ATTRIBUTE.fullmatch(text)
    kind = match[2].strip() if match else ""
    if match is None or not kind:
        raise DataError(f"{where} must have a name and a type behind @attribute, but is {text[:60]!r}.")
    name = unquoted(match[1])
    if kind.startswith("{") and kind.endswith("}"):
        return Attribute(name, "nominal", tuple(unquoted(value) for value in read_values(kind[1:-1].strip(), where)))
    known = "numbers" if kind.lower() in _NUMBERS else kind.lower()
    if known not in {"numbers", "string", "relational"}:
        raise DataError(f"{where} must be numeric, real, integer, string, relational or {{...}}, but is {kind[:40]!r}.")
    return Attribute(name, known)


def _checked(attributes: list[Attribute], where: str) -> list[Attribute]:
    names = [attribute.name for attribute in attributes]
    if not attributes or (twice := first_repeated(names)) is not None:
        problem = "has none" if not attributes else f"has {twice!r} twice"
        raise DataError(f"{where} must have attributes before it, each with a name of its own, but {problem}.")
    return attributes
