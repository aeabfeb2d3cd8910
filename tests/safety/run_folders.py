"""A run to damage, and what a folder holds, byte for byte."""

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

from steadyrnn.cli.main import main
from tests.cli.program import QUICK

TRAIN = ["train", "addition", "--model", "rnn", "--quiet", "--json", *QUICK, "--train.log_every", "1"]
TRAIN += ["--train.validate_every", "1"]


def make_run(root: Path, seed: int = 0) -> Path:
    """Train a small network; return the folder of its run."""
    assert main([*TRAIN, "--out", os.fspath(root), "--seed", str(seed)]) in (0, 130)
    (run,) = (root / "addition" / "rnn").iterdir()
    return run


def snapshot(folder: Path) -> dict[str, tuple[object, ...]]:
    """Return kind, bytes and time of change of everything in a folder; links are not followed."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        facts = path.lstat()
        kind = stat.S_IFMT(facts.st_mode)
        if path.is_symlink():
            content: object = os.readlink(path)
        else:
            content = path.read_bytes() if stat.S_ISREG(facts.st_mode) else None
        found[path.relative_to(folder).as_posix()] = (kind, content, None if stat.S_ISDIR(kind) else facts.st_mtime_ns)
    return found


def put_link(path: Path, other: Path) -> None:
    path.symlink_to(other)


def put_socket(path: Path, other: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(path.name)
    finally:
        os.chdir(here)


def put_device(path: Path, other: Path) -> None:
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 7))  # as /dev/full


PLACED: dict[str, Callable[[Path, Path], None]] = {
    "link to a file": put_link,
    "dangling link": lambda path, other: path.symlink_to(other.with_name("nothing")),
    "link to a folder": lambda path, other: path.symlink_to(other.parent),
    "pipe": lambda path, other: os.mkfifo(path),
    "socket": put_socket,
    "device": put_device,
    "folder": lambda path, other: path.mkdir(),
}
"""What may stand where a file is to be written, but no file; ``other`` is a file that must stay as it is."""
