"""Files are replaced as a whole: in the right order, with the right mode, whatever the system refuses."""

import errno
import os
import resource
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from steadyrnn.errors import RunError
from steadyrnn.runs import files
from steadyrnn.runs.files import Appender, is_temporary, make_folder, write_atomically
from steadyrnn.runs.regular import read_if_there
from tests.runs.faulty import KILLED, count_calls, die_at, fail_at, in_child, names_in, watch

OLD, NEW = b"old" * 100, b"new" * 200
REFUSALS = [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO]


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.json"
    path.write_bytes(OLD)
    return path


def calls_of_a_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    return count_calls(monkeypatch, lambda: write_atomically(path.with_name("another"), NEW))


def test_a_file_is_synced_before_it_is_renamed_and_its_folder_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = watch(monkeypatch)
    write_atomically(tmp_path / "a", NEW)
    new_file, rename, folder = ["lstat", "open", "write", "fsync", "close"], ["replace"], ["open", "fsync", "close"]
    assert system.names == new_file + rename + folder


def test_the_temporary_file_lies_in_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []
    watch(monkeypatch, lambda number, name, arguments: opened.append(arguments[0]) if name == "open" else None)
    write_atomically(tmp_path / "a", NEW)
    temporary, folder = map(Path, opened)
    assert temporary.parent == folder == tmp_path
    assert is_temporary(temporary.name)
    assert not is_temporary("a")


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
@pytest.mark.usefixtures("umask")
def test_a_new_file_has_the_mode_the_umask_says(tmp_path: Path, mask: int, mode: int) -> None:
    os.umask(mask)
    write_atomically(tmp_path / "a", NEW)
    Appender(tmp_path / "b").close()
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "ab"] == [mode, mode]


@pytest.mark.parametrize("mode", [0o644, 0o600, 0o664, 0o444])
@pytest.mark.usefixtures("umask")
def test_a_replaced_file_keeps_its_mode(file: Path, mode: int) -> None:
    file.chmod(mode)
    os.umask(0o077)
    write_atomically(file, NEW)
    assert stat.S_IMODE(file.stat().st_mode) == mode
    assert file.read_bytes() == NEW


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refused_write_leaves_the_old_file_whole_and_nothing_else(
    file: Path, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    calls = calls_of_a_write(file, monkeypatch) + 1  # and the mode that is kept
    for call in range(calls):
        file.write_bytes(OLD)
        with monkeypatch.context() as patch:
            watch(patch, fail_at(call, refusal))
            with pytest.raises(RunError, match=rf"{file.name}.*could not be written: {os.strerror(refusal)}") as caught:
                write_atomically(file, NEW)
        renamed = call > calls - 4
        assert file.read_bytes() == (NEW if renamed else OLD)
        assert isinstance(caught.value.__cause__, OSError)
        assert [name for name in names_in(file.parent) if is_temporary(name)] == []


@pytest.mark.parametrize("torn", [False, True])
def test_a_kill_at_any_call_leaves_the_old_file_or_the_new(file: Path, monkeypatch: pytest.MonkeyPatch, torn: bool) -> None:
    def write(call: int) -> None:
        watch(monkeypatch, die_at(call, torn=torn))
        write_atomically(file, NEW)

    calls = calls_of_a_write(file, monkeypatch) + 1
    seen = set()
    for call in range(calls):
        file.write_bytes(OLD)
        assert in_child(lambda call=call: write(call)) == KILLED
        seen.add(file.read_bytes())
    assert seen == {OLD, NEW}
    assert in_child(lambda: write(calls)) == 0  # there is no further call


def test_a_system_that_takes_a_part_is_given_the_rest(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def write(self, descriptor: int, data: memoryview) -> int:
            return os.write(descriptor, data[:7])

    monkeypatch.setattr(files, "os", Slow())
    write_atomically(file, NEW)
    assert file.read_bytes() == NEW


def test_a_limit_on_the_size_of_files_is_an_error_that_harms_nothing(file: Path) -> None:
    def write() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (400, 400))
        with pytest.raises(RunError, match="could not be written: File too large"):
            write_atomically(file, NEW)

    assert in_child(write) == 0
    assert file.read_bytes() == OLD
    assert names_in(file.parent) == [file.name]


def test_a_file_system_that_cannot_sync_a_folder_is_put_up_with(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last = calls_of_a_write(file, monkeypatch) + 1 - 2
    system = watch(monkeypatch, fail_at(last, errno.EINVAL))
    write_atomically(file, NEW)
    assert system.names[last] == "fsync"
    assert file.read_bytes() == NEW


def test_folders_are_made_with_those_above_and_synced_into_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    watch(monkeypatch, lambda number, name, arguments: synced.append(arguments[0]) if name == "open" else None)
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    assert synced == [tmp_path, tmp_path / "a"]


def test_a_place_where_nothing_can_be_made_is_refused() -> None:
    with pytest.raises(RunError, match="could not be made"):
        make_folder(Path("/proc/nothing/below"))


def test_a_folder_above_that_another_makes_meanwhile_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Raced:
        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def mkdir(self, path: Path) -> None:
            try:
                os.mkdir(path)
            except FileNotFoundError:
                os.makedirs(path.parent, exist_ok=True)  # by another, right behind the failure
                raise

    monkeypatch.setattr(files, "os", Raced())
    make_folder(tmp_path / "a" / "b" / "c", new=True)
    assert (tmp_path / "a" / "b" / "c").is_dir()


def test_a_new_folder_must_be_new(tmp_path: Path) -> None:
    make_folder(tmp_path / "a", new=True)
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "a", new=True)


def test_a_file_in_the_place_of_a_folder_is_named(file: Path) -> None:
    with pytest.raises(RunError, match=r"a\.json.*could not be made: a file of that name is in the way"):
        make_folder(file)


def test_a_missing_file_reads_as_none_and_an_unreadable_one_raises(file: Path, tmp_path: Path) -> None:
    assert read_if_there(file) == OLD
    assert read_if_there(tmp_path / "b") is None
    with pytest.raises(RunError, match="could not be read: Is a directory"):
        read_if_there(tmp_path)


def test_a_piece_that_was_written_in_part_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        left = 3

        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def write(self, descriptor: int, data: memoryview) -> int:
            if self.left == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            taken, self.left = os.write(descriptor, data[: self.left]), 0
            return taken

    appender = Appender(tmp_path / "a")
    appender.append(b"first\n")
    with monkeypatch.context() as patch:
        patch.setattr(files, "os", Full())
        with pytest.raises(RunError, match="No space left on device"):
            appender.append(b"second\n")
    assert (tmp_path / "a").read_bytes() == b"first\n"
    appender.append(b"third\n")
    assert (tmp_path / "a").read_bytes() == b"first\nthird\n"
    appender.close()


def test_a_closed_appender_says_so(tmp_path: Path) -> None:
    appender = Appender(tmp_path / "a")
    appender.close()
    appender.close()
    with pytest.raises(RunError, match="is closed"):
        appender.append(b"x")
