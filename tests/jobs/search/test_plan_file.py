"""The file of a sweep: every mistake gets a sentence that names file and key, before anything starts."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from steadyrnn.errors import ArgumentError
from steadyrnn.jobs.search.plan import MOST_TRIALS, Range, SweepPlan
from steadyrnn.jobs.search.plan_file import SweepFile, make_plan, read_sweep_file

PATH = Path("sweep.yaml")
LR = "train.optimizer.lr"
WHOLE = """
task: addition
models: [spectral, gru]
seeds: 0..2
settings: {task: {length: 10}, train.steps: 30}
grid: {model.width: [8, 16]}
search:
  train.optimizer.lr: {low: 1e-3, high: 0.1, log: true}
  model.radius: [0.1, 0.2]
trials: 5
sampler: random
pruner: median
metric: loss
seed: 7
"""


def read(text: str, given: dict[str, Any] | None = None, **replaced: Any) -> SweepPlan:
    return make_plan(SweepFile(PATH, text.encode()), given, **replaced)


def test_a_file_becomes_a_plan() -> None:
    assert read(WHOLE) == SweepPlan(
        "addition", ("spectral", "gru"), (0, 1, 2), {"task.length": 10, "train.steps": 30}, {"model.width": (8, 16)},
        {LR: Range(1e-3, 0.1, log=True), "model.radius": (0.1, 0.2)}, 5, "random", "median", "loss", None, 7,
    )  # fmt: skip


def test_a_plan_survives_json() -> None:
    plan = read(WHOLE)
    assert SweepPlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan


def test_every_model_has_every_combination_and_only_its_own_options() -> None:
    plan = read("{task: addition, models: [spectral, gru], grid: {model.width: [8, 16], model.radius: [0.1, 0.2, 0.3]}}")
    entries = plan.entries()
    assert [entry.number for entry in entries] == [*range(plan.count())] == [*range(8)]
    found = {model: [entry.fixed for entry in entries if entry.model == model] for model in plan.models}
    assert found["gru"] == [{"model.width": 8}, {"model.width": 16}]
    assert found["spectral"] == [{"model.width": w, "model.radius": r} for w in (8, 16) for r in (0.1, 0.2, 0.3)]


def test_a_grid_sampler_enumerates_what_is_searched() -> None:
    plan = read(
        "{task: addition, models: [gru], sampler: grid, search: {model.width: {low: 2, high: 8, step: 2}, "
        "train.optimizer.lr: {low: 0.1, high: 0.3, step: 0.1}}}"
    )
    assert plan.grid == {"model.width": (2, 4, 6, 8), LR: (0.1, 0.2, 0.3)}
    assert (plan.search, plan.count()) == ({}, 12)


def test_a_value_is_read_by_the_type_of_its_setting() -> None:
    plan = read("{task: addition, models: gru, grid: {train.optimizer.lr: [1e-3, 1], train.clip.norm: [null, 2]}}")
    assert plan.grid == {LR: (0.001, 1.0), "train.clip.norm": (None, 2.0)}
    assert all(type(value) in (float, type(None)) for values in plan.grid.values() for value in values)


def test_the_command_line_takes_the_place_of_the_file() -> None:
    plan = read(WHOLE, {"train.steps": 3, "train.batch_size": 8}, trials=2, seeds="4,5")
    assert plan.settings == {"task.length": 10, "train.steps": 3, "train.batch_size": 8}
    assert (plan.trials, plan.seeds) == (2, (4, 5))


def test_a_file_of_the_users_is_the_task() -> None:
    plan = read("{data: waves.csv, models: [gru], settings: {task.target: kind}}")
    assert (plan.task, plan.settings) == ("series", {"task.target": "kind", "task.data": "waves.csv"})


def test_the_command_line_may_name_another_file_than_data() -> None:
    assert read("{data: waves.csv, models: [gru]}", {"task.data": "moved.csv"}).settings == {"task.data": "moved.csv"}


BASE = "task: addition, models: [gru, spectral], "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{models: [gru]}", "sweep.yaml must have either `task`, a task's name, or `data`"),
        ("{task: addition, data: a.csv}", "sweep.yaml must have either `task`, a task's name, or `data`"),
        ("{task: additon}", "sweep.yaml: `task` must be a task's name, but is 'additon'. Did you mean `addition`?"),
        ("{data: 3}", "sweep.yaml: `data` must be the path of a file or folder, but is 3."),
        ("{data: a.csv, settings: {task.data: b.csv}}", "`settings.task.data` is named by `data`, too."),
        ("{data: a.csv, grid: {task.data: [a.csv, b.csv]}}", "`grid.task.data` cannot be varied: scores on different data"),
        ("{task: series, search: {task.data: [a.csv, b.csv]}}", "`search.task.data` cannot be varied: scores on different"),
        (f"{{{BASE} trails: 3}}", "sweep.yaml: `trails` is not a key of a sweep. Did you mean `trials`?"),
        ("{task: addition, models: [lsmt]}", "sweep.yaml: `models` has 'lsmt', which is not a model. Did you mean `lstm`?"),
        ("{task: addition, models: []}", "sweep.yaml: `models` must be a list of names of models, but is a list of 0."),
        ("{task: addition, models: [gru, gru]}", "sweep.yaml: `models` must name each model once."),
        ("{task: addition, models: {gru: 1}}", "sweep.yaml: `models` must be a list of names"),
        (f"{{{BASE} seeds: []}}", "sweep.yaml: `seeds` must be different numbers, as 0..4 or [0, 2, 5]"),
        (f"{{{BASE} seeds: 3}}", "sweep.yaml: `seeds` must be different numbers"),
        (f"{{{BASE} seeds: 0..1000}}", "sweep.yaml: `seeds` must be different numbers"),
        (f"{{{BASE} seeds: [1, 1]}}", "sweep.yaml: `seeds` must be different numbers"),
        (f"{{{BASE} seeds: [true]}}", "sweep.yaml: `seeds` must be different numbers"),
        (f"{{{BASE} settings: {{train.setps: 3}}}}", "`settings.train.setps` is not a setting. Did you mean `train.steps`?"),
        (f"{{{BASE} settings: 3}}", "`settings` must be a mapping from settings to values, but is 3."),
        (f"{{{BASE} settings: {{train.steps: 3, train: {{steps: 4}}}}}}", "`settings.train.steps` is there twice."),
        (f"{{{BASE} grid:}}", "`grid` must be a mapping from settings to values, but is empty."),
        (f"{{{BASE} grid: {{model.width: []}}}}", "`grid.model.width` must be a list with at least one value, but is empty."),
        (f"{{{BASE} grid: {{model.width: 8}}}}", "`grid.model.width` must be a list with at least one value."),
        (f"{{{BASE} grid: {{model.width: [8, 8]}}}}", "`grid.model.width` must list each value once."),
        (
            f"{{{BASE} grid: {{model.width: [wide]}}}}",
            "`grid.model.width` must list values of type int or null, but has 'wide'.",
        ),
        (f"{{{BASE} grid: {{model.width: [1.5]}}}}", "`grid.model.width` must list values of type int or null, but has '1.5'."),
        (
            f"{{{BASE} grid: {{model.width: [[8]]}}}}",
            "`grid.model.width` must list finite numbers, texts, true, false or null.",
        ),
        (f"{{{BASE} grid: {{{LR}: [.nan]}}}}", f"`grid.{LR}` must list finite numbers"),
        (f"{{{BASE} grid: {{model.name: [gru]}}}}", "`grid.model.name` is not a setting. List models under `models`."),
        (f"{{{BASE} grid: {{train.seed: [1]}}}}", "`grid.train.seed` is not a setting. List seeds under `seeds`."),
        (f"{{{BASE} grid: {{model.forget_bias: [1.0]}}}}", "`grid.model.forget_bias` is an option that none of the models has"),
        (
            f"{{{BASE} search: {{{LR}: {{low: 1, high: 1}}}}}}",
            f"`search.{LR}` must have `low` below `high`, but they are 1 and 1.",
        ),
        (f"{{{BASE} search: {{{LR}: {{low: 1, high: 0.1}}}}}}", f"`search.{LR}` must have `low` below `high`"),
        (
            f"{{{BASE} search: {{{LR}: {{low: 0, high: 1, log: true}}}}}}",
            f"`search.{LR}.low` must be above 0 where `log` is true",
        ),
        (f"{{{BASE} search: {{{LR}: {{high: 1}}}}}}", f"`search.{LR}.low` is missing: a range has a `low` and a `high`."),
        (f"{{{BASE} search: {{{LR}: {{low: 0, high: .inf}}}}}}", f"`search.{LR}.high` must be a finite number, but is 'inf'."),
        (
            f"{{{BASE} search: {{{LR}: {{low: 0, high: 1, step: 2}}}}}}",
            f"`search.{LR}.step` must be above 0 and at most high - low",
        ),
        (f"{{{BASE} search: {{{LR}: {{low: 1, high: 2, step: 1, log: true}}}}}}", "and `log` cannot both be given."),
        (
            f"{{{BASE} search: {{{LR}: {{low: 0, high: 1, lgo: true}}}}}}",
            f"`search.{LR}.lgo` is not a part of a range. Did you mean",
        ),
        (f"{{{BASE} search: {{{LR}: {{low: 0, high: 1, log: 1}}}}}}", f"`search.{LR}.log` must be true or false."),
        (f"{{{BASE} search: {{{LR}: 3}}}}", f"`search.{LR}` must be a list of choices, or a range"),
        (f"{{{BASE} search: {{model.width: {{low: 1.5, high: 8}}}}}}", "`search.model.width.low` must be a whole number"),
        (
            f"{{{BASE} search: {{train.optimizer.name: {{low: 1, high: 8}}}}}}",
            "must be a list of choices: the setting is of type str",
        ),
        (f"{{{BASE} search: {{{LR}: [0.1]}}, grid: {{{LR}: [0.1]}}}}", f"`grid.{LR}` is under `search`, too."),
        (
            f"{{{BASE} search: {{{LR}: [0.1]}}, sampler: tqe}}",
            "`sampler` must be one of tpe, random, grid, but is 'tqe'. Did you mean",
        ),
        (
            f"{{{BASE} search: {{{LR}: {{low: 0, high: 1}}}}, sampler: grid}}",
            f"`search.{LR}` needs a `step`, or a list of values",
        ),
        (f"{{{BASE} search: {{{LR}: [0.1]}}, trials: 0}}", "`trials` must be a whole number from 1 to 10,000, but is 0."),
        (
            f"{{{BASE} search: {{{LR}: [0.1]}}, trials: 1000000}}",
            "`trials` must be a whole number from 1 to 10,000, but is 1000000.",
        ),
        (f"{{{BASE} search: {{{LR}: [0.1]}}, trials: '3'}}", "`trials` must be a whole number from 1 to 10,000, but is '3'."),
        (f"{{{BASE} trials: 3}}", "`trials` belongs to `search` with another sampler than `grid`"),
        (f"{{{BASE} pruner: [median]}}", "`pruner` must be one of none, median, halving, but is a list of 1."),
        (f"{{{BASE} metric: test loss}}", "`metric` must be a score on the validation part: the test part chooses nothing."),
        (f"{{{BASE} direction: down}}", "`direction` must be one of minimize, maximize, but is 'down'."),
        (f"{{{BASE} seed: -1}}", "`seed` must be a whole number from 0 to"),
    ],
)
def test_a_mistake_gets_a_sentence_that_names_file_and_key(text: str, message: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        read(text)
    assert str(refused.value).startswith("sweep.yaml")
    assert message in str(refused.value)


def test_a_varied_setting_cannot_be_given_on_the_command_line() -> None:
    with pytest.raises(ArgumentError, match=r"`grid.model.width` is varied by the sweep"):
        read(WHOLE, {"model.width": 4})


def test_more_trials_than_a_sweep_may_have_are_refused_without_listing_them() -> None:
    values = ", ".join(map(str, range(1, 101)))
    with pytest.raises(ArgumentError, match=rf"asks for 1,000,000 trials, but a sweep has at most {MOST_TRIALS:,}"):
        read(
            "{task: addition, models: [gru], grid: {"
            + ", ".join(f"{name}: [{values}]" for name in ("model.width", "task.length", "task.test"))
            + "}}"
        )


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x]\nb: &b [*a, *a]\n"
        + "".join(f"{chr(99 + i)}: &{chr(99 + i)} [*{chr(98 + i)}, *{chr(98 + i)}]\n" for i in range(20)),
        "task: !!python/object/apply:os.system ['true']",
        "[" * 5000,
        "task: addition\ntask: addition",
        "{" + "x" * (1 << 20) + ": 1}",
        "- task",
        "grid: {model.width: {1: 2}}",
        "\0",
    ],
)
def test_a_hostile_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(text)
    with pytest.raises(ArgumentError):
        make_plan(read_sweep_file(path))


def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "no-such-file", "."):
        with pytest.raises(ArgumentError):
            read_sweep_file(tmp_path / name)
