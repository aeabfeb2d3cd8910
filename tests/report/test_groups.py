"""Runs sorted into contests and configurations."""

from pathlib import Path
from typing import Any

import pytest

from steadyrnn.errors import RunError
from steadyrnn.report.groups import Contest, group
from steadyrnn.report.reading import read_all
from steadyrnn.report.tables import comparison, differences, headline, verdict

from .folders import FACTS, certificate, config, end, records, write_run


def contests(root: Path) -> list[Contest]:
    return group(read_all([root], []))


def test_runs_that_differ_by_the_seed_are_one_configuration(tmp_path: Path) -> None:
    for seed in range(3):
        write_run(tmp_path, seed=seed)
    (only,) = contests(tmp_path)
    assert [(c.label, len(c.trials)) for c in only.configurations] == [("spectral", 3)]


def test_another_setting_is_another_configuration_named_by_it(tmp_path: Path) -> None:
    write_run(tmp_path, seed=0, settings=config(width=64))
    write_run(tmp_path, seed=1, settings=config(width=128, seed=1))
    (only,) = contests(tmp_path)
    assert [c.label for c in only.configurations] == ["spectral, width 128", "spectral, width 64"]
    assert len({c.style for c in only.configurations}) == 2


def test_an_option_that_was_left_open_has_the_value_that_the_run_noted(tmp_path: Path) -> None:
    for seed, given in enumerate((64, None, 128)):
        settings = config(seed=seed)
        settings["model"]["width"] = given
        facts = {**FACTS, "model": {**settings["model"], "width": given or 128}}
        write_run(tmp_path, seed=seed, settings=settings, facts=facts)
    (only,) = contests(tmp_path)
    assert [(c.label, len(c.trials)) for c in only.configurations] == [("spectral, width 128", 2), ("spectral, width 64", 1)]


def test_tasks_of_other_settings_are_not_compared(tmp_path: Path) -> None:
    write_run(tmp_path, seed=0, settings=config(length=100))
    write_run(tmp_path, seed=1, settings=config(length=400))
    assert [contest.title for contest in contests(tmp_path)] == ["addition, length 100", "addition, length 400"]


def test_runs_with_and_without_a_curriculum_are_compared(tmp_path: Path) -> None:
    """Runs that an earlier release stored have no such setting: they trained without."""
    own = {"none": {"curriculum": "none", "curriculum_below": 1e-3, "shortest": 1.0}, "old": {}}
    own |= {"auto": {"curriculum": "auto", "curriculum_below": 1e-3, "shortest": 0.5}}
    for seed, more in enumerate(own.values()):
        settings = config(seed=seed)
        settings["task"] |= more
        write_run(tmp_path, seed=seed, settings=settings)
    (only,) = contests(tmp_path)
    assert [(c.label, len(c.trials)) for c in only.configurations] == [
        ("spectral, curriculum auto, shortest 0.5", 1),
        ("spectral, curriculum none, shortest 1", 2),
    ]


def test_a_model_has_the_same_colour_in_every_task(tmp_path: Path) -> None:
    for task in ("addition", "copy"):
        for model in ("lstm", "spectral") if task == "addition" else ("spectral",):
            write_run(tmp_path, task, model)
    first, second = contests(tmp_path)
    colours = {c.label: c.style for c in first.configurations}
    assert {c.label: c.style for c in second.configurations} == {"spectral": colours["spectral"]}


def test_the_device_makes_no_other_configuration(tmp_path: Path) -> None:
    for seed, device in enumerate(("cpu", "cuda")):
        settings = config(seed=seed)
        settings["train"]["device"] = device
        write_run(tmp_path, seed=seed, settings=settings)
    assert len(contests(tmp_path)[0].configurations) == 1


def scored(root: Path, name: str, seed: int, value: float | None, metric: str) -> None:
    step = {"step": 10, "epoch": 0.1, "time": 1.0, "loss": 0.5, metric: value}
    lines: list[dict[str, Any]] = [{"kind": "validation", **step}, {"kind": "test", **step, "checkpoint": "best"}]
    lines.append({"kind": "end", "step": 10, "reason": "finished"})
    write_run(root, model=name, seed=seed, settings=config(model=name, seed=seed), lines=lines, facts={})


@pytest.mark.parametrize(("metric", "best"), [("accuracy", "b"), ("perplexity", "a")])
def test_the_best_comes_first_by_what_the_metric_means(tmp_path: Path, metric: str, best: str) -> None:
    scored(tmp_path, "a", 0, 1.0, metric)
    scored(tmp_path, "b", 0, 2.0, metric)
    (contest,) = contests(tmp_path)
    assert contest.metric == metric
    assert [row.label for row in comparison(contest) if row.best] == [best]
    assert comparison(contest)[0].label == best
    assert headline(contest).startswith(f"{best} has the best test {metric}, ")


def test_of_two_tests_the_one_of_the_best_weights_counts(tmp_path: Path) -> None:
    step = {"step": 10, "epoch": 0.1, "time": 1.0, "loss": 0.5}
    lines: list[dict[str, Any]] = [
        {"kind": "validation", **step, "accuracy": 0.8},
        {"kind": "test", **step, "accuracy": 0.7, "checkpoint": "best"},
        {"kind": "test", **step, "accuracy": 0.2, "checkpoint": "last"},
        {"kind": "end", "step": 10, "reason": "finished"},
    ]
    write_run(tmp_path, lines=lines, facts={})
    (contest,) = contests(tmp_path)
    assert [contest.test(trial) for trial in contest.trials] == [0.7]


def test_a_run_without_a_score_comes_last_and_is_never_best(tmp_path: Path) -> None:
    scored(tmp_path, "a", 0, None, "accuracy")
    scored(tmp_path, "b", 0, 0.1, "accuracy")
    assert [(row.label, row.best) for row in comparison(contests(tmp_path)[0])] == [("b", True), ("a", False)]


def test_an_untested_run_makes_the_comparison_one_of_validations(tmp_path: Path) -> None:
    write_run(tmp_path, model="spectral", lines=records("spectral"))
    write_run(tmp_path, model="rnn")
    (contest,) = contests(tmp_path)
    assert "best validation mse" in headline(contest)
    assert {row.label: row.remark for row in comparison(contest)} == {"spectral": "unfinished", "rnn": ""}


def test_several_seeds_have_mean_and_spread_in_the_table(tmp_path: Path) -> None:
    for seed, value in enumerate((0.5, 0.75)):
        scored(tmp_path, "a", seed, value, "accuracy")
    (row,) = comparison(contests(tmp_path)[0])
    assert (row.test, row.validation, row.seeds) == ("0.62 ± 0.18", "0.62 ± 0.18", 2)


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (records(steps=100), "unfinished"),
        (end(records(steps=100)), "finished"),
        (end(records(steps=100), "interrupted"), "interrupted"),
        ([*end(records(steps=100), "interrupted"), *records(steps=200)[-5:]], "unfinished"),
        ([], "unfinished"),
    ],
)
def test_how_a_run_ended_is_read_from_its_last_lines(tmp_path: Path, lines: list[dict[str, Any]], status: str) -> None:
    write_run(tmp_path, lines=lines)
    (trial,) = read_all([tmp_path], [])
    assert trial.status == status
    assert bool(trial.notes) == (status != "finished")


def test_a_certificate_is_told_in_words(tmp_path: Path) -> None:
    for seed, proof in enumerate((certificate(0.9), certificate("inf", stable=False), {"certificate": None, "reason": "none"})):
        write_run(tmp_path, seed=seed, proof=proof, lines=end(records(steps=200, probe_every=0)))
    found = [verdict(trial) for trial in read_all([tmp_path], [])]
    assert [(v.level, v.contraction, v.memory) for v in found] == [
        ("good", "0.9", "half in 7 steps"),
        ("warn", "none", "–"),
        ("none", "–", "–"),
    ]
    (row,) = comparison(contests(tmp_path)[0])
    assert row.verdict.word == "stable: 1 of 3"


def test_the_worst_seed_is_shown(tmp_path: Path) -> None:
    for seed, rate in enumerate((0.9, 0.99)):
        write_run(tmp_path, seed=seed, proof=certificate(rate))
    (row,) = comparison(contests(tmp_path)[0])
    assert (row.verdict.contraction, row.verdict.memory) == ("0.99", "half in 69 steps")


def test_a_proven_horizon_is_shown_where_it_is_written(tmp_path: Path) -> None:
    write_run(tmp_path, proof=certificate() | {"horizon": {"eps": 1e-3, "steps": 120}})
    assert verdict(read_all([tmp_path], [])[0]).memory == "120 steps to 0.001"


def test_only_what_differs_is_in_the_table_of_differences(tmp_path: Path) -> None:
    for model in ("rnn", "spectral"):
        write_run(tmp_path, model=model)
    labels, rows = differences(contests(tmp_path)[0])
    assert labels == ["rnn", "spectral"]
    assert rows == [("model.reflectors", ["none", "16"]), ("train.optimizer.lr", ["0.001", "0.01"])]


def test_damaged_parts_are_noted_and_the_rest_is_read(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    (folder / "certificate.json").write_text("{", encoding="utf-8")
    (folder / "environment.json").unlink()
    (trial,) = read_all([tmp_path], [])
    assert trial.records
    assert trial.environment == {}
    assert any("certificate.json cannot be read" in note for note in trial.notes)


def test_a_damaged_line_of_metrics_is_noted(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    path = folder / "metrics.jsonl"
    path.write_text("nonsense\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    (trial,) = read_all([tmp_path], [])
    assert trial.records == []
    assert "line 1" in trial.notes[0]


def test_a_run_given_twice_counts_once(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    assert len(read_all([folder, tmp_path], [])) == 1


def test_no_folder_is_an_error() -> None:
    with pytest.raises(RunError, match="`folders` must name at least one run"):
        read_all([], [])


def test_a_folder_without_runs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run"):
        read_all([tmp_path], [])


def certified(root: Path, seed: int, contraction: float | str, stable: bool, steps: int | None = None) -> None:
    proof = certificate(contraction, stable)
    proof["horizon"] = None if steps is None else {"eps": 1e-3, "steps": steps}
    write_run(root, seed=seed, proof=proof)


@pytest.mark.parametrize(
    ("first", "second", "shown"),
    [
        ((1.5, False), ("inf", False), ("not proven", "none", "–")),
        ((0.9, True), (1.2, False), ("stable: 1 of 2", "none (1.2)", "–")),
        ((0.9, True, 50), (0.8, True, 70), ("stable", "0.9", "70 steps to 0.001")),
    ],
)
def test_of_several_seeds_the_worst_is_shown(
    tmp_path: Path, first: tuple[Any, ...], second: tuple[Any, ...], shown: tuple[str, str, str]
) -> None:
    certified(tmp_path, 0, *first)
    certified(tmp_path, 1, *second)
    (row,) = comparison(contests(tmp_path)[0])
    assert (row.verdict.word, row.verdict.contraction, row.verdict.memory) == shown
