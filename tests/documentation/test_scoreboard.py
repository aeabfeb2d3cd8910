"""The scoreboard says what the results say, about every table and figure, and is up to date."""

import importlib.util
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from steadyrnn.experiments.base import Experiment
from steadyrnn.experiments.registry import EXPERIMENTS
from steadyrnn.experiments.targets import TARGETS

ROOT = Path(__file__).parents[2]
ALL = {**EXPERIMENTS, **TARGETS}
PAGE = (ROOT / "docs" / "scoreboard.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def scoreboard() -> Any:
    spec = importlib.util.spec_from_file_location("scoreboard", ROOT / "docs" / "scoreboard.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(page: str, name: str) -> list[str]:
    return [line for line in page.splitlines() if line.startswith(f"| `{name}`")]


def stored(one: Experiment, quick: bool) -> Path:
    return ROOT / "results" / f"{one.stem(quick)}.json"


def test_the_page_is_up_to_date(scoreboard: Any) -> None:
    assert scoreboard.build(ROOT / "results") == PAGE, "run python docs/scoreboard.py"


@pytest.mark.parametrize("name", ALL)
def test_every_table_figure_and_target_is_on_the_page(name: str) -> None:
    found = rows(PAGE, name)
    paths = [path for quick in (False, True) if (path := stored(ALL[name], quick)).exists()]
    if paths:
        claims = json.loads(paths[0].read_bytes())["claims"]
        assert len(found) == len(claims)
        assert all(f"{claim['verdict']} |" in row for row, claim in zip(found, claims, strict=True))
    else:
        assert len(found) == 1


@pytest.mark.parametrize("quick", [False, True])
def test_a_committed_result_fits_the_record_of_its_experiment(quick: bool) -> None:
    for one in ALL.values():
        if stored(one, quick).exists():
            record, work = json.loads(stored(one, quick).read_bytes()), one.work(quick)
            assert record["config"]["cells"] == {cell.name: cell.to_dict() for cell in work.cells}
            assert [claim["name"] for claim in record["claims"]] == [claim.name for claim in one.select_claims(quick)]


def test_the_pictures_are_up_to_date(scoreboard: Any) -> None:
    there = {path.name: path.read_bytes() for path in scoreboard.PICTURES.glob("*.svg")}
    assert scoreboard.draw(ROOT / "results") == there, "run python docs/scoreboard.py"


def test_the_page_shows_pictures_that_exist_and_no_others(scoreboard: Any) -> None:
    shown = re.findall(r"!\[[^]]*\]\(([^)]+)\)", PAGE)
    assert {ROOT / "docs" / name for name in shown} == {*scoreboard.PICTURES.glob("*.svg")}
    assert len(shown) == len({*shown}) > 0


def test_every_link_on_the_page_has_a_target() -> None:
    headings = {line.lstrip("# ").lower().replace(" ", "-") for line in PAGE.splitlines() if line.startswith("#")}
    for target in re.findall(r"\]\(([^)]+)\)", PAGE):
        assert target[1:] in headings if target.startswith("#") else (ROOT / "docs" / target).exists(), target


def test_a_record_without_curves_has_no_picture_and_no_link_to_one(scoreboard: Any, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "results", tmp_path / "results")
    path = tmp_path / "results" / "lin-table6.json"
    assert all("[picture](#lin-table6)" in row for row in rows(PAGE, "lin-table6"))
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "curves": []}))
    page = scoreboard.build(tmp_path / "results")
    assert all("picture" not in row for row in rows(page, "lin-table6"))
    assert "lin-table6.svg" not in page
    assert "lin-table6.svg" not in scoreboard.draw(tmp_path / "results")


def test_the_command_of_every_record_is_on_the_page() -> None:
    for path in (ROOT / "results").glob("*.json"):
        if path.stem in ALL:
            assert f"`{' '.join(json.loads(path.read_bytes())['made']['command'])}`" in PAGE


def test_those_that_take_seconds_are_run_in_full() -> None:
    missing = [name for name, one in EXPERIMENTS.items() if one.where == "seconds" and not rows(PAGE, name)[0].count("JSON")]
    assert missing == []


def test_another_verdict_changes_the_page(scoreboard: Any, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "results", tmp_path / "results")
    path = tmp_path / "results" / "lin-table2.json"
    record = json.loads(path.read_bytes())
    record["claims"][0]["verdict"] = "not seen"
    path.write_text(json.dumps(record))
    page = scoreboard.build(tmp_path / "results")
    assert "✗ not seen" in rows(page, "lin-table2")[0]
    assert page != PAGE


def test_without_results_every_row_says_so(scoreboard: Any, tmp_path: Path) -> None:
    page = scoreboard.build(tmp_path)
    assert "33 were not run" in page
    assert f"Of {len(TARGETS)} targets 0 were run in full" in page
    assert all(len(rows(page, name)) == 1 for name in ALL)
    assert "not run yet" in rows(page, "lin-table2")[0]


def test_a_damaged_result_stops_the_page(scoreboard: Any, tmp_path: Path) -> None:
    (tmp_path / "lin-table2.json").write_text("{")
    with pytest.raises(SystemExit, match="is damaged"):
        scoreboard.build(tmp_path)
