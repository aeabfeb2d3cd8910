"""What is to be predicted: the target columns, of each row or of each series."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from steadyrnn.errors import DataError

from .records import RawTarget, SeriesSet
from .roles import check_finite, check_numbers
from .table import Column, Integers, Table, shown

__all__ = ["check_varied", "find_changes", "match_target", "reduce_target", "target_of_rows", "texts_of", "unique_texts_of"]


def target_of_rows(table: Table, columns: Sequence[Column]) -> RawTarget | None:
    """Return the target of each row; None if no column is one.

    A single column whose cells are all numbers is numbers, any other one texts. Several must be numbers.
    """
    if not columns:
        return None
    names = tuple(column.name for column in columns)
    if len(columns) == 1 and len(columns[0].wrong):
        return RawTarget(names, texts=tuple(texts_of(table, columns[0], "a target")), each=True)
    for column in columns:
        _check_filled(table, column)
        check_numbers(table, column)
    numbers = np.stack([column.numbers for column in columns], axis=1)  # (R, C)
    return RawTarget(names, numbers=torch.from_numpy(numbers), each=True)


def texts_of(table: Table, column: Column, what: str) -> list[str]:
    """Return the texts of a column in which no cell may be missing.

    Args:
        table: That the column is in.
        column: The column.
        what: A cell of it is, in words.
    """
    if column.seconds is None and column.kind.endswith(")"):  # a nested type
        raise DataError(
            f"{table.source.path}, column {column.name!r} must hold texts or numbers, but is of type {column.kind}."
        )
    texts = column.texts()
    filled = [text for text in texts if text is not None]
    if len(filled) < len(texts):
        raise _missing(table, column, texts.index(None), what)
    return filled


def unique_texts_of(table: Table, column: Column) -> list[str]:
    """Return the name of each series, where every row is one; no two are the same."""
    names = texts_of(table, column, "the name of a series")
    first: dict[str, int] = {}
    for row, name in enumerate(names):
        if first.setdefault(name, row) != row:
            problem = f"must name another series than {table.place(first[name])}, but both are {shown(name)}."
            raise table.fault(row, column.name, problem)
    return names


def reduce_target(target: RawTarget, order: Integers, lengths: Integers) -> RawTarget:
    """Return the target of series from that of rows: one per series if it is constant within each, and there are several.

    Args:
        target: Of each row.
        order: Row of each step, (S,).
        lengths: Steps of each series, (N,).
    """
    if len(lengths) > 1 and not len(find_changes(target, order, lengths)):
        order, each = order[np.cumsum(lengths) - lengths], False
    else:
        each = True
    if target.texts is not None:
        return replace(target, texts=tuple(map(target.texts.__getitem__, order.tolist())), each=each)
    numbers = None if target.numbers is None else target.numbers[torch.from_numpy(order)]
    return replace(target, numbers=numbers, each=each)


def match_target(series: SeriesSet, each: bool) -> SeriesSet:
    """Return the same series with a target of every step, or of each series, as a network was trained with.

    Whether a file has one or the other shows in its values alone: a target of steps may be constant within the series of
    another file, and the target of a file of one series is always of steps.

    Args:
        series: As they were read.
        each: Whether the network answers at every step.

    Raises:
        DataError: Each series must have one target, but within one it differs.

    Example:
        >>> target = RawTarget(("kind",), texts=("a", "b"))
        >>> series = SeriesSet(torch.zeros(5, 1), torch.tensor([2, 3]), ("x",), ("s", "t"), target)
        >>> match_target(series, each=True).target.texts
        ('a', 'a', 'b', 'b', 'b')
    """
    target = series.target
    if target is None or target.each == each:
        return series
    if each:
        places = torch.repeat_interleave(torch.arange(series.count), series.lengths)
        return replace(series, target=_take(target, places, each))
    for number, (start, length) in enumerate(zip(series.starts.tolist(), series.lengths.tolist(), strict=True)):
        first = _take(target, torch.full((length,), start), each)
        if not _equal(first, _take(target, torch.arange(start, start + length), each)):
            raise DataError(
                f"The target {', '.join(target.names)} must be one for each series, as in training, but changes within the "
                f"series {series.names[number]!r}."
            )
    return replace(series, target=_take(target, series.starts, each))


def _take(target: RawTarget, places: torch.Tensor, each: bool) -> RawTarget:
    """Return some of the targets, in the order given."""
    texts = None if target.texts is None else tuple(target.texts[place] for place in places.tolist())
    return RawTarget(target.names, texts, None if target.numbers is None else target.numbers[places], each)


def _equal(first: RawTarget, second: RawTarget) -> bool:
    if first.numbers is None or second.numbers is None:
        return first.texts == second.texts
    return torch.equal(first.numbers, second.numbers)


def check_varied(target: RawTarget, path: object) -> None:
    """Refuse a target that is the same everywhere: there is nothing to learn."""
    if target.texts is not None:
        same = len(set(target.texts)) == 1
    else:
        same = target.numbers is not None and bool((target.numbers == target.numbers[:1]).all())
    if same:
        value = target.texts[0] if target.texts is not None else "the same number"
        raise DataError(
            f"{path}: the target {', '.join(target.names)} must have two values or more, but is {value!r} everywhere, so there "
            "is nothing to learn."
        )


def find_changes(target: RawTarget, order: Integers, lengths: Integers) -> Integers:
    """Return the steps, ascending, whose target is not that of the first step of their series.

    Args:
        target: Of each row.
        order: Row of each step, (S,).
        lengths: Steps of each series, (N,).
    """
    if target.texts is not None:
        codes: dict[str, int] = {}
        rows = np.array([codes.setdefault(text, len(codes)) for text in target.texts])[:, None]
    else:
        rows = target.numbers.numpy() if target.numbers is not None else np.zeros((0, 0))
    rows = rows[order]
    first = rows[np.cumsum(lengths) - lengths]
    return np.flatnonzero((rows != np.repeat(first, lengths, axis=0)).any(1))


def _check_filled(table: Table, column: Column) -> None:
    missing = np.flatnonzero(np.isnan(column.numbers))
    if len(missing) and not len(column.wrong):
        raise _missing(table, column, int(missing[0]), "a target")
    check_finite(table, column)


def _missing(table: Table, column: Column, row: int, what: str) -> DataError:
    return table.fault(row, column.name, f"must hold {what}, but is empty. Fill it in, or leave the row out.")
