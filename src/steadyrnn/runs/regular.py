"""Which files are read and written: regular ones. A link, pipe, socket or device in the place of one is refused by name.

A folder may come from somebody else: what is written through a link in it lands where they point, and a pipe never ends.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from steadyrnn.errors import RunError

__all__ = [
    *(
        "MOST_BYTES",
        "check_regular",
        "check_writable",
        "explain_errors",
        "has_other_names",
        "kind_of",
        "open_descriptor",
        "read_if_there",
    ),
    "refusal",
]

_KINDS = {
    stat.S_IFREG: "a regular file", stat.S_IFDIR: "a folder", stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a block device",
}  # fmt: skip

MOST_BYTES = 1 << 26
"""Of a JSON file of a run, unless its reader says otherwise."""


def kind_of(path: Path) -> str | None:
    """Return what stands at a path, in words, itself and not what it links to; None where there is nothing.

    Example:
        >>> kind_of(Path("/dev/null")), kind_of(Path("/dev/no-such-thing"))
        ('a device', None)
    """
    try:
        return _name_kind(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return None


def has_other_names(path: Path) -> bool:
    """Say whether a file is there under another name too, a hard link: its content is not this name's alone."""
    try:
        return os.lstat(path).st_nlink > 1
    except FileNotFoundError:
        return False


def check_writable(folder: Path, *names: str, last: str = "a regular file") -> Path:
    """Return a path inside a folder, if writing there follows no link: what is there are folders, and in the end a file.

    The folder itself was named by the user and may be a link; what is in it may have come with it.

    Args:
        folder: Where the path begins.
        names: What follows: folders, then the file; each may be there or not.
        last: What must be there in the end, if anything: ``"a regular file"`` or ``"a folder"``.

    Raises:
        RunError: A link, pipe, socket or device is in the way, or a file in the place of a folder; the message names it.
    """
    path = folder
    for place, name in enumerate(names, 1):
        path = path / name
        with explain_errors(path, "looked at"):
            kind = kind_of(path)
        expected = last if place == len(names) else "a folder"
        if kind not in (None, expected):
            raise refusal(path, expected, str(kind))
    return path


def read_if_there(path: Path, most: int = MOST_BYTES) -> bytes | None:
    """Return the bytes of a file, or None where there is no such file.

    A link is followed, but only to a regular file: a pipe or a device might never end.

    Args:
        path: The file.
        most: Bytes it may have: a file can claim terabytes that no disk holds, and the system would look for the memory.

    Raises:
        RunError: There is one, but it cannot be read, is no regular file, or is larger than ``most``.
    """
    with explain_errors(path, "read"):
        try:
            descriptor = open_descriptor(path, os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError):
            return None
        with os.fdopen(descriptor, "rb") as file:
            size = os.fstat(descriptor).st_size
            if size > most:
                raise RunError(f"`{path}` must have at most {most:,} bytes, but has {size:,}: it is not a file of this kind.")
            try:
                return file.read(size)
            except (MemoryError, OverflowError):
                raise RunError(f"`{path}` has {size:,} bytes, for which memory is not enough.") from None


def open_descriptor(path: Path, flags: int) -> int:
    """Return the descriptor of a regular file, without waiting for the other end of a pipe.

    Raises:
        OSError: The system refused, or it is no regular file.
    """
    more = ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY")  # a system may lack some
    descriptor = os.open(path, flags | sum(getattr(os, name, 0) for name in more), 0o666)
    try:
        check_regular(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check_regular(descriptor: int) -> None:
    """Raise ``OSError`` unless an open file is a regular one."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, f"it must be a regular file, but is {_name_kind(mode)}")


@contextmanager
def explain_errors(path: Path, done: str, so: str = "") -> Iterator[None]:
    """Turn the system's refusal into an error that names the file, what was to be done, and why it was not."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise RunError(f"`{path}` could not be {done}: {reason}. {so}".rstrip()) from error


def refusal(path: Path, expected: str, kind: str) -> RunError:
    """Return the error for something else in the place of a file or folder that would be written."""
    return RunError(f"`{path}` must be {expected}, but is {kind}; nothing was written. Move it away, or name another place.")


def _name_kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "something else")
