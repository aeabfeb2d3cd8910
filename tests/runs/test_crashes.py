"""A save that is killed or refused at any system call leaves the old checkpoint or the new, and no reader sees less."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from steadyrnn.errors import RunError
from steadyrnn.runs.checkpoint import load_checkpoint, save_checkpoint
from steadyrnn.runs.files import is_temporary
from steadyrnn.runs.folder import Run
from tests.runs.faulty import KILLED, WatchedSystem, count_calls, die_at, fail_at, in_child, names_in, watch

CONFIG = {"task": {"name": "addition"}, "model": {"name": "rnn"}, "train": {}}


def save(folder: Path, step: int) -> None:
    save_checkpoint(folder, {"weight": torch.full((300,), float(step)), "step": torch.tensor(step)}, {"step": step})


def loaded(folder: Path) -> int:
    """Return the step of a checkpoint, all parts of which must be of one step."""
    checkpoint = load_checkpoint(folder)
    step = checkpoint.facts["step"]
    assert checkpoint.tensors["weight"].tolist() == [step] * 300
    assert checkpoint.tensors["step"].item() == step
    return int(step)


def calls_of_a_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Count the calls of a save over an old checkpoint; as many leftovers as the test has are in the way."""
    folder = tmp_path / "counted"
    save(folder, 1)
    return count_calls(monkeypatch, lambda: save(folder, 2))


@pytest.mark.parametrize("torn", [False, True])
def test_a_save_killed_at_any_call_leaves_a_whole_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torn: bool
) -> None:
    folder = tmp_path / "last"

    def killed_save(call: int) -> None:
        watch(monkeypatch, die_at(call, torn=torn))
        save(folder, 2)

    seen = []
    calls = calls_of_a_save(tmp_path, monkeypatch)
    for call in range(calls):
        save(folder, 1)  # over what the kill before has left
        assert len(names_in(folder)) == 2, "the leftovers are swept"
        assert in_child(lambda call=call: killed_save(call)) == KILLED
        seen.append(loaded(folder))
    assert sorted(seen) == seen, "the old one up to a moment, the new one from then on"
    assert set(seen) == {1, 2}
    save(folder, 1)
    assert in_child(lambda: killed_save(calls)) == 0, "there is no further call"


def test_a_first_save_killed_at_any_call_leaves_none_or_a_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed_save(call: int) -> None:
        watch(monkeypatch, die_at(call))
        save(tmp_path / str(call) / "last", 1)

    call, status = 0, KILLED
    while status == KILLED:
        status = in_child(lambda call=call: killed_save(call))
        folder = tmp_path / str(call) / "last"
        if (folder / "checkpoint.json").exists():
            assert loaded(folder) == 1
        save(folder, 2)
        assert loaded(folder) == 2
        call += 1
    assert status == 0
    assert call > 10


def refusal_of(body: Callable[[], object]) -> str:
    """Return the words of the error, "" where there is none."""
    try:
        body()
    except RunError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("onwards", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("refusal", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_save_refused_at_any_call_leaves_a_whole_checkpoint_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int, onwards: bool
) -> None:
    folder = tmp_path / "last"
    raised = 0
    for call in range(calls_of_a_save(tmp_path, monkeypatch)):
        save(folder, 1)
        with monkeypatch.context() as patch:
            system = watch(patch, fail_at(call, refusal, onwards=onwards))
            refused = refusal_of(lambda: save(folder, 2))
        if refused:
            raised += 1
            assert os.strerror(refusal) in refused
            assert loaded(folder) in (1, 2)
        else:
            assert loaded(folder) == 2
            assert system.names[call] in {"unlink", "listdir"}, "only a sweep may fail in silence"
        if not onwards and system.names[call] != "unlink":
            assert [name for name in names_in(folder) if is_temporary(name)] == []
    assert raised > 10


def test_a_full_disk_is_not_filled_further_by_what_could_not_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "last"
    save(folder, 1)
    before = names_in(folder)
    writes = 0

    def full_at_the_second_write(number: int, name: str, arguments: tuple[Any, ...]) -> None:
        nonlocal writes
        writes += name == "write"
        if name == "write" and writes == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        watch(patch, full_at_the_second_write)
        with pytest.raises(RunError, match=r"checkpoint\.json.*No space left"):
            save(folder, 2)
    assert names_in(folder) == before
    assert loaded(folder) == 1


def test_a_reader_sees_whole_checkpoints_while_a_writer_replaces_them(tmp_path: Path) -> None:
    folder = tmp_path / "last"
    save(folder, 0)
    writer = os.fork()
    if writer == 0:
        for step in range(1, 150):
            save(folder, step)
        os._exit(0)
    seen = [0]
    while os.waitpid(writer, os.WNOHANG)[0] == 0:
        seen.append(loaded(folder))
    assert seen == sorted(seen)
    assert loaded(folder) == 149


def test_a_killed_line_is_cut_off_and_the_next_one_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Run.create(tmp_path, "addition", "rnn", CONFIG) as run:
        run.log({"kind": "train", "step": 1})

    def killed_line(call: int) -> None:
        held = Run.open(run.folder, write=True)
        held.write_json("note.json", {})  # what goes before the first write is done
        watch(monkeypatch, die_at(call, torn=True))
        held.log({"kind": "train", "step": 2})

    assert in_child(lambda: killed_line(0)) == KILLED
    assert not (run.folder / "metrics.jsonl").read_bytes().endswith(b"\n")
    assert [record["step"] for record in run.metrics()] == [1]
    with Run.open(run.folder, write=True) as again:
        again.log({"kind": "train", "step": 3})
    assert [record["step"] for record in run.metrics()] == [1, 3]


def test_a_rewind_killed_at_any_call_has_happened_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Run.create(tmp_path, "addition", "rnn", CONFIG) as run:
        for step in range(5):
            run.log({"kind": "train", "step": step})
    lines = (run.folder / "metrics.jsonl").read_bytes()

    def killed_rewind(call: int) -> None:
        held = Run.open(run.folder, write=True)
        watch(monkeypatch, die_at(call, torn=True))
        held.rewind(2)

    seen, call, status = set(), 0, KILLED
    while status == KILLED:
        (run.folder / "metrics.jsonl").write_bytes(lines)
        status = in_child(lambda call=call: killed_rewind(call))
        seen.add(tuple(record["step"] for record in run.metrics()))
        call += 1
    assert seen == {(0, 1, 2, 3, 4), (0, 1, 2)}


def test_a_run_killed_while_it_is_made_is_no_run_or_a_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed_start(call: int) -> None:
        watch(monkeypatch, die_at(call, torn=True))
        Run.create(tmp_path / str(call), "addition", "rnn", CONFIG)

    call, status = 0, KILLED
    while status == KILLED:
        status = in_child(lambda call=call: killed_start(call))
        for folder in (tmp_path / str(call)).glob("addition/rnn/*"):
            if (folder / "config.json").exists():
                with Run.open(folder, write=True) as run:
                    assert run.metrics() == []
                    assert "torch" in run.read_json("environment.json")
            else:
                with pytest.raises(RunError, match=r"it has no `config\.json`"):
                    Run.open(folder)
        call += 1
    assert status == 0
    assert call > 20


@pytest.mark.parametrize("refusal", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_run_that_cannot_be_made_says_why_at_any_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int) -> None:
    calls = count_calls(monkeypatch, lambda: Run.create(tmp_path / "counted", "addition", "rnn", CONFIG).close())
    for call in range(calls - 1):  # the last one closes
        with monkeypatch.context() as patch:
            watch(patch, fail_at(call, refusal))
            with pytest.raises(RunError, match=os.strerror(refusal)):
                Run.create(tmp_path / str(call), "addition", "rnn", CONFIG)


def test_metrics_are_durable_before_the_checkpoint_that_follows_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Run.create(tmp_path, "addition", "rnn", CONFIG) as run:
        system = WatchedSystem()
        monkeypatch.setattr("steadyrnn.runs.files.os", system)
        run.log({"kind": "train", "step": 1})
        run.save("last", {}, {})
    assert system.names[:2] == ["write", "fsync"]
    assert system.names.index("replace") > 1


def test_a_second_writer_is_refused_while_the_first_saves(tmp_path: Path) -> None:
    run = Run.create(tmp_path, "addition", "rnn", CONFIG)

    def second() -> None:
        with pytest.raises(RunError, match=rf"is being written by process {os.getppid()} on "):
            Run.open(run.folder, write=True)
        assert Run.open(run.folder).metrics() == []  # reading needs no lock

    assert in_child(second) == 0
    run.close()
    with Run.open(run.folder, write=True) as again:
        again.save("last", {}, {"step": 1})
