"""Folders of files, each of which is a series."""

from pathlib import Path

import numpy as np
import pytest
import torch

import steadyrnn as sr
from steadyrnn.errors import ArgumentError, DataError
from tests.tasks.series.loading import npy, npz, parquet


def fill(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return folder


def test_each_file_is_a_series_by_its_name(tmp_path: Path) -> None:
    fill(tmp_path, {"b.csv": "t,x\n1,10\n0,20\n", "a.csv": "t,x\n5,30\n", ".hidden.csv": "junk", "notes.md": "junk"})
    found = sr.load_series(tmp_path, time="t")
    assert found.names == ("a", "b")
    assert found.values.tolist() == [[30], [20], [10]]
    assert found.times.tolist() == [5, 0, 1]
    assert found.notes == ("notes.md has another suffix and is not read.",)
    assert [file.path.name for file in found.files] == ["a.csv", "b.csv"]


def test_subfolders_are_classes(tmp_path: Path) -> None:
    fill(tmp_path, {"walk/1.csv": "x\n1\n", "run/1.csv": "x\n2\n3\n", "walk/2.tsv": "x\n4\n"})
    found = sr.load_series(tmp_path)
    assert found.names == ("run/1", "walk/1", "walk/2")
    assert found.labels.tolist() == ["run", "walk", "walk"]
    assert not found.target.each
    assert sr.load_series(tmp_path, horizon=1).target is None


def test_a_target_is_a_column_of_every_file(tmp_path: Path) -> None:
    fill(tmp_path, {"a/1.csv": "x,k,g\n1,u,p\n2,u,p\n", "b/2.csv": "x,k,g\n3,v,q\n"})
    found = sr.load_series(tmp_path, target="k", group="g")
    assert (found.labels.tolist(), found.target.each, found.groups) == (["u", "v"], False, ("p", "q"))
    fill(tmp_path, {"b/2.csv": "x,k,g\n3,v,q\n4,u,q\n"})
    found = sr.load_series(tmp_path, target="k")
    assert (found.labels.tolist(), found.target.each) == (["u", "u", "v", "u"], True)


@pytest.mark.parametrize("suffix", ["npy", "parquet", "csv"])
def test_formats_with_one_series_per_file(tmp_path: Path, suffix: str) -> None:
    for place in range(3):
        numbers = np.arange(4.0) + place
        data = {"npy": npy(numbers), "parquet": parquet(value=numbers), "csv": "value\n" + "\n".join(map(str, numbers))}[suffix]
        fill(tmp_path, {f"{place}.{suffix}": data})
    found = sr.load_series(tmp_path)
    assert torch.equal(found.values[:, 0], torch.arange(4.0).repeat(3) + torch.arange(3.0).repeat_interleave(4))


def test_missing_values_are_named_in_their_file(tmp_path: Path) -> None:
    fill(tmp_path, {"a.csv": "x,y\n1,2\n", "b.csv": "x,y\n1,2\n3,4\n5,\n"})
    with pytest.raises(DataError, match=r"b\.csv, line 4, column 'y'"):
        sr.load_series(tmp_path)


@pytest.mark.parametrize(
    ("files", "settings", "said"),
    [
        ({"a.csv": "x\n1\n", "b.csv": "y\n1\n"}, {}, ["b.csv", "channels of", "a.csv", "no 'x'"]),
        ({"a.csv": "x\n1\n", "b.csv": "x,y\n1,2\n"}, {}, ["b.csv", "'y' too"]),
        ({"a.csv": "x,y\n1,2\n", "b.csv": "x,y\n1,\n"}, {}, ["b.csv", "no 'y'", "holds no value"]),
        ({"a.csv": "x,k\n1,2\n", "b.csv": "x,k\n1,u\n"}, {"target": "k"}, ["b.csv", "target of numbers", "texts"]),
        ({"a.csv": "x\n1\n", "b.csv": "x\n"}, {}, ["b.csv", "must hold rows"]),
        ({"a.csv": "x\n1\n", "b.npy": npy(np.ones(2))}, {}, ["a.csv", "b.npy", "one format"]),
        ({"a.npz": npz(X=np.ones((2, 2)))}, {}, ["a.npz", "name the file itself"]),
        ({"a.npy": npy(np.ones((2, 2, 2)))}, {}, ["a.npy", "one series"]),
        ({"a.csv": "x\n1\n", "c/b.csv": "x\n1\n"}, {}, ["a.csv", "c/b.csv", "subfolders"]),
        ({"README.md": "hello"}, {}, ["none", "README.md"]),
        ({"a/b/c.csv": "x\n1\n"}, {}, ["a/b", "too deep"]),
    ],
)
def test_folders_that_do_not_fit_are_refused(tmp_path: Path, files: dict, settings: dict, said: list[str]) -> None:
    fill(tmp_path, files)
    with pytest.raises(DataError) as caught:
        sr.load_series(tmp_path, **settings)
    assert [words for words in said if words not in str(caught.value)] == []


@pytest.mark.parametrize("settings", [{"series": "x"}, {"layout": "rows"}])
def test_settings_of_one_file_are_refused(tmp_path: Path, settings: dict[str, str]) -> None:
    fill(tmp_path, {"a.csv": "x\n1\n"})
    with pytest.raises(ArgumentError, match=f"`{next(iter(settings))}`"):
        sr.load_series(tmp_path, **settings)


def test_links_are_not_followed(tmp_path: Path) -> None:
    fill(tmp_path, {"data/a.csv": "x\n1\n", "secret/s.csv": "x\n2\n"})
    (tmp_path / "data" / "link.csv").symlink_to(tmp_path / "secret" / "s.csv")
    (tmp_path / "data" / "more").symlink_to(tmp_path / "secret")
    found = sr.load_series(tmp_path / "data")
    assert found.names == ("a",)
    assert found.notes == ("link.csv is a link and is not read.", "more is a link and is not read.")


def test_files_of_the_same_stem_have_different_names(tmp_path: Path) -> None:
    fill(tmp_path, {"a.csv": "x\n1\n", "a.txt": "x\n2\n"})
    assert sr.load_series(tmp_path).names == ("a.csv", "a.txt")
