"""Compiled kernels kept on the disk for the next process, in a folder that nobody but the user can write to."""

import hashlib
import os
import secrets
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["cache_folder", "read_stored", "write_stored"]

_MOST_BYTES = 1 << 28
_OPEN = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"))


def cache_folder() -> Path | None:
    """Return where compiled kernels are kept, or None if there is no such place.

    What is in there runs on the GPU with the user's rights, so that the folder must be the user's own, with mode 0700, and
    no link. One that is not is left alone, with a warning: kernels are compiled anew. The folder ``kernels`` beside it, which
    earlier versions made with whatever mode the umask gave, is not looked at.
    """
    try:
        base = os.environ.get("XDG_CACHE_HOME") or (Path.home() / ".cache")
        folder = Path(base) / "steadyrnn" / "compiled"
        folder.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        with _hold_folder(folder):
            return folder if os.access(folder, os.W_OK) else None
    except _NotOurs as refusal:
        warnings.warn(
            f"Compiled kernels are not kept, which costs time in every process: `{folder}` {refusal}. "
            "Remove it, or make it your own with mode 0700.",
            stacklevel=2,
        )
        return None
    except (OSError, RuntimeError):  # there may be no home
        return None


def read_stored(file: Path) -> bytes | None:
    """Return the code that a file holds, None where there is none, it is broken, or somebody else may have written it.

    Its end is a hash of its beginning. The file is opened inside the folder that was looked at, so that it does not matter
    who may rename the folders above: in a folder of the user's with mode 0700 nobody else can have put a file of the user's.
    """
    try:
        with _hold_folder(file.parent) as folder, _open_file(file.name, os.O_RDONLY, folder) as descriptor:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
                return None
            if found.st_size > _MOST_BYTES:
                return None
            with os.fdopen(os.dup(descriptor), "rb") as opened:
                data = opened.read(_MOST_BYTES)
    except (OSError, _NotOurs):
        return None
    return data[:-32] if hashlib.sha256(data[:-32]).digest() == data[-32:] else None


def write_stored(file: Path, code: bytes) -> None:
    """Keep code for the next process, if the disk lets us: a kernel that is not kept is compiled again."""
    part = f".{file.name}.{secrets.token_hex(8)}"
    with suppress(OSError, _NotOurs), _hold_folder(file.parent) as folder:
        try:
            with _open_file(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, folder) as descriptor:
                rest = memoryview(code + hashlib.sha256(code).digest())
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
            os.replace(part, file.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(part, dir_fd=folder)
            raise


class _NotOurs(Exception):
    """A folder that others may write to, or that the system cannot say this of."""


@contextmanager
def _hold_folder(path: Path) -> Iterator[int]:
    """Give an open folder that belongs to this user alone."""
    if not hasattr(os, "geteuid") or os.open not in os.supports_dir_fd:
        raise _NotOurs("lies on a system that does not tell whose it is")
    if path.is_symlink():
        raise _NotOurs("is a link")
    descriptor = os.open(path, os.O_RDONLY | _OPEN | getattr(os, "O_DIRECTORY", 0))
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid():
            raise _NotOurs(f"belongs to user {found.st_uid}, not to {os.geteuid()}")
        if found.st_mode & 0o777 != 0o700:
            raise _NotOurs(f"has mode {found.st_mode & 0o777:04o}, so that others can look into it or write to it")
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _open_file(name: str, flags: int, folder: int) -> Iterator[int]:
    descriptor = os.open(name, flags | _OPEN, 0o600, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
