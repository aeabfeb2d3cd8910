"""Several networks on the same data: rows by validation, the same seeds for all, tables that other programs read."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest

from steadyrnn.errors import ArgumentError
from steadyrnn.jobs import comparison as module
from steadyrnn.jobs.comparison import Comparison, Row, compare_models
from steadyrnn.runs.folder import Run
from tests.cli.series_files import steps_of_one, waves

SIZES = {"train.steps": 4, "train.batch_size": 8, "train.device": "cpu", "model.width": 4}
ADDITION = {**SIZES, "task.length": 5, "task.validation": 30, "task.test": 30}
WAVES = {**SIZES, "task.data": "waves.csv", "task.series": "id", "task.target": "kind", "train.optimizer.lr": 0.01}
LEVEL = {**SIZES, "task.data": "long.csv", "task.target": "level", "train.optimizer.lr": 0.01}


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    waves()
    steps_of_one()


@pytest.mark.parametrize(("task", "given"), [("addition", ADDITION), ("series", WAVES), ("series", LEVEL)])
def test_rows_are_sorted_by_validation_and_simple_methods_come_last(task: str, given: dict[str, Any]) -> None:
    found = compare_models(task, ["gru", "lstm", "spectral"], given, (0, 1))
    networks = [row for row in found.rows if row.runs]
    assert {row.name for row in networks} == {"gru", "lstm", "spectral"}
    assert [*found.rows[:3]] == networks
    scores = [row.validation for row in networks]
    higher = Run.open(networks[0].runs[0]).read_json("facts.json")["higher_is_better"]
    assert scores == sorted(scores, reverse=higher)  # type: ignore[type-var]
    for row in networks:
        assert [Run.open(run).config["train"]["seed"] for run in row.runs] == [0, 1]
        assert row.deviation is not None
        assert row.parameters == Run.open(row.runs[0]).read_json("facts.json")["parameters"]
    assert (len(found.rows) > 3) == (task == "series")


def test_the_table_holds_what_the_rows_hold() -> None:
    found = compare_models("series", ["gru", "stable-spectral"], WAVES)
    with (found.folder / "table.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    for line, row in zip(lines, found.rows, strict=True):
        assert line["model"] == row.name
        assert line["proven to forget"] == {None: "", True: "yes", False: "no"}[row.stable]
        assert (line["parameters"] == "") == (row.parameters is None)
        for score, value in (row.test or {}).items():
            assert float(line[f"test {score}"]) == pytest.approx(value, rel=1e-5)
    stored = json.loads((found.folder / "table.json").read_text(encoding="utf-8"))
    assert [row["name"] for row in stored["rows"]] == [row.name for row in found.rows]
    (proven,) = (row for row in found.rows if row.name == "stable-spectral")
    assert proven.stable
    assert proven.contraction is not None
    assert proven.contraction < 1


@pytest.mark.parametrize("name", ["a_b", "50% & more", "x^2~", "{#$}", "back\\slash", "ä"])
def test_special_characters_are_written_out_for_latex(tmp_path: Path, name: str) -> None:
    row = Row(name, test={"rmse water_level": 1.5}, contraction=math.inf)
    module._write(Comparison(tmp_path, "loss", (row,)), ())
    latex = (tmp_path / "table.tex").read_text(encoding="utf-8")
    plain = latex
    for escaped in (r"\textbackslash{}", r"\textasciitilde{}", r"\textasciicircum{}", *(f"\\{c}" for c in "&%$#_{}")):
        plain = plain.replace(escaped, "")
    (line,) = plain.splitlines()[4:-2] if plain.splitlines()[4:-2] else [plain.splitlines()[-3]]
    assert not set(line.replace(" & ", "").replace(r"\\", "")) & set("&%$#_{}^~")
    with (tmp_path / "table.csv").open(encoding="utf-8", newline="") as file:
        (read,) = csv.DictReader(file)
    assert read["model"] == name
    assert json.loads((tmp_path / "table.json").read_text(encoding="utf-8"))["rows"][0]["contraction"] is None


def test_auto_is_named_by_what_was_chosen() -> None:
    found = compare_models("series", ["auto", "lstm"], WAVES)
    assert {row.name for row in found.rows if row.runs} == {"stable-spectral", "lstm"}


def test_a_setting_that_a_model_lacks_is_refused() -> None:
    with pytest.raises(ArgumentError):
        compare_models("addition", ["gru", "lstm"], {**ADDITION, "model.bound": 0.5})


def test_a_comparison_is_the_same_again() -> None:
    first, second = (compare_models("series", ["gru", "lstm"], WAVES) for _ in range(2))
    assert first.folder != second.folder
    for ours, theirs in zip(first.rows, second.rows, strict=True):
        assert (ours.name, ours.validation, ours.test) == (theirs.name, theirs.validation, theirs.test)
