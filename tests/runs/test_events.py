"""Event files hold the numbers of the metrics, and a resumed run takes back what it does again."""

import errno
import math
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from steadyrnn.errors import RunError
from steadyrnn.runs.events import scalars
from steadyrnn.runs.folder import Run

CONFIG = {"task": {"name": "addition"}, "model": {"name": "rnn"}, "train": {}}


def read(folder: Path) -> dict[str, list[tuple[int, float]]]:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator").EventAccumulator(str(folder))
    accumulator.Reload()
    return {tag: [(event.step, event.value) for event in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    pytest.importorskip("tensorboard")
    return Run.create(tmp_path, "addition", "rnn", CONFIG)


def test_the_numbers_of_records_are_read_back(run: Run) -> None:
    run.write_events()
    run.write_events()  # again: of no effect
    run.log({"kind": "train", "step": 1, "epoch": 0.5, "time": 3.0, "loss": 0.5, "lr": 0.25, "note": "text", "none": None})
    run.log({"kind": "validation", "step": 1, "loss": 0.75})
    run.log({"kind": "probe", "name": "certificate", "step": 1, "value": {"contraction": 0.5, "stable": True, "regime": "x"}})
    run.log({"kind": "end", "step": 1, "reason": "finished"})
    run.close()
    assert read(run.folder) == {
        "train/loss": [(1, 0.5)],
        "train/lr": [(1, 0.25)],
        "validation/loss": [(1, 0.75)],
        "certificate/value/contraction": [(1, 0.5)],
        "certificate/value/stable": [(1, 1.0)],
    }


def test_a_resumed_run_takes_back_the_steps_that_it_does_again(run: Run) -> None:
    run.write_events()
    for step in range(1, 6):
        run.log({"kind": "train", "step": step, "loss": 1.0})
    run.close()
    with Run.open(run.folder, write=True) as again:
        again.write_events()
        again.rewind(3)
        for step in range(4, 8):
            again.log({"kind": "train", "step": step, "loss": 2.0})
    assert len(list(run.folder.glob("events.out.tfevents.*"))) == 2
    assert read(run.folder)["train/loss"] == [(step, 1.0 if step < 4 else 2.0) for step in range(1, 8)]


def test_without_being_asked_there_are_no_event_files(run: Run) -> None:
    run.log({"kind": "train", "step": 1, "loss": 0.5})
    run.close()
    assert list(run.folder.glob("events*")) == []


def test_without_tensorboard_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with Run.create(tmp_path, "addition", "rnn", CONFIG) as run:
        with pytest.raises(RunError, match=r"need the package `tensorboard`: pip install steadyrnn\[train\]"):
            run.write_events()
        run.log({"kind": "train", "step": 1})  # all else works


def test_a_full_disk_is_told_and_the_run_is_given_back_all_the_same(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = pytest.importorskip("tensorboard.summary.writer.event_file_writer").EventFileWriter

    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    run.write_events()
    run.log({"kind": "train", "step": 1, "loss": 0.5})
    monkeypatch.setattr(writer, "close", full)
    with pytest.raises(RunError, match=r"event file in .* could not be written: No space left"):
        run.close()
    run.close()  # again: of no effect
    monkeypatch.setattr(writer, "flush", full)
    with Run.open(run.folder, write=True) as again:
        again.write_events()
        with pytest.raises(RunError, match=r"could not be written: No space left"):
            again.log({"kind": "train", "step": 2, "loss": 0.5})


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"kind": "train", "step": 1, "loss": math.inf, "values": [1.0]}, [("train/loss", math.inf)]),
        (
            {"kind": "probe", "name": "spectrum", "step": 1, "value": {"w": [2.0]}, "margin": {"w": 1}},
            [("spectrum/margin/w", 1.0)],
        ),
    ],
)
def test_only_single_numbers_are_scalars(record: dict[str, Any], expected: list[tuple[str, float]]) -> None:
    assert list(scalars(record)) == expected
