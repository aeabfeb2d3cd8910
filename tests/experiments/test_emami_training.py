"""Figures 2 to 4 of Emami et al.: every declared cell can start, as printed where printed, and judges can say no."""

from itertools import pairwise
from pkgutil import resolve_name
from typing import Any

import pytest
import torch

from steadyrnn.experiments.base import Experiment, Series
from steadyrnn.experiments.permuted_digits import draw_accuracy
from steadyrnn.experiments.published.emami import VALUES
from steadyrnn.experiments.registry import EXPERIMENTS
from steadyrnn.experiments.system_identification import (
    draw_identification,
    identify_systems,
    judge_ceiling,
    judge_fewer_states,
    judge_twice_the_states,
    search_identification,
)
from steadyrnn.jobs.configuration import Configuration
from steadyrnn.models.systems import build_model
from steadyrnn.tasks.base import Interface
from steadyrnn.train.arguments import check_settings

FIGURES = [EXPERIMENTS[f"emami-fig{number}"] for number in (2, 3, 4)]
IDENTIFICATION = FIGURES[:2]
TINY = {
    "task.length": 30, "task.epsilon": 0.5, "task.train": 20, "task.validation": 10, "task.test": 10, "train.epochs": 1,
    "train.steps": 1, "train.validate_every": 1, "train.device": "cpu",
}  # fmt: skip
SMALL = {
    "task.name": "contractive", "model.name": "rnn", "model.nonlinearity": "relu", "model.width": 4, **TINY, "train.steps": 4,
    "train.batch_size": 10,
}  # fmt: skip


def declared(experiments: list[Experiment]) -> list[Any]:
    return [
        pytest.param(series, id=f"{one.stem(quick)}:{series.name}")
        for one in experiments
        for quick in (False, True)
        for series in (one.quick if quick else one.full)
    ]


def configurations(series: Series) -> list[dict[str, Any]]:
    """The settings of a cell, with each candidate of a search."""
    settings = series.arguments["settings"]
    return [{**settings, **candidate} for candidate in series.arguments.get("candidates", [{}])]


@pytest.mark.parametrize("series", declared(FIGURES))
def test_a_declared_cell_can_be_built(series: Series) -> None:
    resolve_name(series.function)
    assert len(configurations(series)) <= 4
    for settings in configurations(series):
        configuration = Configuration.from_dotted(settings)
        check_settings(configuration.train)
        if configuration.task_name == "contractive":
            interface = Interface(inputs=2, outputs=2, reads="each")
        else:
            interface = Interface(inputs=settings.get("task.pixels_per_step", 1), outputs=10, reads="last")
        build_model(configuration.model, interface)


@pytest.mark.parametrize("series", declared(IDENTIFICATION))
def test_a_group_of_a_declared_cell_takes_a_step(series: Series) -> None:
    for settings in configurations(series):
        done = identify_systems({**settings, **TINY}, realizations=1, starts=series.arguments.get("starts", 1), seed=0)
        assert done["diverged"] == 0
        assert len(done["test"]) == 1


@pytest.mark.parametrize("experiment", FIGURES, ids=lambda one: str(one.id))
def test_a_cell_comes_after_a_search_of_its_own_model(experiment: Experiment) -> None:
    names = [series.name for series in experiment.full]
    for place, series in enumerate(experiment.full):
        if series.after is not None:
            assert series.after in names[:place]
            searched = experiment.full[names.index(series.after)].arguments["settings"]
            assert searched["model.name"] == series.arguments["settings"]["model.name"]


@pytest.mark.parametrize(("experiment", "figure"), [*zip(IDENTIFICATION, (2, 3), strict=True)], ids=["fig2", "fig3"])
def test_what_the_paper_prints_is_declared(experiment: Experiment, figure: int) -> None:
    printed = [series for series in experiment.full if series.name.startswith("printed/")]
    widths = [VALUES[f"training/hidden-units/{place}"].value for place in range(1, 8)]
    assert sorted(series.arguments["settings"]["model.width"] for series in printed) == sorted(3 * widths)
    for series in printed:
        settings = series.arguments["settings"]
        records = settings["task.train"] + settings["task.validation"] + settings["task.test"]
        found = {
            "synthetic/hidden-units": settings["task.units"], "synthetic/epsilon": settings["task.epsilon"],
            "synthetic/on-percent": 100 * settings["task.active"], "synthetic/length": settings["task.length"],
            "synthetic/test-ratio": settings["task.test"] / records, f"figure{figure}/snr": settings["task.snr"],
            "training/batch-size": settings["train.batch_size"], "training/learning-rate": settings["train.optimizer.lr"],
            "training/realizations": series.arguments["realizations"] * len(series.seeds),
        }  # fmt: skip
        assert found == {key: VALUES[key].value for key in found}


@pytest.mark.parametrize("series", declared(FIGURES[2:]))
def test_digits_are_learned_with_rmsprop_and_early_stopping(series: Series) -> None:
    assert series.arguments["settings"]["train.optimizer.name"] == "rmsprop"
    assert series.arguments["settings"]["train.stop.patience"] > 0
    assert series.resumable


def test_a_realization_is_the_same_in_any_group() -> None:
    """Up to rounding: of four steps in float32, in groups of other sizes."""
    both = identify_systems(SMALL, realizations=2, starts=1, seed=0)
    second = identify_systems(SMALL, realizations=1, starts=1, seed=1)
    rounding = 1000 * torch.finfo(torch.float32).eps
    assert second["test"][0] == pytest.approx(both["test"][1], rel=rounding, abs=rounding)
    assert abs(both["test"][0] - both["test"][1]) > 0.01


def test_the_start_with_the_best_validation_score_is_kept() -> None:
    narrow = {**SMALL, "model.width": 2}  # each of the first three starts is better than those before
    kept = [identify_systems(narrow, realizations=1, starts=starts, seed=0)["validation"][0] for starts in (1, 2, 3, 4)]
    rounding = 1000 * torch.finfo(torch.float32).eps
    assert all(more >= fewer - rounding for fewer, more in pairwise(kept))
    assert kept[0] < kept[1] < kept[2]


def test_found_settings_replace_those_of_the_cell() -> None:
    done = identify_systems(SMALL, 1, 1, seed=0, found={"chosen": {"model.width": 3}})
    assert done["settings"] == {"model.width": 3}
    assert done["parameters"] == 3 * 3 + 3 * 2 + 3 + 2 * 3 + 2


def test_networks_that_all_diverge_have_no_score() -> None:
    wild = {**SMALL, "train.optimizer.name": "sgd", "train.optimizer.lr": 1e30, "train.clip.norm": None}
    done = identify_systems(wild, realizations=2, starts=2, seed=0)
    assert (done["test"], done["validation"], done["diverged"]) == ([None, None], [None, None], 4)


def test_the_search_prefers_a_rate_that_learns_and_any_to_one_that_diverges() -> None:
    rates = [{"train.optimizer.lr": lr} for lr in (1e9, 1e-9, 0.03)]
    found = search_identification({**SMALL, "train.validate_every": 20}, rates, steps=20, realizations=3)
    assert found["chosen"] == {"train.optimizer.lr": 0.03}
    assert [one["steps"] for one in found["tried"]] == [20, 20, 20]
    diverged, still, learned = (one["validation"] for one in found["tried"])
    assert diverged is None
    assert still < learned
    left = search_identification({**SMALL, "train.validate_every": 20}, rates[:2], steps=20, realizations=3)
    assert left["chosen"] == {"train.optimizer.lr": 1e-9}


def cell(*scores: float | None) -> dict[str, Any]:
    return {"test": [*scores], "ceiling": 0.99}


def as_claimed() -> dict[str, Any]:
    return {
        "tuned/rnn/n4/seed0": cell(0.99, 0.97, 0.98), "tuned/urnn/n4/seed0": cell(0.95, 0.94, 0.95),
        "tuned/rnn/n6/seed0": cell(0.98, 0.97, 0.98), "tuned/urnn/n6/seed0": cell(0.97, 0.96, 0.97),
        "tuned/rnn/n8/seed0": cell(0.99, 0.985, 0.99), "tuned/urnn/n8/seed0": cell(0.988, 0.986, 0.989),
        "tuned/lstm/n4/seed0": cell(0.9, 0.9, 0.9), "search/rnn": {"chosen": {}},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("judge", "name", "scores"),
    [
        (judge_fewer_states, "tuned/urnn/n4/seed0", (0.99, 0.98, 0.98)),  # above at one size
        (judge_fewer_states, "tuned/urnn/n4/seed0", (0.99, 0.9699, 0.0)),  # below by one realization alone
        (judge_fewer_states, "tuned/rnn/n4/seed0", (0.99, None, 0.98)),  # diverged
        (judge_twice_the_states, "tuned/urnn/n8/seed0", (0.98, 0.985, 0.98)),
        (judge_twice_the_states, "tuned/urnn/n8/seed0", (0.99, 0.99, None)),
        (judge_twice_the_states, "tuned/rnn/n8/seed0", (0.99, None, 0.99)),  # not a large spread that allows any difference
        (judge_twice_the_states, "tuned/urnn/n8/seed0", (0.999, 0.999, 0.9)),  # too noisy to show it
        (judge_fewer_states, "tuned/urnn/n4/seed0", (0.95, None, 0.95)),
        (judge_ceiling, "tuned/urnn/n8/seed0", (0.979, 0.979, 0.979)),
        (judge_ceiling, "tuned/rnn/n8/seed0", (0.979, 0.979, 0.979)),
        (judge_ceiling, "tuned/rnn/n8/seed0", (0.99, None, 0.99)),
    ],
)
def test_wrong_numbers_change_the_verdict(judge: Any, name: str, scores: tuple[float | None, ...]) -> None:
    cells = as_claimed()
    assert judge(cells, "tuned", 4).verdict == "seen"
    cells[name] = cell(*scores)
    assert judge(cells, "tuned", 4).verdict == "not seen"


def test_one_realization_shows_no_difference() -> None:
    cells = {name: cell(found["test"][0]) for name, found in as_claimed().items() if "test" in found}
    assert judge_fewer_states(cells, "tuned", 4).verdict == "not seen"
    assert judge_twice_the_states(cells, "tuned", 4).verdict == "not seen"


def test_realizations_of_several_groups_count_together() -> None:
    cells = {**as_claimed(), **{name.replace("seed0", "seed1"): found for name, found in as_claimed().items()}}
    assert judge_fewer_states(cells, "tuned", 4).seeds == 6
    assert judge_ceiling(cells, "tuned", 4).seeds == 6


def accuracies(**scores: float | None) -> dict[str, Any]:
    return {
        f"{model.replace('_', '-')}/seed0": {
            "test": None if score is None else {"accuracy": score},
            "curve": {} if score is None else {"validation accuracy": [[100, 0.5], [200, score]]},
        }
        for model, score in scores.items()
    }


@pytest.mark.parametrize(
    ("claim", "changed"),
    [
        ("order", {"urnn": 0.8}),
        ("order", {"rnn": 0.95}),
        ("order", {"contractive": 0.95}),
        ("order", {"urnn": None}),
        ("stability", {"urnn": None}),
        ("stability", {"urnn_full": 0.1}),
        ("stability", {"urnn_restricted": 0.1135}),
    ],
)
def test_wrong_accuracies_change_the_verdict(claim: str, changed: dict[str, float | None]) -> None:
    (one,) = [one for one in EXPERIMENTS["emami-fig4"].claims if one.name == claim]
    right = {"rnn": 0.8, "contractive": 0.8, "urnn": 0.9, "urnn_restricted": 0.9, "urnn_full": 0.9, "lstm": 0.9}
    assert one.decide("emami", accuracies(**right))["verdict"] == "seen"
    assert one.decide("emami", accuracies(**{**right, **changed}))["verdict"] == "not seen"


def test_the_picture_of_identification_has_a_panel_for_each_row_that_ran() -> None:
    (read,) = draw_identification(as_claimed())
    assert [line.label for line in read.lines] == ["RNN", "URNN", "LSTM"]
    assert [*read.lines[0].x] == [4, 6, 8]
    assert read.lines[2].y[0] == pytest.approx(0.9)
    assert read.marks[0].y == 0.99
    both = {**as_claimed(), **{name.replace("tuned", "printed"): found for name, found in as_claimed().items()}}
    assert len(draw_identification(both)) == 2


def test_the_picture_of_accuracies_has_a_gap_where_a_run_diverged() -> None:
    bars, during = draw_accuracy(accuracies(rnn=None, urnn=0.9))
    assert [*bars.x.names] == ["RNN", "URNN"]
    assert [*bars.lines[0].y] == [None, 0.9]
    assert [line.label for line in during.lines] == ["URNN"]
    assert [*during.lines[0].x] == [100, 200]
