"""What a user of data of their own leaves open is chosen, with a reason, and what is given stays as it is."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from steadyrnn.errors import ArgumentError, TrainingError
from steadyrnn.jobs import own_data, rate_test
from steadyrnn.jobs.model_choice import choose_model, kind_of
from steadyrnn.jobs.own_data import settle
from steadyrnn.jobs.rate_test import RATES, RateTest, find_rate
from steadyrnn.jobs.recipes import configure
from steadyrnn.models.registry import SYSTEMS
from steadyrnn.tasks.registry import make_task
from tests.cli.series_files import steps_of_one, waves
from tests.tasks.series.made import classes, made, make, numbers

QUICK = {"train.device": "cpu", "train.optimizer.lr": 0.01, "model.width": 4}
FOUND = RateTest(0.01, {0.01: 1.0}, 1)
WAVES = {"task.data": "waves.csv", "task.series": "id", "task.target": "kind"}


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    waves()
    waves("long_waves.csv", steps=60)
    steps_of_one()


CHOICES: dict[str, tuple[dict[str, Any], str, str]] = {
    "classes of short series": (WAVES, "stable-spectral", "last"),
    "classes of series": ({**WAVES, "task.data": "long_waves.csv"}, "stable-spectral", "mean"),
    "classes of steps": ({"task.data": "long.csv", "task.target": "label"}, "gru", "each"),
    "a forecast": ({"task.data": "long.csv", "task.horizon": 2, "task.channels": "x,y"}, "gru", "last"),
}


@pytest.mark.parametrize("case", CHOICES)
def test_what_is_open_is_settled(case: str) -> None:
    given, model, reads = CHOICES[case]
    settled = settle({**given, **QUICK})
    configuration = settled.configuration
    assert (configuration.model.name, configuration.model.readout or settled.task.interface.reads) == (model, reads)
    assert configuration.task.data == str(Path(given["task.data"]).absolute())  # type: ignore[attr-defined]
    assert settled.facts["model_choice"] in settled.notes
    problem = settled.task.problem  # type: ignore[attr-defined]
    stored = configuration.task
    assert (stored.kind, stored.patch, stored.window) == (problem.kind, problem.patch, problem.window)  # type: ignore[attr-defined]


@pytest.mark.parametrize("case", CHOICES)
def test_a_settled_configuration_makes_the_same_task_again(case: str) -> None:
    given, _, _ = CHOICES[case]
    settled = settle({**given, **QUICK})
    dotted = {f"task.{name}": value for name, value in vars(settled.configuration.task).items()}
    again = settle({**dotted, **QUICK})
    first, second = (each.task.data_facts() for each in (settled, again))
    for name in ("files", "parts", "preparation"):
        assert first[name] == second[name]


GIVEN = {
    "model.readout": "last", "train.steps": 7, "train.validate_every": 3, "train.stop.patience": 2, "train.optimizer.lr": 0.5,
    "model.name": "lstm", "train.batch_size": 5,
}  # fmt: skip


@pytest.mark.parametrize("name", GIVEN)
def test_what_is_given_stays(name: str) -> None:
    settled = settle({**WAVES, **QUICK, name: GIVEN[name]})
    found: Any = settled.configuration
    for part in name.split("."):
        found = getattr(found, part)
    assert found == GIVEN[name]


def test_training_ends_early_and_in_minutes() -> None:
    train = settle({**WAVES, **QUICK}).configuration.train
    assert train.steps is not None
    assert 1000 <= train.steps <= 2000
    assert 25 <= train.validate_every <= 100
    assert train.stop.patience is not None
    assert 5 <= train.stop.patience <= train.steps / train.validate_every / 2


@pytest.mark.parametrize(
    ("given", "threads"),
    [
        ({}, 1),
        ({"model.name": "gru", "model.width": 128}, 1),
        ({"model.name": "gru", "model.width": 129}, None),
        ({"train.batch_size": 64, "model.width": 65}, None),
        ({"train.threads": 2}, 2),
        ({"train.threads": None}, None),
    ],
)
def test_a_small_network_has_one_cpu_thread_unless_told_otherwise(given: dict[str, Any], threads: int | None) -> None:
    settled = settle({**WAVES, **QUICK, **given})
    assert settled.configuration.train.threads == threads
    assert any("one CPU thread" in note for note in settled.notes) == ("train.threads" not in given and threads == 1)


def test_the_range_test_has_the_threads_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(own_data, "find_rate", lambda configuration, task: seen.append(configuration.train.threads) or FOUND)
    settle({"task.data": "long.csv", "task.target": "label", "train.device": "cpu"})
    assert seen == [1]


@pytest.mark.parametrize("want", [None, "memory", "stability", "speed"])
@pytest.mark.parametrize("units", [None, 4, 100])
@pytest.mark.parametrize("steps", [10, 900])
def test_a_choice_can_be_built_and_says_why(want: str | None, units: int | None, steps: int) -> None:
    task = make(made([steps] * 12, target=classes(12, each=False)), target="kind", patch=1)
    choice = choose_model(task, want, units)
    configuration = configure("addition", str(choice.settings["model.name"]), dict(choice.settings))
    assert configuration.model.name in SYSTEMS
    assert f"of {configuration.model.width} units" in choice.reason
    assert units is None or configuration.model.width == units
    assert (configuration.model.reflectors or 0) <= configuration.model.width
    assert (f"--want {want}" if want else "no wish given") in choice.reason


def test_long_windows_without_a_wish_keep_gradients() -> None:
    task = make(made([3000], target=numbers(3000)), target="p", window=450)
    assert choose_model(task, None).settings["model.name"] == "spectral"
    short = make(made([3000], target=numbers(3000)), target="p", window=45)
    assert choose_model(short, None).settings["model.name"] == "gru"


def test_an_unknown_wish_is_refused() -> None:
    with pytest.raises(ArgumentError, match="`want`"):
        choose_model(make_task("addition", length=5), "beauty")
    assert kind_of(make_task("addition", length=5)) == ""


def test_the_rate_with_the_lowest_validation_loss_is_taken() -> None:
    held_out = {**WAVES, "task.validation": 0.2, "train.device": "cpu"}
    settled = settle({**held_out, "model.width": 4, "train.steps": 8, "model.name": "gru"})
    noted = settled.facts["rate_test"]
    rate = settled.configuration.train.optimizer.lr
    losses = {float(name): loss for name, loss in noted["validation_loss"].items()}
    assert [*losses] == [*RATES]
    assert rate == noted["rate"] == min(losses, key=lambda rate: losses[rate])
    assert noted["steps"] == 8
    again = find_rate(settled.configuration, settled.task)
    assert again.to_dict() == noted


@pytest.mark.parametrize(
    ("steps", "losses", "chosen"),
    [
        (2000, {0.001: 0.5, 0.003: 0.2, 0.01: 0.9}, 0.001),  # a rate that is best for 100 steps is too high for 2000
        (2000, {0.001: 0.2, 0.003: 0.5, 0.01: 0.9}, 0.001),  # there is none below
        (2000, {0.001: 0.95, 0.003: 0.92, 0.01: 0.99}, 0.003),  # hardly a difference
        (2000, {0.001: math.inf, 0.003: 0.2, 0.01: math.inf}, 0.003),  # the rate below was not finite
        (400, {0.001: 0.5, 0.003: 0.2, 0.01: 0.9}, 0.003),
    ],
)
def test_a_long_run_has_a_lower_rate_than_its_test(
    monkeypatch: pytest.MonkeyPatch, steps: int, losses: dict[float, float], chosen: float
) -> None:
    left = iter(losses.values())
    monkeypatch.setattr(rate_test, "RATES", (*losses,))
    monkeypatch.setattr(rate_test, "train", lambda *args: SimpleNamespace(best={"loss": next(left)}))
    configuration = configure("addition", "gru", {"model.width": 4, "train.device": "cpu", "train.steps": steps})
    found = find_rate(configuration, make_task("addition", length=5, validation=20, test=20))
    assert found.rate == chosen
    assert ("as the run is longer" in found.reason) == (chosen != min(losses, key=lambda rate: losses[rate]))


def test_without_enough_series_to_hold_out_all_are_trained_on() -> None:
    settled = settle({**WAVES, "train.device": "cpu", "model.width": 4, "train.steps": 8})
    assert settled.configuration.task.refit  # type: ignore[attr-defined]
    assert settled.configuration.train.optimizer.lr == 3e-3
    assert "rate_test" not in settled.facts
    assert any("too few series" in note for note in settled.notes)
    parts = settled.task.data_facts()["parts"]
    assert parts["validation"] == parts["train"]


def test_a_rate_whose_loss_is_not_finite_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    train = rate_test.train

    def fail(model: Any, task: Any, settings: Any) -> Any:
        if settings.optimizer.lr < 0.005:
            raise TrainingError("Step 1 is not finite.")
        return train(model, task, settings)

    monkeypatch.setattr(rate_test, "train", fail)
    task = make_task("addition", length=5, validation=20, test=20)
    configuration = configure("addition", "gru", {"model.width": 4, "train.device": "cpu", "train.steps": 3})
    found = find_rate(configuration, task)
    assert found.rate in (0.01, 0.03)
    assert found.to_dict()["validation_loss"]["0.0003"] is None


def test_a_range_test_leaves_the_task_and_the_training_as_they_were() -> None:
    given = {**WAVES, "train.device": "cpu", "model.width": 4, "train.steps": 6, "model.name": "gru"}
    searched = settle(given)
    told = settle({**given, "train.optimizer.lr": searched.configuration.train.optimizer.lr})
    assert told.configuration == searched.configuration
    assert told.facts.get("rate_test") is None
