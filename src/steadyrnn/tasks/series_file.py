"""Files of the UCR archive, release of 2018: one series per line, its label first, between tabs."""

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from steadyrnn.errors import DataError

from .examples import as_float32

__all__ = ["read_series"]


def read_series(data: bytes, where: Path, rows: int, length: int, labels: Sequence[int]) -> tuple[Tensor, Tensor]:
    r"""Return the series of a file, float32 (N, L), and their classes, int64 (N,).

    Args:
        data: The whole file.
        where: Its path, named in errors.
        rows: Series the file must have, N; TRAIN and TEST of a set mostly differ in it.
        length: Numbers a series must have, L.
        labels: Those that may stand in the file; the class of a series is the place of its label in this list.

    Example:
        >>> read_series(b"-1\t0.5\t2\n", Path("a.tsv"), rows=1, length=2, labels=(-1, 1))
        (tensor([[0.5000, 2.0000]]), tensor([0]))
    """
    lines = _lines(data, where)
    if len(lines) != rows:
        raise DataError(
            f"{where} must have {rows} series, but has {len(lines)}. TRAIN and TEST may be exchanged, or of another release."
        )
    table = [_numbers(line, f"{where}, line {number}", length) for number, line in enumerate(lines, 1)]
    classes = [_class(row[0], f"{where}, line {number}", labels) for number, row in enumerate(table, 1)]
    series = torch.tensor(table, dtype=torch.float64)[:, 1:]
    return as_float32(series, where), torch.tensor(classes)


def _lines(data: bytes, where: Path) -> list[bytes]:
    """Return the lines of a file whose form is right."""
    if not data.strip():
        raise DataError(f"{where} must have one series per line, but is empty.")
    if b"\r" in data:
        raise DataError(f"{where} must have line ends of one byte (LF), but has CR: it was converted. Obtain it again.")
    first = data.split(b"\n", 1)[0]
    if b"," in first and b"\t" not in first:
        raise DataError(
            f"{where} must be separated by tabs, as in the archive's release of 2018, but has commas: this is the release of "
            "2015, whose names, splits and digits differ. Obtain `UCRArchive_2018.zip`."
        )
    if not data.endswith(b"\n"):
        raise DataError(f"{where} must end with a line end, but its last line is cut off. Obtain it again.")
    return data[:-1].split(b"\n")


def _numbers(line: bytes, where: str, length: int) -> list[float]:
    """Return label and series of a line, every one a finite number."""
    fields = line.split(b"\t")
    if len(fields) != length + 1:
        raise DataError(f"{where} must have a label and {length} numbers, but has {len(fields)} fields.")
    try:
        numbers = list(map(float, fields))
    except ValueError as error:
        raise DataError(f"{where} must hold numbers between tabs, but {error}.") from None
    if not all(map(math.isfinite, numbers)):
        place = next(place for place, number in enumerate(numbers) if not math.isfinite(number))
        raise DataError(f"{where} must hold finite numbers, but number {place} is {numbers[place]} (0 is the label).")
    return numbers


def _class(label: float, where: str, labels: Sequence[int]) -> int:
    if label not in labels:
        raise DataError(f"{where} must have a label among {', '.join(map(str, labels))}, but has {label:g}.")
    return labels.index(int(label))
