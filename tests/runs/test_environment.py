"""The environment of a run is on record, and so is what had changed when it went on."""

from pathlib import Path

import pytest
import torch

from steadyrnn.runs import folder as folder_module
from steadyrnn.runs.environment import describe_environment
from steadyrnn.runs.folder import Run
from steadyrnn.runs.json_text import parse, render
from steadyrnn.runs.source_commit import source_commit

CONFIG = {"task": {"name": "addition"}, "model": {"name": "rnn"}, "train": {}}


def test_the_environment_is_json_and_says_what_numbers_depend_on() -> None:
    environment = describe_environment()
    assert parse(render(environment).encode()) == environment
    assert environment["torch"] == torch.__version__
    assert environment["packages"]["torch"] in torch.__version__
    assert environment["threads"]["within"] == torch.get_num_threads()
    assert (environment["cuda"] is None) == (not torch.cuda.is_available())


def test_the_switches_are_read_when_requested() -> None:
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


def test_the_commit_is_that_of_the_packages_own_source_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the user's folder has no part in it
    commit = source_commit()
    assert describe_environment()["git"] == (None if commit is None else {"commit": commit})


def begin_writing(run: Run) -> None:
    with Run.open(run.folder, write=True) as held:
        held.write_json("note.json", {})


def test_what_changed_before_a_run_goes_on_is_noted_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = {"torch": "2.13.0", "threads": {"within": 1}}
    other = first | {"torch": "2.14.0"}
    monkeypatch.setattr(folder_module, "describe_environment", lambda: first)
    run = Run.create(tmp_path, "addition", "rnn", CONFIG)
    run.close()
    for environment in (first, other, other, first):
        monkeypatch.setattr(folder_module, "describe_environment", lambda environment=environment: environment)
        begin_writing(run)
    noted = run.read_json("environment.json")
    changes = [note["changed"] for note in noted.pop("resumed")]
    assert noted == first
    assert changes == [{"torch": "2.14.0"}, {"torch": "2.13.0"}]


def run_without_environment(folder: Path, content: str | None) -> Run:
    """Return a closed run whose environment is lost: the file is gone, or holds something else."""
    with Run.create(folder, "addition", "rnn", CONFIG) as run:
        path = run.folder / "environment.json"
    path.unlink()
    if content is not None:
        path.write_text(content)
    return run


@pytest.mark.parametrize("content", [None, "{", "[]", '{"resumed": 3}', '{"resumed": ["x"]}', '{"resumed": [{}]}'])
def test_a_lost_environment_is_written_again(tmp_path: Path, content: str | None) -> None:
    run = run_without_environment(tmp_path, content)
    begin_writing(run)
    assert run.read_json("environment.json")["torch"] == torch.__version__


def test_what_the_caller_knows_beside_it_is_noted_too(tmp_path: Path) -> None:
    run = Run.create(tmp_path, "addition", "rnn", CONFIG, environment={"calibration": None})
    run.close()
    assert run.read_json("environment.json")["calibration"] is None
    table = {"name": "nvidia-h200", "sha256": "ab"}
    with Run.open(run.folder, write=True, environment={"calibration": table}) as held:
        held.write_json("note.json", {})
    assert run.read_json("environment.json")["resumed"][0]["changed"] == {"calibration": table}
    assert run.environment() == {**describe_environment(), "calibration": table}


@pytest.mark.parametrize("content", [None, "{", "[]", '{"resumed": 3}', '{"resumed": ["x"]}', '{"resumed": [{"changed": 3}]}'])
def test_an_environment_that_is_lost_is_none(tmp_path: Path, content: str | None) -> None:
    run = run_without_environment(tmp_path, content)
    assert Run.open(run.folder).environment() is None
