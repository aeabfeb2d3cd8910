"""Wrong files: the error names the file, the line and the column, what was expected, what came, and the way out."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

import steadyrnn as sr
from steadyrnn.errors import ArgumentError, DataError
from steadyrnn.tasks.series.read import read_series, read_test_series
from steadyrnn.tasks.series.settings import SeriesSettings
from tests.tasks.series.loading import load, npy, npy_header, npz, parquet

LONG = {"series": "id", "time": "t"}
ROWS = {"layout": "rows", "target": "k"}
HEAD = "id,t,x\n"
TS = "@problemName p\n@timeStamps false\n@dimension 2\n@classLabel true a b\n@data\n"
ARFF = "@relation r\n@attribute a1 numeric\n@attribute a2 numeric\n@attribute k {u,v}\n@data\n"
BAG = "@relation r\n@attribute b relational\n@attribute i numeric\n@attribute j numeric\n@end b\n@attribute k {u,v}\n@data\n"

BAD: dict[str, tuple[str, str | bytes, dict[str, object], list[str]]] = {
    # the file itself
    "empty": ("a.csv", "", {}, ["empty (0 bytes)"]),
    "blank": ("a.csv", "\n\r\n \n", {}, ["blank lines only"]),
    "header only": ("a.csv", "x,y\n", {}, ["must hold rows", "header"]),
    "Excel": ("a.xlsx", b"PK\x03\x04rest", {}, ["Excel workbook", "Export it as CSV", ".parquet"]),
    "Excel named CSV": ("a.csv", b"PK\x03\x04rest", {}, ["Excel workbook", "Export it as CSV"]),
    "old Excel": ("a.csv", b"\xd0\xcf\x11\xe0rest", {}, ["old Excel workbook"]),
    "gzip": ("a.csv", b"\x1f\x8brest", {}, ["gzip", "Unpack it"]),
    "gzip suffix": ("a.csv.gz", b"\x1f\x8brest", {}, ["gzip", "Unpack it"]),
    "unknown suffix": ("a.mat", "x", {}, ["suffix is '.mat'", ".csv, .tsv, .txt, .parquet"]),
    "no suffix": ("data", "x", {}, ["no suffix"]),
    "binary": ("a.csv", b"x,y\n1,2\n\0\0", {}, ["line 3", "byte 8 is zero"]),
    "UTF-16": ("a.csv", "x,y\n1,2\n".encode("utf-16"), {}, ["UTF-16", "encoding UTF-8"]),
    "Latin-1": ("a.csv", "x,y\n1,2\né,3\n".encode("latin-1"), {}, ["line 3", "byte 8 (0xe9)", "UTF-8"]),
    "Latin-1 behind a mark": ("a.csv", b"\xef\xbb\xbfx\n\xe9\n", {}, ["line 2", "byte 5"]),
    "Parquet named CSV": ("a.csv", parquet(x=[1]), {}, ["Parquet", "Name it .parquet"]),
    "CSV named Parquet": ("a.parquet", "x,y\n1,2\n" * 9, {}, ["must be a Parquet file"]),
    # lines
    "short row": ("a.csv", "x,y\n1,2\n3\n", {}, ["line 3", "must have 2 fields, as line 1", "has 1"]),
    "long row": ("a.csv", "x,y\n1,2\n\n3,4,5\n", {}, ["line 4", "has 3"]),
    "short row with quotes": ("a.csv", 'x,y\n"1\n",2\n3\n', {}, ["line 4", "has 1"]),
    "open quote": ("a.csv", 'x,y\n1,2\n3,"4\n5,6\n', {}, ["line 3", "does not end"]),
    "text behind a quote": ("a.csv", 'x,y\n1,2\n"3"4,5\n', {}, ["line 3", "after a closing quote"]),
    "huge field": ("a.csv", 'x\n"' + "a" * 140_000 + '"\n', {}, ["line 2", "131,072"]),
    # names
    "repeated name": ("a.csv", "x,y,x\n1,2,3\n", {}, ["line 1", "columns 1 and 3 are both 'x'"]),
    "unnamed": ("a.csv", ",x\n0,1\n", {}, ["line 1", "column 1 of 2", "index=False"]),
    "no header": ("a.csv", "0.5,1.5\n1,2\n", {}, ["line 1", "numbers only", "header=False"]),
    "no header, integers": ("a.csv", "3,5\n4,6\n", {}, ["line 1", "numbers only", "header=False"]),
    "too many columns": ("a.csv", ",".join(map(str, range(100_001))) + "\n", {}, ["line 1", "100,000", "100,001"]),
    "no such column": ("a.csv", "value,y\n1,2\n", {"target": "valeu"}, ["'valeu'", "`target`", "Did you mean 'value'?"]),
    "no such column, none near": ("a.csv", "x,y\n1,2\n", {"series": "patient"}, ["'patient'", "Columns are x, y"]),
    "no such number": ("a.csv", "1,2\n3,4\n", {"header": False, "target": "9"}, ["numbered", "`header` is False"]),
    # cells
    "text among numbers": ("a.csv", "x,y\n1,2\n3,n/a\n5,6\n", {}, ["line 3", "column 'y'", "'n/a'", "A missing value is"]),
    "text in a named channel": ("a.csv", "x,y\n1,a\n", {"channels": "y"}, ["line 2", "column 'y'", "'a'"]),
    "decimal comma": ("a.csv", "x;y\n1,5;2\n2,5;3\n", {}, ["line 2", "column 'x'", "'1,5'", "point: 1.5"]),
    "thousands": ("a.csv", 'x,y\n"1,200.5",2\n3,3\n3,4\n', {}, ["line 2", "column 'x'", "without commas"]),
    "spaces between columns": ("a.txt", "x y\n1 2\n3 4\n", {}, ["line 2", "column 'x y'", "not by spaces"]),
    "infinite": ("a.csv", "x,y\n1,2\n3,-inf\n", {}, ["line 3", "column 'y'", "finite"]),
    "too large": ("a.csv", "x,y\n1,2\n3,1e999\n", {}, ["line 3", "column 'y'", "1.8e308"]),
    "missing": ("a.csv", "x,y\n1,2\n,4\n,6\n", {}, ["line 3", "column 'x'", "2 values are missing", "`interpolate`"]),
    "missing in a series": ("a.csv", HEAD + "b,1,2\na,2,\na,1,3\n", LONG, ["line 3", "column 'x'", "1 value is missing"]),
    "no number at all": ("a.csv", "x,y\na,b\n", {}, ["column of numbers"]),
    "empty channel": ("a.csv", "x,y\n1,\n2,\n", {"channels": "y"}, ["column 'y'", "no value"]),
    # roles
    "missing target": ("a.csv", "x,k\n1,a\n2,\n", {"target": "k"}, ["line 3", "column 'k'", "a target"]),
    "missing number to predict": ("a.csv", "x,k\n1,5\n2,NA\n", {"target": "k"}, ["line 3", "column 'k'", "a target"]),
    "infinite target": ("a.csv", "x,k\n1,5\n2,inf\n", {"target": "k"}, ["line 3", "column 'k'", "finite"]),
    "text among several targets": ("a.csv", "x,k,l\n1,5,6\n2,a,6\n", {"target": "k,l"}, ["line 3", "column 'k'", "'a'"]),
    "text to forecast": ("a.csv", "x,k\n1,a\n2,b\n", {"target": "k", "horizon": 1}, ["line 2", "column 'k'", "'a'"]),
    "missing name": ("a.csv", HEAD + "a,1,2\n,2,3\n", LONG, ["line 3", "column 'id'", "name of a series"]),
    "same time": ("a.csv", HEAD + "a,1,2\nb,1,3\na,1,4\n", LONG, ["line 4", "column 't'", "line 2", "series 'a'"]),
    "same time without series": ("a.csv", HEAD + "a,1,2\nb,1,3\n", {"time": "t"}, ["line 3", "column 't'", "`series`"]),
    "missing time": ("a.csv", HEAD + "a,1,2\na,,3\n", LONG, ["line 3", "column 't'", "must hold a time"]),
    "text for a time": ("a.csv", HEAD + "a,1,2\na,soon,3\na,3,3\n", LONG, ["line 3", "column 't'", "'soon'", "2024-01-31"]),
    "number among dates": ("a.csv", HEAD + "a,2024-01-01,2\na,2024-01-02,3\na,7,4\n", LONG, ["line 4", "column 't'", "'7'"]),
    "date of another form": ("a.csv", HEAD + "a,31.01.2024,2\n", LONG, ["line 2", "column 't'", "'31.01.2024'"]),
    "dates with and without zone": ("a.csv", HEAD + "a,2024-01-01T00:00Z,2\na,2024-01-02,3\n", LONG, ["line 3", "no zone"]),
    "infinite time": ("a.csv", HEAD + "a,1,2\na,inf,3\n", LONG, ["line 3", "column 't'", "finite"]),
    "two groups": ("a.csv", "id,g,x\na,p,1\na,q,3\n", {"series": "id", "group": "g"}, ["line 3", "'g'", "line 2"]),
    # rows that are series
    "series without values": ("a.csv", "k,x0,x1\na,1,2\nb,,\n", ROWS, ["line 3", "every cell"]),
    "same series twice": ("a.csv", "k,n,x0\na,s,1\nb,s,2\n", {**ROWS, "series": "n"}, ["line 3", "column 'n'", "line 2"]),
    "unnumbered step": ("a.csv", "k,age,x0,x1\na,1,2,3\nb,4,5,6\n", ROWS, ["'age'", "'x0'"]),
    "steps that differ": ("a.csv", "k,x0,x1,y0\na,1,2,3\nb,4,5,6\n", ROWS, ["step 1", "of 'x'", "not of 'y'"]),
    "step twice": ("a.csv", "k,x0,x_0\na,1,2\nb,4,5\n", ROWS, ["'x0'", "'x_0'", "same step"]),
    "missing within": ("a.csv", "k,x0,x1,x2\na,1,2,3\nb,4,,6\n", ROWS, ["line 3", "column 'x1'", "missing"]),
    "no such channel": ("a.csv", "k,x0,y0\na,1,2\nb,4,5\n", {**ROWS, "channels": "z"}, ["'z'", "x, y"]),
    # Parquet
    "Parquet: missing": ("a.parquet", parquet(x=[1.0, None]), {}, ["row 2", "column 'x'", "missing"]),
    "Parquet: infinite": ("a.parquet", parquet(x=[1.0, -np.inf]), {}, ["row 2", "column 'x'", "finite"]),
    "Parquet: list": ("a.parquet", parquet(x=[[1], [2]], y=[1, 2]), {}, ["column 'x'", "List(Int64)", "one value per row"]),
    "Parquet: text": ("a.parquet", parquet(x=["1", "2"]), {"channels": "x"}, ["row 1", "column 'x'", "'1'"]),
    "Parquet: no rows": ("a.parquet", parquet(x=[]), {}, ["must hold rows"]),
    "Parquet: unnamed": ("a.parquet", parquet(**{"": [1]}), {}, ["must have a name"]),
    # NumPy
    "npz: objects": ("a.npz", npz(X=np.ones((2, 3)), y=np.array([1, None])), {"target": "y"}, ["array 'y'", "run code"]),
    "npz: which": ("a.npz", npz(a=np.ones((2, 3)), b=np.ones((2, 3))), {}, ["a, b", "`channels`"]),
    "npz: no such array": ("a.npz", npz(X=np.ones((2, 3))), {"target": "y"}, ["no array 'y'", "X"]),
    "npz: shape": ("a.npz", npz(X=np.ones(3)), {}, ["array 'X'", "(N, T)", "(3,)"]),
    "npz: no values": ("a.npz", npz(X=np.ones((0, 3))), {}, ["array 'X'", "(0, 3)"]),
    "npz: target shape": ("a.npz", npz(X=np.ones((2, 3)), y=np.ones(3)), {"target": "y"}, ["array 'y'", "(2,)", "(3,)"]),
    "npz: texts as values": ("a.npz", npz(X=np.full((2, 3), "a")), {}, ["array 'X'", "numbers", "<U1"]),
    "npz: lengths": ("a.npz", npz(X=np.ones((2, 3)), lengths=np.array([1, 4])), {}, ["array 'lengths'", "from 1 to 3", "4"]),
    "npz: lengths of floats": ("a.npz", npz(X=np.ones((2, 3)), lengths=np.ones(2)), {}, ["array 'lengths'", "integers"]),
    "npz: infinite": ("a.npz", npz(X=np.array([[1.0, np.inf]])), {}, ["array 'X'", "[0, 1]"]),
    "npz: missing": ("a.npz", npz(X=np.array([[1.0, np.nan]])), {}, ["array 'X'", "step 1", "missing"]),
    "npz: missing target": ("a.npz", npz(X=np.ones((2, 3)), y=np.array([1, np.nan])), {"target": "y"}, ["'y'", "series 1"]),
    "npz: empty text": ("a.npz", npz(X=np.ones((2, 3)), y=np.array(["a", ""])), {"target": "y"}, ["array 'y'", "[1] is empty"]),
    "npz: complex": ("a.npz", npz(X=np.ones((2, 3), complex)), {}, ["array 'X'", "complex128"]),
    "npy: objects": ("a.npy", npy(np.array([{}, 1])), {}, ["objects"]),
    "npy: rank": ("a.npy", npy(np.ones((1, 1, 1, 1))), {}, ["(N, T, D)", "(1, 1, 1, 1)"]),
    "npy: claims more": ("a.npy", npy(np.ones(4)).replace(b"(4,)", b"(9,)"), {}, ["(9,)", "bytes"]),
    "npy: claims terabytes": ("a.npy", npy_header((10**13,)) + bytes(64), {}, ["(10000000000000,)", "bytes"]),
    # .ts
    "ts: unknown tag": ("a.ts", "@clasLabel true a\n@data\n1:a\n", {}, ["line 1", "'@clasLabel'", "@classlabel"]),
    "ts: no data": ("a.ts", "@problemName p\n", {}, ["@data"]),
    "ts: no series": ("a.ts", "@problemName p\n@data\n", {}, ["line 2", "none"]),
    "ts: time stamps": ("a.ts", "@timeStamps true\n@data\n(0,1):a\n", {}, ["line 1", "@timeStamps false", "CSV"]),
    "ts: time stamps in a row": ("a.ts", "@data\n(0,1),(1,2)\n", {}, ["line 2", "time stamps"]),
    "ts: text": ("a.ts", TS + "1,2:3,x:a\n", {}, ["line 6", "dimension 2", "value 2", "'x'"]),
    "ts: unequal dimensions": ("a.ts", TS + "1,2:3:a\n", {}, ["line 6", "dimension 2", "2 values", "has 1"]),
    "ts: too few dimensions": ("a.ts", TS + "1,2:3,4:a\n1,2:b\n", {}, ["line 7", "2 dimensions"]),
    "ts: unknown class": ("a.ts", TS + "1:2:c\n", {}, ["line 6", "'c'", "@classLabel"]),
    "ts: another length": ("a.ts", "@seriesLength 3\n@data\n1,2\n", {}, ["line 3", "3 values", "@seriesLength"]),
    "ts: size": ("a.ts", "@dimension 99999999999\n@data\n1,2\n", {}, ["line 1", "'99999999999'"]),
    "ts: text to predict": ("a.ts", "@targetLabel true\n@data\n1:2\n1:x\n", {}, ["line 4", "'x'"]),
    "ts: another target": ("a.ts", TS + "1:2:a\n", {"target": "y"}, ["'y'", "'class'"]),
    "ts: missing": ("a.ts", TS + "1,2:3,?:a\n", {}, ["line 6", "channel '2'", "value 2"]),
    # .arff
    "arff: no data": ("a.arff", "@relation r\n@attribute a numeric\n", {}, ["@data"]),
    "arff: type": ("a.arff", "@relation r\n@attribute a date\n@data\n", {}, ["line 2", "'date'"]),
    "arff: name twice": ("a.arff", "@attribute a numeric\n@attribute a numeric\n@data\n", {}, ["line 3", "'a' twice"]),
    "arff: short row": ("a.arff", ARFF + "1,2,u\n1,u\n", {}, ["line 7", "3 values", "has 2"]),
    "arff: text": ("a.arff", ARFF + "1,2,u\n1,x,u\n", {}, ["line 7", "column 'a2'", "'x'"]),
    "arff: unknown class": ("a.arff", ARFF + "1,2,w\n", {}, ["line 6", "column 'k'", "'w'"]),
    "arff: missing class": ("a.arff", ARFF + "1,2,u\n1,2,?\n", {}, ["line 7", "column 'k'"]),
    "arff: sparse": ("a.arff", ARFF + "{0 1, 2 u}\n", {}, ["line 6", "sparse"]),
    "arff: open quote": ("a.arff", ARFF + "1,2,'u\n", {}, ["line 6", "character 5", "quote"]),
    "arff: missing": ("a.arff", ARFF + "?,2,u\n", {}, ["line 6", "column 'a1'"]),
    "arff: bag too short": ("a.arff", BAG + "'1,2\\n3',u\n", {}, ["line 8", "column 'b'", "dimension 2", "2 values"]),
    "arff: text in a bag": ("a.arff", BAG + "'1,2\\n3,x',u\n", {}, ["line 8", "dimension 2", "value 2", "'x'"]),
    "arff: dimensions differ": ("a.arff", BAG + "'1,2\\n3,4',u\n'1,2',v\n", {}, ["line 9", "2 dimensions", "has 1"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_a_wrong_file_is_refused_with_its_place(tmp_path: Path, kind: str) -> None:
    name, text, settings, said = BAD[kind]
    with pytest.raises(DataError) as caught:
        load(tmp_path, text, name, **settings)
    message = str(caught.value)
    assert str(tmp_path / name) in message
    assert [words for words in said if words not in message] == [], message
    assert len(message) < 600


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"target": "x", "series": "x"}, ["`target`", "`series`", "'x'"]),
        ({"target": "x", "channels": "x"}, ["`target`", "`channels`", "'x'"]),
        ({"target": "x,x"}, ["`target`", "'x' twice"]),
        ({"series": "x,y"}, ["`series`", "one column"]),
        ({"layout": "wide"}, ["`layout`", "'wide'"]),
        ({"layout": "rows", "time": "x"}, ["`time`", "`layout` long"]),
        ({"layout": "rows", "target": "x", "horizon": 2}, ["`target`", "`layout` long"]),
    ],
)
def test_settings_that_contradict_are_refused(tmp_path: Path, settings: dict[str, object], said: list[str]) -> None:
    with pytest.raises(ArgumentError) as caught:
        load(tmp_path, "x,y\n1,2\n3,4\n", **settings)
    assert [words for words in said if words not in str(caught.value)] == []


@pytest.mark.parametrize(("name", "column"), [("a.npy", "series"), ("a.npy", "time"), ("a.npz", "time"), ("a.ts", "series")])
def test_a_format_without_columns_says_so(tmp_path: Path, name: str, column: str) -> None:
    data = {"a.npy": npy(np.ones(3)), "a.npz": npz(X=np.ones((2, 3))), "a.ts": TS + "1:2:a\n"}[name]
    with pytest.raises(ArgumentError, match=f"`{column}`"):
        load(tmp_path, data, name, **{column: "x"})


def test_a_target_of_an_npy_file_says_how_to_give_one(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"np\.savez"):
        load(tmp_path, npy(np.ones((2, 3, 1))), "a.npy", target="y")


def test_a_missing_file_is_refused_with_similar_names(tmp_path: Path) -> None:
    (tmp_path / "walking.csv").touch()
    with pytest.raises(DataError, match=r"waking\.csv is missing\. Did you mean walking\.csv\?"):
        sr.load_series(tmp_path / "waking.csv")
    with pytest.raises(DataError, match=r"no folder .*nowhere"):
        sr.load_series(tmp_path / "nowhere" / "a.csv")


@pytest.mark.parametrize("name", ["", "a\0b.csv"])
def test_a_name_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(ArgumentError, match="`data`"):
        sr.load_series(name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(DataError, match=r"pipe\.csv must be a regular file"):
        sr.load_series(tmp_path / "pipe.csv")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="the system has no /dev/zero")
def test_a_device_is_refused(tmp_path: Path) -> None:
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    with pytest.raises(DataError, match="must be a regular file"):
        sr.load_series(tmp_path / "zero.csv")


def test_a_file_of_terabytes_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "huge.csv").open("wb") as file:
        file.truncate(5 << 30)  # takes no room on the disk
    with pytest.raises(DataError, match=r"huge\.csv must have at most 4,294,967,296 bytes"):
        sr.load_series(tmp_path / "huge.csv")


def test_a_target_that_is_the_same_everywhere_is_refused_for_training_only(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,x,k\na,1,up\nb,2,up\n")
    settings = SeriesSettings(data=tmp_path / "a.csv", series="id", target="k", test_data=tmp_path / "a.csv")
    with pytest.raises(DataError, match=r"a\.csv.* k must have two values or more, but is 'up' everywhere"):
        read_series(settings)
    assert read_test_series(settings).labels.tolist() == ["up", "up"]


def test_a_terminal_is_safe_from_what_a_file_says(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load(tmp_path, "x,y\n1,2\n3,\x1b[2J\n5,6\n")
    assert "\x1b" not in str(caught.value)


def test_without_polars_it_is_said_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(DataError, match=r"pip install 'steadyrnn\[data\]'"):
        load(tmp_path, "x\n1\n")
    assert load(tmp_path, npy(np.ones(3)), "a.npy").count == 1
    assert load(tmp_path, TS + "1:2:a\n", "a.ts").count == 1


def test_an_argument_that_there_is_not_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(sr.errors.ArgumentTypeError, match=r"`chanels`\. Did you mean `channels`"):
        load(tmp_path, "x\n1\n", chanels="x")
    with pytest.raises(sr.errors.ArgumentTypeError, match="`target`"):
        load(tmp_path, "x\n1\n", target=1)
