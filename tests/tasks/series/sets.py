"""Random series, and files of them in every format."""

import csv
import io
import random
from collections.abc import Callable

import numpy as np
import polars
import torch
from hypothesis import strategies as st

from steadyrnn.tasks.series.records import RawTarget, SeriesSet

__all__ = [
    "as_arff",
    "as_dense_arff",
    "as_long_csv",
    "as_npy",
    "as_npz",
    "as_parquet",
    "as_rows_csv",
    "as_ts",
    "assert_same_series",
    "series_sets",
]

NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc", "Z"], exclude_characters='"'), min_size=1, max_size=5
)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
CLASSES = ("up", 'a "quoted", one', "zwei\nZeilen", "grün")


@st.composite
def series_sets(draw: Callable[..., object], equal: bool = False, missing: bool = False) -> SeriesSet:
    """Draw series of one to three channels with a class each; values may be missing between the first and the last step."""
    count, width = draw(st.integers(2, 4)), draw(st.integers(1, 3))
    steps = draw(st.integers(1, 4))
    lengths = [steps if equal else draw(st.integers(1, 4)) for _ in range(count)]
    numbers = draw(st.lists(FINITE, min_size=sum(lengths) * width, max_size=sum(lengths) * width))
    values = torch.tensor(numbers, dtype=torch.float64).view(-1, width)
    if missing:
        holes = draw(st.lists(st.booleans(), min_size=len(numbers), max_size=len(numbers)))
        ends = torch.tensor(lengths).cumsum(0) - 1
        mask = torch.tensor(holes).view(-1, width)
        mask[ends] = mask[0] = False  # a series ends with values, and no channel is empty
        values = values.masked_fill(mask, torch.nan)
    classes = draw(st.permutations(CLASSES))[:count]
    moments = [sorted(draw(st.lists(FINITE, min_size=steps, max_size=steps, unique=True))) for steps in lengths]
    times = torch.tensor([moment for own in moments for moment in own], dtype=torch.float64)
    return SeriesSet(
        values, torch.tensor(lengths), tuple("xyz"[:width]), tuple(f"s{place}" for place in range(count)),
        RawTarget(("kind",), texts=tuple(classes)), times,
    )  # fmt: skip


def table_of(series: SeriesSet) -> dict[str, list[object]]:
    """Return the columns of a table with a row per step."""
    owner = np.repeat(np.arange(series.count), series.lengths.numpy())
    columns: dict[str, list[object]] = {"id": [series.names[place] for place in owner]}
    columns["t"] = series.times.tolist()
    for place, name in enumerate(series.channels):
        columns[name] = [None if value != value else value for value in series.values[:, place].tolist()]
    columns["kind"] = [series.target.texts[place] for place in owner]
    return columns


def as_long_csv(series: SeriesSet, seed: int) -> str:
    """Return a CSV file with a row per step, in any order."""
    columns = table_of(series)
    rows = list(zip(*columns.values(), strict=True))
    random.Random(seed).shuffle(rows)
    return written([[*columns], *rows])


def as_rows_csv(series: SeriesSet) -> str:
    """Return a CSV file with a row per series."""
    longest = int(series.lengths.max())
    rows = [["kind", *(f"{name}_{step}" for step in range(longest) for name in series.channels)]]
    for name, part in zip(series.target.texts, series.series, strict=True):
        cells = ["" if value != value else repr(value) for value in part.flatten().tolist()]
        rows.append([name, *cells, *[""] * (len(rows[0]) - 1 - len(cells))])
    return written(rows)


def as_parquet(series: SeriesSet) -> bytes:
    """Return a Parquet file with a row per step."""
    file = io.BytesIO()
    polars.DataFrame(table_of(series)).write_parquet(file)
    return file.getvalue()


def as_npz(series: SeriesSet) -> bytes:
    """Return an archive of arrays: values (N, T, D), padded with 0, and ``y``, ``lengths`` and ``name``."""
    longest = int(series.lengths.max())
    values = np.zeros((series.count, longest, len(series.channels)))
    for place, part in enumerate(series.series):
        values[place, : len(part)] = part
    np.savez(file := io.BytesIO(), X=values, y=series.labels, lengths=series.lengths.numpy(), name=np.array(series.names))
    return file.getvalue()


def as_npy(series: SeriesSet) -> bytes:
    """Return the values of the first series as an array (T, D)."""
    np.save(file := io.BytesIO(), series.series[0])
    return file.getvalue()


def as_ts(series: SeriesSet) -> str:
    """Return a file of sktime's format; a class has no spaces and colons there."""
    labels = [f"class{CLASSES.index(label)}" for label in series.target.texts]
    lines = ["@problemName Random", "@timeStamps false", f"@dimension {len(series.channels)}", "@equalLength false"]
    lines += [f"@classLabel true {' '.join(labels)}", "@data"]
    for label, part in zip(labels, series.series, strict=True):
        lines.append(":".join([*(",".join(cell(value) for value in channel) for channel in part.T.tolist()), label]))
    return "\n".join(lines) + "\n"


def as_arff(series: SeriesSet) -> str:
    """Return a file of the UEA archive: one relational attribute, padded with missing values."""
    longest = int(series.lengths.max())
    labels = [escaped(label) for label in series.target.texts]
    inner = [f"@attribute att{step} numeric" for step in range(longest)]
    head = [
        "@relation Random",
        "@attribute bag relational",
        *inner,
        "@end bag",
        f"@attribute kind {{{','.join(labels)}}}",
        "@data",
    ]
    rows = []
    for label, part in zip(labels, series.series, strict=True):
        padding = ["?"] * (longest - len(part))
        rows.append("'" + "\\n".join(",".join([*map(cell, channel), *padding]) for channel in part.T.tolist()) + "'," + label)
    return "\n".join([*head, *rows]) + "\n"


def as_dense_arff(series: SeriesSet) -> str:
    """Return a file of the UCR archive: the first channel, a numeric attribute per step."""
    longest = int(series.lengths.max())
    labels = [escaped(label) for label in series.target.texts]
    head = ["% a comment", "@RELATION Random", *(f"@ATTRIBUTE att{step + 1} REAL" for step in range(longest))]
    rows = [
        ",".join([*map(cell, part[:, 0].tolist()), *["?"] * (longest - len(part)), label])
        for label, part in zip(labels, series.series, strict=True)
    ]
    return "\n".join([*head, f"@ATTRIBUTE 'the kind' {{{','.join(labels)}}}", "", "@DATA", *rows]) + "\n"


def escaped(label: str) -> str:
    """Return a label in quotes, on one line, as ARFF has it."""
    return "'" + label.replace("\n", " ").replace("'", "\\'") + "'"


def cell(value: float) -> str:
    """Return a number with as many digits as it takes to read it back, ``?`` where it is missing."""
    return "?" if value != value else repr(value)


def written(rows: list[list[object]]) -> str:
    """Return rows as CSV; a number has as many digits as it takes to read it back."""
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator="\n").writerows(
        [repr(cell) if isinstance(cell, float) else "" if cell is None else cell for cell in row] for row in rows
    )
    return file.getvalue()


def assert_same_series(
    found: SeriesSet, wanted: SeriesSet, *, channels: bool = True, names: bool = True, times: bool = True, labels: bool = True
) -> None:
    """Compare values to the bit, and what else a format can say."""
    assert found.values.dtype == torch.float64
    assert torch.equal(found.lengths, wanted.lengths)
    assert torch.equal(found.values.isnan(), wanted.values.isnan())
    assert torch.equal(found.values.nan_to_num(0.0).view(torch.int64), wanted.values.nan_to_num(0.0).view(torch.int64))
    assert not labels or found.labels.tolist() == wanted.labels.tolist()
    assert not channels or found.channels == wanted.channels
    assert not names or found.names == wanted.names
    assert not times or torch.equal(found.times, wanted.times)
