"""A run of cells: nothing finished is lost or repeated, and an interruption leaves no trace in the record."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest

from steadyrnn.errors import ArgumentTypeError, RunError
from steadyrnn.experiments.registry import EXPERIMENTS
from steadyrnn.jobs.reproduce import reproduce
from steadyrnn.jobs.result_file import read_result
from steadyrnn.jobs.work import Cell, Work
from steadyrnn.runs.lock import Lock
from tests.jobs.killed import calls, make_work

ROOT = Path(__file__).parents[2]
PROCESS = """
import sys
from steadyrnn.jobs.reproduce import reproduce
from tests.jobs.killed import make_work
reproduce(make_work(sys.argv[1]), sys.argv[2], command=["test"])
"""


def compared(path: Path) -> bytes:
    """Return the part of a record that an interruption must not change, as bytes."""
    record = json.loads(path.read_bytes())
    assert record.pop("made")
    return json.dumps(record).encode()


def kill_at(cell: str, folder: Path, out: Path) -> None:
    """Start a process on the work, and kill it with SIGKILL while it runs a cell."""
    (folder / f"wait-{cell}").touch()
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    process = subprocess.Popen([sys.executable, "-c", PROCESS, folder, out], env={**os.environ, "PYTHONPATH": path})
    end = time.monotonic() + 120
    while not (folder / f"reached-{cell}").exists():
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    (folder / f"wait-{cell}").unlink()


@pytest.mark.slow
def test_a_run_killed_three_times_leaves_the_same_bytes_as_an_uninterrupted_one(tmp_path: Path) -> None:
    folder, out, whole = tmp_path / "cells", tmp_path / "killed", tmp_path / "whole"
    folder.mkdir()
    for cell in ("c0", "c2", "c4"):
        kill_at(cell, folder, out)
        assert not (out / "killed.json").exists()
    done = reproduce(make_work(folder), out)
    assert (done.ran, done.kept) == (2, 4)
    assert calls(folder) == ["c0", "c0", "c1", "c2", "c2", "c3", "c4", "c4", "c5"]  # only killed cells ran twice
    assert compared(done.path) == compared(reproduce(make_work(folder), whole).path)
    assert sorted(path.name for path in out.iterdir() if path.suffix == ".json") == ["killed.json"]


def test_a_finished_record_is_neither_repeated_nor_changed(tmp_path: Path) -> None:
    first = reproduce(make_work(tmp_path), tmp_path / "out")
    before = first.path.read_bytes()
    second = reproduce(make_work(tmp_path), tmp_path / "out")
    assert (second.ran, second.kept) == (0, 6)
    assert first.path.read_bytes() == before
    assert len(calls(tmp_path)) == 6


def test_cells_that_are_added_later_run_alone(tmp_path: Path) -> None:
    reproduce(make_work(tmp_path, 3), tmp_path / "out")
    done = reproduce(make_work(tmp_path, 5), tmp_path / "out")
    assert (done.ran, done.kept, [*done.record["cells"]]) == (2, 3, ["c0", "c1", "c2", "c3", "c4"])
    assert done.record["sum"] == pytest.approx(10 / 3)


def test_a_cell_without_numbers_runs_again(tmp_path: Path) -> None:
    cell = Cell("none", "tests.jobs.killed:measure_file", {"file": str(tmp_path / "data")})
    work = Work("absent", {}, (cell,), lambda numbers: {"sum": numbers["none"]})
    assert reproduce(work, tmp_path / "out").record["cells"] == {"none": None}
    (tmp_path / "data").write_text("there")
    done = reproduce(work, tmp_path / "out")
    assert (done.ran, done.kept, done.record["sum"]) == (1, 0, 5)
    assert reproduce(work, tmp_path / "out").kept == 1


def test_again_runs_all_cells_anew(tmp_path: Path) -> None:
    reproduce(make_work(tmp_path), tmp_path / "out")
    assert reproduce(make_work(tmp_path), tmp_path / "out", again=True).ran == 6


@pytest.mark.parametrize("change", ["fewer", "other arguments"])
def test_cells_of_other_settings_are_refused_and_kept(tmp_path: Path, change: str) -> None:
    path = reproduce(make_work(tmp_path), tmp_path / "out").path
    before, work = path.read_bytes(), make_work(tmp_path, 5)
    if change == "other arguments":
        work = make_work(tmp_path)
        work = replace(work, cells=(*work.cells[:5], replace(work.cells[5], seed=99)))
    with pytest.raises(RunError, match=r"holds the cell 'c5'.*--out.*--again"):
        reproduce(work, tmp_path / "out")
    assert path.read_bytes() == before


def test_infinity_is_null_in_the_record(tmp_path: Path) -> None:
    assert reproduce(make_work(tmp_path), tmp_path / "out").record["cells"]["c1"] == {"value": 1 / 3, "huge": None}


def test_date_command_environment_and_seconds_are_noted_without_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEADYRNN_DATA", "/a/folder/of/mine")
    path = reproduce(make_work(tmp_path), tmp_path / "out", command=["steadyrnn", "reproduce", "x"]).path
    made = json.loads(path.read_bytes())["made"]
    assert {*made} == {"date", "command", "environment", "seconds"}
    assert made["command"] == ["steadyrnn", "reproduce", "x"]
    assert [*made["seconds"]] == [f"c{i}" for i in range(6)]
    assert "/a/folder/of/mine" not in json.dumps(made)


def test_another_environment_of_a_later_start_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reproduce(make_work(tmp_path, 2), tmp_path / "out")
    monkeypatch.setenv("MKL_NUM_THREADS", "7")
    made = reproduce(make_work(tmp_path, 3), tmp_path / "out").record["made"]
    assert [found["variables"]["MKL_NUM_THREADS"] for found in made["resumed_in"]] == ["7"]


def test_a_cell_that_fails_leaves_the_finished_ones(tmp_path: Path) -> None:
    work = make_work(tmp_path)
    broken = replace(work, cells=(*work.cells[:3], Cell("bad", "steadyrnn.errors:none_of_these"), *work.cells[3:]))
    with pytest.raises(AttributeError):
        reproduce(broken, tmp_path / "out")
    assert [*json.loads((tmp_path / "out" / "killed.partial.json").read_bytes())["cells"]] == ["c0", "c1", "c2"]
    assert reproduce(work, tmp_path / "out").kept == 3


def test_numbers_that_are_not_json_are_refused_by_name(tmp_path: Path) -> None:
    work = replace(make_work(tmp_path), cells=(Cell("text", "pathlib:Path"),))
    with pytest.raises(ArgumentTypeError, match="`text` must be a JSON value"):
        reproduce(work, tmp_path / "out")


def test_there_is_one_writer(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    lock = Lock(tmp_path / "out" / ".killed.lock")
    try:
        with pytest.raises(RunError, match="one writer"):
            reproduce(make_work(tmp_path), tmp_path / "out")
    finally:
        lock.release()
    assert not (tmp_path / "calls").exists()


DAMAGED: dict[str, tuple[bytes, str]] = {
    "cut": (b'{"format": 1, "config": {', "is damaged: it is not JSON"),
    "empty": (b"", "is damaged: it is not JSON"),
    "a list": (b"[]", "lacks a part of a result"),
    "no cells": (b'{"format": 1, "config": {"cells": {}}, "made": {}}', "lacks a part of a result"),
    "no seconds": (
        b'{"format": 1, "config": {"cells": {}}, "cells": {}, "made": {"date": "", "command": [], "environment": {}}}',
        "lacks a part of a result",
    ),
    "another format": (b'{"format": 9}', "has format 9"),
}


@pytest.mark.parametrize("ending", [".json", ".partial.json"])
@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_file_is_refused_and_left_as_it_is(tmp_path: Path, kind: str, ending: str) -> None:
    data, message = DAMAGED[kind]
    path = tmp_path / f"killed{ending}"
    path.write_bytes(data)
    with pytest.raises(RunError, match=message):
        reproduce(make_work(tmp_path), tmp_path)
    assert path.read_bytes() == data
    assert not (tmp_path / "calls").exists()


def test_stored_numbers_that_cannot_be_judged_get_a_sentence_and_stay(tmp_path: Path) -> None:
    work = replace(EXPERIMENTS["lin-table2"].work(quick=True), name="changed")
    path = reproduce(work, tmp_path).path
    record = json.loads(path.read_bytes())
    record["cells"]["abs"]["measured"] = None
    path.write_text(json.dumps(record))
    with pytest.raises(RunError, match=r"holds numbers that cannot be judged .*--again"):
        reproduce(work, tmp_path)
    assert json.loads(path.read_bytes()) == record


def test_a_judge_that_fails_on_fresh_numbers_is_not_blamed_on_a_file(tmp_path: Path) -> None:
    work = replace(EXPERIMENTS["lin-table2"].work(quick=True), finish=lambda cells: cells["nothing"])
    with pytest.raises(KeyError):
        reproduce(work, tmp_path)


def test_a_record_without_a_file_is_none(tmp_path: Path) -> None:
    found: Any = read_result(tmp_path / "none.json")
    assert found is None


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_cell_gets_the_numbers_of_the_one_it_comes_after(tmp_path: Path, jobs: int) -> None:
    function = "tests.jobs.killed:count_up"
    cells = [
        Cell("c0", function, resumable=True),
        *(Cell(f"c{i}", function, after=f"c{i - 1}", resumable=True) for i in (1, 2)),
    ]
    done = reproduce(Work("chain", {}, tuple(cells), lambda numbers: {}), tmp_path, jobs=jobs)
    assert done.record["cells"] == {"c0": 1, "c1": 2, "c2": 3}
    assert done.record["config"]["cells"]["c2"]["after"] == "c1"
    assert [path.name for path in tmp_path.iterdir()] in (["chain.json"], [".chain.lock", "chain.json"])


def test_cells_at_a_time_give_the_same_record(tmp_path: Path) -> None:
    folder = tmp_path / "cells"
    folder.mkdir()
    one, two = (reproduce(make_work(folder), tmp_path / f"{jobs}", jobs=jobs) for jobs in (1, 2))
    assert compared(one.path) == compared(two.path)


def test_again_does_not_go_on_with_a_plain_run_that_was_cut_off(tmp_path: Path) -> None:
    work = make_work(tmp_path)
    broken = replace(work, cells=(*work.cells[:3], Cell("bad", "steadyrnn.errors:none_of_these"), *work.cells[3:]))
    for again in (False, True):
        with pytest.raises(AttributeError):
            reproduce(broken, tmp_path / "out", again=again)
    assert len(calls(tmp_path)) == 6
    assert reproduce(work, tmp_path / "out", again=True).kept == 3  # of the second call, which was asked for the same


def test_the_noted_command_is_that_of_the_last_cells(tmp_path: Path) -> None:
    reproduce(make_work(tmp_path, 2), tmp_path / "out", command=["first"])
    assert reproduce(make_work(tmp_path, 3), tmp_path / "out", command=["then"]).record["made"]["command"] == ["then"]


def test_a_link_in_the_place_of_a_record_is_refused_before_a_cell_runs(tmp_path: Path) -> None:
    (tmp_path / "killed.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match=r"killed\.json"):
        reproduce(make_work(tmp_path), tmp_path)
    assert not (tmp_path / "calls").exists()


def work_of(*cells: Cell) -> Work:
    return Work("mixed", {}, cells, lambda numbers: {})


def test_a_process_that_ends_by_itself_gets_a_sentence_and_finished_cells_stay(tmp_path: Path) -> None:
    ends = Cell("ends", "tests.jobs.killed:end_process", after="quick")
    quick = Cell("quick", "tests.jobs.killed:sleep", {"seconds": 0.0})
    with pytest.raises(RunError, match=r"ended by itself.*Finished cells are kept"):
        reproduce(work_of(quick, ends), tmp_path, jobs=2)
    assert "quick" in json.loads((tmp_path / "mixed.partial.json").read_bytes())["cells"]


def test_a_cell_that_fails_ends_the_others_before_the_error_comes(tmp_path: Path) -> None:
    fails = Cell("fails", "tests.jobs.killed:fail_after", {"seconds": 0.5})
    long = Cell("long", "tests.jobs.killed:sleep", {"seconds": 600.0})
    with pytest.raises(ArithmeticError, match="on purpose"):
        reproduce(work_of(fails, long), tmp_path, jobs=2)
    assert not active_children()


def test_workers_import_nothing_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    (tmp_path / "multiprocessing.py").write_text("raise SystemExit('a file of the current folder was imported')")
    cells = [Cell(f"c{i}", "steadyrnn.errors:suggestion", {"name": "lsmt", "known": ["lstm"]}) for i in range(2)]
    assert reproduce(work_of(*cells), tmp_path / "out", jobs=2).ran == 2
    assert "PYTHONSAFEPATH" not in os.environ
