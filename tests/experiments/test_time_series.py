"""Time series of Zhang, Lei and Dhillon: counted parameters, groups of seeds, and judges that can say no."""

import os
from pathlib import Path
from typing import Any

import pytest

from steadyrnn.experiments.base import Claim
from steadyrnn.experiments.published.zhang import VALUES
from steadyrnn.experiments.registry import EXPERIMENTS
from steadyrnn.experiments.time_series import MODELS, judge_overfitting, search_time_series, train_time_series
from steadyrnn.experiments.training import train_network
from steadyrnn.jobs.configuration import Configuration
from steadyrnn.jobs.work import Cell
from steadyrnn.tasks.ucr_sets import UCR_SETS
from steadyrnn.train.arguments import check_settings

TABLE, FIGURE = EXPERIMENTS["zhang-table4"], EXPERIMENTS["zhang-fig6"]
needs_data = pytest.mark.skipif("STEADYRNN_DATA" not in os.environ, reason="the UCR sets are not here")


def claim(name: str) -> Claim:
    return next(one for one in TABLE.claims if one.name == name)


def decide(name: str, cells: dict[str, Any]) -> str:
    return str(claim(name).decide("zhang", cells)["verdict"])


@pytest.fixture
def printed() -> dict[str, Any]:
    """Cells that have just what the paper prints."""
    cells: dict[str, Any] = {"parameters": {}}
    for name in UCR_SETS:
        for model in MODELS:
            value, count = (VALUES[f"table4/{name}/{model}/{what}"].value for what in ("accuracy", "parameters"))
            cells["parameters"][f"{name}/{model}"] = count
            for row in ("search", "tuned"):
                cells[f"{row}/{model}/{name}"] = {"test": [value] * 5}
    return cells


def test_printed_numbers_are_judged_seen(printed: dict[str, Any]) -> None:
    assert {one.decide("zhang", printed)["verdict"] for one in TABLE.claims} == {"seen"}


@pytest.mark.parametrize("row", ["search", "tuned"])
def test_a_lower_accuracy_is_not_seen(printed: dict[str, Any], row: str) -> None:
    printed[f"{row}/spectral-rnn/CBF"]["test"][0] -= 0.01
    assert decide(f"{row}-CBF", printed) == "not seen"
    assert decide(f"{row}-reached", printed) == "seen"  # 20 of 21
    assert decide(f"{row}-GunPoint", printed) == "seen"


def test_a_run_that_diverged_is_not_seen(printed: dict[str, Any]) -> None:
    printed["tuned/spectral-rnn/CBF"]["test"][0] = None
    assert decide("tuned-CBF", printed) == "not seen"


def test_too_few_sets_are_not_seen(printed: dict[str, Any]) -> None:
    for name in [*UCR_SETS][:7]:
        printed[f"tuned/spectral-rnn/{name}"]["test"] = [0.0] * 5
    assert decide("tuned-reached", printed) == "not seen"
    assert decide("tuned-best", printed) == "not seen"


def test_one_wrong_count_is_not_seen(printed: dict[str, Any]) -> None:
    printed["parameters"]["CBF/lstm"] += 1
    assert decide("parameters", printed) == "not seen"


def curves(train: float, validation: float) -> dict[str, Any]:
    points = {"train accuracy": [[1, train]], "validation accuracy": [[1, validation]]}
    return {"validation": {"accuracy": validation}, "curve": points}


@pytest.mark.parametrize(("gap", "verdict"), [(0.1, "seen"), (0.3, "not seen")])
def test_overfitting_is_the_gap_between_training_and_validation(gap: float, verdict: str) -> None:
    gaps = {"rnn": 0.2, "lstm": 0.25, "ornn": 0.15, "spectral-rnn": gap}
    cells = {f"{model}/CBF/seed0": curves(0.9, 0.9 - size) for model, size in gaps.items()}
    assert judge_overfitting(cells, "CBF").verdict == verdict


@pytest.mark.parametrize(("learned", "verdict"), [(0.66, "seen"), (0.64, "not seen")])
def test_a_network_that_learned_less_does_not_overfit_less(learned: float, verdict: str) -> None:
    cells = {f"{model}/CBF/seed0": curves(0.9, 0.7) for model in MODELS} | {"spectral-rnn/CBF/seed0": curves(learned, learned)}
    assert judge_overfitting(cells, "CBF").verdict == verdict


@pytest.mark.parametrize(("model", "verdict"), [("rnn", "seen"), ("spectral-rnn", "not seen")])
def test_gaps_are_those_of_runs_that_did_not_diverge(model: str, verdict: str) -> None:
    cells = {f"{one}/CBF/seed{seed}": curves(0.9, 0.7) for one in MODELS for seed in range(2)}
    cells[f"{model}/CBF/seed0"] = {"validation": None, "curve": {}}
    judged = judge_overfitting(cells, "CBF")
    assert judged.verdict == verdict
    assert f"{MODELS[model]} 0.20 (validation 0.70; 1 of 2 runs diverged)" in judged.ours


def test_a_spectral_rnn_that_diverged_is_best_on_no_set(printed: dict[str, Any]) -> None:
    for name in UCR_SETS:
        for model in MODELS:
            printed[f"tuned/{model}/{name}"]["test"] = [None] * 5
    assert claim("tuned-best").decide("zhang", printed)["ours"]["mean"] == 0


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("experiment", [TABLE, FIGURE], ids=lambda one: one.id)
def test_settings_of_every_cell_are_accepted(experiment: Any, quick: bool) -> None:
    for cell in experiment.work(quick).cells:
        for more in cell.arguments.get("candidates", [{}]) if cell.name != "parameters" else []:
            check_settings(Configuration.from_dotted({**cell.arguments["settings"], **more}).train)


@needs_data
def test_all_networks_have_the_printed_number_of_parameters() -> None:
    cell = next(cell for cell in TABLE.work().cells if cell.name == "parameters")
    counted = {"parameters": resolved(cell)}
    assert decide("parameters", counted) == "seen"
    assert len(counted["parameters"]) == 84


def resolved(cell: Cell) -> Any:
    return cell.run({}, Path())


SMALL = {
    "task.name": "ucr", "task.dataset": "ItalyPowerDemand", "model.name": "rnn", "model.width": 4, "train.steps": 20,
    "train.batch_size": 8, "train.validate_every": 10, "train.device": "cpu", "train.log_every": 10,
}  # fmt: skip


@needs_data
def test_a_group_of_seeds_has_the_accuracies_of_separate_runs(tmp_path: Path) -> None:
    together = train_time_series(SMALL, [0, 1])
    apart = [train_network(SMALL, seed, tmp_path / f"{seed}") for seed in (0, 1)]
    assert together["test"] == [one["test"]["accuracy"] for one in apart]
    assert together["parameters"] == apart[0]["parameters"]


FAST = {"train.optimizer.lr": 0.02}
RATES = [{"train.optimizer.lr": 1e-7}, FAST, {**FAST, "task.noise": 10.0}, {**FAST, "task.shift": 0.5}]


@needs_data
def test_a_search_tries_the_better_half_for_longer_and_takes_the_best_trial() -> None:
    found = search_time_series(SMALL, RATES, [0, 1], [60, 90])
    tried = found["tried"]
    assert [one["settings"] for one in tried[:4]] == RATES
    assert [one["steps"] for one in tried] == [60] * 4 + [90] * 2
    scores = [(-one["accuracy"], one["loss"]) for one in tried]
    better = sorted(range(4), key=scores.__getitem__)[:2]
    assert [one["settings"] for one in tried[4:]] == [RATES[place] for place in better]
    best = tried[scores.index(min(scores))]
    assert found["chosen"] == {**best["settings"], "train.steps": best["steps"]}


@needs_data
def test_what_the_paper_prints_comes_from_the_first_round_of_settings_that_leave_series_as_they_are() -> None:
    found = search_time_series(SMALL, RATES, [0, 1], [60, 90])
    assert found["plain"] == FAST
    assert found["test"] == train_time_series({**SMALL, **FAST, "train.steps": 60}, [0, 1])["test"]
    assert all("test" not in one for one in found["tried"])


def test_a_trial_that_diverged_is_the_worst(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(settings: dict[str, Any], draws: list[int]) -> dict[str, Any]:
        lost = settings["train.optimizer.lr"] == 3.0
        return {"last": [None if lost else {"accuracy": 0.1, "loss": 9.0}, {"accuracy": 1.0, "loss": 0.0}], "test": [0.0, 0.0]}

    monkeypatch.setattr("steadyrnn.experiments.time_series.train_time_series", train)
    found = search_time_series({}, [{"train.optimizer.lr": rate} for rate in (3.0, 1.0)], [0, 1], [60, 90])
    assert found["chosen"] == {"train.optimizer.lr": 1.0, "train.steps": 60}
    assert found["tried"][0]["accuracy"] is None


@needs_data
def test_final_networks_train_for_the_chosen_steps() -> None:
    chosen = {**FAST, "train.steps": 30}
    final = {"task.refit": True, "train.validate_every": 90}
    found = train_time_series({**SMALL, **final}, [0], {"chosen": chosen})
    assert found["settings"] == chosen
    assert found["last"] == train_time_series({**SMALL, **final, **chosen}, [0])["last"]
    assert found["last"] != train_time_series({**SMALL, **final, **FAST, "train.steps": 60}, [0])["last"]


def test_the_search_of_every_set_has_several_draws_and_the_final_run_no_length_of_its_own() -> None:
    cells = {cell.name: cell.arguments for cell in TABLE.work().cells}
    for name in UCR_SETS:
        searches = [cells[f"search/{model}/{name}"] for model in MODELS]
        assert all(one["draws"] == searches[0]["draws"] and one["lengths"] == searches[0]["lengths"] for one in searches)
        assert 6 <= len(searches[0]["draws"]) <= 20
        finals = [cells[f"tuned/{model}/{name}"]["settings"] for model in MODELS]
        assert all("train.steps" not in one and one["train.validate_every"] == max(searches[0]["lengths"]) for one in finals)
