"""Files of the Extreme Classification Repository: one sparse text with all rows, and files that part them."""

import math
from pathlib import Path

import torch
from torch import Tensor

from steadyrnn.errors import ArgumentError, DataError

from .examples import Examples, as_float32

__all__ = ["read_repository", "read_split"]

_MOST_DIGITS = 18


def read_repository(data: bytes, where: Path, sizes: tuple[int, int, int]) -> Examples:
    r"""Return all rows of a data file: features, float32 (N, F), and labels, uint8 (N, C).

    The first line is ``rows features labels``; each row is ``label,label,... feature:value feature:value ...``, numbers from
    0. A row without labels begins with a space.

    Args:
        data: The whole file.
        where: Its path, named in errors.
        sizes: The rows, features and labels it must have; a header that says otherwise is not believed.

    Example:
        >>> rows = read_repository(b"2 3 2\n0,1 0:0.5 2:1\n 1:2\n", Path("data.txt"), (2, 3, 2))
        >>> rows.features.tolist(), rows.targets.tolist()
        ([[0.5, 0.0, 1.0], [0.0, 2.0, 0.0]], [[1, 1], [0, 0]])
    """
    lines = _lines(data, where)
    rows, width, labels = _header(lines[0], where)
    if (rows, width, labels) != sizes:
        raise DataError(
            f"{where} must have {sizes[0]} rows, {sizes[1]} features and {sizes[2]} labels, but its first line says "
            f"{rows}, {width} and {labels}. It is another data set, or altered."
        )
    if len(lines) - 1 != rows:
        raise DataError(f"{where} must have {rows} rows, as its first line says, but has {len(lines) - 1}. It may be cut off.")
    features, targets = torch.zeros(rows, width, dtype=torch.float64), torch.zeros(rows, labels, dtype=torch.uint8)
    for row, line in enumerate(lines[1:]):
        place = f"{where}, line {row + 2}"
        tags, columns, values = _row(line, place)
        targets[row, _check_numbers(tags, labels, f"{place}: labels")] = 1
        features[row, _check_numbers(columns, width, f"{place}: features")] = torch.tensor(values, dtype=torch.float64)
    return Examples(as_float32(features, where), targets)


def read_split(data: bytes, where: Path, rows: int, split: int) -> Tensor:
    r"""Return which rows a split file takes, numbers from 0, int64 (n,), ascending.

    Args:
        data: The whole file: row numbers from 1, a column for each way to part the rows.
        where: Its path, named in errors.
        rows: How many there are to take from.
        split: The column, from 0.

    Example:
        >>> read_split(b"3 1\n1 2\n", Path("trSplit.txt"), rows=3, split=0)
        tensor([0, 2])
    """
    table = [line.split() for line in _lines(data, where)]
    width = len(table[0])
    if any(len(line) != width for line in table):
        raise DataError(f"{where} must have {width} columns in every line, as in the first, but does not.")
    if not 0 <= split < width:
        raise ArgumentError(f"`split` must be from 0 to {width - 1}, the columns of {where}, but is {split}.")
    try:
        taken = [int(line[split]) for line in table]
    except ValueError:
        raise DataError(f"{where} must hold whole numbers, but does not.") from None
    if min(taken) < 1 or max(taken) > rows or len(set(taken)) != len(taken):
        raise DataError(f"{where} must hold row numbers from 1 to {rows}, each at most once in a column, but does not.")
    return torch.tensor(sorted(taken)) - 1


def _lines(data: bytes, where: Path) -> list[str]:
    """Return the lines of a text, with either kind of line end."""
    try:
        text = data.decode("ascii").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{where} must be plain text, but byte {error.start} is not. Obtain it again.") from None
    if not text.strip():
        raise DataError(f"{where} must hold rows of numbers, but is empty.")
    if not text.endswith("\n"):  # no checksum is known, and a number cut short is a number
        raise DataError(
            f"{where} must end with a line end, but does not, so its last number may be cut off. Obtain it again; if the file "
            "is whole, add the line end."
        )
    return text.rstrip("\n").split("\n")


def _header(line: str, where: Path) -> tuple[int, int, int]:
    fields = line.split()
    if len(fields) != 3 or not all(field.isdecimal() and len(field) <= _MOST_DIGITS and int(field) for field in fields):
        raise DataError(f"{where} must begin with a line `rows features labels`, but begins with {line[:40]!r}.")
    rows, width, labels = map(int, fields)
    return rows, width, labels


def _row(line: str, where: str) -> tuple[list[int], list[int], list[float]]:
    """Return labels, features and their values."""
    tags, _, rest = line.partition(" ")
    pairs = [pair.partition(":") for pair in rest.split()]
    try:
        labels = [int(tag) for tag in tags.split(",") if tags]
        columns, values = [int(column) for column, _, _ in pairs], [float(value) for _, _, value in pairs]
    except ValueError:
        raise DataError(
            f"{where} must read `label,label feature:value feature:value`, but does not. Obtain the file again."
        ) from None
    if not all(map(math.isfinite, values)):
        raise DataError(f"{where} must hold finite numbers, but holds NaN or infinity.")
    return labels, columns, values


def _check_numbers(numbers: list[int], below: int, where: str) -> list[int]:
    """Return numbers from 0 to ``below - 1``, each once."""
    if any(not 0 <= number < below for number in numbers) or len(set(numbers)) != len(numbers):
        raise DataError(f"{where} must have numbers from 0 to {below - 1}, each once, but do not.")
    return numbers
