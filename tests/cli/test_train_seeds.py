"""steadyrnn train --seeds: the table, the JSON, the exit status, what is refused, going on."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from steadyrnn.cli.seeds import read_seeds
from steadyrnn.runs.folder import Run
from steadyrnn.runs.layout import find_runs
from steadyrnn.train.group_step import GroupStepper
from tests.cli.program import QUICK, Program

SEVERAL = ["train", "addition", *QUICK, "--seeds"]


def test_one_command_trains_a_group_and_prints_a_table(program: Program) -> None:
    done = program(*SEVERAL, "0..2")
    assert done.status == 0, done.err
    assert "3 networks of 8 units, trained as a group" in done.out
    rows = [line.split() for line in done.out.splitlines()]
    seeds = [row for row in rows if row and row[0] in ("0", "1", "2")]
    assert [row[3:] for row in seeds] == [["6", "finished"]] * 3
    test = [float(row[2]) for row in seeds]
    (mean,) = (row for row in rows if row[:1] == ["mean"])
    assert float(mean[2]) == pytest.approx(sum(test) / 3, rel=1e-2)
    assert any(row[:2] == ["standard", "deviation"] for row in rows)
    (folder,) = Path("runs/addition/spectral").iterdir()
    assert f"runs: {folder}" in done.out
    assert sorted(path.name for path in find_runs([folder])) == ["seed-0", "seed-1", "seed-2"]


def test_networks_that_a_group_cannot_run_are_trained_in_turn(program: Program) -> None:
    done = program(*SEVERAL, "0,3", "--model.dropout", "0.1")
    assert done.status == 0, done.err
    assert "2 networks of 8 units, trained one after another: in a group `dropout_state` must be 0" in done.out


def test_json_has_every_run_and_the_summary(program: Program) -> None:
    done = program(*SEVERAL, "5,1", "--json")
    found = done.json
    assert (found["seeds"], found["group"], found["failed"]) == ([5, 1], True, {})
    assert [*found["runs"]] == ["5", "1"]
    scores = [run["result"]["test"]["loss"] for run in found["runs"].values()]
    assert found["summary"]["test"]["loss"]["mean"] == pytest.approx(sum(scores) / 2)
    assert "seed" not in found["configuration"]["train"]
    for seed, run in found["runs"].items():
        assert Run.open(run["run"]).config["train"]["seed"] == int(seed)
        assert Run.open(run["run"]).config["command"][:3] == ["steadyrnn", "train", "addition"]
    assert "trained as a group" in done.err


def test_quiet_prints_the_folder_of_all_runs(program: Program) -> None:
    done = program(*SEVERAL, "0,1", "--quiet")
    (folder,) = Path("runs/addition/spectral").iterdir()
    assert (done.status, done.out, done.err) == (0, f"{folder}\n", "")


def test_the_report_has_the_seeds_in_one_row(program: Program) -> None:
    program(*SEVERAL, "0..2", "--quiet")
    assert program("report", "runs", "--out", "page.html").status == 0
    page = Path("page.html").read_text(encoding="utf-8")
    assert "3 runs" in page or "3 seeds" in page


@pytest.mark.parametrize("command", ["eval", "certify"])
def test_a_folder_of_a_seed_is_a_run_for_other_commands(program: Program, command: str) -> None:
    program(*SEVERAL, "0,1", "--quiet")
    (folder,) = Path("runs/addition/spectral").iterdir()
    for path in (folder, folder / "seed-1"):
        assert program(command, str(path), "--json").status == 0


def test_a_folder_of_a_seed_can_be_converted(program: Program) -> None:
    program(*SEVERAL, "0,1", "--quiet", "--model", "gru")
    (folder,) = Path("runs/addition/gru").iterdir()
    assert program("convert", str(folder / "seed-0"), "--to", "torch").status == 0


REFUSED = {
    "a seed too": (["0..2", "--seed", "1"], "--seeds and --seed (--train.seed) cannot both be given"),
    "the setting too": (["0..2", "--train.seed=1"], "--seeds and --seed (--train.seed) cannot both be given"),
    "twice": (["0,1,0"], "--seeds must be different numbers"),
    "too many": (["0..100"], "at most 100"),
    "backwards": (["3..1"], "--seeds must be different numbers"),
    "words": (["a..b"], "--seeds must be different numbers, as 0..9 or 0,2,5"),
    "negative": (["-1"], "--seeds must be different numbers"),
    "settings to print": (["0..2", "--print_config"], "--seeds and --print_config cannot both be given"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_go_with_seeds_is_refused(program: Program, case: str) -> None:
    words, message = REFUSED[case]
    done = program(*SEVERAL, *words)
    assert (done.status, message in done.err) == (2, True), done.err
    assert not Path("runs").exists()


def test_seeds_of_a_file_are_refused_and_its_seed_is_replaced(program: Program) -> None:
    Path("a.yaml").write_text("seeds: 0..2\ntask: {name: addition}\n", encoding="utf-8")
    done = program("train", "--config", "a.yaml")
    assert "`seeds`, which belongs to the command line" in done.err
    Path("b.yaml").write_text("train: {seed: 7}\n", encoding="utf-8")
    assert program(*SEVERAL, "1,2", "--config", "b.yaml", "--quiet").status == 0
    assert sorted(Run.open(run).config["train"]["seed"] for run in find_runs(["runs"])) == [1, 2]


def spoil(monkeypatch: pytest.MonkeyPatch, at: int, action: Any) -> None:
    step = GroupStepper.step

    def spoiled(self: GroupStepper, number: int, factor: float) -> Any:
        if number == at:
            action(self)
        return step(self, number, factor)

    monkeypatch.setattr(GroupStepper, "step", spoiled)


def test_a_network_that_fails_shows_in_table_and_status(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(stepper: GroupStepper) -> None:
        stepper.group.members[1].readout.weight.data.fill_(float("nan"))  # type: ignore[union-attr]

    spoil(monkeypatch, 4, fail)
    done = program(*SEVERAL, "0..2")
    assert done.status == 1
    assert "steadyrnn: seed 1 failed: Step 4 is not finite" in done.err
    assert "2 of 3 seeds" in done.out
    (row,) = (line.split() for line in done.out.splitlines() if line.split()[:1] == ["1"])
    assert row[-1] == "failed"
    (folder,) = Path("runs/addition/spectral").iterdir()
    again = program("train", "--resume", str(folder), "--json")
    assert (again.status, [*again.json["failed"]], [*again.json["runs"]]) == (1, ["1"], ["0", "2"])


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_the_call_goes_on(
    program: Program, monkeypatch: pytest.MonkeyPatch, number: int, status: int
) -> None:
    whole = program(*SEVERAL, "0..2", "--json", "--out", "whole").json
    with monkeypatch.context() as patch:
        spoil(patch, 4, lambda stepper: os.kill(os.getpid(), number))
        done = program(*SEVERAL, "0..2")
    assert done.status == status
    (folder,) = Path("runs/addition/spectral").iterdir()
    assert f"go on with: steadyrnn train --resume {folder}" in done.err
    alone = program("train", "--resume", str(folder / "seed-1"))
    assert (alone.status, f"Resume `{folder}`" in alone.err) == (1, True)
    again = program("train", "--resume", str(folder), "--json")
    assert again.status == 0, again.err
    ours, theirs = ({seed: run["result"]["test"] for seed, run in found["runs"].items()} for found in (again.json, whole))
    assert ours == theirs
    assert program("train", "--resume", str(folder / "seed-1"), "--json").json["result"]["test"] == theirs["1"]


def test_a_call_that_goes_on_has_its_seeds_and_settings(program: Program) -> None:
    program(*SEVERAL, "0,1", "--quiet")
    (folder,) = Path("runs/addition/spectral").iterdir()
    done = program("train", "--resume", str(folder), "--seeds", "0..3")
    assert (done.status, "a folder to go on with has its seeds" in done.err) == (2, True)
    done = program("train", "--resume", str(folder), "--seed", "0")
    assert (done.status, "each network has a seed of its own" in done.err) == (2, True)
    done = program("train", "--resume", str(folder), "--train.optimizer.lr", "0.5")
    assert (done.status, "there and 0.5 here" in done.err) == (1, True)
    done = program("train", "--resume", str(folder), "--model.width", "4")
    assert (done.status, "`model.width` of the run to resume is 8, but 4 is requested" in done.err) == (1, True)


def test_lists_of_seeds_are_read() -> None:
    assert read_seeds("7", 10) == [7]
    assert read_seeds("0..9", 10) == [*range(10)]
    assert read_seeds("5,3", 10) == [5, 3]
    with pytest.raises(ValueError, match="at most 10"):
        read_seeds("0..10", 10)
