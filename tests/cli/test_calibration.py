"""The table of engines in a run's environment, and ``steadyrnn bench --calibrate``, which writes one."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from steadyrnn.cells.registry import CELLS
from steadyrnn.engines.base import Recurrence
from steadyrnn.engines.calibration_table import read_table
from steadyrnn.engines.select import ENGINES
from steadyrnn.errors import ArgumentError, DataError
from steadyrnn.jobs.calibrate import CASES, Case, choose_cases, choose_engines, make_recurrence, measure, measure_all
from steadyrnn.jobs.calibration_file import CalibrationFile
from steadyrnn.layers.rnn import RNN
from steadyrnn.runs.folder import Run
from tests.cli.program import QUICK, Program
from tests.support.calibrations import Fake, engines_in_place, row

OLD, NEW = {"name": "nvidia-h200", "sha256": "0a"}, {"name": "mine.json", "sha256": "0b"}


def train(program: Program, monkeypatch: pytest.MonkeyPatch, table: dict[str, str] | None, *words: str) -> Any:
    """Train while this table is in use."""
    monkeypatch.setattr("steadyrnn.jobs.train.table_record", lambda device: table)
    return program("train", *words, "--quiet")


def environment() -> dict[str, Any]:
    (path,) = Path("runs").rglob("environment.json")
    return json.loads(path.read_text())


@pytest.mark.parametrize("table", [None, OLD])
def test_a_run_records_the_table_of_engines(program: Program, monkeypatch: pytest.MonkeyPatch, table: Any) -> None:
    assert train(program, monkeypatch, table, "addition", *QUICK).status == 0
    assert environment()["calibration"] == table


def test_a_run_on_a_cpu_has_no_table(program: Program) -> None:
    assert program("train", "addition", "--quiet", *QUICK).status == 0
    assert environment()["calibration"] is None


def test_a_run_is_not_resumed_by_another_table(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    train(program, monkeypatch, OLD, "addition", *QUICK)
    before = environment()
    (folder,) = {path.parent for path in Path("runs").rglob("config.json")}
    done = train(program, monkeypatch, NEW, "--resume", str(folder))
    assert done.status == 1
    assert "chosen by the table 'nvidia-h200' (sha256 0a), but the one in use is 'mine.json' (sha256 0b)" in done.err
    assert environment() == before
    assert train(program, monkeypatch, OLD, "--resume", str(folder)).status == 0


def test_a_run_that_moves_to_a_device_without_a_table_goes_on(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    train(program, monkeypatch, OLD, "addition", *QUICK)
    (folder,) = {path.parent for path in Path("runs").rglob("config.json")}
    assert train(program, monkeypatch, None, "--resume", str(folder)).status == 0
    assert Run.open(folder).environment()["calibration"] is None


# bench --calibrate

CPU = torch.device("cpu")
SMALL = Case("gru-after", "float32", 4, 2)


def facts(device: str = "Abacus") -> dict[str, Any]:
    return {"device": device, "capability": [0, 0], "steps": 128, "inputs": 64}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_there_is_nothing_to_calibrate(program: Program) -> None:
    done = program("bench", "--calibrate")
    assert done.status == 1
    assert "`--calibrate` measures the engines of a GPU, but torch sees no CUDA device here" in done.err
    assert not list(Path().iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--engines", "nosuch"], "`--engines` must be names among"),
        (["--only", "nosuch"], "`--only` must have part of a name"),
        (["--shard", "3/2"], "`--shard` must be i/n"),
    ],
)
def test_what_is_wrong_with_the_words_is_told_without_a_gpu_too(program: Program, words: list[str], message: str) -> None:
    done = program("bench", "--calibrate", *words)
    assert done.status == 1
    assert message in done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--calibrate", "rnn"], "leave the names out"),
        (["--out", "a.json"], "--out needs --calibrate"),
        (["--shard", "1/2"], "--shard needs --calibrate"),
        (["--again"], "--again needs --calibrate"),
    ],
)
def test_calibration_is_not_mixed_with_models(program: Program, words: list[str], message: str) -> None:
    done = program("bench", *words)
    assert done.status == 2
    assert message in done.err


def test_the_rows_are_those_of_the_plan() -> None:
    assert len(CASES) == len(set(CASES)) == 5 * 6 * 4 * 2 + 3 * 3 * 4 * 2
    assert {CELLS[case.cell].record.measured_as for case in CASES} == {case.cell for case in CASES}


def test_shards_are_all_rows_once() -> None:
    parts = [choose_cases(None, f"{part}/5") for part in range(1, 6)]
    assert sorted((case for part in parts for case in part), key=CASES.index) == list(CASES)


@pytest.mark.parametrize("shard", ["0/4", "5/4", "2", "a/b", "-1/4"])
def test_a_shard_that_there_is_not_is_refused(shard: str) -> None:
    with pytest.raises(ArgumentError, match=r"`--shard` must be i/n"):
        choose_cases(None, shard)


def test_a_pattern_without_rows_is_refused() -> None:
    with pytest.raises(ArgumentError, match="`--only` must have part of a name such as rnn-relu/n32/B1/float32"):
        choose_cases("n33", None)


@pytest.mark.parametrize("case", [SMALL, Case("lstm", "bfloat16", 3, 1), Case("rnn-tanh", "float32", 8, 2, rank=2)], ids=str)
def test_every_engine_that_can_run_has_a_figure(tmp_path: Path, case: Case) -> None:
    file = CalibrationFile(tmp_path / "table.json", facts(), ["steadyrnn", "bench"])
    assert measure_all([case], CPU, file, print, again=False) == []
    table = read_table(str(file.path))
    for gradients in (False, True):
        (row,) = table.rows[case.cell, case.dtype, gradients]
        assert (row.size, row.batch, row.rank) == (case.n, case.B, case.rank or case.n)
        assert [name for name, _ in row.microseconds] == ["cpu", "reference"]


def test_an_engine_that_is_wrong_or_fails_has_no_figure() -> None:
    def fail(run: Recurrence) -> Any:
        raise ValueError("no kernel\nfor this")

    broken = Fake("cuda")
    broken.run = fail
    run = make_recurrence(SMALL, CPU, steps=3)
    row, faults = measure(SMALL, run, [Fake("cudnn", mark=0.1), broken, Fake("reference")])
    assert list(row["forward"]) == list(row["training"]) == ["reference"]
    assert "cudnn has no figure, since it is off by" in faults[0]
    assert faults[1].endswith("cuda has no figure, since no kernel")


def test_rows_are_appended_and_not_measured_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Case] = []

    def pretend(case: Case, run: Recurrence, engines: Any) -> Any:
        measured.append(case)
        return {**case._asdict(), **{part: {e.name: 1.0 for e in engines} for part in ("forward", "training")}}, []

    monkeypatch.setattr("steadyrnn.jobs.calibrate.measure", pretend)
    other = SMALL._replace(n=5)
    for cases, again in (([SMALL], False), ([SMALL, other], False), ([SMALL], True)):
        file = CalibrationFile(tmp_path / "table.json", facts(), ["steadyrnn", "bench", "--calibrate", str(again)])
        measure_all(cases, CPU, file, print, again)
    assert measured == [SMALL, other, SMALL]
    written = json.loads(file.path.read_text())
    assert [row["n"] for row in written["rows"]] == [4, 5]
    assert [entry["command"] for entry in written["made"]] == [f"steadyrnn bench --calibrate {x}" for x in (False, False, True)]
    assert (written["device"], written["torch"]) == ("Abacus", torch.__version__)
    with engines_in_place(Fake("reference"), Fake("triton")):  # an engine that was not there then
        measure_all([SMALL], CPU, file, print, again=False)
    assert measured[3:] == [SMALL]


def test_a_table_of_another_device_is_not_appended_to(tmp_path: Path) -> None:
    CalibrationFile(tmp_path / "table.json", facts(), []).add(row({"cuda": 1.0}))
    with pytest.raises(ArgumentError, match="`--out` names a table whose device is 'Abacus', but here it is 'Slide rule'"):
        CalibrationFile(tmp_path / "table.json", facts("Slide rule"), [])


def test_a_file_that_is_no_table_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text("[]")
    with pytest.raises(DataError, match="No table of engines is in the file"):
        CalibrationFile(tmp_path / "notes.json", facts(), [])


@pytest.mark.gpu
def test_a_gpu_is_calibrated(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--calibrate", "--out", "table.json", "--only", "rnn-tanh/n32/B16/float32"]
    done = program("bench", *words, "--json")
    assert done.status == 0, done.err
    assert (done.json["rows"], done.json["faults"]) == (1, [])
    monkeypatch.setenv("STEADYRNN_CALIBRATION", "table.json")
    layer = RNN(64, 32).cuda()
    layer(torch.zeros(5, 16, 64, device="cuda"))
    assert "near n = 32, B = 16, float32 with gradients" in layer.explain()


def test_only_named_engines_are_measured() -> None:
    assert [engine.name for engine in choose_engines(None)] == list(ENGINES)
    assert [engine.name for engine in choose_engines("cuda,cudnn")] == ["cuda", "cudnn"]
    with pytest.raises(ArgumentError, match=r"`--engines` must be names among .*, but has 'fast'"):
        choose_engines("cuda,fast")
