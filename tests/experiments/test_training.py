"""Cells that train: they go on after a kill, searches take the better setting, and no declared setting is without effect."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from steadyrnn.errors import ArgumentError
from steadyrnn.experiments.registry import EXPERIMENTS
from steadyrnn.experiments.training import MOST_POINTS, search_settings, thin, train_network
from steadyrnn.jobs.configuration import Configuration
from steadyrnn.runs.folder import Run
from steadyrnn.tasks.base import Task
from steadyrnn.tasks.registry import make_task
from steadyrnn.train.arguments import check_settings
from steadyrnn.train.effects import check_effects

SMALL: dict[str, Any] = {
    "task.name": "addition", "task.length": 6, "task.validation": 20, "task.test": 20, "model.name": "rnn", "model.width": 4,
    "train.steps": 12, "train.batch_size": 4, "train.validate_every": 4, "train.log_every": 2, "train.device": "cpu",
}  # fmt: skip


class Stopped(Exception):
    """Stands for SIGKILL: nothing is saved."""


def test_a_run_that_was_cut_off_gives_what_it_would_have_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train_network(SMALL, 3, tmp_path / "whole")
    log, count = Run.log, 0

    def cut(run: Run, record: Mapping[str, Any]) -> None:
        nonlocal count
        count += 1
        if count == 6:
            raise Stopped
        log(run, record)

    monkeypatch.setattr(Run, "log", cut)
    with pytest.raises(Stopped):
        train_network(SMALL, 3, tmp_path / "cut")
    monkeypatch.setattr(Run, "log", log)
    assert train_network(SMALL, 3, tmp_path / "cut") == whole
    assert train_network(SMALL, 3, tmp_path / "cut") == whole  # a finished one is read


def test_a_seed_numbers_weights_and_data_and_a_task_seed_fixes_the_data(tmp_path: Path) -> None:
    runs = [train_network(SMALL, seed, tmp_path / f"{seed}") for seed in (0, 1)]
    assert runs[0]["test"] != runs[1]["test"]
    fixed = [train_network({**SMALL, "task.seed": 5}, seed, tmp_path / f"fixed{seed}") for seed in (0, 1)]
    assert fixed[0]["baselines"] == fixed[1]["baselines"]
    assert fixed[0]["test"] != fixed[1]["test"]


def test_a_run_that_diverges_is_a_result(tmp_path: Path) -> None:
    hot = {"train.optimizer.name": "sgd", "train.optimizer.lr": 1e30, "train.clip.norm": None, "model.nonlinearity": "relu"}
    done = train_network({**SMALL, **hot}, 0, tmp_path)
    assert (done["test"], done["validation"]) == (None, None)
    assert "finite" in done["reason"]


def test_a_search_leaves_out_what_diverges_and_halves(tmp_path: Path) -> None:
    rates: list[dict[str, Any]] = [{"train.optimizer.lr": lr} for lr in (1e-9, 0.02, 1e-8, 1e-7)]
    found = search_settings(SMALL, rates, 40, tmp_path)
    assert found["chosen"] == rates[1]
    assert [one["steps"] for one in found["tried"]] == [40] * 4 + [80] * 2


def test_a_setting_without_effect_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"`schedule\.factor` has no effect"):
        train_network({**SMALL, "train.schedule.factor": 0.9}, 0, tmp_path)


@pytest.mark.parametrize("count", [0, 1, MOST_POINTS, MOST_POINTS + 1, 5 * MOST_POINTS])
def test_a_thinned_curve_keeps_its_ends(count: int) -> None:
    points = thin(range(count))
    assert len(points) == min(count, MOST_POINTS) == len({*points})
    assert points[:1] + points[-1:] == [*range(count)][:1] + [*range(count)][-1:]


def configurations(name: str, quick: bool) -> Iterator[Configuration]:
    """Yield every configuration that the cells of an experiment train."""
    for cell in EXPERIMENTS[name].work(quick).cells:
        settings = cell.arguments.get("settings")
        if isinstance(settings, Mapping) and "task.name" in settings:
            for more in cell.arguments.get("candidates", [{}]):
                yield Configuration.from_dotted({**settings, **more})


@pytest.fixture(scope="module")
def any_task() -> Task:
    return make_task("addition", length=4)


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_declared_setting_is_wrong_or_without_effect(name: str, quick: bool, any_task: Task) -> None:
    for configuration in configurations(name, quick):
        check_settings(configuration.train)
        check_effects(configuration.train, nn.Identity(), any_task)
