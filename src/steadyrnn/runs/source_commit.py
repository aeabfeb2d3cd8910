"""The commit of the package's own source tree, read from git's files; no program is started."""

import os
import re
import stat
from pathlib import Path

__all__ = ["read_commit", "source_commit"]

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_BRANCH = re.compile(r"refs/[A-Za-z0-9_][A-Za-z0-9_.+-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*")
_MOST_BYTES = 4 << 20
_MOST_LINKS = 5  # a branch may name another one


def source_commit() -> str | None:
    """Return the commit that this package's source tree has checked out, None where it is installed without one.

    The folder that the user works in, and the folder of a run, are never looked at: their repositories are not ours.

    Example:
        >>> commit = source_commit()
        >>> commit is None or len(commit) in (40, 64)
        True
    """
    source = Path(__file__).resolve().parents[2]
    return read_commit(source.parent) if source.name == "src" else None


def read_commit(root: Path) -> str | None:
    """Return the commit of a checkout, None where there is none that these few rules find.

    ``git`` runs what the configuration of a repository names (``core.fsmonitor``, hooks, aliases), so it is not asked. What
    is read is ``HEAD``, the branch that it names, and ``packed-refs``, plain files of bounded size; of a worktree those that
    its ``.git`` file points to. Whether files were changed since cannot be known in this way.

    Args:
        root: The folder that holds ``.git``.
    """
    folder = root / ".git"
    pointer = _text(folder)
    if pointer is not None:  # a worktree
        if not pointer.startswith("gitdir: "):
            return None
        folder = root / pointer.removeprefix("gitdir: ").strip()
    shared = folder / (_text(folder / "commondir") or ".").strip()
    value = _text(folder / "HEAD")
    for _ in range(_MOST_LINKS):
        value = (value or "").strip()
        if _COMMIT.fullmatch(value):
            return value
        name = value.removeprefix("ref: ").strip()
        if name == value or not _BRANCH.fullmatch(name):
            return None
        value = _text(folder / name) or _text(shared / name) or _read_packed(shared, name)
    return None


def _read_packed(folder: Path, name: str) -> str | None:
    """Return the commit of a branch that lies with others in one file."""
    for line in (_text(folder / "packed-refs") or "").splitlines():
        commit, _, branch = line.partition(" ")
        if branch == name:
            return commit
    return None


def _text(path: Path) -> str | None:
    """Return the text of a plain file, None of anything else: of a link, a folder, a pipe, of what is too large."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        descriptor = os.open(path, flags)
    except (OSError, ValueError):  # a NUL in a path
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_BYTES:
            return None
        return os.read(descriptor, _MOST_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    finally:
        os.close(descriptor)
