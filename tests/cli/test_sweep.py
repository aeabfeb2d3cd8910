"""``steadyrnn sweep``: what is printed, what a second start is told, and mistakes in a sentence."""

import json
from pathlib import Path

import pytest

from steadyrnn.cli.sweep import EXAMPLE
from steadyrnn.train.signals import Signals
from tests.cli.program import Program

TINY = {
    "task": "addition", "models": ["rnn"], "seeds": [0, 1],
    "settings": {
        "task": {"length": 5, "validation": 20, "test": 20}, "model.width": 3,
        "train": {"steps": 4, "batch_size": 4, "device": "cpu", "probe": {"every": 0}},
    },
    "grid": {"train.optimizer.lr": [0.01, 0.1]},
}  # fmt: skip


@pytest.fixture
def config(program: Program) -> str:
    Path("sweep.json").write_text(json.dumps(TINY))
    return "sweep.json"


def test_a_sweep_prints_what_validation_chose_and_where_everything_is(program: Program, config: str) -> None:
    done = program("sweep", config, "--jobs", "1")
    (folder,) = Path("runs/addition/sweep").iterdir()
    assert done.status == 0
    assert "chosen by validation" in done.out
    assert "2 of 2 trials: 2 finished, 0 pruned, 0 failed" in done.out
    assert f"page: {folder}/report.html" in done.out
    assert {path.name for path in folder.iterdir()} == {
        *("sweep.json", "configuration.json", "journal.log", "trials", "lock", "report.html"),
        *("table.csv", "table.json", "table.tex"),
    }
    assert (folder / "configuration.json").read_bytes() == Path(config).read_bytes()
    page = program("report", str(folder), "--out", "page.html")
    assert page.status == 0
    assert "Sweep on addition" in Path("page.html").read_text(encoding="utf-8")


def test_json_says_all_and_a_second_start_the_same(program: Program, config: str) -> None:
    first = program("sweep", config, "--jobs", "1", "--json", "--quiet").json
    assert first["best"]["rnn"]["test"].keys() == {"loss"}
    assert [row["state"] for row in first["rows"]] == ["finished"] * 2
    for words in (first["folder"], "runs"):
        assert program("sweep", "--resume", words, "--jobs", "1", "--json").json == first
    assert json.loads(Path(first["folder"], "table.json").read_text())["rows"] == first["rows"]


def test_quiet_prints_the_folder_alone(program: Program, config: str) -> None:
    done = program("sweep", config, "--jobs", "1", "--quiet", "--train.steps", "2", "--seeds", "3")
    assert (done.status, done.err) == (0, "")
    (run,) = {path.parent for path in Path(done.out.strip()).glob("trials/0000/*/config.json")}
    stored = json.loads((run / "config.json").read_text())
    assert (run.name, stored["train"]["steps"], stored["train"]["seed"]) == ("seed-3", 2, 3)


def test_a_sweep_in_which_nothing_could_finish_says_so(program: Program, config: str) -> None:
    text = {**TINY, "grid": {"train.optimizer.lr": [1e30]}, "settings": {**TINY["settings"], "train.optimizer.name": "sgd"}}  # type: ignore[dict-item]
    Path(config).write_text(json.dumps(text))
    done = program("sweep", config, "--jobs", "1")
    assert done.status == 1
    assert "trial 0 failed: seed 0: " in done.out
    assert "0 finished, 0 pruned, 1 failed" in done.out


def test_a_signal_ends_a_sweep_with_its_status(program: Program, config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Signals, "__enter__", lambda self: setattr(self, "received", 2) or self)
        done = program("sweep", config, "--jobs", "1")
    (folder,) = Path("runs/addition/sweep").iterdir()
    assert done.status == 130
    assert f"go on with: steadyrnn sweep --resume runs/addition/sweep/{folder.name}" in done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give CONFIG to start a sweep, or --resume to go on with one, and not both"),
        (["sweep.json", "--resume", "runs"], "give CONFIG to start a sweep, or --resume to go on with one, and not both"),
        (["--resume", "runs", "--train.steps", "3"], "--resume goes on with the settings of the sweep"),
        (["--resume", "runs", "--trials", "3"], "--resume goes on with the settings of the sweep"),
        (["no.yaml"], "There is no file 'no.yaml'."),
        (["sweep.json", "--jobs", "0"], "--jobs must be from 1 to"),
        (["sweep.json", "--train.setps", "3"], "there is no option --train.setps. Did you mean --train.steps?"),
        (["sweep.json", "--train.steps", "many"], "--train.steps must be a whole number or null, but is 'many'."),
        (["sweep.json", "--train.optimizer.lr", "3"], "`grid.train.optimizer.lr` is varied by the sweep"),
        (["sweep.json", "--trials", "3"], "`trials` belongs to `search`"),
        (["sweep.json", "--seeds", "all"], "`seeds` must be different numbers"),
        (["sweep.json", "--executor", "lokal"], "Did you mean `local`?"),
        (["sweep.json", "--slurm", "partition"], "--slurm must be KEY=VALUE,..., each key once"),
        (["sweep.json", "--slurm", "a=1", "--executor", "local"], "--slurm and --executor local cannot both be given"),
    ],
)
def test_a_mistake_is_said_in_a_line_and_nothing_is_made(program: Program, config: str, words: list[str], message: str) -> None:
    done = program("sweep", *words)
    assert (done.status, done.out) == (2, "")
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not Path("runs").exists()


def test_a_sweep_that_is_not_there_cannot_go_on(program: Program) -> None:
    Path("runs").mkdir()
    done = program("sweep", "--resume", "runs")
    assert (done.status, done.err) == (
        1,
        "steadyrnn: `runs` contains no sweep: neither it nor a folder below it has a `sweep.json`.\n",
    )


def test_the_example_is_a_file_that_can_be_swept(program: Program) -> None:
    assert program("sweep", "--example").out == EXAMPLE
