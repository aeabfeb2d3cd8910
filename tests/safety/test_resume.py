"""A run folder that lost a part is resumed as if it had not, or refused with everything as it was."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from steadyrnn.cli.main import main
from steadyrnn.runs.folder import Run
from steadyrnn.train import trainer
from tests.safety.run_folders import make_run, snapshot


class Struck:
    """Signals of which one has come: training ends after a step."""

    received = signal.SIGINT

    def __init__(self, active: bool = True, patient: bool = False) -> None:
        pass

    def __enter__(self) -> "Struck":
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A whole run, the same one interrupted after its first step, and another that was."""
    root = tmp_path_factory.mktemp("resume")
    made = {"whole": make_run(root / "whole")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "Signals", Struck)
        made["cut"], made["other"] = make_run(root / "cut"), make_run(root / "other", seed=1)
    assert [record["step"] for record in Run.open(made["cut"]).metrics()][-1] == 1
    return made


def numbers(run: Path) -> tuple[Any, ...]:
    """Return what a run computed: lines of metrics without times, last and best weights."""
    held = Run.open(run)
    timed = {"time", "examples_per_second"}
    lines = [{key: value for key, value in record.items() if key not in timed} for record in held.metrics()]
    return lines, *({name: t.clone() for name, t in held.load(which).tensors.items()} for which in ("last", "best"))


def same(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    tensors = all(
        one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)
        for one, two in zip(a[1:], b[1:], strict=True)
    )
    return a[0] == b[0] and tensors


def missing(path: Path, other: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def emptied(path: Path, other: Path) -> None:
    missing(path, other)
    path.mkdir() if other.is_dir() else path.touch()


def truncated(path: Path, other: Path) -> None:
    for file in [path] if path.is_file() else sorted(path.rglob("*.*")):
        if file.is_file():
            os.truncate(file, file.stat().st_size // 2)


def other_kind(path: Path, other: Path) -> None:
    was_folder = path.is_dir()
    missing(path, other)
    path.write_text("x") if was_folder else path.mkdir()


def linked(path: Path, other: Path) -> None:
    missing(path, other)
    path.symlink_to(other)


def from_another_run(path: Path, other: Path) -> None:
    missing(path, other)
    shutil.copytree(other, path) if other.is_dir() else shutil.copy(other, path)


def altered(path: Path, other: Path) -> None:
    for file in [path] if path.is_file() else sorted(path.rglob("*.*")):
        data = bytearray(file.read_bytes()) if file.is_file() else bytearray()
        if data:
            data[len(data) // 2] ^= 4
            file.write_bytes(bytes(data))


DAMAGES: dict[str, Callable[[Path, Path], None]] = {
    "missing": missing,
    "emptied": emptied,
    "truncated": truncated,
    "of another kind": other_kind,
    "linked": linked,
    "from another run": from_another_run,
    "altered": altered,
}
PARTS = ("config.json", "metrics.jsonl", "environment.json", "facts.json", "lock", "checkpoints", "checkpoints/last",
         "checkpoints/best", "checkpoints/last/checkpoint.json", "checkpoints/best/checkpoint.json", "checkpoints/last/tensors",
         "checkpoints/best/tensors")  # fmt: skip
DERIVED = {"environment.json", "facts.json", "lock"}
"""Files that say nothing which the others do not: a run goes on without them."""


def place(run: Path, part: str) -> Path:
    return next((run / part).parent.glob("tensors-*")) if part.endswith("tensors") else run / part


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("part", PARTS)
def test_a_damaged_run_is_resumed_rightly_or_left_as_it_is(
    runs: dict[str, Path], tmp_path: Path, part: str, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs["cut"], run)
    DAMAGES[damage](place(run, part), place(runs["other"], part))
    before = snapshot(run)
    capsys.readouterr()
    status = main(["train", "--resume", os.fspath(run), "--quiet"])
    said = capsys.readouterr().err.strip()
    if status == 0:
        assert part in DERIVED
        assert same(numbers(run), numbers(runs["whole"]))
    else:
        assert status in (1, 2)
        assert said
        assert "Traceback" not in said
        assert part not in DERIVED or damage in ("of another kind", "linked")
        assert snapshot(run) == before


def test_an_undamaged_run_is_resumed_bit_for_bit(runs: dict[str, Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs["cut"], run)
    assert main(["train", "--resume", os.fspath(run), "--quiet"]) == 0
    assert same(numbers(run), numbers(runs["whole"]))


def settings(data: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the paths of all settings in a nested mapping."""
    inner = {name: settings(value) if isinstance(value, dict) and value else [()] for name, value in data.items()}
    return [(name, *rest) for name, paths in inner.items() for rest in paths]


def test_every_altered_setting_of_a_run_is_noticed(runs: dict[str, Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs["cut"], run)
    config = json.loads((run / "config.json").read_text())
    paths = settings(config)
    assert len(paths) > 30
    for path in paths:
        changed = json.loads(json.dumps(config))
        inner = changed
        for name in path[:-1]:
            inner = inner[name]
        old = inner[path[-1]]
        inner[path[-1]] = {bool: not old, int: 7, float: 0.123, str: "tanh"}.get(type(old), 5)
        (run / "config.json").write_text(json.dumps(changed))
        before = snapshot(run)
        assert main(["train", "--resume", os.fspath(run), "--quiet"]) != 0, path
        assert snapshot(run) == before, path


@pytest.mark.parametrize("lost", ["checkpoints", "checkpoints/last"])
def test_a_run_that_lost_its_checkpoint_does_not_start_anew(runs: dict[str, Path], tmp_path: Path, lost: str) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs["whole"], run)
    shutil.rmtree(run / lost)
    before = snapshot(run)
    assert main(["train", "--resume", os.fspath(run), "--quiet"]) == 1
    assert snapshot(run) == before


def test_a_run_that_was_killed_before_its_first_checkpoint_starts(runs: dict[str, Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs["cut"], run)
    shutil.rmtree(run / "checkpoints")
    (run / "metrics.jsonl").write_bytes(b"")
    assert main(["train", "--resume", os.fspath(run), "--quiet"]) == 0
    assert same(numbers(run), numbers(runs["whole"]))
