"""The arguments of train: overrides, files, short forms, recipes."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from steadyrnn.cli.train_arguments import read
from steadyrnn.errors import ArgumentError, RunError
from steadyrnn.jobs.recipes import recipe
from steadyrnn.models.registry import SYSTEMS
from steadyrnn.models.settings import complete
from steadyrnn.tasks.registry import TASKS


def test_dotted_overrides_reach_every_part() -> None:
    words = "addition --task.length 200 --model.width 64 --train.optimizer.lr 1e-2 --train.optimizer.betas [0.8,0.9]"
    asked = read(words.split()).configuration
    assert (asked.task_name, asked.task.length, asked.model.width) == ("addition", 200, 64)  # type: ignore[attr-defined]
    assert (asked.train.optimizer.lr, asked.train.optimizer.betas) == (0.01, (0.8, 0.9))


@pytest.mark.parametrize(
    "words", ["--model lstm --model.width 9", "--model.width 9 --model=lstm", "--model.name lstm --model.width=9"]
)
def test_a_models_name_and_its_options_go_together_in_any_order(words: str) -> None:
    model = read(["addition", *words.split()]).configuration.model
    assert (model.name, model.width) == ("lstm", 9)


def test_short_forms_are_the_settings_they_stand_for() -> None:
    asked = read(["pixel-mnist", "--seed", "4", "--device", "cpu", "--threads", "2", "--data-dir", "somewhere"]).configuration
    assert (asked.train.seed, asked.train.device, asked.train.threads) == (4, "cpu", 2)
    assert asked.task.data_dir == "somewhere"  # type: ignore[attr-defined]


def test_the_task_may_stand_anywhere() -> None:
    asked = read(["--seed", "3", "--json", "copy", "--task.delay", "7"])
    assert asked.as_json
    assert (asked.configuration.task_name, asked.configuration.train.seed) == ("copy", 3)


@pytest.mark.parametrize("suffix", ["yaml", "json"])
@pytest.mark.parametrize("place", ["first", "last"])
def test_the_command_line_wins_over_a_file(tmp_path: Path, suffix: str, place: str) -> None:
    file = tmp_path / f"settings.{suffix}"
    values = {"task": {"name": "addition", "length": 30}, "model": {"name": "gru", "width": 5}, "train": {"steps": 7}}
    file.write_text(json.dumps(values) if suffix == "json" else yaml.safe_dump(values), encoding="utf-8")
    config, own = ["--config", str(file)], ["--train.steps", "9"]
    asked = read([*config, *own] if place == "first" else [*own, *config]).configuration
    assert (asked.task.length, asked.model.name, asked.model.width) == (30, "gru", 5)  # type: ignore[attr-defined]
    assert asked.train.steps == 9


def test_another_task_on_the_command_line_wins_too(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("task: {name: addition}\ntrain: {steps: 3}\n", encoding="utf-8")
    asked = read(["copy", "--config", str(file)]).configuration
    assert (asked.task_name, asked.train.steps) == ("copy", 3)


@pytest.mark.parametrize(
    ("text", "error"),
    [("{", "neither YAML nor JSON"), ("3", "must hold a mapping"), ("", "must hold a mapping")],
)
def test_a_file_that_holds_no_settings_is_refused(tmp_path: Path, text: str, error: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ArgumentError, match=error):
        read(["addition", "--config", str(file)])


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("task: {name: addition, lenght: 3}", "lenght"),
        ("train: {optimizer: {rate: 3}}", "rate"),
        ("modell: {name: rnn}", "modell"),
    ],
)
def test_a_file_with_an_unknown_setting_is_a_misuse(
    tmp_path: Path, text: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit) as left:
        read(["addition", "--config", str(file)])
    assert left.value.code == 2
    assert word in capsys.readouterr().err


def test_a_name_that_is_no_text_is_a_misuse(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("task: {name: [addition]}", encoding="utf-8")
    with pytest.raises(SystemExit):
        read(["--config", str(file)])


def test_another_task_than_that_of_the_run_to_resume_is_refused_by_name(tmp_path: Path) -> None:
    text = json.dumps(read(["addition"]).configuration.to_dict())
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(RunError, match=r"is 'addition', but 'copy' is requested"):
        read(["copy", "--resume", str(tmp_path)])


def test_a_run_of_an_older_release_is_resumed_with_the_clipping_it_had(tmp_path: Path) -> None:
    stored = read(["addition", "--train.clip.recurrent", "0.25"]).configuration.to_dict()
    assert stored["train"]["clip"].pop("recurrent_of") == "weight"
    (tmp_path / "config.json").write_text(json.dumps(stored), encoding="utf-8")
    assert read(["--resume", str(tmp_path)]).configuration.train.clip.recurrent_of == "raw"


def test_probes_are_chosen_by_name() -> None:
    words = ["addition", "--probe", "gradient-h0,dead-units", "--train.probe.every", "5", "--probe=margin"]
    probe = read(words).configuration.train.probe
    assert (probe.names, probe.every) == (("gradient-h0", "dead-units", "margin"), 5)


@pytest.mark.parametrize("words", [["--probe", "margin", "--train.probe.every", "0"], ["--probe", ""]])
def test_probes_that_would_measure_nothing_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read(["addition", *words])
    assert "--probe needs at least one name, and --train.probe.every of 1 or more" in capsys.readouterr().err


def test_an_average_has_a_short_form() -> None:
    assert (
        read(["addition", "--train.average", "ema", "--train.average.decay", "0.9"]).configuration.train.average.name == "ema"
    )


def test_a_run_to_resume_must_be_one(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"holds no config\.json"):
        read(["--resume", str(tmp_path)])


def test_a_configuration_survives_being_stored() -> None:
    asked = read(
        ["recall", "--model", "truncated", "--model.base", "urnn", "--model.context", "4", "--train.probe.names", "[spectrum]"]
    )
    stored = json.loads(json.dumps(asked.configuration.to_dict()))
    assert type(asked.configuration).from_dict(stored) == asked.configuration


# Recipes.


@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_a_recipe_that_the_parser_takes(task: str) -> None:
    assert TASKS[task].recipe
    asked = read([task]).configuration
    assert complete(asked.model)
    assert SYSTEMS[asked.model.name].reads == TASKS[task].reads


@pytest.mark.parametrize("task", ["addition", "stable-system", "mnist", "contractive"])
@pytest.mark.parametrize("model", SYSTEMS)
def test_a_recipe_leaves_another_models_options_alone(task: str, model: str) -> None:
    assert complete(read([task, "--model", model]).configuration.model).name == model


def test_every_recipe_is_of_known_models() -> None:
    models = {model for record in TASKS.values() for model in record.model_recipes}
    models |= {record.recipe["model.name"] for record in TASKS.values() if "model.name" in record.recipe}
    models |= {model for record in TASKS.values() if record.long for model in record.long.model_recipes}
    assert models <= set(SYSTEMS)


def test_a_recipe_is_a_default_and_no_more() -> None:
    assert recipe("addition", None)["train.batch_size"] == read(["addition"]).configuration.train.batch_size
    assert read(["addition", "--train.batch_size", "3"]).configuration.train.batch_size == 3


def test_what_a_recipe_does_not_say_is_the_trainers_own_default() -> None:
    assert asdict(read(["addition"]).configuration.train)["optimizer"]["eps"] == 1e-8
