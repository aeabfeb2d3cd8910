"""The table of engines in a run's environment, and ``steadyrnn bench --calibrate``, which writes one."""

import json
from pathlib import Path
from typing import Any

import pytest

from steadyrnn.engines import calibration
from steadyrnn.runs.folder import Run
from tests.cli.program import QUICK, Program

OLD, NEW = {"name": "nvidia-h200", "sha256": "0a"}, {"name": "mine.json", "sha256": "0b"}


def train(program: Program, monkeypatch: pytest.MonkeyPatch, table: dict[str, str] | None, *words: str) -> Any:
    """Train while this table is in use."""
    monkeypatch.setattr(calibration, "table_record", lambda device: table)
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
