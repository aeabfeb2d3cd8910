"""Files of NumPy: headers are checked against the bytes that are there, before an array is made; pickles are never read."""

import io
import math
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from steadyrnn.errors import DataError

from .files import Content

__all__ = ["StoredArray", "stored_array", "stored_arrays"]

_MOST_VALUES = 1 << 31
_MOST_ARRAYS = 1000
_BOMB, _DENSEST = 1 << 26, 200
"""Bytes from which on an array must not be compressed to less than one in so many."""


@dataclass(frozen=True)
class StoredArray:
    """An array in a file, known by its header.

    Args:
        where: File and name, as errors say it.
        shape: Of the array.
        dtype: Neither objects nor records.
        read: Returns the array.
    """

    where: str
    shape: tuple[int, ...]
    dtype: "np.dtype[np.generic]"
    read: Callable[[], NDArray[np.generic]]


def stored_array(content: Content) -> StoredArray:
    """Return the array of a ``.npy`` file."""
    return _stored(str(content.path), lambda: io.BytesIO(content.data), len(content.data))


def stored_arrays(content: Content) -> dict[str, StoredArray]:
    """Return the arrays of a ``.npz`` file by name."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(content.data))
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    except Exception as error:  # zipfile, zlib, tokenize and NumPy raise a dozen kinds for damaged files
        raise _damaged(str(content.path), "an archive of arrays (.npz)", error) from None
    if not 0 < len(entries) <= _MOST_ARRAYS:
        raise DataError(f"{content.path} must hold from 1 to {_MOST_ARRAYS:,} arrays, but holds {len(entries):,}.")
    names = [Path(entry.filename).name.removesuffix(".npy") for entry in entries]
    if len(set(names)) < len(names):
        raise DataError(f"{content.path} must hold arrays of different names, but two have the same.")
    for name, entry in zip(names, entries, strict=True):
        if entry.file_size > max(_BOMB, _DENSEST * entry.compress_size):
            raise DataError(
                f"{content.path}, array {name!r} has {entry.file_size:,} bytes, compressed to {entry.compress_size:,}: less "
                f"than one in {_DENSEST}, as in files made to fill the memory. Store it with `numpy.savez`, uncompressed."
            )
    return {
        name: _stored(f"{content.path}, array {name!r}", partial(archive.open, entry), entry.file_size)
        for name, entry in zip(names, entries, strict=True)
    }


def _stored(where: str, start: Callable[[], IO[bytes]], size: int) -> StoredArray:
    """Return an array whose header fits the bytes that are there.

    Args:
        where: File and name, as errors say it.
        start: Opens the bytes at the header.
        size: How many bytes there are.
    """
    try:
        with start() as file:
            shape, fortran, dtype = _header(file)
            first = file.tell()
    except DataError:
        raise
    except Exception as error:  # zipfile, zlib, tokenize and NumPy raise a dozen kinds for damaged files
        raise _damaged(where, "an array of NumPy", error) from None
    if dtype.hasobject:
        raise DataError(f"{where} holds Python objects, which may run code when they are read. Store numbers or texts instead.")
    if dtype.kind not in "biufUS" or dtype.itemsize == 0 or dtype.subdtype is not None:
        raise DataError(f"{where} must hold numbers or texts, but is of dtype {dtype}.")
    count = math.prod(shape)
    if min(shape, default=0) < 0 or count > _MOST_VALUES or first + count * dtype.itemsize != size:
        raise DataError(
            f"{where} has a header of shape {shape} and dtype {dtype}, which does not fit its {size:,} bytes. It may be "
            "cut off."
        )

    def read() -> NDArray[np.generic]:
        try:
            with start() as file:
                file.read(first)
                data = file.read(size - first)
            return np.frombuffer(data, dtype, count).reshape(shape, order="F" if fortran else "C")
        except Exception as error:  # zipfile, zlib, tokenize and NumPy raise a dozen kinds for damaged files
            raise _damaged(where, "an array of NumPy", error) from None

    return StoredArray(where, shape, dtype, read)


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, "np.dtype[np.generic]"]:
    """Return shape, order and dtype, as a header says."""
    form: Any = np.lib.format  # its functions have no types
    version = form.read_magic(file)
    known = {(1, 0): form.read_array_header_1_0, (2, 0): form.read_array_header_2_0}
    if version not in known:
        raise ValueError(f"version {version} of the format is not known")
    shape, fortran, dtype = known[version](file)
    return shape, fortran, dtype


def _damaged(where: str, what: str, error: BaseException) -> DataError:
    reason = (str(error).splitlines() or [type(error).__name__])[0][:150]
    return DataError(f"{where} must be {what}, but cannot be read ({reason}). It may be cut off or of another format.")
