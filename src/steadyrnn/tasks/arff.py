"""ARFF files as Mulan publishes them, rows sparse or dense, and the XML file that says which columns are labels."""

import html
import math
import re
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from steadyrnn.errors import DataError

from .examples import Examples, as_float32

__all__ = ["read_arff", "read_label_names"]

_ATTRIBUTE = re.compile(r"@attribute\s+('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\S+)\s+(.+)", re.IGNORECASE)
_TYPES = re.compile(r"numeric|real|integer|\{\s*0\s*,\s*1\s*\}", re.IGNORECASE)  # what a row leaves out is 0 in each of these
_MOST_VALUES = 2**27  # a gigabyte of them; Bibtex has a tenth
_LABEL = re.compile(r"<label\s+name=\"([^\"]*)\"")


def read_label_names(data: bytes, where: Path) -> list[str]:
    """Return the labels' names from Mulan's XML file.

    Example:
        >>> read_label_names(b'<labels><label name="a"></label><label name="b"/></labels>', Path("a.xml"))
        ['a', 'b']
    """
    try:
        names = [html.unescape(name) for name in _LABEL.findall(_text(data, where))]
    except ValueError:  # a character's number of thousands of digits
        raise DataError(f"{where} must name the labels in characters that there are, but does not.") from None
    if not names:
        raise DataError(f'{where} must name the labels, <label name="...">, but names none.')
    if len(set(names)) != len(names):
        raise DataError(f"{where} must name each label once, but repeats one.")
    return names


def read_arff(data: bytes, where: Path, labels: Sequence[str], size: tuple[int, int] | None = None) -> Examples:
    r"""Return the rows of an ARFF file: features, float32 (N, F), and labels, uint8 (N, C).

    A sparse row is ``{column value, ...}`` with columns from 0, and 0 where nothing stands; a dense row has all values
    between commas. Columns must be numbers, or nominal with the values 0 and 1.

    Args:
        data: The whole file.
        where: Its path, named in errors.
        labels: Names of the columns that are labels; the others are features, in the file's order.
        size: Rows and columns it must have; None is any number, up to 2^27 values.

    Example:
        >>> text = b"@relation r\n@attribute x numeric\n@attribute 'a tag' {0,1}\n@data\n{0 2.5}\n{1 1}\n"
        >>> rows = read_arff(text, Path("a.arff"), ["a tag"])
        >>> rows.features.tolist(), rows.targets.tolist()
        ([[2.5], [0.0]], [[0], [1]])
    """
    lines = _text(data, where).split("\n")
    names, first = _header(lines, where)
    missing = [name for name in labels if name not in names]
    if missing:
        raise DataError(f"{where} must have an attribute for each label, but has none for {missing[0]!r}.")
    body = [(number, line) for number, line in enumerate(lines[first:], first + 1) if line.strip() and line[0] != "%"]
    if not body:
        raise DataError(f"{where} must have rows behind @data, but has none.")
    _check_size((len(body), len(names)), size, where)
    table = torch.zeros(len(body), len(names), dtype=torch.float64)
    for row, (number, line) in enumerate(body):
        columns, values = _row(line.strip(), len(names), f"{where}, line {number}")
        table[row, columns] = torch.tensor(values, dtype=torch.float64)
    return _split_columns(table, names, labels, where)


def _check_size(found: tuple[int, int], wanted: tuple[int, int] | None, where: Path) -> None:
    """Refuse a table of another size, or a large one, before memory is taken: sparse rows are a few bytes each."""
    if wanted is not None and found != wanted:
        raise DataError(
            f"{where} must have {wanted[0]} rows and {wanted[1]} attributes, but has {found[0]} and {found[1]}. Files may be "
            "exchanged or cut off."
        )
    if math.prod(found) > _MOST_VALUES:
        raise DataError(
            f"{where} must have at most {_MOST_VALUES:,} values, but has {found[0]:,} rows of {found[1]:,} attributes."
        )


def _text(data: bytes, where: Path) -> str:
    """Return a file as text with line ends of one byte (ARFF is written with either kind)."""
    try:
        return data.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{where} must be UTF-8, but byte {error.start} is not. Obtain it again.") from None


def _header(lines: list[str], where: Path) -> tuple[list[str], int]:
    """Return the columns' names, and the number of lines up to and with ``@data``."""
    names: list[str] = []
    for number, line in enumerate(lines, 1):
        word = line.strip().lower()
        if word == "@data":
            if len(set(names)) != len(names):
                raise DataError(f"{where} must name each attribute once, but repeats one.")
            return names, number
        if not word.startswith("@attribute"):
            continue
        match = _ATTRIBUTE.fullmatch(line.strip())
        if match is None or not _TYPES.fullmatch(match[2].strip()):
            raise DataError(f"{where}, line {number}: an attribute must be numeric or {{0,1}}, but is {line.strip()[:60]!r}.")
        name = match[1]
        names.append(re.sub(r"\\(.)", r"\1", name[1:-1]) if name[0] in "'\"" else name)
    raise DataError(f"{where} must be an ARFF file with a line @data, but has none. It is cut off or something else.")


def _row(line: str, width: int, where: str) -> tuple[list[int], list[float]]:
    """Return columns and values of a row."""
    sparse = line[0] == "{"
    if sparse and line[-1] != "}":
        raise DataError(f"{where} must end with a brace, but is cut off. Obtain the file again.")
    try:
        columns, values = _pairs(line[1:-1]) if sparse else _dense(line)
    except ValueError:
        form = "pairs of a column and a number" if sparse else "numbers"
        raise DataError(f"{where} must hold {form} between commas, but does not.") from None
    if not sparse and len(values) != width:
        raise DataError(f"{where} must have {width} values, one per column, but has {len(values)}.")
    if any(not 0 <= column < width for column in columns) or len(set(columns)) != len(columns):
        raise DataError(f"{where} must name columns from 0 to {width - 1}, each once, but does not.")
    if not all(map(math.isfinite, values)):
        raise DataError(f"{where} must hold finite numbers, but holds NaN or infinity.")
    return columns, values


def _pairs(line: str) -> tuple[list[int], list[float]]:
    pairs = [field.split() for field in line.split(",") if field.strip()]
    return [int(column) for column, _ in pairs], [float(value) for _, value in pairs]


def _dense(line: str) -> tuple[list[int], list[float]]:
    values = [float(field) for field in line.split(",")]
    return list(range(len(values))), values


def _split_columns(table: Tensor, names: list[str], labels: Sequence[str], where: Path) -> Examples:
    """Return features and labels from all columns."""
    place = {name: column for column, name in enumerate(names)}
    chosen = [place[name] for name in labels]
    tags = table[:, chosen]
    if bool(((tags != 0) & (tags != 1)).any()):
        raise DataError(f"{where} must have labels of 0 or 1, but has another number.")
    features = [column for column in range(len(names)) if column not in set(chosen)]
    return Examples(as_float32(table[:, features], where), tags.to(torch.uint8))
