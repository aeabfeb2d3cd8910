"""The 33 tables and figures: declared once, found without torch, and each that can run shows its effect quickly."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from steadyrnn.errors import ArgumentError
from steadyrnn.experiments.base import PAPERS, PLACES, VERDICTS, Judgement
from steadyrnn.experiments.registry import EXPERIMENTS
from steadyrnn.jobs.reproduce import reproduce

ROOT = Path(__file__).parents[2]
RUNNABLE = [name for name, one in EXPERIMENTS.items() if one.runnable]
SECONDS = ["emami-theorems", "zhang-table1", "lin-table1", "lin-table2", "lin-table6", "miller-counterexamples"]


def test_there_are_33_tables_and_figures_in_paper_order() -> None:
    assert len(EXPERIMENTS) == 33
    papers = [one.paper for one in EXPERIMENTS.values()]
    assert papers == sorted(papers, key=[*PAPERS].index)
    assert {*papers} == {*PAPERS}


def test_those_that_take_seconds_can_run() -> None:
    assert [name for name, one in EXPERIMENTS.items() if one.where == "seconds"] == SECONDS
    assert {*SECONDS} <= {*RUNNABLE}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_record_is_complete(name: str) -> None:
    one = EXPERIMENTS[name]
    assert one.where in PLACES
    assert one.minutes > 0
    assert one.judged_by
    assert bool(one.waits_for) != one.runnable
    assert bool(one.quick) == bool(one.claims) == one.runnable
    for claims in (one.claims, one.select_claims(quick=True)):
        assert len({claim.name for claim in claims}) == len(claims)


@pytest.mark.parametrize("name", RUNNABLE)
def test_published_numbers_and_names_of_cells_can_be_found(name: str) -> None:
    one = EXPERIMENTS[name]
    for claim in (*one.claims, *one.select_claims(quick=True)):
        claim.number(one.paper)
    for quick in (False, True):
        names = [cell.name for cell in one.work(quick).cells]
        assert len({*names}) == len(names)


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name not in RUNNABLE])
def test_what_is_not_written_is_refused_with_what_it_waits_for(name: str) -> None:
    with pytest.raises(ArgumentError, match=f"`{name}` cannot run yet: it waits for "):
        EXPERIMENTS[name].work()


@pytest.mark.parametrize("name", SECONDS)
def test_a_quick_run_shows_the_effect(name: str, tmp_path: Path) -> None:
    record = reproduce(EXPERIMENTS[name].work(quick=True), tmp_path).record
    assert record["mode"] == "quick"
    assert {claim["verdict"] for claim in record["claims"]} <= {"seen", "different"}


@pytest.mark.parametrize("name", SECONDS)
def test_a_quick_run_is_repeated_to_the_last_digit(name: str, tmp_path: Path) -> None:
    work = EXPERIMENTS[name].work(quick=True)
    one, other = (reproduce(work, tmp_path / folder).record for folder in ("one", "other"))
    assert one["cells"] == other["cells"]


def test_claims_of_the_quick_run_take_the_place_of_the_others_there() -> None:
    one = replace(EXPERIMENTS["lin-table2"], quick_claims=EXPERIMENTS["lin-table2"].claims[:1])
    assert len(one.select_claims(quick=False)) > len(one.select_claims(quick=True)) == 1
    cells = {cell.name: cell.run({}, Path()) for cell in one.work(quick=True).cells}
    assert [claim["name"] for claim in one.work(quick=True).finish(cells)["claims"]] == [one.claims[0].name]
    assert len(one.work(quick=False).finish(cells)["claims"]) == len(one.claims)


def test_seeds_replace_the_declared_ones() -> None:
    cells = EXPERIMENTS["lin-table6"].work(quick=True, seeds=[7, 8]).cells
    assert [cell.name for cell in cells[:2]] == ["abs/seed7", "abs/seed8"]
    assert {cell.seed for cell in cells} == {7, 8}


def test_seeds_of_what_draws_nothing_are_refused() -> None:
    with pytest.raises(ArgumentError, match="draws no random numbers"):
        EXPERIMENTS["lin-table2"].work(seeds=[0])


def test_a_verdict_is_one_of_four_words() -> None:
    assert [*VERDICTS] == ["seen", "not seen", "different", "not measured"]
    with pytest.raises(ArgumentError, match="but is 'maybe'"):
        Judgement("maybe", "")


def test_the_registry_imports_no_torch() -> None:
    code = "import sys; import steadyrnn.experiments.registry, steadyrnn.experiments.standing; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "False\n"
