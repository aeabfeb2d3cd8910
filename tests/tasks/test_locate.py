"""Where data is looked for, and whether it is the right data."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from steadyrnn.errors import ArgumentError, DataError
from steadyrnn.tasks import checksums
from steadyrnn.tasks.locate import DATA_SETS, DataFile, DataSet, check_data_set, data_folder, read_file

DATA = b"some data\n"
SUMS = len(DATA), hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(checksums.CHECKSUMS, "made/a.txt", SUMS)
    forms = {"one": (DataFile("made/a.txt", *SUMS), DataFile("made/b.txt")), "other": (DataFile("made/c.txt"),)}
    monkeypatch.setitem(DATA_SETS, "made", DataSet("made", "Made up", forms, "make it"))
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "a.txt").write_bytes(DATA)
    (tmp_path / "made" / "b.txt").write_bytes(b"anything")
    return tmp_path


def test_the_argument_comes_before_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEADYRNN_DATA", str(tmp_path))
    assert data_folder() == data_folder(None) == tmp_path
    (tmp_path / "mine").mkdir()
    assert data_folder(str(tmp_path / "mine")) == tmp_path / "mine"


@pytest.mark.parametrize("value", [None, ""])
def test_no_folder_at_all_says_what_to_do(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv("STEADYRNN_DATA", raising=False)
    if value is not None:
        monkeypatch.setenv("STEADYRNN_DATA", value)
    with pytest.raises(DataError, match=r"STEADYRNN_DATA.*--data-dir"):
        data_folder()


def test_a_folder_that_is_not_one_is_named_with_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"`data_dir`.*no such folder"):
        data_folder(str(tmp_path / "none"))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STEADYRNN_DATA", str(tmp_path / "file"))
    with pytest.raises(DataError, match=r"STEADYRNN_DATA.*is a file"):
        data_folder()


def test_an_empty_name_is_not_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"`data_dir` must name the folder .* but '' is no such folder"):
        data_folder("")


@pytest.mark.parametrize("name", ["~nobody-of-this-name/data", "x" * 5000, "a\0b"])
def test_a_name_that_no_folder_can_have_is_a_folder_that_is_not_there(name: str) -> None:
    with pytest.raises(DataError, match="no such folder"):
        data_folder(name)


def test_a_file_that_changes_and_keeps_its_size_and_time_is_refused(folder: Path) -> None:
    path = folder / "made" / "a.txt"
    assert read_file(folder, "made/a.txt") == DATA
    time = path.stat().st_mtime_ns
    path.write_bytes(DATA.replace(b"s", b"S"))
    os.utime(path, ns=(time, time))
    with pytest.raises(DataError, match="must have SHA-256"):
        read_file(folder, "made/a.txt")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (DATA[:-1], "must have 10 bytes, but has 9"),
        (DATA.replace(b"s", b"S"), "must have SHA-256"),
        (DATA.replace(b"\n", b"\r\n"), "CR LF"),
    ],
)
def test_an_altered_file_is_refused_and_reported(folder: Path, data: bytes, words: str) -> None:
    (folder / "made" / "a.txt").write_bytes(data)
    with pytest.raises(DataError, match=words):
        read_file(folder, "made/a.txt")
    assert [words in problem for problem in check_data_set(folder, "made")] == [True]


def test_a_folder_in_place_of_a_file_is_a_missing_file(folder: Path) -> None:
    (folder / "made" / "d.txt").mkdir()
    with pytest.raises(DataError, match=r"d.txt is missing. To obtain it: make it"):
        read_file(folder, "made/d.txt")


def test_one_whole_form_is_enough(folder: Path) -> None:
    assert check_data_set(folder, "made") == []
    (folder / "made" / "a.txt").unlink()
    (folder / "made" / "b.txt").unlink()
    assert check_data_set(folder, "made") == [
        f"{folder / 'made' / 'a.txt'} is missing.",
        f"{folder / 'made' / 'b.txt'} is missing.",
    ]
    (folder / "made" / "c.txt").write_bytes(b"")
    assert check_data_set(folder, "made") == []


def test_an_unknown_set_is_named(folder: Path) -> None:
    with pytest.raises(ArgumentError, match=r"mnist, ptb.*'nist'"):
        check_data_set(folder, "nist")


def test_every_file_of_the_table_belongs_to_a_set() -> None:
    listed = {file.path for data in DATA_SETS.values() for form in data.forms.values() for file in form}
    assert set(checksums.CHECKSUMS) <= listed
    assert {name: len(data.files) for name, data in DATA_SETS.items()} == {
        "mnist": 4, "ptb": 3, "wikitext-2": 3, "ucr": 42, "bibtex": 3, "mediamill": 3,
    }  # fmt: skip
    assert all(len(sha256) == 64 and size > 0 for size, sha256 in checksums.CHECKSUMS.values())


def test_listing_needs_no_torch() -> None:
    code = (
        "import sys, steadyrnn.tasks.locate, steadyrnn.tasks.settings, steadyrnn.tasks.ucr_sets; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
