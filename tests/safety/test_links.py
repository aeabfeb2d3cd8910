"""What is written goes into regular files of the folder that was meant: no link is followed, no device replaced."""

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from steadyrnn.cli.main import main
from steadyrnn.errors import RunError, SteadyError
from steadyrnn.jobs.calibration_file import CalibrationFile
from steadyrnn.runs.checkpoint import save_checkpoint
from steadyrnn.runs.files import Appender, write_atomically
from steadyrnn.runs.folder import Run
from steadyrnn.runs.lock import Lock
from steadyrnn.runs.output_file import write_output
from steadyrnn.runs.regular import check_writable
from tests.safety.run_folders import PLACED, make_run, snapshot

SECRET = b"not yours " * 50  # without a line end: to a reader of lines it is one that was cut off


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("links") / "runs")


@pytest.fixture
def other(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    path = folder / "secret"
    path.write_bytes(SECRET)
    return path


def put(kind: str, path: Path, other: Path) -> None:
    if kind == "device" and not hasattr(os, "mknod"):
        pytest.skip("this system makes no devices")
    try:
        PLACED[kind](path, other)
    except PermissionError:
        pytest.skip("only root makes a device")


def kept(path: Path, other: Path, before: int) -> None:
    """Check that what stood in the way still stands, and what it leads to is as it was."""
    assert stat.S_IFMT(path.lstat().st_mode) == before
    assert other.read_bytes() == SECRET
    assert [item.name for item in other.parent.iterdir()] == [other.name]


WRITERS: dict[str, Callable[[Path], Any]] = {
    "write_atomically": lambda path: write_atomically(path, b"new"),
    "Appender": lambda path: Appender(path).append(b"new"),
    "Lock": Lock,
    "save_checkpoint": lambda path: save_checkpoint(path.parent, {"a": torch.ones(1)}, {}),
}
"""Everything by which a file inside a run folder is written, as a call with its path."""


@pytest.mark.parametrize("kind", PLACED)
@pytest.mark.parametrize("writer", WRITERS)
def test_a_file_inside_a_folder_is_written_to_no_other_place(tmp_path: Path, other: Path, writer: str, kind: str) -> None:
    path = tmp_path / "run" / ("checkpoint.json" if writer == "save_checkpoint" else "file")
    path.parent.mkdir()
    put(kind, path, other)
    before = stat.S_IFMT(path.lstat().st_mode)
    with pytest.raises(RunError, match=path.name):
        WRITERS[writer](path)
    kept(path, other, before)


@pytest.mark.parametrize("writer", ["Appender", "Lock"])
def test_a_link_that_comes_after_the_look_is_not_followed(
    tmp_path: Path, other: Path, writer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may put a link between the look at a path and its opening."""
    path = tmp_path / "run" / "file"
    path.parent.mkdir()

    def look(folder: Path, *names: str) -> Path:
        found = check_writable(folder, *names)
        path.symlink_to(other)
        return found

    monkeypatch.setattr("steadyrnn.runs.files.check_writable", look)
    monkeypatch.setattr("steadyrnn.runs.lock.check_writable", look)
    with pytest.raises(RunError, match=path.name):
        WRITERS[writer](path)
    kept(path, other, stat.S_IFLNK)


FILES = ("lock", "metrics.jsonl", "environment.json", "facts.json", "certificate.json", "checkpoints/last/checkpoint.json",
         "checkpoints/best/checkpoint.json")  # fmt: skip
FOLDERS = ("checkpoints", "checkpoints/last", "checkpoints/best")


@pytest.mark.parametrize("kind", PLACED)
@pytest.mark.parametrize("name", FILES)
def test_a_resume_writes_through_nothing_in_the_run_folder(
    finished: Path, tmp_path: Path, other: Path, name: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (run / name).unlink()
    put(kind, run / name, other)
    before = snapshot(run)
    assert main(["train", "--resume", os.fspath(run), "--quiet"]) == 1
    assert Path(name).name in capsys.readouterr().err
    assert snapshot(run) == before
    kept(run / name, other, stat.S_IFMT((run / name).lstat().st_mode))


@pytest.mark.parametrize("kind", ["link to a folder", "dangling link", "link to a file", "pipe", "moved away and linked"])
@pytest.mark.parametrize("name", FOLDERS)
def test_a_resume_writes_into_no_folder_that_is_a_link(
    finished: Path, tmp_path: Path, other: Path, name: str, kind: str
) -> None:
    run, moved = tmp_path / "run", tmp_path / "moved"
    shutil.copytree(finished, run)
    (run / name).rename(moved)
    if kind == "moved away and linked":
        (run / name).symlink_to(moved)
    else:
        put(kind, run / name, other)
    before = snapshot(run), snapshot(moved)
    assert main(["train", "--resume", os.fspath(run), "--quiet"]) == 1
    assert (snapshot(run), snapshot(moved)) == before
    kept(run / name, other, stat.S_IFMT((run / name).lstat().st_mode))


@pytest.mark.parametrize("name", ["lock", "metrics.jsonl", "facts.json", "environment.json"])
def test_a_file_with_a_second_name_changes_under_this_one_alone(finished: Path, tmp_path: Path, name: str) -> None:
    run, backup = tmp_path / "run", tmp_path / "backup"
    shutil.copytree(finished, run)
    if name == "lock":
        (run / name).write_bytes(SECRET)
    os.link(run / name, backup)
    before = backup.read_bytes()
    with Run.open(run, write=True) as held:
        held.log({"kind": "note", "step": 6})
        if name.endswith(".json"):
            held.write_json(name, {"new": True})
    assert backup.read_bytes() == before
    assert (run / "metrics.jsonl").read_bytes().endswith(b'{"kind": "note", "step": 6}\n')


def test_the_folder_that_the_user_names_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "large-disk").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "large-disk")
    run = make_run(tmp_path / "runs")
    (tmp_path / "mine").symlink_to(run)
    assert main(["train", "--resume", os.fspath(tmp_path / "mine"), "--quiet"]) == 0


# What the user typed


def test_a_typed_link_stays_and_its_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "page.html").write_bytes(b"old")
    (tmp_path / "second").symlink_to("a/page.html")
    (tmp_path / "first").symlink_to("second")
    write_output(tmp_path / "first", b"new")
    assert (tmp_path / "a" / "page.html").read_bytes() == b"new"
    assert (tmp_path / "first").is_symlink()
    assert (tmp_path / "second").is_symlink()


@pytest.mark.parametrize("kind", ["dangling link", "link to a folder", "socket", "folder", "loop"])
def test_a_typed_path_that_takes_no_bytes_is_refused_and_stays(tmp_path: Path, other: Path, kind: str) -> None:
    path = tmp_path / "out"
    if kind == "loop":
        path.symlink_to(path)
    else:
        put(kind, path, other)
    before = stat.S_IFMT(path.lstat().st_mode)
    with pytest.raises(RunError, match="out"):
        write_output(path, b"new")
    kept(path, other, before)


def test_a_typed_device_is_written_into_and_stays(tmp_path: Path, other: Path) -> None:
    path = tmp_path / "full"
    put("device", path, other)
    with pytest.raises(RunError, match=r"full.*No space left on device"):
        write_output(path, b"new")
    kept(path, other, stat.S_IFCHR)
    for device in ("/dev/null", "/dev/full"):
        before = os.lstat(device)
        try:
            write_output(Path(device), b"new")
        except RunError:
            assert device == "/dev/full"
        assert os.lstat(device).st_rdev == before.st_rdev
        assert stat.S_ISCHR(os.lstat(device).st_mode)


def test_a_typed_pipe_is_written_into_if_somebody_reads(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(RunError, match="could not be written"):
        write_output(path, b"new")
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    write_output(path, b"new")
    assert os.read(reader, 100) == b"new"
    os.close(reader)
    assert stat.S_ISFIFO(path.lstat().st_mode)


def test_standard_output_that_is_a_file_is_added_to_and_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"before\n")
    with path.open("ab") as file:
        write_output(Path(f"/dev/fd/{file.fileno()}"), b"page\n")
    assert path.read_bytes() == b"before\npage\n"


@pytest.mark.parametrize("kind", PLACED)
def test_a_report_replaces_nothing_but_a_file(finished: Path, tmp_path: Path, other: Path, kind: str) -> None:
    path = tmp_path / "page.html"
    put(kind, path, other)
    before = stat.S_IFMT(path.lstat().st_mode)
    status = main(["report", os.fspath(finished), "--out", os.fspath(path)])
    assert stat.S_IFMT(path.lstat().st_mode) == before
    if kind == "link to a file":
        assert status == 0
        assert other.read_bytes().startswith(b"<!DOCTYPE html>")
    else:
        assert status != 0
        kept(path, other, before)


@pytest.mark.parametrize("kind", [kind for kind in PLACED if kind != "link to a file"])
def test_a_conversion_replaces_nothing_but_files(finished: Path, tmp_path: Path, other: Path, kind: str) -> None:
    folder = tmp_path / "out"
    assert main(["convert", os.fspath(finished), "--to", "torch", "--out", os.fspath(folder)]) == 0
    for name in [path.name for path in folder.iterdir()]:
        shutil.rmtree(folder)
        folder.mkdir()
        put(kind, folder / name, other)
        before = stat.S_IFMT((folder / name).lstat().st_mode)
        assert main(["convert", os.fspath(finished), "--to", "torch", "--out", os.fspath(folder)]) != 0
        kept(folder / name, other, before)


@pytest.mark.parametrize("kind", [kind for kind in PLACED if kind != "link to a file"])
def test_a_calibration_replaces_nothing_but_a_file(tmp_path: Path, other: Path, kind: str) -> None:
    path = tmp_path / "table.json"
    put(kind, path, other)
    before = stat.S_IFMT(path.lstat().st_mode)
    row = {"cell": "lstm", "dtype": "float32", "n": 4, "B": 1, "rank": None, "forward": {}, "training": {}}
    with pytest.raises(SteadyError):
        CalibrationFile(path, {"device": "a"}, []).add(row)
    kept(path, other, before)
