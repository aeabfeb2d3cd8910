"""Bad data: missing, cut off, altered or exchanged files give a named error that says which file, before anything is used."""

from pathlib import Path

import pytest

from steadyrnn.errors import DataError
from steadyrnn.tasks.registry import make_task
from tests.support.stored_data import FOLDERS, SETTINGS, STORED, make_folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return make_folder(tmp_path, monkeypatch)


def files(folder: Path, name: str) -> list[Path]:
    return sorted(path for path in (folder / FOLDERS.get(name, name)).rglob("*") if path.is_file())


def refusal(name: str) -> str:
    with pytest.raises(DataError) as caught:
        make_task(name, **SETTINGS.get(name, {}))
    return str(caught.value)


@pytest.mark.parametrize("name", STORED)
def test_a_missing_file_is_named_with_the_way_to_get_it(folder: Path, name: str) -> None:
    for path in files(folder, name):
        data = path.read_bytes()
        path.unlink()
        message = refusal(name)
        assert f"{path} is missing" in message
        assert "To obtain it:" in message
        path.write_bytes(data)
    make_task(name, **SETTINGS.get(name, {}))


@pytest.mark.parametrize("name", STORED)
def test_a_file_that_is_cut_off_is_refused_wherever_it_ends(folder: Path, name: str) -> None:
    for path in files(folder, name):
        data = path.read_bytes()
        for size in {0, 1, len(data) // 2, len(data) - 2}:
            path.write_bytes(data[:size])
            assert str(folder / FOLDERS.get(name, name)) in refusal(name)
        path.write_bytes(data)


@pytest.mark.parametrize("name", [name for name in STORED if name != "mediamill"])
def test_a_file_with_one_altered_byte_is_refused_by_its_checksum(folder: Path, name: str) -> None:
    make_task(name, **SETTINGS.get(name, {}))  # found right once: a change is seen all the same
    for path in files(folder, name):
        data = path.read_bytes()
        middle = len(data) // 2
        path.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
        message = refusal(name)
        assert str(path) in message
        assert "SHA-256" in message
        path.write_bytes(data)


SPLITS = {
    "pixel-mnist": ("train-images", "t10k-images"),
    "ptb": ("valid", "test"),
    "ucr": ("TRAIN", "TEST"),
    "bibtex": ("train", "test"),
    "mediamill": ("trSplit", "tstSplit"),
}
"""In what the names of two files differ that have the same form."""


@pytest.mark.parametrize("name", SPLITS)
def test_files_of_a_wrong_split_are_refused(folder: Path, name: str) -> None:
    first, second = ([path for path in files(folder, name) if split in path.name] for split in SPLITS[name])
    for one, other in zip(first, second, strict=True):
        data = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(data)
    assert first
    assert str(folder / FOLDERS.get(name, name)) in refusal(name)


def test_without_a_folder_the_error_says_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEADYRNN_DATA", raising=False)
    message = refusal("ptb")
    assert "STEADYRNN_DATA" in message
    assert "--data-dir" in message
    assert "ptb/" in message


def test_data_dir_wins_over_the_variable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEADYRNN_DATA", str(folder / "elsewhere"))
    assert "elsewhere" in refusal("ptb")
    make_task("ptb", data_dir=str(folder))


def test_files_of_the_release_of_2015_are_refused_by_name(folder: Path) -> None:
    known = folder / "ucr" / "UCRArchive_2018" / "CBF"
    for part in ("TRAIN", "TEST"):
        (known / f"CBF_{part}.tsv").rename(known / f"CBF_{part}")
    assert "release of 2015" in refusal("ucr")


def test_a_partial_download_is_pointed_out(folder: Path) -> None:
    path = folder / "ptb" / "ptb.train.txt"
    path.rename(path.with_name("ptb.train.txt.part"))
    assert ".part" in refusal("ptb")
