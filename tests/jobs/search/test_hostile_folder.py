"""The folder of a sweep may come from somebody else: what is in it is checked, and nothing is written through a link."""

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from steadyrnn.errors import ArgumentError, RunError
from steadyrnn.jobs.report import report_runs
from steadyrnn.jobs.search.folder import SWEEP, SweepFolder, read_record, trial_folder
from steadyrnn.jobs.search.result import Standing, read_standing
from steadyrnn.jobs.sweep import run_sweep


@pytest.mark.parametrize(
    "change",
    [
        lambda stored: stored.update(higher=True),
        lambda stored: stored.update(label="another"),
        lambda stored: stored.update(bases=[1]),
        lambda stored: stored["plan"].update(settings=[1]),
        lambda stored: stored["plan"].update(models=["../../x"]),
        lambda stored: stored["plan"].update(seeds=["../../x"]),
        lambda stored: stored["plan"].update(seeds=[*range(10**5)]),
        lambda stored: stored["plan"].update(trials=10**200),
        lambda stored: stored["plan"].update(metric=["loss"]),
        lambda stored: stored["plan"].update(task="../x"),
        lambda stored: stored["plan"].update(search={"model.width": {"low": 1}}),
        lambda stored: stored["plan"]["grid"].update({"train.clip.norm": [[1]]}),
    ],
)
def test_a_plan_that_was_altered_gets_a_sentence_and_nothing_is_written(
    two: Standing, change: Callable[[dict[str, Any]], None]
) -> None:
    stored = json.loads((two.folder / SWEEP).read_text())
    change(stored)
    (two.folder / SWEEP).write_text(json.dumps(stored))
    table = (two.folder / "table.json").stat()
    with pytest.raises((RunError, ArgumentError)):
        run_sweep(resume=two.folder, jobs=1)
    assert (two.folder / "table.json").stat() == table


@pytest.mark.parametrize("state", ["failed", "pruned"])
@pytest.mark.parametrize("value", ["text", 0.001, True, [1], {}])
def test_only_a_finished_trial_has_a_value(two: Standing, state: str, value: Any) -> None:
    """Whatever stood there would be ranked among scores."""
    path = trial_folder(two.folder, 1) / "trial.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "state": state, "value": value}))
    with pytest.raises(RunError, match="does not say what a trial came to"):
        read_record(path.parent)


def test_a_trial_is_shown_once_whatever_other_folders_are_called(two: Standing) -> None:
    shutil.copytree(trial_folder(two.folder, 1), two.folder / "trials" / "1")
    shutil.copytree(trial_folder(two.folder, 1), two.folder / "trials" / "00001")
    shutil.copytree(trial_folder(two.folder, 1), two.folder / "trials" / "0001-backup")
    assert [trial.number for trial in read_standing(SweepFolder.open(two.folder)).trials] == [t.number for t in two.trials]
    shutil.copytree(trial_folder(two.folder, 1), trial_folder(two.folder, 7))
    with pytest.raises(RunError, match="says what another trial came to"):
        read_standing(SweepFolder.open(two.folder))


def test_a_sweep_of_which_no_trial_has_begun_has_a_page(two: Standing, tmp_path: Path) -> None:
    shutil.rmtree(two.folder / "trials")
    (two.folder / "trials").mkdir()
    found = report_runs([two.folder], tmp_path / "page.html")
    assert "No trial has finished." in found.path.read_text(encoding="utf-8")
    assert found.runs == []


@pytest.mark.parametrize("name", ["table.csv", "report.html", "submitit", "trials/0001", "trials/0001/seed-0"])
def test_nothing_is_written_through_a_link_in_the_folder(two: Standing, tmp_path: Path, name: str) -> None:
    journal = two.folder / "journal.log"
    journal.write_text("".join(line for line in journal.open() if '"trial_id": 1, "state": 1' not in line))
    shutil.rmtree(two.folder / "trials" / "0001")
    (tmp_path / "elsewhere" / "seed-0").mkdir(parents=True)
    (tmp_path / "elsewhere" / "seed-0" / "kept").write_text("mine")
    (tmp_path / "file").write_text("mine")
    link = two.folder / name
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(tmp_path / ("file" if link.suffix else "elsewhere"))
    before = sorted((tmp_path / "elsewhere").rglob("*"))
    with suppress(RunError):
        run_sweep(resume=two.folder, jobs=1, executor="local" if name == "submitit" else "processes")
    assert sorted((tmp_path / "elsewhere").rglob("*")) == before
    assert {path.read_text() for path in (tmp_path / "file", tmp_path / "elsewhere" / "seed-0" / "kept")} == {"mine"}
