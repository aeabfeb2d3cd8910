"""A user's file, read whole and safely: a regular file of at most 4 GiB, with the checksum of the bytes that are parsed."""

import errno
import hashlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from steadyrnn.errors import ArgumentError, DataError

from .records import SourceFile

__all__ = ["Content", "name_signature", "named_path", "read_content", "read_head"]

_MOST_BYTES = 1 << 32
_SIGNATURES = {
    b"PK\x03\x04": "a ZIP archive or an Excel workbook (.xlsx)",
    b"PK\x05\x06": "a ZIP archive",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook (.xls)",
    b"\x1f\x8b": "compressed with gzip",
    b"BZh": "compressed with bzip2",
    b"\xfd7zXZ": "compressed with xz",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
    b"7z\xbc\xaf": "a 7-Zip archive",
    b"PAR1": "a Parquet file",
    b"\x93NUMPY": "an array of NumPy (.npy)",
    b"\x89HDF": "an HDF5 file",
    b"ARROW1": "an Arrow file",
    b"SQLite format 3": "an SQLite database",
    b"%PDF": "a PDF document",
    b"\x80\x04\x95": "a pickle of Python, which is never read",
    b"\xff\xfe": "text in UTF-16",
    b"\xfe\xff": "text in UTF-16",
}
"""How files begin that are often given other names, and what they are."""


@dataclass(frozen=True)
class Content:
    """A file and its bytes."""

    source: SourceFile
    data: bytes

    @property
    def path(self) -> Path:
        """Where it lies; every error names it."""
        return self.source.path


def named_path(name: str) -> Path:
    """Return the path that a user named, if something is there.

    Example:
        >>> named_path(".")
        PosixPath('.')
    """
    if not name or "\0" in name:
        raise ArgumentError("`data` must name a file or a folder, such as measurements.csv, but names none.")
    path = Path(os.path.expanduser(name))
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(f"{path} is missing.{_suggest_names(path)}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error
    return path


def read_content(path: Path) -> Content:
    """Return a file with all its bytes.

    A pipe or a device is refused before anything is read: it might never end.
    """
    with os.fdopen(_open(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > _MOST_BYTES:
            raise DataError(
                f"{path} must have at most {_MOST_BYTES:,} bytes (4 GiB), but has {size:,}. Read fewer columns or rows, or "
                "write it as Parquet."
            )
        try:
            data = file.read(size)
        except (OSError, MemoryError) as error:
            raise DataError(f"{path} of {size:,} bytes cannot be read: {error or 'memory is not enough'}.") from error
    if not data:
        raise DataError(f"{path} must hold series, but is empty (0 bytes).")
    return Content(SourceFile(path, len(data), hashlib.sha256(data).hexdigest()), data)


def read_head(path: Path) -> bytes:
    """Return the first bytes of a file, as many as a signature has."""
    with os.fdopen(_open(path), "rb") as file:
        return file.read(max(map(len, _SIGNATURES)))


def name_signature(head: bytes) -> str | None:
    """Return what a file is that begins like this, in words; None if that is not known.

    Example:
        >>> name_signature(b"PAR1..."), name_signature(b"x,y")
        ('a Parquet file', None)
    """
    return next((words for start, words in _SIGNATURES.items() if head.startswith(start)), None)


def _open(path: Path) -> int:
    """Return the descriptor of a regular file, without waiting for the other end of a pipe."""
    flags = sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))  # a system may lack some
    try:
        descriptor = os.open(path, os.O_RDONLY | flags)
    except OSError as error:
        reason = "it is missing" if error.errno == errno.ENOENT else error.strerror
        raise DataError(f"{path} cannot be read: {reason}.") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DataError(f"{path} must be a regular file, but is a folder, a pipe, a socket or a device. Write it to a file.")
    return descriptor


def _suggest_names(path: Path) -> str:
    """Return a sentence on the nearest names that are there instead."""
    parent = path.parent
    try:
        names: Iterable[str] = sorted(os.listdir(parent))
    except OSError:
        return f" There is no folder {parent} either."
    near = get_close_matches(path.name, names, 3)
    return f" Did you mean {' or '.join(near)}?" if near else f" The folder {parent.absolute()} has no similar name."
