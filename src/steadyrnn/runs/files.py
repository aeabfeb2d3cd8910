"""Writing files so that a reader, now or after a crash, finds the old content or the new, whole.

Every system call by which this package changes the disk goes through the ``os`` of this file (the lock's apart), so that a
test can put another in its place: one that fails, or that dies at the n-th call.
"""

import errno
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from steadyrnn.errors import RunError

from .regular import check_regular, check_writable, explain_errors, has_other_names, kind_of, read_if_there, refusal

__all__ = [
    "Appender",
    "is_temporary",
    "list_folder",
    "make_folder",
    "remove_quietly",
    "sync_folder",
    "write_all",
    "write_atomically",
]

_TEMPORARY = ".tmp"
_NEW_FILE = 0o666  # the user's umask takes away what it must
_NO_FOLDER_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}


def write_atomically(path: Path, data: bytes) -> None:
    """Put ``data`` into a file as a whole.

    The bytes go into a temporary file of the same folder, which is synced and then renamed onto ``path``; the folder is
    synced last. A rename within a folder is atomic, so whoever opens ``path`` gets all of the old bytes or all of the new,
    also after a power cut. A new file has the mode the umask says, a replaced one keeps its own. Another name of a replaced
    file (a hard link) keeps the old content.

    Args:
        path: The file; its folder exists.
        data: All of its new content.

    Raises:
        RunError: The system refused (disk full, read-only, no permission), or what is there is no regular file. The temporary
            file is removed and what was there before is whole.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_atomically(Path(folder, "a.json"), b"{}")
        ...     Path(folder, "a.json").read_bytes()
        b'{}'
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{_TEMPORARY}")
    with explain_errors(path, "written", "What was there before is whole."):
        try:
            _write_new(temporary, data, _mode(path))
            os.replace(temporary, path)
        except BaseException:
            remove_quietly(temporary)
            raise
        sync_folder(path.parent)


def is_temporary(name: str) -> bool:
    """Say whether a file's name is that of a temporary file: where no writer is at work, a leftover of a killed one.

    Example:
        >>> is_temporary(".config.json.0123456789abcdef.tmp"), is_temporary("config.json")
        (True, False)
    """
    return name.startswith(".") and name.endswith(_TEMPORARY)


def make_folder(path: Path, *, new: bool = False) -> None:
    """Make a folder and those above it, each synced into its parent.

    Args:
        path: The folder.
        new: Whether it must not exist yet; then ``FileExistsError`` says that it does.

    Raises:
        RunError: The system refused, or something that is not a folder is in the way.
    """
    with explain_errors(path, "made"):
        for again in (True, False):
            try:
                os.mkdir(path)
            except FileNotFoundError:
                if not again or path.parent == path:  # a system that has the parent, but lets nothing be made there
                    raise
                make_folder(path.parent)  # another process may make it at the same time
            except FileExistsError:
                if new:
                    raise
                if not path.is_dir():
                    raise NotADirectoryError(errno.ENOTDIR, "a file of that name is in the way") from None
                return
            else:
                break
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames and removals inside a folder durable (where the system knows how to)."""
    if os.name == "nt":  # folders cannot be opened there
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(descriptor)


def remove_quietly(path: Path) -> None:
    """Remove a file that is of no use any more; one that cannot be removed does no harm and stays."""
    with suppress(OSError):
        os.unlink(path)


def list_folder(folder: Path) -> list[str]:
    """Return the names in a folder in order; none where there is no folder to read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


class Appender:
    """A file that grows by whole pieces, each by one write.

    A piece reaches the operating system before :meth:`append` returns, so it outlives the process; :meth:`sync` makes
    it outlive the machine. A piece that was written in part (disk full) is taken back. A file that has another name too (a
    hard link, as some backups are made of) is copied first: what grows is this name's alone.

    Args:
        path: The file, made where there is none.
        keep: Bytes of the file to keep; what follows is cut off. None keeps all.

    Raises:
        RunError: The file cannot be opened for writing.
    """

    def __init__(self, path: Path, keep: int | None = None) -> None:
        self.path = path
        check_writable(path.parent, path.name)
        with explain_errors(path, "opened for writing"):
            if has_other_names(path):
                write_atomically(path, read_if_there(path, os.lstat(path).st_size) or b"")
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _flag("O_CLOEXEC") | _flag("O_BINARY")
            descriptor = os.open(path, flags | _flag("O_NOFOLLOW") | _flag("O_NONBLOCK"), _NEW_FILE)
            self._descriptor: int | None = descriptor
            check_regular(descriptor)
            self._size = os.fstat(descriptor).st_size
            if keep is not None and keep < self._size:
                os.ftruncate(descriptor, keep)
                self._size = keep

    def append(self, piece: bytes) -> None:
        """Write a piece behind the others, all of it or none of it."""
        descriptor = self._open_once()
        with explain_errors(self.path, "written", "What was there before is whole."):
            try:
                write_all(descriptor, piece)
            except BaseException:
                with suppress(OSError):
                    os.ftruncate(descriptor, self._size)
                raise
            self._size += len(piece)

    def sync(self) -> None:
        """Make what was appended outlive a power cut."""
        with explain_errors(self.path, "written"):
            os.fsync(self._open_once())

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _open_once(self) -> int:
        if self._descriptor is None:
            raise RunError(f"`{self.path}` is closed; open the run again to write to it.")
        return self._descriptor


def _write_new(path: Path, data: bytes, mode: int | None) -> None:
    """Write and sync a file that must not exist yet, with the mode given or the umask's."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _flag("O_CLOEXEC") | _flag("O_BINARY")
    descriptor = os.open(path, flags, _NEW_FILE)
    try:
        if mode is not None and hasattr(os, "fchmod"):
            os.fchmod(descriptor, mode)
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes to an open file."""
    rest = memoryview(data)
    while rest:  # the system may take a part
        rest = rest[os.write(descriptor, rest) :]


def _mode(path: Path) -> int | None:
    """Return the permissions of a regular file, None where there is none; refuse what is something else."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise refusal(path, "a regular file", str(kind_of(path)))
    return mode & 0o7777


def _flag(name: str) -> int:
    """Return a flag of ``os.open``, 0 on a system that does not have it."""
    return int(getattr(os, name, 0))
