"""A lock for systems that have none: a file that only one process can create, with its owner's name inside."""

import os
from contextlib import suppress
from pathlib import Path

from steadyrnn.errors import RunError

from .owner import Owner
from .regular import read_if_there

__all__ = ["drop_exclusively", "take_exclusively"]

_MOST_BYTES = 1 << 16


def take_exclusively(path: Path, owner: Owner) -> Path:
    """Create the lock file for ``owner`` and return its path.

    A file whose owner is known to be dead is taken over. Only one process at a time may try that: it creates a second
    file first, and under its protection looks again. Otherwise two heirs could each remove what the other has just made.

    Args:
        path: Of the lock; the file made is beside it, since one of that name may have other uses.
        owner: This process.

    Raises:
        RunError: Another process has it, or is just taking it over.
    """
    file = path.with_name(f"{path.name}.exclusive")
    if _create(file, owner):
        return file
    _check_dead(file)
    guard = path.with_name(f"{path.name}.takeover")
    if not _create(guard, owner):
        raise RunError(f"Another process is taking over `{path.parent}`. If that is not so, remove `{guard}` and try again.")
    try:
        _check_dead(file)
        with suppress(FileNotFoundError):
            os.unlink(file)
        if not _create(file, owner):
            _check_dead(file, sure=True)
    finally:
        drop_exclusively(guard)
    return file


def drop_exclusively(file: Path) -> None:
    """Remove the lock file."""
    with suppress(OSError):
        os.unlink(file)


def _create(file: Path, owner: Owner) -> bool:
    """Create a file that must not exist, with the owner's name inside; False where it exists."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
    except FileExistsError:
        return False
    except OSError as error:
        raise RunError(f"`{file}` could not be created: {error.strerror}.") from error
    try:
        os.write(descriptor, owner.to_bytes())
    except OSError as error:
        drop_exclusively(file)
        raise RunError(f"`{file}` could not be written: {error.strerror}.") from error
    finally:
        os.close(descriptor)
    return True


def _check_dead(file: Path, *, sure: bool = False) -> None:
    """Raise unless the owner of the lock file is known to be dead or has just released it; ``sure``: raise anyway."""
    data = read_if_there(file, most=_MOST_BYTES)
    if data is None and not sure:
        return
    owner = None if data is None else Owner.from_bytes(data)
    if sure or owner is None or owner.may_live():
        raise RunError(
            f"`{file.parent}` is being written by {owner or 'another process'}; a run has one writer. Wait for it, stop it, "
            f"or start a run of your own. If that process is gone, remove `{file}`."
        )
