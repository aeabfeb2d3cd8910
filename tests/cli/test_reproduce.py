"""``steadyrnn reproduce``: the list, runs side by side with what is published, and mistakes."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from steadyrnn.experiments.base import Experiment
from steadyrnn.experiments.registry import EXPERIMENTS
from steadyrnn.experiments.targets import TARGETS
from tests.cli.program import Program


def test_the_list_has_every_table_figure_and_target_with_state_and_price(program: Program) -> None:
    found = program("reproduce", "--list", "--json").json["experiments"]
    assert [*found] == [*EXPERIMENTS, *TARGETS]
    assert {one["state"] for one in found.values()} <= {"never run", "not yet runnable"}
    assert found["zhang-table4"]["price"] == "CPU 240 min"
    assert found["zhang-table2"]["price"].startswith("GPU ")
    out = program("reproduce", "--list").out
    assert all(name in out for name in (*EXPERIMENTS, *TARGETS))


def test_the_list_imports_no_torch(tmp_path: Path) -> None:
    code = "import sys; from steadyrnn.cli.main import main; main(['reproduce', '--list']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.endswith("False\n")


def test_the_state_goes_from_never_run_over_quick_to_full(program: Program) -> None:
    def state() -> tuple[str, str]:
        one = program("reproduce", "lin-table2", "--list", "--json").json["experiments"]["lin-table2"]
        return one["state"], one["verdict"]

    assert state() == ("never run", "")
    assert program("reproduce", "lin-table2", "--quick").status == 0
    assert state() == ("quick", "3 seen")
    assert program("reproduce", "lin-table2").status == 0
    assert state() == ("full", "3 seen")


def test_published_and_measured_stand_side_by_side(program: Program) -> None:
    done = program("reproduce", "lin-table2", "--quick", "--out", "here")
    assert (done.status, "[0, 1] and 1" in done.out, "seen" in done.out) == (0, True, True)
    assert "here/lin-table2-quick.json: 3 seen; 4 cells run, 0 finished before, 0 s in all" in done.out
    record = json.loads(Path("here/lin-table2-quick.json").read_bytes())
    assert record["made"]["command"] == ["steadyrnn", "reproduce", "lin-table2", "--quick"]
    again = program("reproduce", "lin-table2", "--quick", "--out", "here", "--json")
    assert again.json["experiments"]["lin-table2"]["claims"] == record["claims"]


def test_the_picture_is_written_beside_the_record(program: Program) -> None:
    done = program("reproduce", "lin-table6", "--quick", "--out", "here")
    path = Path("here/pictures/lin-table6-quick.svg")
    assert done.out.rstrip().endswith("here/pictures/lin-table6-quick.svg")
    assert path.read_bytes().startswith(b"<?xml")
    again = program("reproduce", "lin-table6", "--quick", "--out", "here", "--json").json["experiments"]["lin-table6"]
    assert again["picture"] == str(path.resolve())


def test_a_record_without_curves_has_no_picture(program: Program) -> None:
    done = program("reproduce", "lin-table2", "--quick", "--json")
    assert done.json["experiments"]["lin-table2"]["picture"] is None
    assert not Path("results/pictures").exists()


def test_without_matplotlib_a_line_says_that_nothing_is_drawn(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    program("reproduce", "lin-table6", "--quick")
    assert Path("results/pictures/lin-table6-quick.svg").exists()
    monkeypatch.setattr("steadyrnn.cli.reproduce.find_spec", lambda name: None)
    done = program("reproduce", "lin-table6", "--quick")
    assert (done.status, "not drawn, since matplotlib is missing" in done.out) == (0, True)
    assert not Path("results/pictures/lin-table6-quick.svg").exists()


@pytest.mark.parametrize(("text", "seeds"), [("0..1", [0, 1]), ("3,1", [1, 3]), ("5", [5])])
def test_seeds_are_a_range_or_a_list(program: Program, text: str, seeds: list[int]) -> None:
    assert program("reproduce", "lin-table1", "--quick", "--seeds", text).status == 0
    assert json.loads(Path("results/lin-table1-quick.json").read_bytes())["seeds"] == seeds


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ("lin-tabel1", 2, "there is no table, figure or target 'lin-tabel1'. Did you mean `lin-table1`?"),
        ("lin-table2 --jobs 0", 2, "--jobs"),
        ("", 2, "give IDs or --all, and not both; --list shows what there is"),
        ("lin-table1 --all", 2, "give IDs or --all, and not both; --list shows what there is"),
        ("lin-table1 lin-table1", 2, "an ID is given twice"),
        ("lin-table1 --seeds 3..1", 2, "--seeds must be different numbers, as 0..9 or 0,2,5, at most 1000, but is '3..1'"),
        ("lin-table1 --seeds 1,1", 2, "--seeds must be different numbers, as 0..9 or 0,2,5, at most 1000, but is '1,1'"),
        ("lin-table1 --seeds 0..99999", 2, "at most 1000, but is '0..99999'"),
        ("lin-table1 --seeds many", 2, "--seeds must be different numbers, as 0..9 or 0,2,5, at most 1000, but is 'many'"),
        ("lin-table1 --threads 0", 2, "--threads must be from 1 to"),
        ("lin-table2 --seeds 0", 1, "`seeds` must not be given for `lin-table2`: it draws no random numbers. Leave it out."),
    ],
)  # fmt: skip
def test_a_mistake_gets_a_sentence_and_nothing_runs(program: Program, words: str, status: int, message: str) -> None:
    done = program("reproduce", *words.split())
    assert (done.status, done.out, message in done.err, done.err.count("\n")) == (status, "", True, 1)
    assert not Path("results").exists()


def test_what_cannot_run_yet_says_what_it_waits_for(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    unwritten = replace(EXPERIMENTS["lin-fig1"], quick=(), full=(), claims=(), waits_for="its cells, not written yet")
    monkeypatch.setitem(EXPERIMENTS, "lin-fig1", unwritten)
    done = program("reproduce", "lin-table2", "lin-fig1")
    assert (done.status, done.out) == (1, "")
    assert "`lin-fig1` cannot run yet: it waits for its cells, not written yet." in done.err
    assert not Path("results").exists()


def test_a_damaged_result_is_named_and_left(program: Program) -> None:
    Path("results").mkdir()
    Path("results/lin-table2.json").write_text('{"format": 1,')
    done = program("reproduce", "lin-table2")
    assert (done.status, done.out) == (1, "")
    assert "`results/lin-table2.json` is damaged" in done.err
    assert Path("results/lin-table2.json").read_text() == '{"format": 1,'
    listed = program("reproduce", "lin-table2", "--list", "--json").json["experiments"]["lin-table2"]
    assert (listed["state"], "is damaged" in listed["verdict"]) == ("damaged", True)


def test_an_unfinished_run_is_in_the_list(program: Program) -> None:
    made = {"date": "2026-01-01", "command": [], "environment": {}, "seconds": {}}
    partial = {"format": 1, "config": {"cells": {}}, "cells": {"abs": {}, "relu": {}}, "made": made}
    Path("results").mkdir()
    Path("results/lin-table2.partial.json").write_text(json.dumps(partial))
    assert program("reproduce", "lin-table2", "--list", "--json").json["experiments"]["lin-table2"]["unfinished_cells"] == 2
    assert "never run (2 cells" in " ".join(program("reproduce", "lin-table2", "--list").out.split())


def keep_only(monkeypatch: pytest.MonkeyPatch, *names: str, **more: Experiment) -> None:
    monkeypatch.setattr("steadyrnn.experiments.registry.EXPERIMENTS", {name: EXPERIMENTS[name] for name in names} | more)


def test_all_runs_what_can_run(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = replace(EXPERIMENTS["lin-table2"], id="absent", data=("mediamill",))
    keep_only(monkeypatch, "lin-table2", "lin-table6", absent=absent)
    done = program("reproduce", "--all", "--quick", "--seeds", "3,4", "--json")
    assert done.status == 0
    assert [*done.json["experiments"]] == ["lin-table2", "lin-table6"]
    assert "absent is left out: there is no data set mediamill" in done.err
    assert json.loads(Path("results/lin-table6-quick.json").read_text())["seeds"] == [3, 4]
    assert json.loads(Path("results/lin-table2-quick.json").read_text())["seeds"] == []  # it draws none


def test_all_goes_on_past_one_that_fails(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_only(monkeypatch, "lin-table2", "lin-table6")
    Path("results").mkdir()
    Path("results/lin-table2-quick.json").write_text("damaged")
    done = program("reproduce", "--all", "--quick", "--json")
    assert (done.status, [*done.json["experiments"]], [*done.json["failed"]]) == (1, ["lin-table6"], ["lin-table2"])
    assert "lin-table2 failed: `results/lin-table2-quick.json` is damaged" in done.err


def test_a_record_of_another_experiment_is_not_believed(program: Program) -> None:
    program("reproduce", "lin-table2", "--quick")
    Path("results/lin-table2-quick.json").rename("results/lin-table6-quick.json")
    listed = program("reproduce", "lin-table6", "--list", "--json").json["experiments"]["lin-table6"]
    assert (listed["state"], "holds 'lin-table2' in mode 'quick'" in listed["verdict"]) == ("damaged", True)


def test_two_jobs_give_the_same_numbers(program: Program) -> None:
    for jobs in ("1", "2"):
        assert program("reproduce", "lin-table6", "--quick", "--jobs", jobs, "--out", jobs).status == 0
    one, two = (json.loads(Path(jobs, "lin-table6-quick.json").read_text())["cells"] for jobs in ("1", "2"))
    assert one == two


def test_an_interruption_says_how_to_go_on(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(activation: str, slope: float | None = None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("steadyrnn.experiments.gradient_regimes.measure_slopes", interrupt)
    done = program("reproduce", "lin-table2", "--quick")
    assert done.status == 130
    assert "lin-table2 goes on where it stopped with the same command; finished cells are kept" in done.err
