"""A network scored where its file is now, or on another file; nothing of a changed file passes for the old one."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from steadyrnn.errors import RunError
from steadyrnn.jobs.evaluate import evaluate_run
from steadyrnn.jobs.loading import load_trained
from steadyrnn.jobs.other_data import task_on
from steadyrnn.jobs.own_data import settle
from steadyrnn.jobs.recipes import configure
from steadyrnn.jobs.train import TrainedRun, train_network
from tests.cli.series_files import steps_of_one, waves

SIZES = {"train.steps": 4, "train.batch_size": 8, "train.device": "cpu", "model.width": 4, "train.optimizer.lr": 0.01}
CASES: dict[str, dict[str, Any]] = {
    "classes": {"task.data": "waves.csv", "task.series": "id", "task.target": "kind"},
    "classes with a file of test series": {
        "task.data": "waves.csv", "task.series": "id", "task.target": "kind", "task.test_data": "more.csv",
    },
    "numbers of steps": {"task.data": "long.csv", "task.target": "level"},
    "a stream": {"task.data": "long.csv", "task.target": "label", "task.bptt": 6},
    "a forecast": {"task.data": "long.csv", "task.channels": "x,y", "task.horizon": 2},
}  # fmt: skip


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    waves()
    waves("more.csv", 6, seed=5)
    steps_of_one()


def trained(case: str) -> TrainedRun:
    settled = settle({**CASES[case], **SIZES})
    return train_network(settled.configuration, "runs", task=settled.task, facts=settled.facts)


@pytest.mark.parametrize("case", CASES)
def test_a_run_is_scored_as_it_was_when_it_ended(case: str) -> None:
    run = trained(case)
    found = evaluate_run(run.folder, device="cpu")
    assert found.scores == pytest.approx(run.result.test)
    assert found.baselines == pytest.approx(run.facts["baselines"])


@pytest.mark.parametrize("case", CASES)
def test_the_same_file_elsewhere_is_divided_as_it_was(case: str) -> None:
    run = trained(case)
    file = Path(CASES[case]["task.data"])
    Path("away").mkdir()
    shutil.move(file, Path("away", "renamed.csv"))
    found = evaluate_run(run.folder, data="away/renamed.csv", device="cpu")
    assert found.split == "test"
    assert found.scores == pytest.approx(run.result.test)


@pytest.mark.parametrize("case", CASES)
def test_another_file_is_scored_as_a_whole_with_the_scaling_of_the_training(case: str) -> None:
    run = trained(case)
    if "waves" in CASES[case]["task.data"]:
        waves("new.csv", 8, seed=9)
    else:
        steps_of_one("new.csv", 50, seed=9)
    task, known = task_on(load_trained(run.folder), Path("new.csv"))
    assert not known
    noted = run.facts["data"]["preparation"]
    assert task.data_facts()["preparation"]["scaling"] == noted["scaling"]
    assert task.data_facts()["preparation"]["target_scaling"] == noted["target_scaling"]
    parts = task.data_facts()["parts"]
    assert parts["test"]["steps"] == (72 if "waves" in CASES[case]["task.data"] else 50)
    assert evaluate_run(run.folder, data="new.csv", device="cpu").split == "all of new.csv"


def test_one_byte_more_is_another_file() -> None:
    run = trained("classes")
    with Path("waves.csv").open("a", encoding="utf-8") as file:
        file.write("19,1,0.5,b\n")
    _, known = task_on(load_trained(run.folder), Path("waves.csv"))
    assert not known
    with pytest.raises(RunError, match="was trained on other data"):
        evaluate_run(run.folder, device="cpu")


def test_changed_test_series_are_refused() -> None:
    run = trained("classes with a file of test series")
    waves("more.csv", 6, seed=6)
    with pytest.raises(RunError, match=r"was trained on other data: .*more\.csv has changed"):
        evaluate_run(run.folder, device="cpu")
    whole = evaluate_run(run.folder, data="more.csv", device="cpu")
    assert whole.split == "all of more.csv"


def test_a_moved_file_beside_changed_test_series_is_not_taken_for_the_old_data() -> None:
    run = trained("classes with a file of test series")
    shutil.move("waves.csv", "renamed.csv")
    waves("more.csv", 6, seed=6)
    with pytest.raises(RunError, match="was trained on other data"):
        evaluate_run(run.folder, data="renamed.csv", device="cpu")


def test_a_network_of_a_task_takes_no_file() -> None:
    sizes = {**SIZES, "task.length": 5, "task.validation": 20, "task.test": 20}
    run = train_network(configure("addition", "gru", sizes), "runs")
    with pytest.raises(RunError, match="leave `--data` out"):
        evaluate_run(run.folder, data="waves.csv", device="cpu")
