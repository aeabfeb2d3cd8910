"""Stages: each has its own steps, optimizer and schedule, ends by steps or by its validation loss, and resumes bit for bit."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from steadyrnn.errors import ArgumentError
from steadyrnn.runs.folder import Run
from steadyrnn.tasks.addition import Addition
from steadyrnn.tasks.base import Batch, Stage, Task
from steadyrnn.train.effects import check_effects
from steadyrnn.train.evaluation import evaluate
from steadyrnn.train.graph import reason_against
from steadyrnn.train.progress import Lines, Silent
from steadyrnn.train.schedules import Moment, rate_factor
from steadyrnn.train.settings import OptimizerSettings, ScheduleSettings, StopSettings, TrainSettings
from steadyrnn.train.stages import divide_steps, plan_stages
from steadyrnn.train.trainer import train
from tests.train.runs import (
    CASES,
    BreakAt,
    Broken,
    addition,
    differences,
    growing_addition,
    lines,
    new_run,
    plain_model,
    spectral_model,
    start,
    tiny,
)


class Heard(Silent):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.totals: list[int] = []

    def begin(self, total: int, done: int) -> None:
        self.totals.append(total)

    def set_total(self, total: int) -> None:
        self.totals.append(total)

    def note(self, text: str) -> None:
        self.texts.append(text)


def logged(root: Path, task: Task, settings: TrainSettings) -> tuple[Run, list[dict[str, Any]]]:
    """Return a run, and its lines."""
    with new_run(root, settings) as run:
        train(plain_model(), task, settings, run=run)
    return run, lines(run)


@given(shares=st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=8), more=st.integers(0, 10**6))
def test_every_stage_has_its_share_of_the_steps_and_at_least_one(shares: list[float], more: int) -> None:
    total, stages = len(shares) + more, [Stage("", addition(), share) for share in shares]
    steps = divide_steps(total, stages)
    assert sum(steps) == total
    assert min(steps) >= 1
    for own, share in zip(steps, shares, strict=True):  # two ends are rounded, and each other stage may take a step
        assert abs(own - total * share / sum(shares)) <= len(shares) + 1


def test_steps_that_add_up_are_taken_as_they_are() -> None:
    shares = (5000, 2500, 1200, 700, 600)
    assert divide_steps(10_000, [Stage("", addition(), share) for share in shares]) == [*shares]


def test_a_task_without_stages_has_one_without_a_name() -> None:
    task = addition()
    (only,) = plan_stages(task, 7)
    assert (only.name, only.task, only.steps, only.rate, only.below) == ("", task, 7, 1.0, None)


def test_fewer_steps_than_stages_are_refused_before_a_run_begins() -> None:
    with pytest.raises(ArgumentError, match="`steps` must be at least the number of stages of the task, 3, but is 2"):
        check_effects(tiny(steps=2), plain_model(), growing_addition())


def test_a_run_of_stages_is_the_loop_a_user_would_write() -> None:
    """A new optimizer and a new schedule in each stage, and batches of one numbering."""
    settings = tiny(schedule=ScheduleSettings("cosine", warmup=2), optimizer=OptimizerSettings(lr=0.05), validate_every=100)
    model, trained, task, number = plain_model(), plain_model(), growing_addition(shortest=1.0), 0
    kept: list[tuple[float, list[Tensor]]] = []
    result = train(trained, task, settings)
    for length, steps, rate in ((4, 6, 1.0), (7, 2, 0.5), (10, 6, 0.25)):
        own = growing_addition(length=length, curriculum="none", curriculum_below=1e-3, shortest=1.0)
        optimizer = torch.optim.Adam(model.parameters())
        for done in range(steps):
            optimizer.param_groups[0]["lr"] = 0.05 * rate * rate_factor(settings.schedule, Moment(done, 100, steps))
            batch = own.train_batch(number, 8)
            optimizer.zero_grad()
            own.loss(model(batch.input)[0], batch).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            number += 1
        loss = evaluate(model, task, "validation", 8)["loss"]
        kept.append((loss, [parameter.detach().clone() for parameter in model.parameters()]))
    best = min(kept, key=lambda one: one[0])
    assert (number, result.steps, [loss for loss, _ in kept].index(best[0])) == (14, 14, (6, 8, 14).index(result.best_step))
    for ours, theirs in zip(trained.parameters(), best[1], strict=True):
        torch.testing.assert_close(ours, theirs)


def test_lines_name_the_stage_and_say_when_it_is_over(tmp_path: Path) -> None:
    _, found = logged(tmp_path, growing_addition(), tiny())
    names = {4: "length 4", 5: "length 4", 6: "length 4", 8: "length 7", 10: "length 10", 12: "length 10", 14: "length 10"}
    assert {line["step"]: line["stage"] for line in found if line["kind"] in ("train", "validation")} == names
    ends = [(line["step"], line["stage"], line["reason"], line["steps"]) for line in found if line["kind"] == "stage"]
    assert ends == [(6, "length 4", "finished", 6), (8, "length 7", "finished", 2)]
    kept = [line["step"] for line in found if line["kind"] == "validation" and "stage_loss" in line]
    assert kept == [5, 6, 8]  # of the last stage it is the loss itself
    assert not any("stage" in line for line in found if line["kind"] in ("test", "end"))


def test_a_run_without_stages_has_the_lines_it_always_had(tmp_path: Path) -> None:
    _, found = logged(tmp_path, addition(), tiny())
    assert not any("stage" in line or "stage_loss" in line for line in found)


def test_a_stage_that_is_learned_is_over(tmp_path: Path) -> None:
    run, found = logged(tmp_path, growing_addition(curriculum_below=1e6), tiny())
    ends = [(line["step"], line["reason"]) for line in found if line["kind"] == "stage"]
    assert ends == [(5, "below"), (7, "below")]  # no validation is due in the second stage before its end
    assert run.load("last").facts["step"] == 13  # the steps that were saved are not given to another stage
    assert found[-1] == {"kind": "end", "step": 13, "reason": "finished"}


def test_a_stage_is_judged_at_its_own_length(tmp_path: Path) -> None:
    settings = tiny(steps=6, validate_every=2, optimizer=OptimizerSettings("sgd", lr=0.0))
    task = growing_addition(curriculum="4:1:1,10:1:1")
    _, found = logged(tmp_path, task, settings)
    line = next(line for line in found if line["kind"] == "validation")
    own = growing_addition(length=4, curriculum="none", curriculum_below=1e-3)
    assert line["stage_loss"] == evaluate(plain_model(), own, "validation", 8)["loss"]
    assert line["loss"] == evaluate(plain_model(), task, "validation", 8)["loss"]
    for below, step in ((line["stage_loss"], 3), (line["stage_loss"] * (1 + 1e-9), 2)):
        task = growing_addition(curriculum="4:1:1,10:1:1", curriculum_below=below)
        _, found = logged(tmp_path / str(step), task, settings)
        assert [line["step"] for line in found if line["kind"] == "stage"] == [step]


def test_the_best_weights_are_chosen_at_the_full_length_over_all_stages(tmp_path: Path) -> None:
    run, found = logged(tmp_path, growing_addition(), tiny(optimizer=OptimizerSettings(lr=0.1)))
    losses = {line["step"]: line["loss"] for line in found if line["kind"] == "validation"}
    best = run.load("last").facts
    assert best["best"]["loss"] == min(losses.values())
    assert losses[best["standing"]["best_step"]] == min(losses.values())


def test_patience_counts_in_the_last_stage_alone() -> None:
    settings = tiny(validate_every=1, optimizer=OptimizerSettings("sgd", lr=0.0), stop=StopSettings(patience=2))
    result = train(plain_model(), growing_addition(), settings)
    assert (result.steps, result.reason) == (10, "patience")


def test_a_person_hears_of_stages_and_of_steps_that_are_saved() -> None:
    heard = Heard()
    train(plain_model(), growing_addition(curriculum_below=1e6), tiny(), progress=heard)
    assert heard.texts == [
        "step 5: length 4 is over (below), length 7 begins",
        "step 7: length 7 is over (below), length 10 begins",
    ]
    assert heard.totals == [14, 13, 13]


@pytest.mark.parametrize("case", ["stages", "stages that are learned"])
@pytest.mark.parametrize("step", range(1, 12))
def test_a_run_that_was_broken_off_anywhere_resumes_in_its_stage(tmp_path: Path, case: str, step: int) -> None:
    settings = CASES[case][2]
    with new_run(tmp_path / "whole", settings) as whole:
        steps = start(case, whole).steps
    broken = new_run(tmp_path / "broken", settings)
    if step < steps:
        with broken, pytest.raises(Broken):
            start(case, broken, BreakAt(step))
        with Run.open(broken.folder, write=True) as again:
            start(case, again, resume=True)
        assert differences(whole, broken) == []


def test_a_checkpoint_of_an_earlier_release_has_no_stage(tmp_path: Path) -> None:
    settings = tiny()
    run = new_run(tmp_path, settings)
    with run, pytest.raises(Broken):
        train(spectral_model(), addition(), settings, run=run, progress=BreakAt(8))
    with Run.open(run.folder, write=True) as again:
        last = again.load("last")
        facts = {name: value for name, value in last.facts.items() if name not in ("stage", "stage_start")}
        facts["settings"] = {**facts["settings"], "task": {"class": "Addition", "seed": 0, "length": 10}}
        again.save("last", last.tensors, facts)
        assert train(spectral_model(), addition(), settings, run=again, resume=True).steps == 14


def test_another_curriculum_is_refused_by_name_when_a_run_is_resumed(tmp_path: Path) -> None:
    run = new_run(tmp_path, tiny())
    with run, pytest.raises(Broken):
        train(spectral_model(), growing_addition(), tiny(), run=run, progress=BreakAt(8))
    with Run.open(run.folder, write=True) as again, pytest.raises(Exception, match=r"`task.curriculum` is '4:6:1.*' there"):
        train(spectral_model(), growing_addition(curriculum="5:1:1,10:1:1"), tiny(), run=again, resume=True)


@pytest.mark.parametrize("graph", ["auto", "on"])
def test_batches_of_many_lengths_are_not_captured(graph: str) -> None:
    task, same = growing_addition(), growing_addition(shortest=1.0)
    for one in (task, same):
        one.device = torch.device("cuda")
    settings = TrainSettings(graph=graph)
    assert "batches differ in length" in reason_against(plain_model(), task, settings)
    assert reason_against(plain_model(), same, settings) == ""


def test_lines_count_to_another_total(capsys: pytest.CaptureFixture[str]) -> None:
    shown = Lines(seconds=0.0)
    shown.begin(total=10, done=0)
    shown.set_total(8)
    shown.update(4, {})
    assert capsys.readouterr().err.startswith("step 4/8")


def test_a_task_of_ones_own_may_have_stages() -> None:
    """Any tasks of one interface will do: here the second half of the steps has other examples."""

    class Halves(Addition):
        @property
        def stages(self) -> tuple[Stage, ...]:
            return Stage("first", addition()), Stage("second", self)

        def train_batch(self, step: int, batch_size: int) -> Batch:
            seen.append(step)
            return super().train_batch(step, batch_size)

    seen: list[int] = []
    result = train(plain_model(), Halves(addition().settings), tiny())  # type: ignore[attr-defined]
    assert (seen, result.steps) == ([*range(7, 14)], 14)
