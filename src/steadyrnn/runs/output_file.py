"""Writing to a path that the user typed: a file, a link to one, or a pipe or device that takes what is written."""

import os
import stat
from pathlib import Path

from .files import make_folder, write_all, write_atomically
from .regular import explain_errors, kind_of, refusal

__all__ = ["write_output"]

_MOST_LINKS = 40


def write_output(path: Path, data: bytes) -> None:
    """Put ``data`` where the user said.

    A regular file is replaced as a whole, and so is the one that a link leads to: the link stays. A pipe that somebody reads
    and a device take the bytes as they are (``/dev/stdout``, ``/dev/null``, a shell's ``>(...)``). Nothing but a regular
    file is ever replaced.

    Args:
        path: The file; folders above it are made.
        data: All of its new content.

    Raises:
        RunError: The system refused, or the path is a folder, a socket, a block device, or a link to nothing.

    Example:
        >>> write_output(Path("/dev/null"), b"anything")
    """
    make_folder(path.parent)
    with explain_errors(path, "written"):
        target = _follow(path)
        kind = kind_of(target)
        if (_names_open_files(target) and kind is not None) or kind in ("a pipe", "a device"):
            _write_into(path, target, data)
        elif kind in (None, "a regular file"):
            write_atomically(target, data)
        else:
            raise refusal(path, "a file", kind if kind == kind_of(path) else f"a link to {kind}")


def _follow(path: Path) -> Path:
    """Return what a path leads to through links, as far as these are files of a disk."""
    target = path
    for _ in range(_MOST_LINKS):
        if _names_open_files(target) or kind_of(target) != "a link":
            break
        target = target.parent / os.readlink(target)
    if target != path and kind_of(target) in (None, "a link") and not _names_open_files(target):
        raise refusal(path, "a file", "a link that leads to none")
    return target


def _names_open_files(path: Path) -> bool:
    """Say whether a path is one of ``/dev/stdout``, ``/dev/fd/63`` and the like: written into, never replaced."""
    folder = os.path.realpath(path.parent)
    return folder == "/dev" or folder.startswith("/proc/")


def _write_into(path: Path, target: Path, data: bytes) -> None:
    """Write into what is there; a pipe without a reader is an error, not a wait."""
    more = ("O_APPEND", "O_NOCTTY", "O_NONBLOCK", "O_CLOEXEC")  # a system may lack some
    descriptor = os.open(target, os.O_WRONLY | sum(getattr(os, name, 0) for name in more))
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode) or stat.S_ISBLK(mode):
            raise refusal(path, "a file", "a block device")
        os.set_blocking(descriptor, True)
        write_all(descriptor, data)
    finally:
        os.close(descriptor)
