"""Weights in a safetensors file: as they are used, under torch's names, replaced as a whole or not at all."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import steadyrnn as sr
from steadyrnn.constraints.registry import CONSTRAINTS
from steadyrnn.errors import ArgumentError, ArgumentTypeError, RunError


@pytest.mark.parametrize("name", CONSTRAINTS)
@pytest.mark.parametrize("make", [sr.RNN, sr.GRU, sr.LSTM])
def test_a_file_holds_the_weights_that_a_layer_uses(tmp_path: Path, make: Any, name: str) -> None:
    layer = make(4, 6, 2, bidirectional=True, transition=name)
    stored = load_file(sr.save_weights(layer, tmp_path / "w.safetensors"))
    free = make(4, 6, 2, bidirectional=True)
    assert set(stored) == set(free.state_dict())
    assert all(torch.equal(tensor, getattr(layer, key)) for key, tensor in stored.items())
    free.load_state_dict(stored)


def test_a_whole_model_is_written_under_the_names_of_a_plain_one(tmp_path: Path) -> None:
    model = sr.SequenceModel(sr.GRU(6, 6, transition="ornn"), 5, vocab_size=5, tied=True)
    stored = load_file(sr.save_weights(model, tmp_path / "w.safetensors"))
    sr.to_torch(model).load_state_dict(stored)
    mlp = sr.MLP(3, 4, 2, 2, weight="spectral")
    assert set(load_file(sr.save_weights(mlp, tmp_path / "m.safetensors"))) == set(sr.to_torch(mlp).state_dict())


def test_a_state_dict_is_written_as_it_is(tmp_path: Path) -> None:
    state = nn.LSTM(2, 3).state_dict()
    stored = load_file(sr.save_weights(state, tmp_path / "w.safetensors"))
    assert all(torch.equal(stored[name], tensor) for name, tensor in state.items())
    assert os.listdir(tmp_path) == ["w.safetensors"]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"model": {"a": torch.ones(1)}, "epoch": 3}, r"'model' is of type dict. Give the part .* model\['model'\]"),
        ({"a": torch.ones(1), "b": 3}, "'b' is of type int"),
        ([torch.ones(1)], "`model` must be a module or a state dict, but is of type list"),
        (None, "but is of type NoneType"),
    ],
)
def test_what_is_no_weight_is_refused_by_name(tmp_path: Path, model: Any, words: str) -> None:
    with pytest.raises(ArgumentTypeError, match=words):
        sr.save_weights(model, tmp_path / "w.safetensors")
    assert not os.listdir(tmp_path)


def test_no_file_has_a_name_that_can_be_guessed_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, replace = [], os.replace

    def look(part: Path, path: Path) -> None:
        seen.append(Path(part).name)
        replace(part, path)

    monkeypatch.setattr(os, "replace", look)
    for _ in range(2):
        sr.save_weights(nn.Linear(1, 1), tmp_path / "w.safetensors")
    assert len({*seen}) == 2
    assert str(os.getpid()) not in seen[0].split(".")
    assert os.listdir(tmp_path) == ["w.safetensors"]


def test_a_system_that_refuses_gets_an_error_that_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"w\.safetensors"):
        sr.save_weights(nn.Linear(1, 1), tmp_path / "nowhere" / "w.safetensors")


def link(path: Path) -> None:
    path.symlink_to(path.with_name("precious"))
    path.with_name("precious").write_text("mine")


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, link])
def test_what_is_no_file_is_not_replaced(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "w.safetensors"
    make(path)
    before = path.lstat()
    with pytest.raises(ArgumentError, match="`path` must name a file"):
        sr.save_weights(nn.Linear(1, 1), path)
    assert path.lstat().st_ino == before.st_ino
    assert {*os.listdir(tmp_path)} <= {"w.safetensors", "precious"}
