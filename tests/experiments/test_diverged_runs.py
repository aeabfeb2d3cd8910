"""A record can be written whatever run diverged, and however early: judges say so and pictures leave it out."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from steadyrnn.experiments.base import Experiment
from steadyrnn.experiments.curves import Panel
from steadyrnn.experiments.registry import EXPERIMENTS
from steadyrnn.jobs.work import Cell

RESULTS = Path(__file__).parents[2] / "results"
SCORES = {"loss": 0.5, "accuracy": 0.6, "perplexity": 120.0, "precision@1": 0.4}
STEPS = (0, 20, 40, 60)
MEASURED: dict[str, dict[str, Any]] = {
    "gradient-h0": {"mean": 0.5},
    "margin": {"weight_hh_l0": 0.1},
    "input-gradient": {"lag": [0, 1, 2, 3], "mean": [1.0, 0.5, 0.1, 0.001]},
    "state-jacobian": {"mean": 4.0, "lag": 19, "batches": [4.0, 4.0]},
    "dead-units": {"dead": 0.6, "inactive": 0.7},
    "weights": {"weight_hh_l0": 2.0},
}
EXACT = {"judge_count", "judge_parameters", "judge_times"}
"""Judges of what is counted or timed, not trained."""
FAILURE = {"judge_baseline", "judge_memory"}
"""Judges of claims that a network fails, which one that diverged does."""


def trained(cell: Cell, points: int) -> dict[str, Any]:
    """Return what a run that diverged after some points has; all points are those of a whole run."""
    whole, steps = points == len(STEPS), STEPS[:points]
    curve = {
        f"{part} {name}": [[step, value] for step in steps]
        for part in ("train", "validation")
        for name, value in SCORES.items()
    }
    probes = {
        name: [{"step": step, "value": MEASURED[name]} for step in steps]
        for name in cell.arguments["settings"].get("train.probe.names", ())
    }
    return {
        "parameters": 1, "metric": "loss", "higher_is_better": False,
        "baselines": {"loss": 0.167, "accuracy": 0.1, "perplexity": 500.0},
        "validation": SCORES if whole else None, "test": SCORES if whole else None, "best_step": 60 if whole else None,
        "steps": 60 if whole else None, "reason": "", "curve": curve if steps else {}, "probes": probes if steps else {},
        "certificate": {"contraction": 0.9, "stable": True, "reason": None} if whole else None,
        "sentences": [{"text": "it was", "words": 2, "known": 0.5}] if whole else [],
    }  # fmt: skip


def identified(cell: Cell, points: int) -> dict[str, Any]:
    scores = [0.9 if points == len(STEPS) else None] * cell.arguments["realizations"]
    return {"parameters": 1, "ceiling": 0.99, "validation": scores, "test": scores, "diverged": 0}


def compared(cell: Cell, points: int) -> dict[str, Any]:
    distance = {str(k): [0.1 * step / k for step in STEPS[:points]] for k in cell.arguments["windows"]}
    return {"words": [*STEPS], "distance": distance, "norm": [1.0] * points}


def grouped(cell: Cell, points: int) -> dict[str, Any]:
    scores = [0.9 if points == len(STEPS) else None] * len(cell.arguments.get("seeds", cell.arguments.get("draws", ())))
    return {"parameters": 1, "validation": scores, "last": scores, "test": scores, "chosen": {}, "tried": [], "plain": {}}


TRAINED: dict[str, Callable[[Cell, int], dict[str, Any]]] = {
    "train_network": trained, "write_sentences": trained, "identify_systems": identified, "compare_windows": compared,
    "train_time_series": grouped, "search_time_series": grouped,
}  # fmt: skip
OTHER: dict[str, Callable[[Cell], dict[str, Any]]] = {
    "search_settings": lambda cell: {"chosen": {}, "tried": []},
    "search_identification": lambda cell: {"chosen": {}, "tried": []},
    "count_recurrent": lambda cell: {"recurrent": 1024},
    "predict_band": lambda cell: {"low": 1.0, "high": 4.0},
    "compare_step_times": lambda cell: {"ratio": 1.0},
    "count_parameters": lambda cell: dict.fromkeys(("all", "unbiased", "recurrent", "factors", "formula"), 1024),
    "count_all_parameters": lambda cell: {
        f"{name}/{model}": 1 for name in cell.arguments["sets"] for model in cell.arguments["settings"]
    },
}


def name_function(cell: Cell) -> str:
    return cell.function.partition(":")[2]


def fabricate(cells: tuple[Cell, ...], points: Mapping[str, int]) -> dict[str, Any]:
    """Return numbers of all cells, runs whole except those that have fewer points."""
    return {
        cell.name: TRAINED[name_function(cell)](cell, points.get(cell.name, len(STEPS)))
        if name_function(cell) in TRAINED
        else OTHER[name_function(cell)](cell)
        for cell in cells
    }


MODES = [pytest.param(one, quick, id=one.stem(quick)) for one in EXPERIMENTS.values() for quick in (True, False)]
LEARNING = [mode for mode in MODES if any(name_function(cell) in TRAINED for cell in mode.values[0].work(mode.values[1]).cells)]
EXACTLY = [one for name, one in EXPERIMENTS.items() if name not in {mode.values[0].id for mode in LEARNING}]


def finish(one: Experiment, quick: bool, points: Mapping[str, int]) -> dict[str, Any]:
    work = one.work(quick)
    record = dict(work.finish(fabricate(work.cells, points)))
    for panel in record["curves"]:
        Panel.from_dict(panel)
    return record


@pytest.mark.parametrize(("one", "quick"), LEARNING)
@pytest.mark.parametrize("points", [0, 1, 2])
def test_one_run_that_diverged_does_not_stop_the_record(one: Experiment, quick: bool, points: int) -> None:
    names = [cell.name for cell in one.work(quick).cells if name_function(cell) in TRAINED]
    for name in names:
        assert len(finish(one, quick, {name: points})["claims"]) == len(one.select_claims(quick))


@pytest.mark.parametrize(("one", "quick"), LEARNING)
@pytest.mark.parametrize("points", [0, 1])
def test_all_runs_of_a_model_that_diverged_do_not_stop_the_record(one: Experiment, quick: bool, points: int) -> None:
    names = [cell.name for cell in one.work(quick).cells if name_function(cell) in TRAINED]
    for series in {name.partition("/seed")[0] for name in names}:
        lost = {name: points for name in names if name.partition("/seed")[0] == series}
        assert finish(one, quick, lost)["claims"]


@pytest.mark.parametrize(("one", "quick"), LEARNING)
def test_where_every_run_diverged_no_claim_of_a_success_is_seen(one: Experiment, quick: bool) -> None:
    names = [cell.name for cell in one.work(quick).cells if name_function(cell) in TRAINED]
    claims = finish(one, quick, dict.fromkeys(names, 0))["claims"]
    for claim, judged in zip(one.select_claims(quick), claims, strict=True):
        if claim.judge.partition(":")[2] not in EXACT | FAILURE:
            assert judged["verdict"] == "not seen", claim.name


@pytest.mark.parametrize("one", EXACTLY, ids=lambda one: str(one.id))
def test_what_trains_no_network_is_judged_from_its_stored_numbers(one: Experiment) -> None:
    stored = json.loads((RESULTS / f"{one.id}.json").read_text(encoding="utf-8"))
    assert [claim["name"] for claim in one.work().finish(stored["cells"])["claims"]] == [claim.name for claim in one.claims]
