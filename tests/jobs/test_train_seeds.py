"""Training with several seeds: each folder as one run alone, failures kept apart, a call that goes on."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from steadyrnn.errors import ArgumentError, RunError, TrainingError
from steadyrnn.jobs import train_seeds as module
from steadyrnn.jobs.certify import certify_run
from steadyrnn.jobs.configuration import Configuration
from steadyrnn.jobs.evaluate import evaluate_run
from steadyrnn.jobs.recipes import configure
from steadyrnn.jobs.seeds_file import SeedsPlan, read_plan, write_plan
from steadyrnn.jobs.train import train_network
from steadyrnn.jobs.train_seeds import LARGEST, TrainedSeeds, train_seeds
from steadyrnn.runs.folder import Run
from steadyrnn.train.group_step import GroupStepper
from steadyrnn.train.step import Stepper

SEEDS = [2, 0, 5]
SIZES = {
    **{"model.width": 6, "task.length": 8, "task.validation": 40, "task.test": 40, "train.steps": 12, "train.batch_size": 8},
    **{"train.device": "cpu", "train.validate_every": 4, "train.log_every": 3, "train.probe.every": 5},
}


def configuration(model: str = "spectral", **more: Any) -> Configuration:
    return configure("addition", model, {**SIZES, **{name.replace("__", "."): value for name, value in more.items()}})


def weights(folder: Path) -> torch.Tensor:
    tensors = Run.open(folder).load("best").tensors
    return torch.cat([tensor.flatten() for name, tensor in sorted(tensors.items())])


def test_networks_with_a_curriculum_are_trained_in_turn_and_go_on_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = configuration(task__curriculum="4,8", task__shortest=0.5)
    told, folders = list[str](), list[Path]()
    whole = train_seeds(given, [0, 1], tmp_path / "whole", announce=lambda folder, facts, way: told.append(way))
    way = "`tasks` must not have a curriculum or training batches of many lengths for a group"
    assert told == [f"2 networks of 6 units, trained one after another: {way}"]
    step = Stepper.step

    def cut(self: Stepper, number: int, *arguments: Any, **more: Any) -> Any:
        if number == 9:  # in the second stage
            raise KeyboardInterrupt
        return step(self, number, *arguments, **more)

    monkeypatch.setattr(Stepper, "step", cut)
    with pytest.raises(KeyboardInterrupt):
        train_seeds(given, [0, 1], tmp_path / "cut", announce=lambda folder, facts, way: folders.append(folder))
    monkeypatch.setattr(Stepper, "step", step)
    again = train_seeds(given, resume=folders[0])
    for seed in (0, 1):
        assert torch.equal(weights(whole.runs[seed].folder), weights(again.runs[seed].folder))


WAYS = {"as a group": {}, "one after another": {"train__accumulate": 2}}


@pytest.mark.parametrize("way", WAYS)
def test_each_folder_is_that_of_a_run_with_its_seed(tmp_path: Path, way: str) -> None:
    given = configuration(**WAYS[way])
    done = train_seeds(given, SEEDS, tmp_path / "several", command=["steadyrnn", "train", "--seeds", "2,0,5"])
    assert (done.plan.together, done.failures) == (way == "as a group", {})
    assert [*done.runs] == SEEDS
    for seed, trained in done.runs.items():
        assert trained.folder == done.folder / f"seed-{seed}"
        alone = train_network(configuration(train__seed=seed, **WAYS[way]), tmp_path / "alone")
        ours, theirs = Run.open(trained.folder), Run.open(alone.folder)
        assert {**ours.config, "command": []} == {**theirs.config, "command": []}
        assert ours.config["command"] == ["steadyrnn", "train", "--seeds", "2,0,5"]
        assert ours.config["train"]["seed"] == seed
        assert {path.name for path in trained.folder.iterdir()} == {path.name for path in alone.folder.iterdir()}
        assert ours.read_json("facts.json") == theirs.read_json("facts.json")
        assert [(line["kind"], line["step"]) for line in ours.metrics()] == [
            (line["kind"], line["step"]) for line in theirs.metrics()
        ]
        assert trained.result.test == pytest.approx(alone.result.test, rel=1e-4)
        assert trained.result.best == pytest.approx(alone.result.best, rel=1e-4)
        assert weights(trained.folder) == pytest.approx(weights(alone.folder), rel=1e-3, abs=1e-5)
        proofs = [run.certificate["certificate"] for run in (trained, alone)]
        assert proofs[0]["regime"] == proofs[1]["regime"]
        assert proofs[0]["contraction"] == pytest.approx(proofs[1]["contraction"], rel=1e-4)
        assert (ours.read_json("environment.json").get("group") == {"seeds": SEEDS}) is done.plan.together


def test_every_folder_can_be_evaluated_certified_and_resumed(tmp_path: Path) -> None:
    done = train_seeds(configuration(), SEEDS, tmp_path)
    for seed, trained in done.runs.items():
        assert evaluate_run(trained.folder).scores == pytest.approx(trained.result.test)
        assert certify_run(trained.folder, input_bound=2.0).certificate is not None
        again = train_network(configuration(train__seed=seed), resume=trained.folder)
        assert (again.result.test, again.result.steps) == (trained.result.test, 12)


def test_networks_differ_by_their_first_weights_and_share_the_data(tmp_path: Path) -> None:
    done = train_seeds(configuration(), [0, 1], tmp_path)
    first, second = (run.folder for run in done.runs.values())
    assert not torch.equal(weights(first), weights(second))
    assert Run.open(first).config["task"] == Run.open(second).config["task"]


def test_mean_and_standard_deviation_are_those_of_the_scores(tmp_path: Path) -> None:
    done = train_seeds(configuration(), [0, 1], tmp_path)
    a, b = (run.result.test["loss"] for run in done.runs.values())
    found = done.summary()["test"]["loss"]
    assert found["mean"] == pytest.approx((a + b) / 2)
    assert found["standard_deviation"] == pytest.approx(abs(a - b) / 2**0.5)
    alone = train_seeds(configuration(), [0], tmp_path).summary()["validation"]["loss"]
    assert alone["standard_deviation"] is None


REASONS: dict[str, tuple[str, dict[str, Any], str]] = {
    "dropout": ("spectral", {"model__dropout": 0.2}, "`dropout_state` must be 0"),
    "accumulation": ("spectral", {"train__accumulate": 2}, "`accumulate` must be 1"),
    "averages": ("spectral", {"train__average__name": "ema"}, "`average.name` must be 'none'"),
    "plateau": ("spectral", {"train__schedule__name": "plateau"}, "'plateau' gives each member its own learning rate"),
    "width": ("rnn", {"model__width": 1 + LARGEST["RNN"] // 8}, "a group is slower, 8 rows times 513 units"),
    "a wrapped model": ("truncated", {"model__context": 3}, "must hold SequenceModels"),
}


@pytest.mark.parametrize("reason", REASONS)
def test_what_a_group_cannot_run_is_trained_in_turn_and_the_line_says_why(
    tmp_path: Path, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, more, words = REASONS[reason]
    told: list[str] = []

    def stop(folder: Path, facts: dict[str, Any], way: str) -> None:
        told.append(way)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_seeds(configuration(model, **more), [0, 1], tmp_path, announce=stop)
    assert "trained one after another: " in told[0]
    assert words in told[0]


def spoil(monkeypatch: pytest.MonkeyPatch, together: bool) -> None:
    """Let the second network fail in its sixth step."""
    if together:
        step = GroupStepper.step

        def spoiled(self: GroupStepper, number: int, factor: float) -> Any:
            if number == 6:
                self.group.members[1].readout.weight.data.fill_(float("nan"))  # type: ignore[union-attr]
            return step(self, number, factor)

        monkeypatch.setattr(GroupStepper, "step", spoiled)
    else:
        step_alone = Stepper.step

        def failing(self: Stepper, number: int, *arguments: Any, **more: Any) -> Any:
            if number == 6 and self.settings.seed == SEEDS[1]:
                raise TrainingError("Step 6 is not finite")
            return step_alone(self, number, *arguments, **more)

        monkeypatch.setattr(Stepper, "step", failing)


@pytest.mark.parametrize("way", WAYS)
def test_a_network_that_fails_is_told_apart_and_the_others_are_kept(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = configuration(**WAYS[way])
    with monkeypatch.context() as patch:
        spoil(patch, way == "as a group")
        done = train_seeds(given, SEEDS, tmp_path)
        assert [*done.runs] == [2, 5]
        assert [*done.failures] == [0]
        assert "Step 6 is not finite" in done.failures[0]
        failed = Run.open(done.folder / "seed-0")
        assert failed.load("last").facts["step"] == 4
        assert not (failed.folder / "certificate.json").exists()
        again = train_seeds(given, resume=done.folder)
    assert [*again.failures] == [0]
    assert {seed: run.result.test for seed, run in again.runs.items()} == {
        seed: run.result.test for seed, run in done.runs.items()
    }


def results(done: TrainedSeeds) -> dict[int, Any]:
    return {
        seed: (run.result.best, run.result.best_step, run.result.test, weights(run.folder).tolist())
        for seed, run in done.runs.items()
    }


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("step", [0, 3, 9])
def test_a_call_that_was_cut_off_goes_on_bit_for_bit(
    tmp_path: Path, way: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, stepper = configuration(**WAYS[way]), GroupStepper if way == "as a group" else Stepper
    whole = train_seeds(given, SEEDS, tmp_path / "whole")
    take: Any = stepper.step

    def dying(self: Any, number: int, *arguments: Any, **more: Any) -> Any:
        if number == step + 1 and self.settings.seed in (SEEDS[1], given.train.seed):
            raise MemoryError
        return take(self, number, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(stepper, "step", dying)
        with pytest.raises(MemoryError):
            train_seeds(given, SEEDS, tmp_path / "cut")
    (folder,) = (tmp_path / "cut" / "addition" / "spectral").iterdir()
    again = train_seeds(given, resume=folder)
    assert results(again) == results(whole)
    assert again.plan == whole.plan == read_plan(folder)
    finished = train_seeds(given, resume=folder)
    assert results(finished) == results(whole)


def test_a_member_of_a_group_that_can_go_on_is_not_resumed_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    take = GroupStepper.step

    def dying(self: Any, number: int, factor: float) -> Any:
        if number == 7:
            raise MemoryError
        return take(self, number, factor)

    monkeypatch.setattr(GroupStepper, "step", dying)
    with pytest.raises(MemoryError):
        train_seeds(configuration(), SEEDS, tmp_path)
    (folder,) = (tmp_path / "addition" / "spectral").iterdir()
    with pytest.raises(RunError, match="is trained in a group of 3 networks, which goes on as a whole"):
        train_network(configuration(train__seed=2), resume=folder / "seed-2")
    moved = folder.rename(tmp_path / "elsewhere")
    (moved / "seed-2").rename(tmp_path / "alone")
    assert train_network(configuration(train__seed=2), resume=tmp_path / "alone").result.steps == 12
    with pytest.raises(RunError, match="has no run of seed 2: its folder is lost"):
        train_seeds(configuration(), resume=moved)


def test_folders_are_held_before_the_first_step_and_by_one_process(tmp_path: Path) -> None:
    def look(folder: Path, facts: dict[str, Any], way: str) -> None:
        assert all((folder / f"seed-{seed}" / "config.json").is_file() for seed in SEEDS)
        for seed in SEEDS:
            with pytest.raises(RunError, match="a run has one writer"):
                Run.open(folder / f"seed-{seed}", write=True)
        with pytest.raises(RunError, match="a run has one writer"):
            train_seeds(configuration(), resume=folder)

    train_seeds(configuration(), SEEDS, tmp_path, announce=look)


@pytest.mark.parametrize("seeds", [[], [1, 1], [-1], [2**64], [True], [*range(101)]])
def test_seeds_that_cannot_be_are_refused_before_a_folder_is_made(tmp_path: Path, seeds: list[int]) -> None:
    with pytest.raises(ArgumentError, match="`seeds` must be"):
        train_seeds(configuration(), seeds, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_group_is_not_chosen_for_a_gpu() -> None:
    given = configuration()
    task = module.build_task(given)
    assert module._refuse_group(given, task, module._build(given, task, 0), "cpu") is None
    assert "GPU" in str(module._refuse_group(given, task, module._build(given, task, 0), "cuda"))


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"format": 2, "seeds": [0], "together": true, "reason": ""}',
        '{"format": 1, "seeds": [0, 0], "together": true}',
    ]
    + [
        json.dumps({"format": 1, "seeds": seeds, "together": True, "reason": ""}) for seeds in ([], [0, 0], [True], [-1], ["0"])
    ],
)
def test_a_damaged_plan_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "seeds.json").write_text(text, encoding="utf-8")
    with pytest.raises(RunError, match=r"seeds\.json"):
        read_plan(tmp_path)


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_plan(tmp_path) is None
    write_plan(tmp_path, SeedsPlan((3, 1), together=False, reason="why"))
    assert read_plan(tmp_path) == SeedsPlan((3, 1), together=False, reason="why")
