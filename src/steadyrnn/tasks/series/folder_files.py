"""The files of a folder, directly in it or one level below: which are read, and which are left out."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from steadyrnn.errors import DataError

__all__ = ["Found", "find_files"]

_MOST_FILES = 100_000


@dataclass(frozen=True)
class Found:
    """The files of a folder.

    Args:
        files: Those with a known suffix, in the order of their names.
        classes: Subfolder of each; None where they are in the folder itself.
        notes: On what is left out.
    """

    files: tuple[Path, ...]
    classes: tuple[str, ...] | None
    notes: tuple[str, ...]


def find_files(folder: Path, known: Callable[[Path], bool]) -> Found:
    """Return the files of a folder with a known suffix: all directly in it, or all in its subfolders.

    Hidden files are ignored. Links are not followed: they may lead out of the folder.

    Args:
        folder: To be searched.
        known: Says whether a file has a known suffix.
    """
    notes: list[str] = []
    files, folders = _entries(folder, folder, known, notes)
    below: list[tuple[Path, str]] = []
    for sub in folders:
        inner, deeper = _entries(sub, folder, known, notes)
        below += [(file, sub.name) for file in inner]
        notes += [f"The folder {other.relative_to(folder)} is too deep and is not read." for other in deeper]
        _check_count(folder, len(below))
    _check_count(folder, len(files))
    if files and below:
        raise DataError(
            f"{folder} must have its files directly in it or in its subfolders, but has both: {files[0].name} and "
            f"{below[0][0].relative_to(folder)}. Move one of them away."
        )
    if not files and not below:
        raise DataError(f"{folder} must hold files of a known format, but has none.{' '.join(['', *notes[:3]])}")
    if files:
        return Found(tuple(files), None, tuple(notes))
    return Found(tuple(file for file, _ in below), tuple(name for _, name in below), tuple(notes))


def _entries(folder: Path, top: Path, known: Callable[[Path], bool], notes: list[str]) -> tuple[list[Path], list[Path]]:
    """Return the files and the folders directly in a folder, by name; what is left out is noted."""
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error.strerror}.") from error
    files, folders = [], []
    for entry in entries:
        path = Path(entry.path)
        if entry.name.startswith("."):
            continue
        if entry.is_symlink():
            notes.append(f"{path.relative_to(top)} is a link and is not read.")
        elif entry.is_dir():
            folders.append(path)
        elif known(path):
            files.append(path)
        else:
            notes.append(f"{path.relative_to(top)} has another suffix and is not read.")
    return files, folders


def _check_count(folder: Path, count: int) -> None:
    if count > _MOST_FILES:
        raise DataError(f"{folder} must hold at most {_MOST_FILES:,} files, but holds more. Put several series into each file.")
