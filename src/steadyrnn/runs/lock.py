"""One writer per folder: a lock that the system itself releases when its owner dies."""

import errno
import os
import time
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from steadyrnn.errors import RunError

from .exclusive import drop_exclusively, take_exclusively
from .owner import Owner
from .regular import check_writable, kind_of, open_descriptor

__all__ = ["Lock"]

_fcntl: Any = import_module("fcntl") if find_spec("fcntl") else None  # Windows has none
_NO_KERNEL_LOCK = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}
_PATIENCE = 0.5  # seconds to wait for an owner that has the lock and has not yet written its name

# Why not the package filelock: it opens with O_TRUNC before it has the lock, which erases the owner's name and what a hard
# link shares; its error names no owner; and a forked child keeps the descriptor, so the lock outlives its owner.
_inherited: set[int] = set()
"""Descriptors of held locks: a forked child closes its copies, or it would hold the lock after its parent's death."""


class Lock:
    """A lock on a file, held from its making to :meth:`release` or the end of the process, however it ends.

    The lock is ``flock`` on the file: the kernel gives it to one, and takes it back when the owner dies, so a dead owner
    leaves nothing behind to be cleaned up and two heirs cannot both get it. The owner's name inside the file is for
    messages only; the file stays once a name was in it. Where the system or the file system has no such lock, a file that
    only one can create takes its place, beside it.

    Args:
        path: The file, made where there is none.
        sign: Whether to write the owner's name into it now; without, nothing of a file that is there changes before
            :meth:`sign`. A file that has another name too (a hard link) is never written.

    Raises:
        RunError: Another holds the lock; the message names process and host. Or the file is a link, or no file.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     lock = Lock(Path(folder, "lock"))
        ...     lock.held
        ...     lock.release()
        True
    """

    def __init__(self, path: Path, sign: bool = True) -> None:
        self.path = path
        self._owner = Owner.me()
        check_writable(path.parent, path.name)
        self._new = kind_of(path) is None
        self._signed = False
        self._descriptor = _take(path)
        self._exclusive = None if self._descriptor is not None else take_exclusively(path, self._owner)
        self._released = False
        if sign:
            self.sign()

    def sign(self) -> None:
        """Write the owner's name into the file; it is for messages, the lock is held without it."""
        self._signed = True
        if self._descriptor is not None:
            _replace(self._descriptor, self._owner.to_bytes())

    @property
    def held(self) -> bool:
        """Whether this process holds the lock; a forked child of the owner does not."""
        return not self._released and self._owner.pid == os.getpid()

    def release(self) -> None:
        """Give the lock back; a second call does nothing, and neither does one in a forked child."""
        if not self.held:
            return
        self._released = True
        if self._exclusive is not None:
            drop_exclusively(self._exclusive)
        elif self._descriptor is not None:
            _inherited.discard(self._descriptor)
            if self._signed:
                _replace(self._descriptor, b"")
            elif self._new:  # whoever waits for it sees that it is gone, and makes another
                with suppress(OSError):
                    os.unlink(self.path)
            os.close(self._descriptor)


def _replace(descriptor: int, name: bytes) -> None:
    """Put a name into the open file, unless that has another name in some folder, where the content belongs to others."""
    with suppress(OSError):
        if os.fstat(descriptor).st_nlink <= 1:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, name, 0)


def _take(path: Path) -> int | None:
    """Return the descriptor of a file that this process has locked, None where there are no such locks."""
    if _fcntl is None:
        return None
    while True:
        descriptor = _open(path)
        try:
            if not _lock(path, descriptor):
                os.close(descriptor)
                return None
        except BaseException:
            os.close(descriptor)
            raise
        if _is_at(path, descriptor):
            break
        os.close(descriptor)  # the file was removed meanwhile: another may lock its successor
    _inherited.add(descriptor)
    return descriptor


def _open(path: Path) -> int:
    try:
        return open_descriptor(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
    except OSError as error:
        raise RunError(f"`{path}` could not be opened for writing: {error.strerror}.") from error


def _lock(path: Path, descriptor: int) -> bool:
    """Lock the file; False where there are no such locks, an error where another has it."""
    try:
        _fcntl.flock(descriptor, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _NO_KERNEL_LOCK:
            return False
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise RunError(f"`{path}` could not be locked: {error.strerror}.") from error
        raise RunError(
            f"`{path.parent}` is being written by {_name(descriptor)}; a run has one writer. Wait for it, stop it, "
            "or start a run of your own."
        ) from None
    return True


def _name(descriptor: int) -> str:
    """Return the owner's name for a message; it may just be writing it."""
    end = time.monotonic() + _PATIENCE
    while True:
        owner = Owner.from_bytes(os.pread(descriptor, 4096, 0))
        if owner is not None or time.monotonic() > end:
            return str(owner or "another process")
        time.sleep(0.01)


def _is_at(path: Path, descriptor: int) -> bool:
    """Say whether the open file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _close_inherited() -> None:
    for descriptor in _inherited:
        with suppress(OSError):
            os.close(descriptor)
    _inherited.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited)
