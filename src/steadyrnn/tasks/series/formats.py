"""The formats of files, by suffix: each with its reader."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from steadyrnn.errors import DataError

from .arff_file import read_arff
from .arrays import read_npy, read_npz
from .csv_table import read_csv_table
from .files import Content, name_signature, read_head
from .layout import choose_layout
from .long_layout import read_long
from .parquet_table import read_parquet_table
from .reading import Reading
from .rows_layout import read_rows
from .settings import SeriesSettings
from .table import Table
from .ts_file import read_ts

__all__ = ["FORMATS", "Format", "find_format", "read_table"]

_LAYOUTS = {"long": read_long, "rows": read_rows}


@dataclass(frozen=True)
class Format:
    """A format of files.

    Args:
        name: In words.
        read: Returns the series of a file.
        in_folder: Whether a folder may hold files of it, a series each.
    """

    name: str
    read: Callable[[Content, SeriesSettings], Reading]
    in_folder: bool = True


def read_table(table: Table, settings: SeriesSettings) -> Reading:
    """Return the series of a table, whose rows are steps or series."""
    layout, note = choose_layout(table, settings)
    reading = _LAYOUTS[layout](table, settings)
    return reading if note is None else reading.with_notes(note)


def _tabular(read: Callable[[Content, bool], Table]) -> Callable[[Content, SeriesSettings], Reading]:
    """Return the reader of a format whose files are tables."""
    return lambda content, settings: read_table(read(content, settings.header), settings)


_CSV = Format("CSV", _tabular(read_csv_table))

FORMATS: dict[str, Format] = {
    ".csv": _CSV,
    ".tsv": _CSV,
    ".txt": _CSV,
    ".parquet": Format("Parquet", _tabular(read_parquet_table)),
    ".npy": Format(".npy", read_npy),
    ".npz": Format(".npz", read_npz, in_folder=False),
    ".arff": Format("ARFF", read_arff, in_folder=False),
    ".ts": Format(".ts", read_ts, in_folder=False),
}
"""Every format, by the suffix of its files."""


def find_format(path: Path) -> Format:
    """Return the format of a file by its suffix; whether letters are capital does not matter."""
    found = FORMATS.get(path.suffix.lower())
    if found is not None:
        return found
    known = name_signature(read_head(path))
    what = f"it is {known}" if known else f"its suffix is {path.suffix!r}" if path.suffix else "it has no suffix"
    way_out = "Unpack it first." if known and "compressed" in known else "Export it as CSV, or name it after its format."
    raise DataError(f"{path} must be one of {', '.join(FORMATS)}, or a folder of such files, but {what}. {way_out}")
