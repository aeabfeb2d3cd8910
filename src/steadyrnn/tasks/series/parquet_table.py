"""Parquet files: columns with types, into a table."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from steadyrnn.errors import DataError

from .files import Content, name_signature
from .polars_extra import require_polars
from .table import Column, Integers, Numbers, Table, check_names, check_size

if TYPE_CHECKING:
    import polars as pl

__all__ = ["read_parquet_table"]

_FEW = 1 << 27  # values, a gigabyte
_MOST_PER_BYTE = 1000

R = TypeVar("R")


def read_parquet_table(content: Content, header: bool) -> Table:
    """Return the columns of a Parquet file.

    Integers, floating-point numbers, decimals and booleans are numbers; texts and categories are text, also if they look
    like numbers; dates and times of day with a date are dates. Missing is null, and NaN. Lists and structures are not read.

    A damaged file is refused. One damage in some thousands claims more memory than there is inside a page; polars then ends the
    process, which cannot be caught.

    Args:
        content: The file.
        header: Not used: the file always names its columns.
    """
    import polars as pl

    require_polars(content.path)
    schema = _without_panic(content, lambda: pl.read_parquet_schema(content.data))
    check_names([*schema], str(content.path))
    rows = _without_panic(content, lambda: int(pl.scan_parquet(content.data).select(pl.len()).collect().item()))
    check_size(rows, len(schema), content.path)
    if rows * len(schema) > max(_FEW, _MOST_PER_BYTE * len(content.data)):
        raise DataError(f"{content.path} claims {rows:,} rows of {len(schema):,} columns in {len(content.data):,} bytes.")
    if not rows or not schema:
        raise DataError(f"{content.path} must hold rows, but has none.")
    read = [name for name, kind in schema.items() if _is_read(kind)]
    frame = _without_panic(content, lambda: pl.read_parquet(content.data, columns=read, glob=False))
    columns = [
        _column(name, frame.get_column(name) if name in read else None, str(kind), rows) for name, kind in schema.items()
    ]
    return Table(content.source, columns)


def _is_read(kind: "pl.DataType") -> bool:
    """Say whether cells of a type are one value each, of those that are read."""
    import polars as pl

    return (
        kind.is_numeric()
        or kind in {pl.Boolean, pl.String, pl.Date, pl.Null}
        or isinstance(kind, pl.Categorical | pl.Enum | pl.Datetime | pl.Duration)
    )


def _column(name: str, cells: "pl.Series | None", kind: str, rows: int) -> Column:
    """Return a column of one type."""
    import polars as pl

    if cells is None:
        return Column(name, kind, np.full(rows, np.nan), np.arange(rows), lambda: [None] * rows)
    dtype = cells.dtype
    if dtype.is_numeric() or dtype in {pl.Boolean, pl.Null}:
        numbers = cells.cast(pl.Float64).fill_null(float("nan")).to_numpy(writable=True)
        numbers[np.isnan(numbers)] = np.nan
        return Column(
            name, "booleans" if dtype == pl.Boolean else "numbers", numbers, _rows(cells.is_null())[:0], lambda: _texts(cells)
        )
    seconds = _seconds(cells) if dtype.is_temporal() else None
    return Column(
        name,
        "strings" if seconds is None else "dates",
        np.full(rows, np.nan),
        _rows(cells.is_not_null()),
        lambda: _texts(cells),
        seconds,
    )


def _rows(mask: "pl.Series") -> Integers:
    return np.flatnonzero(mask.to_numpy()).astype(np.int64)


def _texts(cells: "pl.Series") -> list[str | None]:
    """Return cells as texts: integers without a point, floating-point numbers as Python writes them."""
    if cells.dtype.is_float():
        return [None if value is None or value != value else repr(value) for value in cells.to_list()]
    return [None if value is None else str(value) for value in cells.to_list()]


def _seconds(cells: "pl.Series") -> Numbers:
    """Return dates as seconds since 1970 (durations as seconds), float64; NaN where one is missing."""
    import polars as pl

    per_second = {"ms": 1e3, "us": 1e6, "ns": 1e9}
    if cells.dtype == pl.Date:
        return cells.to_physical().cast(pl.Float64).fill_null(float("nan")).to_numpy() * 86400.0
    unit = getattr(cells.dtype, "time_unit", None) or "us"
    return cells.to_physical().cast(pl.Float64).fill_null(float("nan")).to_numpy() / per_second[unit]


def _without_panic(content: Content, read: Callable[[], R]) -> R:
    """Return what ``read`` returns; whatever polars raises about a damaged file becomes a `DataError`."""
    import polars as pl

    try:
        return read()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError, OverflowError, MemoryError) as error:
        known = name_signature(content.data[:16])
        what = (
            f"is {known}" if known and "Parquet" not in known else f"cannot be read as one: {str(error).splitlines()[0][:200]}"
        )
        raise DataError(
            f"{content.path} must be a Parquet file, but {what}. It may be cut off or damaged: write it again."
        ) from None
