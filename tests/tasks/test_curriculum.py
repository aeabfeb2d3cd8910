"""Curricula over length: what the stages are, that lengths are a pure function of the batch's number, what is refused."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steadyrnn.errors import ArgumentError
from steadyrnn.tasks.base import Task
from steadyrnn.tasks.curriculum import read_curriculum
from steadyrnn.tasks.registry import make_task

GROWING = {"addition": "length", "copy": "delay"}
"""Tasks that can grow, and what does."""
MORE = {"addition": 0, "copy": 20}
"""Steps of a sequence beside that."""


def growing(name: str, full: int, **settings: Any) -> Task:
    return make_task(name, **{GROWING[name]: full, "validation": 6, "test": 6, **settings})


def lengths_of(task: Task, steps: range) -> list[int]:
    return [task.train_batch(step, 2).input.shape[0] for step in steps]


@given(full=st.integers(1, 2**64))
def test_automatic_stages_double_up_to_half_the_length(full: int) -> None:
    parts = read_curriculum("auto", full)
    lengths = [part.length for part in parts]
    assert lengths == [50 * 2**k for k in range(max(len(parts) - 1, 0))] + [full] * bool(parts)
    assert bool(parts) == (full >= 100)
    if parts:
        assert 2 * lengths[-2] <= full < 4 * lengths[-2]
        costs = [part.length * part.steps for part in parts]
        assert costs == pytest.approx([50.0] * (len(parts) - 1) + [200.0])
        assert [part.rate * part.length for part in parts] == pytest.approx([50.0] * len(parts))


def test_stages_may_have_their_own_steps_and_rates() -> None:
    parts = read_curriculum("4:30:1, 9:20:.5,20:5:1e-2", 20)
    assert [(part.length, part.steps, part.rate) for part in parts] == [(4, 30, 1), (9, 20, 0.5), (20, 5, 0.01)]


def test_a_single_stage_is_taken_as_it_is_written() -> None:
    (part,) = read_curriculum("20:7:0.5", 20)
    assert (part.length, part.steps, part.rate) == (20, 7, 0.5)


@pytest.mark.parametrize("name", GROWING)
def test_a_stage_has_examples_of_its_own_length_and_the_task_keeps_its_own(name: str) -> None:
    task = growing(name, 12, curriculum="3,6,12", curriculum_below=0.5)
    more = MORE[name]
    assert [stage.name for stage in task.stages] == [f"{GROWING[name]} {size}" for size in (3, 6, 12)]
    for stage, size in zip(task.stages, (3, 6, 12), strict=True):
        assert {batch.input.shape[0] for batch in stage.task.batches("validation", 4)} == {size + more}
        assert lengths_of(stage.task, range(3)) == [size + more] * 3
        assert (stage.task.interface, stage.task.stages, stage.below) == (task.interface, (), 0.5)
    for split in ("validation", "test"):
        own, plain = task.batches(split, 4), growing(name, 12).batches(split, 4)
        assert all(torch.equal(a.input, b.input) for a, b in zip(own, plain, strict=True))


@pytest.mark.parametrize("name", GROWING)
def test_without_a_curriculum_there_are_no_stages_and_one_length(name: str) -> None:
    task = growing(name, 12)
    assert (task.stages, task.varies) == ((), False)
    assert growing(name, 12, curriculum="auto").stages == ()  # shorter than two stages of it


@pytest.mark.parametrize("name", GROWING)
@given(step=st.integers(0, 10**9), size=st.integers(1, 4), seed=st.integers(0, 2**63 - 1))
def test_the_length_of_a_batch_is_a_function_of_its_number(name: str, step: int, size: int, seed: int) -> None:
    task, again = (growing(name, 20, shortest=0.5, seed=seed) for _ in range(2))
    batch = task.train_batch(step, size)
    again.train_batch(step + 1, 3)
    assert torch.equal(batch.input, again.train_batch(step, size).input)
    length = batch.input.shape[0] - MORE[name]
    assert 10 <= length <= 20
    plain = growing(name, length, seed=seed).train_batch(step, size)
    assert torch.equal(batch.input, plain.input)
    assert torch.equal(batch.target, plain.target)


@pytest.mark.parametrize("name", GROWING)
def test_every_length_of_the_range_is_drawn(name: str) -> None:
    task = growing(name, 8, shortest=0.5)
    assert {*lengths_of(task, range(200))} == {*range(4 + MORE[name], 9 + MORE[name])}
    assert task.varies
    assert {batch.input.shape[0] for batch in task.batches("test", 4)} == {8 + MORE[name]}


def test_the_shortest_addition_has_two_steps() -> None:
    assert {*lengths_of(growing("addition", 4, shortest=0.01), range(50))} == {2, 3, 4}


@pytest.mark.parametrize("name", GROWING)
def test_a_stage_draws_lengths_as_its_task_does(name: str) -> None:
    task = growing(name, 12, curriculum="6,12", shortest=0.5)
    assert task.varies
    assert {*lengths_of(task.stages[0].task, range(100))} == {*range(3 + MORE[name], 7 + MORE[name])}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"curriculum": "automatic"}, "`curriculum` must be 'none', 'auto' or stages .* but one is 'automatic'"),
        ({"curriculum": ""}, "`curriculum` must be 'none', 'auto' or stages .* but one is ''"),
        ({"curriculum": "5:1,20:2"}, "`curriculum` must be .* LENGTH:STEPS:RATE .* but one is '5:1'"),
        ({"curriculum": "5:a:1,20:1:1"}, "`curriculum` must be .* but one is '5:a:1'"),
        ({"curriculum": "5:0:1,20:1:1"}, "`curriculum` must be .* numbers above 0, but one is '5:0:1'"),
        ({"curriculum": "5:1:nan,20:1:1"}, "`curriculum` must be .* but one is '5:1:nan'"),
        ({"curriculum": "5:1:inf,20:1:1"}, "`curriculum` must be .* but one is '5:1:inf'"),
        ({"curriculum": "-5,20"}, "`curriculum` must be .* but one is '-5'"),
        ({"curriculum": "²,20"}, "`curriculum` must be .* but one is '²'"),
        ({"curriculum": f"{'5' * 21},20"}, "`curriculum` must be .* but one is '5555"),
        ({"curriculum": "5:1:1,20"}, "`curriculum` must give steps and rate of all stages or of none"),
        (
            {"curriculum": "5,10"},
            "`curriculum` must have lengths that grow from 2 or more up to the full one, 20, but has 5, 10",
        ),
        ({"curriculum": "10,5,20"}, "`curriculum` must have lengths that grow .* but has 10, 5, 20"),
        ({"curriculum": "5,5,20"}, "`curriculum` must have lengths that grow .* but has 5, 5, 20"),
        ({"curriculum": "1,20"}, "`curriculum` must have lengths that grow from 2"),
        ({"curriculum": "auto", "curriculum_below": 0.0}, "`curriculum_below` must be a number above 0, or None"),
        ({"curriculum": "auto", "curriculum_below": float("nan")}, "`curriculum_below` must be a number above 0, or None"),
        ({"curriculum_below": 0.5}, "`curriculum_below` has no effect: `curriculum` is 'none'"),
        ({"shortest": 0.0}, "`shortest` must be above 0 and at most 1, but is 0.0"),
        ({"shortest": 1.5}, "`shortest` must be above 0 and at most 1, but is 1.5"),
        ({"shortest": float("nan")}, "`shortest` must be above 0 and at most 1, but is nan"),
    ],
)
def test_a_bad_value_is_refused_by_name(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        make_task("addition", length=20, **settings)
