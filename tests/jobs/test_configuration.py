"""A configuration by names, and a task and a system that are registered with one record each."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from steadyrnn.cli.train_arguments import read, train_parser
from steadyrnn.errors import ArgumentError
from steadyrnn.jobs.compare import compare_with_torch
from steadyrnn.jobs.configuration import Configuration
from steadyrnn.jobs.convert import convert_run
from steadyrnn.jobs.evaluate import evaluate_run
from steadyrnn.jobs.recipes import configure
from steadyrnn.jobs.train import train_network
from steadyrnn.models.registry import SYSTEMS, Blueprint, System
from steadyrnn.models.settings import complete
from steadyrnn.runs.folder import Run
from steadyrnn.tasks.addition import Addition
from steadyrnn.tasks.registry import TASKS, TaskRecord
from steadyrnn.tasks.settings import AdditionSettings

SMALL: dict[str, Any] = {"model.width": 4, "task.length": 4, "task.validation": 8, "task.test": 8, "train.steps": 2}


@pytest.mark.parametrize("task", TASKS)
def test_a_configuration_from_python_is_that_of_the_command_line(task: str) -> None:
    assert configure(task) == read([task]).configuration


def test_given_settings_win_over_the_recipe() -> None:
    asked = configure("copy", "spectral", {"model.width": 8, "train.optimizer.lr": 0.5, "train.clip.norm": None})
    assert (asked.model.width, asked.model.reflectors, asked.train.optimizer.lr, asked.train.clip.norm) == (8, 8, 0.5, None)


@pytest.mark.parametrize("part", ["task", "model", "train", "train.optimizer"])
def test_an_unknown_setting_is_refused_by_name(part: str) -> None:
    with pytest.raises(ArgumentError, match=f"`{part}.hidden` is no setting"):
        configure("addition", None, {f"{part}.hidden": 3})


def test_an_unknown_task_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ArgumentError, match=r"`task` must be one of addition, copy.* but is 'adding'"):
        configure("adding")


def test_an_unknown_form_or_system_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="`form` must be one of unitary, feedforward, parallel, torch, but is 'onyx'"):
        convert_run(tmp_path, "onyx")
    with pytest.raises(ArgumentError, match="`names` must be one of rnn, irnn"):
        compare_with_torch(["mlp"])


def test_a_configuration_survives_being_stored() -> None:
    asked = configure("recall", "truncated", {"model.base": "urnn", "model.context": 4})
    assert Configuration.from_dict(asked.to_dict()) == asked


def test_options_of_saturation_are_stored_and_an_older_folder_has_none(tmp_path: Path) -> None:
    """Before there were such options, `adaptive_tanh` had a full basis that starts at 0.05."""
    own = {"model.nonlinearity": "adaptive_tanh", "model.saturation_basis": "diagonal", "model.saturation_start": 0.2}
    asked = configure("addition", "urnn", {**SMALL, **own})
    assert asked.to_dict()["model"] == {"name": "urnn", "width": 4, **{key[6:]: value for key, value in own.items()}}
    assert Configuration.from_dict(asked.to_dict()) == asked
    older = configure("addition", "urnn", {**SMALL, "model.nonlinearity": "adaptive_tanh"})
    assert "saturation_basis" not in older.to_dict()["model"]
    assert (complete(older.model).saturation_basis, complete(older.model).saturation_start) == ("full", 0.05)
    run = train_network(asked, tmp_path)
    keys = [name for name in Run.open(run.folder).load("best").tensors if "saturation" in name]
    assert keys == ["model.rnn.saturation_l0.log_scale"]  # a diagonal basis has no rotation
    assert evaluate_run(run.folder).scores == pytest.approx(run.result.test)


@pytest.mark.parametrize("model", ["spectral", "lstm"])
def test_long_sequences_of_addition_have_a_curriculum(model: str) -> None:
    long = configure("addition", model, {"task.length": 101})
    assert long.task == AdditionSettings(length=101, curriculum="auto", shortest=0.5)
    assert (long.train.steps, long.train.batch_size) == (10000, 50)
    assert (long.model.width, long.model.nonlinearity) == ((64, "relu") if model == "spectral" else (None, None))
    short = configure("addition", model, {"task.length": 100})
    assert (short.task, short.train.steps) == (AdditionSettings(), 3000)


def test_without_a_curriculum_long_sequences_have_the_recipe_of_short_ones() -> None:
    own = {"task.length": 300, "task.curriculum": "none"}
    assert configure("addition", None, own).train == configure("addition").train
    assert configure("addition", None, own).task == AdditionSettings(length=300)


def test_a_run_of_an_earlier_release_is_not_given_a_curriculum(tmp_path: Path) -> None:
    stored = configure("addition", None, {"task.length": 300, "task.curriculum": "none"}).to_dict()
    stored["task"] = {"name": "addition", "seed": 0, "length": 300, "validation": 1000, "test": 1000}
    (tmp_path / "config.json").write_text(json.dumps(stored))
    asked = read(["addition", "--config", str(tmp_path / "config.json")]).configuration
    assert Configuration.from_dict(stored).task == AdditionSettings(length=300)
    assert (asked.task, asked.train.steps) == (AdditionSettings(length=300), 3000)


def test_the_command_line_takes_stages_and_its_help_shows_the_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["addition", "--task.length", "200", "--task.curriculum", "20:3:1,200:1:0.1", "--task.curriculum_below", "null"]
    task = read(words).configuration.task
    assert task == AdditionSettings(length=200, curriculum="20:3:1,200:1:0.1", curriculum_below=None, shortest=0.5)
    assert read([*words[:3], "--task.curriculum", "100,200"]).configuration.task.curriculum == "100,200"  # type: ignore[attr-defined]
    for length, default in ((200, "auto"), (100, "none")):
        with pytest.raises(SystemExit):
            read(["addition", "--task.length", str(length), "--help"])
        page = " ".join(capsys.readouterr().out.split())
        assert f"default: {default})" in page.split("--task.curriculum ")[1].split("--task.curriculum_below ")[0]


def test_a_stored_configuration_has_the_options_it_was_made_with(tmp_path: Path) -> None:
    """Spectral-ResNets had their singular values around 1 before, and that was not written down."""
    stored = {"format": 1, "task": {"name": "mnist"}, "model": {"name": "spectral-resnet"}, "train": {}}
    (tmp_path / "config.json").write_text(json.dumps(stored))
    assert Configuration.from_dict(stored).model.center == 1.0
    assert read(["mnist", "--config", str(tmp_path / "config.json")]).configuration.model.center == 1.0
    asked = configure("mnist", "spectral-resnet")
    assert complete(asked.model).center == 0.0
    assert asked.to_dict()["model"]["center"] == 0.0
    assert complete(Configuration.from_dict(asked.to_dict()).model) == complete(asked.model)
    assert configure("mnist", "spectral-resnet", {"model.center": 0.5}).to_dict()["model"]["center"] == 0.5


def write_config(folder: Path, model: dict[str, Any], train: dict[str, Any], name: str = "config.json") -> str:
    """Write a configuration as an earlier release stored it; return its path."""
    stored = {"format": 1, "task": {"name": "mnist"}, "model": model, "train": train}
    (folder / name).write_text(json.dumps(stored))
    return str(folder / name)


@pytest.mark.parametrize("model", [{"name": "spectral-resnet"}, {"name": "spectral-resnet", "center": None}], ids=str)
def test_an_option_that_a_stored_form_leaves_open_has_its_value_of_then(tmp_path: Path, model: dict[str, Any]) -> None:
    path = write_config(tmp_path, model, {})
    assert Configuration.from_dict(json.loads(Path(path).read_text())).model.center == 1.0
    for words in ([], ["--train.steps", "3"], ["--model", "spectral-resnet"]):
        assert read(["--config", path, *words]).configuration.model.center == 1.0
    assert read(["--resume", str(tmp_path)]).configuration.model.center == 1.0
    assert read(["--config", path, "--model.center", "0.5"]).configuration.model.center == 0.5


@pytest.mark.parametrize("words", ["command line", "second file", "plain file"])
def test_a_model_that_replaces_a_stored_one_has_the_options_of_today(tmp_path: Path, words: str) -> None:
    old = write_config(tmp_path, {"name": "spectral-mlp", "width": 8}, {})
    plain = tmp_path / "plain.yaml"
    plain.write_text("model: {name: spectral-resnet}")
    later = {"command line": ["--model", "spectral-resnet"], "plain file": ["--config", str(plain)]}
    later["second file"] = ["--config", write_config(tmp_path, {"name": "spectral-resnet"}, {}, "second.json")]
    asked = read(["--config", old, *later[words]]).configuration
    assert (asked.model.name, asked.model.width) == ("spectral-resnet", 8)
    assert complete(asked.model).center == (1.0 if words == "second file" else 0.0)  # that one was stored with a model itself


def test_a_stored_model_that_is_replaced_leaves_no_former_option_behind(tmp_path: Path) -> None:
    old = write_config(tmp_path, {"name": "spectral-resnet"}, {})
    assert read(["--config", old, "--model", "mlp"]).configuration.model.center is None


def test_clipping_of_a_stored_form_has_its_meaning_of_then(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"name": "spectral-mlp"}, {"clip": {"norm": None, "recurrent": 0.25}})
    stored = Configuration.from_dict(json.loads(Path(path).read_text())).train.clip
    assert (stored.recurrent, stored.recurrent_of) == (0.25, "raw")
    assert read(["--config", path]).configuration.train.clip == stored
    assert read(["--config", path, "--train.clip.recurrent_of", "weight"]).configuration.train.clip.recurrent_of == "weight"


@pytest.mark.parametrize("recurrent", [None, 0.25])
def test_clipping_in_new_words_has_its_meaning_of_today(tmp_path: Path, recurrent: float | None) -> None:
    path = write_config(tmp_path, {"name": "spectral-mlp"}, {"clip": {"norm": None, "recurrent": recurrent}})
    clip = read(["--config", path, "--train.clip.recurrent", "0.5"]).configuration.train.clip
    assert (clip.norm, clip.recurrent, clip.recurrent_of) == (None, 0.5, "weight")


def test_a_stored_form_of_another_version_is_refused_whatever_is_said_beside_it(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"name": "mlp"}, {})
    Path(path).write_text(Path(path).read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(ArgumentError, match="`format` of a configuration must be 1"):
        read(["--config", path, "--model", "spectral-resnet"])


@pytest.mark.parametrize("stored", [{"model": 3}, {"format": 1, "model": None}, {"format": 1, "model": {"name": ["a"]}}])
def test_a_damaged_stored_configuration_is_refused(stored: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=r"`format`|`model`|`model\.name`"):
        Configuration.from_dict({"task": {"name": "addition"}, "train": {}, **stored})


@dataclass(frozen=True)
class DoubleSettings(AdditionSettings):
    """Twice the sum of the two marked numbers.

    Args:
        factor: What the sum is multiplied by.
    """

    factor: float = 2.0


class Double(Addition):
    """A task from outside the package."""


def test_a_task_and_a_system_from_outside_need_one_record_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = TaskRecord("double", DoubleSettings, f"{__name__}:Double", {"train.batch_size": 4})
    blueprint = Blueprint("steadyrnn.layers.gru:GRU", "steadyrnn.constraints.ball:SpectralBall", ("bound",))
    system = System("ball-gru", "GRU in a ball", "nobody", {**SYSTEMS["gru"].options, "bound": 0.5}, blueprint)
    monkeypatch.setitem(TASKS, "double", task)
    monkeypatch.setitem(SYSTEMS, "ball-gru", system)
    page = train_parser(None).format_help()
    assert "Twice the sum of the two marked numbers." in page
    assert "GRU in a ball (nobody)" in page
    assert "--task.factor" in train_parser("double", "ball-gru", for_help=True).format_help()
    run = train_network(configure("double", "ball-gru", SMALL), tmp_path)
    assert evaluate_run(run.folder).scores == run.result.test
