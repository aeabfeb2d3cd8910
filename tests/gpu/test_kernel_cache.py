"""Compiled kernels are read from, and written to, a folder that is the user's alone; any other is left as it is."""

import hashlib
import os
import stat
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from steadyrnn.gpu import kernel_cache
from steadyrnn.gpu.kernel_cache import cache_folder, put_away, stored

CODE = b"code" * 100


def entry(code: bytes) -> bytes:
    return code + hashlib.sha256(code).digest()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = cache_folder()
    assert made is not None
    return made


def test_the_folder_is_made_for_the_user_alone_whatever_the_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = os.umask(0)
    try:
        folder = cache_folder()
        assert folder is not None
        put_away(folder / "a.cubin", CODE)
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "a.cubin").stat().st_mode) == 0o600
    assert stored(folder / "a.cubin") == CODE


@pytest.mark.parametrize("mode", [0o755, 0o775, 0o777])
def test_the_folder_of_an_earlier_version_is_passed_over_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    old = tmp_path / "cache" / "steadyrnn" / "kernels"
    old.mkdir(parents=True)
    (old / "a.cubin").write_bytes(entry(CODE))
    old.chmod(mode)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        folder = cache_folder()
    assert folder is not None
    assert stored(folder / "a.cubin") is None
    put_away(folder / "a.cubin", CODE)
    assert stored(folder / "a.cubin") == CODE
    assert stat.S_IMODE(old.stat().st_mode) == mode


def assert_unused(folder: Path, real: Path | None = None) -> None:
    """Assert that the entry that is there is not read, and none is written; ``real`` is where a link leads."""
    assert stored(folder / "a.cubin") is None
    put_away(folder / "b.cubin", CODE)
    assert [path.name for path in (real or folder).iterdir()] == ["a.cubin"]


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o1777, 0o770, 0o750, 0o702])
def test_a_folder_open_to_others_is_neither_read_nor_written(folder: Path, mode: int) -> None:
    put_away(folder / "a.cubin", CODE)
    folder.chmod(mode)
    with pytest.warns(UserWarning, match="mode .*compiled|Compiled kernels are not kept.* has mode"):
        assert cache_folder() is None
    assert_unused(folder)


def test_a_folder_of_another_user_is_neither_read_nor_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_away(folder / "a.cubin", CODE)
    me = os.geteuid()
    monkeypatch.setattr(kernel_cache.os, "geteuid", lambda: me + 1)
    with pytest.warns(UserWarning, match=f"belongs to user {me}, not to {me + 1}"):
        assert cache_folder() is None
    assert_unused(folder)


def test_a_link_in_the_place_of_the_folder_is_not_followed(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    folder.rename(elsewhere)
    (elsewhere / "a.cubin").write_bytes(entry(CODE))
    folder.symlink_to(elsewhere)
    with pytest.warns(UserWarning, match="is a link"):
        assert cache_folder() is None
    assert_unused(folder, elsewhere)


def link(file: Path, other: Path) -> None:
    other.write_bytes(entry(CODE))
    file.symlink_to(other)


def writable(file: Path, other: Path) -> None:
    file.write_bytes(entry(CODE))
    file.chmod(0o666)


ENTRIES: dict[str, Callable[[Path, Path], None]] = {
    "link": link,
    "dangling link": lambda file, other: file.symlink_to(other),
    "writable by others": writable,
    "pipe": lambda file, other: os.mkfifo(file),
    "folder": lambda file, other: file.mkdir(),
    "short": lambda file, other: file.write_bytes(b"x" * 31) and None,
    "altered": lambda file, other: file.write_bytes(entry(CODE)[:-1] + b"x") and None,
}


@pytest.mark.parametrize("kind", ENTRIES)
def test_an_entry_that_others_may_have_made_is_not_used(folder: Path, tmp_path: Path, kind: str) -> None:
    file, other = folder / "a.cubin", tmp_path / "other"
    ENTRIES[kind](file, other)
    before = other.read_bytes() if other.exists() else None
    assert stored(file) is None
    put_away(file, CODE)
    assert (other.read_bytes() if other.exists() else None) == before  # nothing was written through the link
    if kind != "folder":
        assert stored(file) == CODE


def test_a_good_folder_gives_no_warning(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache_folder() == folder
