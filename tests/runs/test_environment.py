"""The environment of a run is on record, and so is what had changed when it went on."""

import subprocess
from pathlib import Path

import pytest
import torch

from steadyrnn.runs import folder as room
from steadyrnn.runs.environment import describe_environment
from steadyrnn.runs.folder import Run
from steadyrnn.runs.json_text import parse, render

CONFIG = {"task": {"name": "addition"}, "model": {"name": "rnn"}, "train": {}}


def test_the_environment_is_json_and_says_what_numbers_depend_on() -> None:
    environment = describe_environment()
    assert parse(render(environment).encode()) == environment
    assert environment["torch"] == torch.__version__
    assert environment["packages"]["torch"] in torch.__version__
    assert environment["threads"]["within"] == torch.get_num_threads()
    assert (environment["cuda"] is None) == (not torch.cuda.is_available())


def test_the_switches_are_read_when_asked() -> None:
    before = describe_environment()["determinism"]
    torch.use_deterministic_algorithms(True)
    flushes = torch.set_flush_denormal(True)
    try:
        after = describe_environment()["determinism"]
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_flush_denormal(False)
    assert (before["algorithms"], after["algorithms"]) == (False, True)
    assert (before["flush_denormal"], after["flush_denormal"]) == (False, flushes)


def test_the_commit_of_a_checkout_is_told_and_whether_it_was_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert describe_environment()["git"] is None
    (tmp_path / "a").write_text("a")
    name = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "a"], [*name, "commit", "-q", "-m", "a"]):
        subprocess.run(["git", *words], check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert describe_environment()["git"] == {"commit": head, "changed": False}
    (tmp_path / "a").write_text("b")
    assert describe_environment()["git"] == {"commit": head, "changed": True}


def test_a_machine_without_git_has_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert describe_environment()["git"] is None


def test_what_changed_before_a_run_goes_on_is_noted_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = {"torch": "2.13.0", "threads": {"within": 1}}
    other = first | {"torch": "2.14.0"}
    monkeypatch.setattr(room, "describe_environment", lambda: first)
    run = Run.create(tmp_path, "addition", "rnn", CONFIG)
    run.close()
    for environment in (first, other, other, first):
        monkeypatch.setattr(room, "describe_environment", lambda environment=environment: environment)
        Run.open(run.folder, write=True).close()
    noted = run.read_json("environment.json")
    changes = [note["changed"] for note in noted.pop("resumed")]
    assert noted == first
    assert changes == [{"torch": "2.14.0"}, {"torch": "2.13.0"}]


@pytest.mark.parametrize("content", [None, "{", "[]", '{"resumed": 3}', '{"resumed": ["x"]}', '{"resumed": [{}]}'])
def test_a_lost_environment_is_written_again(tmp_path: Path, content: str | None) -> None:
    with Run.create(tmp_path, "addition", "rnn", CONFIG) as run:
        path = run.folder / "environment.json"
    path.unlink()
    if content is not None:
        path.write_text(content)
    Run.open(run.folder, write=True).close()
    assert run.read_json("environment.json")["torch"] == torch.__version__


def test_what_the_caller_knows_beside_it_is_noted_too(tmp_path: Path) -> None:
    run = Run.create(tmp_path, "addition", "rnn", CONFIG, environment={"calibration": None})
    run.close()
    assert run.read_json("environment.json")["calibration"] is None
    table = {"name": "nvidia-h200", "sha256": "ab"}
    Run.open(run.folder, write=True, environment={"calibration": table}).close()
    assert run.read_json("environment.json")["resumed"][0]["changed"] == {"calibration": table}
    assert run.environment() == {**describe_environment(), "calibration": table}


@pytest.mark.parametrize("content", [None, "{", "[]", '{"resumed": 3}', '{"resumed": ["x"]}', '{"resumed": [{"changed": 3}]}'])
def test_an_environment_that_is_lost_is_none(tmp_path: Path, content: str | None) -> None:
    with Run.create(tmp_path, "addition", "rnn", CONFIG) as run:
        path = run.folder / "environment.json"
    path.unlink()
    if content is not None:
        path.write_text(content)
    assert Run.open(run.folder).environment() is None
