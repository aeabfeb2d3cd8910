"""A run: made, written, closed, read, found; what is not a run is told what it lacks."""

import json
import math
import re
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from steadyrnn.errors import ArgumentError, ArgumentTypeError, CheckpointError, RunError
from steadyrnn.runs import folder as folder_module
from steadyrnn.runs.folder import Run
from steadyrnn.runs.layout import find_runs
from tests.runs.faulty import in_child, names_in

CONFIG: dict[str, Any] = {
    "task": {"name": "addition", "length": 100},
    "model": {"name": "spectral", "width": 128},
    "train": {"seed": 0, "optimizer": {"betas": (0.9, 0.999)}},
}
COMMAND = ["steadyrnn", "train", "addition"]


def create(root: Path) -> Run:
    return Run.create(root, "addition", "spectral", CONFIG, COMMAND)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    with create(tmp_path) as made:
        return made  # closed on the way out


def begin_writing(run: Run) -> None:
    with Run.open(run.folder, write=True) as held:
        held.write_json("note.json", {})


def record(step: int, kind: str = "train", **values: Any) -> dict[str, Any]:
    return {"kind": kind, "step": step, "epoch": step / 10, "time": 0.5 * step, **values}


def test_a_run_has_its_place_and_its_files(tmp_path: Path, run: Run) -> None:
    assert run.folder.parent == tmp_path / "addition" / "spectral"
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{6}", run.id)
    assert names_in(run.folder) == ["config.json", "environment.json", "lock", "metrics.jsonl"]


def test_the_configuration_comes_back_with_format_and_command(run: Run) -> None:
    expected = {"format": 1, **json.loads(json.dumps(CONFIG)), "command": COMMAND}
    assert run.config == Run.open(run.folder).config == expected


def test_runs_that_start_in_the_same_second_do_not_collide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = iter(["aaaaaa", "aaaaaa", "aaaaaa", "bbbbbb"])
    now = folder_module._now()
    monkeypatch.setattr(folder_module, "_now", lambda: now)
    monkeypatch.setattr(folder_module.secrets, "token_hex", lambda size: next(tokens) if size == 3 else "0" * 2 * size)
    assert [create(tmp_path).id[-6:] for _ in range(2)] == ["aaaaaa", "bbbbbb"]


def test_runs_started_at_once_get_folders_of_their_own(tmp_path: Path) -> None:
    made: list[Path] = []
    threads = [threading.Thread(target=lambda: made.append(create(tmp_path).folder)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 8


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", ".hidden", "-x", "a b", "a\n", None])
def test_a_name_that_is_no_folders_is_refused(tmp_path: Path, run: Run, name: str) -> None:
    with pytest.raises(ArgumentError, match="`model` must be a name"):
        Run.create(tmp_path, "addition", name, CONFIG)
    with pytest.raises(ArgumentError, match="`name` must be a name"):
        run.load(name)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, "`config` must have an object `task`"),
        (CONFIG | {"model": {}}, "`config` must have an object `model` with a string `name`"),
        (CONFIG | {"train": []}, "`config` must have an object `train`"),
    ],
)
def test_an_incomplete_configuration_makes_no_folder(tmp_path: Path, config: dict[str, Any], expected: str) -> None:
    with pytest.raises(RunError, match=expected):
        Run.create(tmp_path / "runs", "addition", "spectral", config)
    assert not (tmp_path / "runs").exists()


# Metrics


def test_records_are_read_as_they_were_logged(run: Run) -> None:
    records = [record(1, loss=0.25), record(1, "validation", loss=0.5, accuracy=1.0), record(2, loss=math.nan, lr=math.inf)]
    with Run.open(run.folder, write=True) as held:
        for each in records:
            held.log(each)
    assert run.metrics() == [*records[:2], record(2, loss=None, lr=None)]
    assert len((run.folder / "metrics.jsonl").read_text().splitlines()) == 3


def test_a_record_is_in_the_file_before_the_call_returns(tmp_path: Path) -> None:
    with create(tmp_path) as held:
        held.log(record(1))
        assert Run.open(held.folder).metrics() == [record(1)]


@pytest.mark.parametrize(
    ("bad", "error", "expected"),
    [
        ({"kind": "train"}, ArgumentTypeError, r"`record\.step` must be an integer, but is of type NoneType"),
        ({"step": 1}, ArgumentTypeError, "must have a string as `kind`"),
        (record(-1), ArgumentError, r"`record\.step` must not be negative, but is -1"),
        ({"kind": "train", "step": 1.0}, ArgumentTypeError, r"`record\.step` must be an integer, but is of type float"),
        ({"kind": "train", "step": True}, ArgumentTypeError, r"`record\.step` must be an integer, but is of type bool"),
        (record(1, loss=torch.tensor(1.0)), ArgumentTypeError, r"`record\.loss` must be a JSON value .* Tensor"),
        ([1], ArgumentTypeError, "`record` must be a mapping, but is of type list"),
    ],
)
def test_a_bad_record_is_refused_and_not_written(tmp_path: Path, bad: Any, error: type[Exception], expected: str) -> None:
    with create(tmp_path) as held:
        with pytest.raises(error, match=expected):
            held.log(bad)
        assert held.metrics() == []


def test_a_rewind_drops_later_steps_and_what_only_an_ended_run_has(tmp_path: Path) -> None:
    probe = {"kind": "probe", "name": "spectrum", "value": {}}
    with create(tmp_path) as held:
        kept = [record(1), record(2), record(2, "validation"), probe | {"step": 2}]
        dropped = [record(2, "test"), {"kind": "end", "step": 2}, record(3), probe | {"step": 4}, record(4, "validation")]
        for each in [*kept, *dropped]:
            held.log(each)
        held.rewind(2)
        assert held.metrics() == kept
        held.log(record(3, loss=1.0))
        assert held.metrics() == [*kept, record(3, loss=1.0)]


@pytest.mark.parametrize("step", [1.0, True, None, "1"])
def test_a_rewind_to_no_step_is_refused(tmp_path: Path, step: Any) -> None:
    with create(tmp_path) as held, pytest.raises(ArgumentTypeError, match="`step` must be an integer"):
        held.rewind(step)


@pytest.mark.parametrize("tail", [b'{"kind": "tr', b"\0\0\0", b'{"kind": "train", "step": 3}', b"{}\n", b"\0\0\n"])
def test_a_half_written_last_line_is_left_out_and_then_cut_off(run: Run, tail: bytes) -> None:
    path = run.folder / "metrics.jsonl"
    whole = b'{"kind": "train", "step": 1}\n'
    path.write_bytes(whole + tail)
    assert run.metrics() == [{"kind": "train", "step": 1}]
    assert path.read_bytes() == whole + tail  # a reader changes nothing
    Run.open(run.folder, write=True).close()
    assert path.read_bytes() == whole + tail  # so does one who holds the run and writes nothing
    begin_writing(run)
    assert path.read_bytes() == whole


def test_a_damaged_line_in_the_middle_is_named(run: Run) -> None:
    (run.folder / "metrics.jsonl").write_bytes(b'{"kind": "train", "step": 1}\nx\n{"kind": "train", "step": 2}\n')
    with pytest.raises(RunError, match=r"metrics\.jsonl` is damaged: line 2 is no record"):
        run.metrics()
    with pytest.raises(RunError, match="line 2"):
        Run.open(run.folder, write=True)
    (run.folder / "metrics.jsonl").unlink()
    Run.open(run.folder, write=True).close()  # the lock was given back


# Checkpoints and other files


def test_checkpoints_are_saved_by_name(tmp_path: Path) -> None:
    with create(tmp_path) as held:
        held.save("best", {"weight": torch.ones(2)}, {"step": 1})
        held.save("last", {"weight": torch.zeros(2)}, {"step": 2})
    again = Run.open(held.folder)
    assert again.checkpoints() == ["best", "last"]
    assert [again.load(name).facts["step"] for name in ("best", "last")] == [1, 2]
    assert again.load("best").tensors["weight"].tolist() == [1, 1]


def test_a_checkpoint_that_is_not_there_is_named_with_those_that_are(run: Run) -> None:
    with pytest.raises(CheckpointError, match="has no checkpoint 'best'; it has: none"):
        run.load("best")
    with Run.open(run.folder, write=True) as held:
        held.save("last", {}, {})
    with pytest.raises(CheckpointError, match="has no checkpoint 'best'; it has: last"):
        run.load("best")


def test_json_files_are_written_and_read(tmp_path: Path) -> None:
    with create(tmp_path) as held:
        held.write_json("certificate.json", {"certificate": None, "bound": math.inf})
        assert held.read_json("certificate.json") == {"certificate": None, "bound": None}
        with pytest.raises(ArgumentTypeError, match=r"`value\.a` must be a JSON value"):
            held.write_json("certificate.json", {"a": object()})
        assert held.read_json("certificate.json") == {"certificate": None, "bound": None}


def test_a_json_file_missing_or_damaged_is_named(run: Run) -> None:
    with pytest.raises(RunError, match=r"has no `certificate\.json`"):
        run.read_json("certificate.json")
    (run.folder / "certificate.json").write_text("{")
    with pytest.raises(RunError, match=r"certificate\.json` is damaged: it is not JSON"):
        run.read_json("certificate.json")


# Opening and closing


WRITES = [
    lambda run: run.log(record(1)),
    lambda run: run.rewind(0),
    lambda run: run.save("last", {}, {}),
    lambda run: run.write_json("a.json", 1),
    lambda run: run.write_events(),
]


@pytest.mark.parametrize("write", WRITES)
def test_a_run_opened_for_reading_is_not_written(run: Run, write: Any) -> None:
    with Run.open(run.folder) as reader, pytest.raises(RunError, match="was opened for reading; open it with"):
        write(reader)


@pytest.mark.parametrize("write", WRITES)
def test_a_closed_run_is_not_written(run: Run, write: Any) -> None:
    with pytest.raises(RunError, match="is not held by this process: the run was closed"):
        write(run)
    run.close()  # again


@pytest.mark.parametrize("write", WRITES)
def test_a_forked_child_does_not_write_its_parents_run(tmp_path: Path, write: Any) -> None:
    with create(tmp_path) as held:

        def child() -> None:
            with pytest.raises(RunError, match="is not held by this process"):
                write(held)
            held.close()

        assert in_child(child) == 0
        held.log(record(1))


def test_temporary_files_of_a_killed_writer_are_swept_when_the_run_is_next_written(run: Run) -> None:
    (run.folder / ".config.json.00ff.tmp").write_bytes(b"{")
    Run.open(run.folder)
    assert ".config.json.00ff.tmp" in names_in(run.folder)
    Run.open(run.folder, write=True).close()
    assert ".config.json.00ff.tmp" in names_in(run.folder)
    begin_writing(run)
    assert ".config.json.00ff.tmp" not in names_in(run.folder)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "is not a run: it has no `config.json`"),
        ("{", "is damaged: it is not JSON"),
        ("[]", "must hold a JSON object, but holds list"),
        ("{}", "must have `format` 1, but has None"),
        ('{"format": 2}', "must have `format` 1, but has 2"),
        ('{"format": true}', "must have `format` 1, but has True"),
        ('{"format": 1}', "must have an object `task` with a string `name`"),
        ('{"format": 1, "task": {"name": "a"}, "model": {"name": 3}}', "must have an object `model` with a string `name`"),
        ('{"format": 1, "task": {"name": "a"}, "model": {"name": "b"}}', "must have an object `train`"),
        (
            '{"format": 1, "task": {"name": "a"}, "model": {"name": "b"}, "train": {}, "command": "x"}',
            "must have a list of strings as `command`",
        ),
    ],
)
def test_what_is_no_run_is_told_what_it_lacks(tmp_path: Path, content: str | None, expected: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    for write in (False, True):
        with pytest.raises(RunError, match=expected):
            Run.open(tmp_path, write=write)
    assert "lock" not in names_in(tmp_path)


# Finding


def test_runs_are_found_from_any_folder_above_them_each_once(tmp_path: Path) -> None:
    runs = sorted(Run.create(tmp_path, "addition", model, CONFIG).folder for model in ("rnn", "rnn", "lstm"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"architectures": []}')  # somebody else's
    assert find_runs([tmp_path]) == runs
    assert find_runs([tmp_path / "addition" / "rnn"]) == runs[1:]
    assert find_runs([runs[1], tmp_path, runs[1] / ".." / runs[1].name]) == [runs[1], runs[0], runs[2]]


def test_a_damaged_run_is_found_so_that_its_damage_is_told(tmp_path: Path, run: Run) -> None:
    (run.folder / "config.json").write_text("{")
    assert find_runs([tmp_path]) == [run.folder]
    with pytest.raises(RunError, match="is damaged"):
        Run.open(run.folder)


def test_a_path_without_runs_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="contains no run"):
        find_runs([tmp_path])
    with pytest.raises(RunError, match="is not a folder"):
        find_runs([tmp_path / "none"])
