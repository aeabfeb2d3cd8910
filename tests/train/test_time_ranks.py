"""Two processes that share the time of each batch: they train what one process trains, within the proven truncation."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.series_files import steps_of_one
from tests.train.rank_group import launch
from tests.train.time_work import CASES, allowed, in_folder, run_case, weights

pytestmark = pytest.mark.slow

Report = dict[str, Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("time")
    steps_of_one(found / "long.csv", 300)
    ended = launch(2, "tests.train.time_work:check_all", found)
    if any(status for status, _, _ in ended):
        pytest.fail("\n".join(err for _, _, err in ended))
    return found


@pytest.fixture(scope="module")
def reports(folder: Path) -> list[Report]:
    return [json.loads((folder / f"report-{rank}.json").read_text(encoding="utf-8")) for rank in range(2)]


def farthest(one: Report, other: Report) -> float:
    assert one.keys() == other.keys()
    return max(abs(a - b) for name in one for a, b in zip(one[name], other[name], strict=True))


@pytest.mark.parametrize("name", CASES)
def test_ranks_train_what_one_process_trains(name: str, reports: list[Report]) -> None:
    model, result = run_case(name)
    assert reports[0][name] == reports[1][name]  # to the last bit
    error = allowed(CASES[name][-1])
    assert farthest(reports[0][name]["weights"], weights(model)) <= error
    for scores, own in (("test", result.test), ("best", result.best)):
        assert reports[0][name][scores] == pytest.approx(own, rel=error, abs=error)


def test_a_run_that_was_cut_off_goes_on_bit_for_bit_from_its_last_checkpoint(reports: list[Report]) -> None:
    assert reports[0]["error"]["text"] == "the lights went out"
    assert reports[0]["resumed"] == reports[0]["whole"] == reports[1]["resumed"]


def test_one_process_goes_on_with_a_run_of_two_or_trains_the_same(folder: Path, reports: list[Report]) -> None:
    for name in ("cut for one", "one"):
        alone = weights(in_folder(folder / name, resume=name != "one"))
        assert farthest(alone, reports[0]["whole"]) <= allowed(1)


def test_the_program_trains_on_a_file(reports: list[Report]) -> None:
    assert reports[0]["file"] == reports[1]["file"]
    assert (Path(reports[0]["file"]["folder"]) / "certificate.json").is_file()
    assert any("a range test" in note for note in reports[0]["file"]["notes"])


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("lstm", "Ranks cannot share the time of a network with gates"),
        ("irnn", "no certificate found: lambda = "),
        ("bare", "`over_ranks` must say what they call"),
        ("compile", "`compile` must be left out"),
        ("compiled file", "`compile` must be left out"),
    ],
)
def test_what_ranks_cannot_share_is_refused_by_name(name: str, sentence: str, reports: list[Report]) -> None:
    assert all(sentence in report[f"refused {name}"]["text"] for report in reports)
    assert not any(report["folders"] for report in reports)  # before anything is written
