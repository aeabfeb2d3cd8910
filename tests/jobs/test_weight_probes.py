"""Recurrent weights that a run keeps, and the distance of another run's weights from them."""

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from steadyrnn.errors import ArgumentError, RunError, ShapeError
from steadyrnn.jobs.loading import load_trained
from steadyrnn.jobs.recipes import configure
from steadyrnn.jobs.train import train_network
from steadyrnn.runs.folder import Run

SMALL = {"model.width": 4, "task.length": 6, "train.batch_size": 8, "train.device": "cpu", "task.validation": 16}


def trained(folder: Path, model: str = "lstm", steps: int = 6, **more: Any) -> Path:
    settings = {**SMALL, "train.steps": steps, **{name.replace("__", "."): value for name, value in more.items()}}
    return train_network(configure("addition", model, settings), folder).folder


def probes(folder: Path, name: str) -> list[dict[str, Any]]:
    return [record for record in Run.open(folder).metrics() if record["kind"] == "probe" and record["name"] == name]


def keeping(folder: Path, **more: Any) -> Path:
    return trained(folder, **{"train__probe__names": ["weights"], "train__probe__every": 2, **more})


def comparing(folder: Path, other: Path, **more: Any) -> Path:
    given = {"train__probe__names": ["weight-distance"], "train__probe__every": 2, "train__probe__against": str(other)}
    return trained(folder, **{**given, **more})


def test_a_run_that_is_repeated_stays_where_the_first_was(tmp_path: Path) -> None:
    one = keeping(tmp_path / "one")
    found = probes(comparing(tmp_path / "other", one), "weight-distance")
    assert [record["step"] for record in found] == [record["against_step"] for record in found] == [0, 2, 4, 6]
    assert [record["value"] for record in found] == [{"weight_hh_l0": 0.0}] * 4
    assert [record["frobenius"] for record in found] == [{"weight_hh_l0": 0.0}] * 4


def test_the_distance_is_that_of_the_stacked_weights(tmp_path: Path) -> None:
    one = keeping(tmp_path / "one")
    other = comparing(tmp_path / "other", one, train__optimizer__lr=0.1)
    last = probes(other, "weight-distance")[-1]
    weights = [load_trained(run, "last").model.rnn.weight_hh_l0.detach().double() for run in (one, other)]
    difference = weights[0] - weights[1]  # (16, 4): four gates
    assert last["value"]["weight_hh_l0"] == pytest.approx(float(torch.linalg.matrix_norm(difference, 2)), rel=1e-9)
    assert last["frobenius"]["weight_hh_l0"] == pytest.approx(float(difference.norm()), rel=1e-9)


def test_kept_weights_are_those_of_each_step(tmp_path: Path) -> None:
    one = keeping(tmp_path / "one", model="spectral")
    assert sorted(path.name for path in (one / "weights").iterdir()) == [f"{step}.safetensors" for step in (0, 2, 4, 6)]
    kept = safetensors.torch.load_file(one / "weights" / "6.safetensors")["weight_hh_l0"]
    assert torch.equal(kept, load_trained(one, "last").model.rnn.weight_hh_l0.detach())
    norm = float(torch.linalg.matrix_norm(kept.double(), 2))
    assert probes(one, "weights")[-1]["value"]["weight_hh_l0"] == pytest.approx(norm, rel=1e-9)


def test_the_nth_measurement_is_compared_with_the_nth(tmp_path: Path) -> None:
    one = keeping(tmp_path / "one")
    found = probes(comparing(tmp_path / "other", one, train__probe__every=3, steps=8), "weight-distance")
    assert [(record["step"], record.get("against_step")) for record in found] == [(0, 0), (3, 2), (6, 4), (8, None)]
    assert found[-1]["value"] == {}
    assert found[-1]["reason"] == "Step 8 is no multiple of 3: the other run has no weights to compare."


def test_a_step_that_the_other_run_did_not_reach_says_so(tmp_path: Path) -> None:
    one = keeping(tmp_path / "one", steps=2)
    found = probes(comparing(tmp_path / "other", one, steps=4), "weight-distance")
    assert [bool(record["value"]) for record in found] == [True, True, False]
    assert found[-1]["reason"] == "The other run kept no weights at step 4."


def test_no_other_run_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"`probe\.against` must be the folder of a run .* but is None"):
        trained(tmp_path / "runs", train__probe__names=["weight-distance"], train__probe__every=2)
    assert not (tmp_path / "runs").exists()


def test_a_run_that_kept_nothing_is_refused(tmp_path: Path) -> None:
    one = trained(tmp_path / "one", steps=2)
    with pytest.raises(ArgumentError, match="kept none"):
        comparing(tmp_path / "other", one)
    assert not (tmp_path / "other").exists()


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    one = keeping(tmp_path / "one", steps=2)
    with pytest.raises(ShapeError, match=r"`weight_hh_l0` has shape \(20, 5\), .* it is of shape \(16, 4\)"):
        comparing(tmp_path / "other", one, steps=2, model__width=5)


def test_damaged_weights_are_refused(tmp_path: Path) -> None:
    one = keeping(tmp_path / "one", steps=2)
    (one / "weights" / "2.safetensors").write_bytes(b"nothing")
    with pytest.raises(RunError, match="is damaged"):
        comparing(tmp_path / "other", one, steps=2)


def test_weights_are_not_written_through_a_link(tmp_path: Path) -> None:
    one = keeping(tmp_path / "one", steps=2)
    (one / "weights" / "2.safetensors").unlink()
    (one / "weights" / "2.safetensors").symlink_to(tmp_path / "elsewhere")
    again = configure("addition", "lstm", {**SMALL, "train.steps": 2, "train.probe.names": ["weights"], "train.probe.every": 2})
    (one / "checkpoints").rename(one / "gone")
    (one / "metrics.jsonl").write_text("")
    with pytest.raises(RunError, match="a link"):
        train_network(again, resume=one)
    assert not (tmp_path / "elsewhere").exists()
