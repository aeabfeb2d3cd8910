"""Tables of engines' times: what is read, what is refused, and which row answers."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from steadyrnn.engines import calibration, calibration_table
from steadyrnn.engines.calibration import GPU, fastest, nearest, table_in_use, table_record
from steadyrnn.engines.calibration_table import VARIABLE, parse_table
from steadyrnn.errors import DataError
from tests.support.calibrations import H200, forget, row, write_table


@pytest.fixture(autouse=True)
def _gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(calibration, "gpu_of", lambda index: GPU(*H200))
    forget()
    yield
    forget()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package's folder of tables, empty."""
    monkeypatch.setattr(calibration_table, "_FOLDER", tmp_path)
    return tmp_path


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write the table that the environment variable names."""

    def write(*rows: dict[str, Any], **header: Any) -> Path:
        path = write_table(tmp_path / "mine.json", *rows, **header)
        monkeypatch.setenv(VARIABLE, str(path))
        return path

    return write


def ask(n: int = 128, batch: int = 16, names: tuple[str, ...] = ("cudnn", "cuda", "reference"), **more: Any) -> Any:
    """Ask for the fastest engine of a tanh layer in float32."""
    given = {"index": 0, "cell": "rnn-tanh", "dtype": "float32", "gradients": False} | more
    return fastest(size=n, batch=batch, candidates=names, **given)


# the nearest row


@pytest.mark.parametrize(
    ("value", "expected"), [(1, 32), (32, 32), (45, 32), (46, 64), (64, 64), (90, 64), (91, 128), (10**6, 128)]
)
def test_nearest_is_by_the_ratio(value: int, expected: int) -> None:
    assert nearest(value, (32, 64, 128)) == expected


def test_of_two_numbers_as_near_the_lower_answers() -> None:
    assert nearest(4, (1, 16)) == 1


def test_the_fastest_of_the_nearest_row_is_found(table: Any) -> None:
    table(row({"cudnn": 2.0, "cuda": 3.0}, n=64), row({"cudnn": 44.0, "cuda": 7.0}, n=512))
    assert (ask(100).engine, ask(400).engine) == ("cudnn", "cuda")
    found = ask(400)
    assert (found.microseconds, found.row.size, found.row.batch) == ({"cudnn": 44.0, "cuda": 7.0}, 512, 16)


def test_width_counts_before_batch_where_a_row_is_missing(table: Any) -> None:
    table(row({"cudnn": 1.0}, n=64, B=1024), row({"cuda": 1.0}, n=512, B=16))
    assert ask(64, 16).engine == "cudnn"


def test_equal_times_go_by_the_order_of_the_candidates(table: Any) -> None:
    table(row({"reference": 5.0, "cuda": 5.0, "cudnn": 5.0}))
    assert ask(names=("cudnn", "cuda", "reference")).engine == "cudnn"
    assert ask(names=("cuda", "reference")).engine == "cuda"


def test_only_candidates_answer(table: Any) -> None:
    table(row({"cudnn": 1.0, "cuda": 2.0}))
    assert ask(names=("cuda", "reference")).microseconds == {"cuda": 2.0}
    assert ask(names=("reference",)) is None


def test_times_with_gradients_are_others(table: Any) -> None:
    table(row({"cudnn": 1.0, "cuda": 2.0}, {"cudnn": 9.0, "cuda": 8.0}))
    assert [ask(gradients=kept).engine for kept in (False, True)] == ["cudnn", "cuda"]


@pytest.mark.parametrize("other", [{"cell": "lstm"}, {"dtype": "float64"}])
def test_what_was_not_measured_has_no_answer(table: Any, other: dict[str, str]) -> None:
    table(row({"cudnn": 1.0}))
    assert ask(**other) is None


def test_a_row_without_figures_has_no_answer(table: Any) -> None:
    table(row({}))
    assert ask() is None


@pytest.mark.parametrize(
    ("n", "rank", "engine"), [(512, None, "cudnn"), (512, 32, "cuda"), (512, 8, "cuda"), (512, 256, "cudnn"), (64, 32, "cudnn")]
)
def test_a_weight_in_factors_takes_the_row_of_the_nearest_rank(table: Any, n: int, rank: int | None, engine: str) -> None:
    table(*(row({"cudnn": 1.0, "cuda": 2.0}, n=size) for size in (64, 512)), row({"cudnn": 2.0, "cuda": 1.0}, n=512, rank=32))
    assert ask(n, rank=rank).engine == engine


# which table


def test_a_device_without_a_table_has_no_answer(folder: Path) -> None:
    assert table_in_use(GPU("NVIDIA A100-SXM4-80GB", (8, 0))) is None
    assert ask() is None


def test_the_package_has_a_table_by_the_name_of_the_device(folder: Path) -> None:
    write_table(folder / "nvidia-a100-sxm4-80gb.json", row({"cudnn": 1.0}), device="A100")
    assert table_in_use(GPU("NVIDIA A100-SXM4-80GB", (8, 0))).device == "A100"


def test_a_device_of_the_same_capability_takes_the_table_of_the_h200(folder: Path) -> None:
    write_table(folder / "nvidia-h200.json", row({"cudnn": 1.0}))
    assert table_in_use(GPU("NVIDIA H100 80GB HBM3", (9, 0))).name == "nvidia-h200"
    assert table_in_use(GPU("NVIDIA B200", (10, 0))) is None


def test_the_named_file_goes_before_the_package(folder: Path, table: Any) -> None:
    write_table(folder / "nvidia-h200.json", row({"cudnn": 1.0}))
    path = table(row({"cuda": 1.0}))
    assert table_in_use(GPU(*H200)).name == str(path)


def test_a_table_is_read_once(table: Any) -> None:
    path = table(row({"cuda": 1.0}))
    assert ask().engine == "cuda"
    path.unlink()
    assert ask().engine == "cuda"


def test_name_and_checksum_are_told(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = table(row({"cuda": 1.0}))
    record = table_record(torch.device("cuda", 0))
    assert record == {"name": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    assert table_record(torch.device("cpu")) is None


def test_the_packages_own_tables_can_be_read() -> None:
    for path in (Path(calibration_table.__file__).parent / "tables").glob("*.json"):
        table = parse_table(path.read_bytes(), path.stem, path.name)
        assert calibration.slug(table.device) == path.stem
        assert table.rows


# what is refused


@pytest.mark.parametrize("name", ["missing.json", "", "~nobody-of-that-name/table.json"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(VARIABLE, name if name.startswith("~") else str(tmp_path / name))
    with pytest.raises(DataError, match=rf"cannot be read: .*steadyrnn bench --calibrate.*{VARIABLE}"):
        ask()


def test_an_empty_variable_is_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")
    assert ask() is None


def changed(**parts: Any) -> str:
    return json.dumps({"format": 1, "device": "x", "rows": [row({"cuda": 1.0}) | parts]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value"),
        ("\xff\xfe", "codec can't decode"),
        ("[" * 100_000, "recursion"),
        ("[]", "`format` is 1"),
        ('{"format": 2, "device": "x", "rows": []}', "`format` is 1"),
        ('{"format": 1, "rows": []}', "`device` must be a string, but is None"),
        ('{"format": 1, "device": "x"}', "`rows` must be a list"),
        ('{"format": 1, "device": "x", "rows": [3]}', r"`rows\[0\]` must be an object"),
        (changed(cell=None), r"`rows\[0\].cell` must be a string"),
        (changed(n=0), r"`rows\[0\].n` must be an integer above 0, but is 0"),
        (changed(B=True), r"`rows\[0\].B` must be an integer above 0, but is True"),
        (changed(rank=128), r"`rows\[0\].rank` must be below n = 128"),
        (changed(forward=[]), r"`rows\[0\].forward` must be an object"),
        (changed(forward={"cuda": -1.0}), r"`rows\[0\].forward.cuda` must be a finite number above 0"),
        (changed(training={"cuda": float("nan")}), r"`rows\[0\].training.cuda` must be a finite number above 0"),
        (changed(training={"cuda": "7"}), r"`rows\[0\].training.cuda` must be a finite number above 0"),
        (json.dumps({"format": 1, "device": "x", "rows": [row({}), row({})]}), "is there twice"),
    ],
)
def test_a_malformed_table_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str) -> None:
    path = tmp_path / "table.json"
    path.write_bytes(text.encode("latin-1"))
    monkeypatch.setenv(VARIABLE, str(path))
    with pytest.raises(DataError, match=message) as refused:
        ask()
    assert str(path) in str(refused.value)
