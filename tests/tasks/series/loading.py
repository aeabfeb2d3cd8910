"""Write a file and load it."""

import io
from pathlib import Path

import numpy as np
import polars

import steadyrnn as sr
from steadyrnn.tasks.series.records import SeriesSet

__all__ = ["load", "npy", "npy_header", "npz", "parquet"]


def load(folder: Path, text: str | bytes, name: str = "data.csv", **settings: object) -> SeriesSet:
    """Return the series of a file with this content."""
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return sr.load_series(file, **settings)


def npz(**arrays: object) -> bytes:
    """Return an archive of arrays."""
    np.savez(file := io.BytesIO(), **arrays)
    return file.getvalue()


def npy(array: object) -> bytes:
    """Return a file of one array."""
    np.save(file := io.BytesIO(), array)
    return file.getvalue()


def npy_header(shape: tuple[int, ...]) -> bytes:
    """Return the header of an array of float64, without any number behind it."""
    header = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file := io.BytesIO(), header)
    return file.getvalue()


def parquet(**columns: object) -> bytes:
    """Return a Parquet file."""
    polars.DataFrame(columns).write_parquet(file := io.BytesIO())
    return file.getvalue()
