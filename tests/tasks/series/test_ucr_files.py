"""A UCR set that is read as files of one's own gives, bit for bit, the batches of the built-in task."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from steadyrnn.jobs.own_data import settle
from steadyrnn.jobs.recipes import configure
from steadyrnn.jobs.train import train_network
from steadyrnn.tasks.registry import make_task
from steadyrnn.tasks.ucr import Ucr
from steadyrnn.tasks.ucr_sets import UCR_SETS

FOLDER = Path(os.environ.get("STEADYRNN_DATA") or "/nonexistent")

pytestmark = pytest.mark.skipif(not (FOLDER / "ucr").is_dir(), reason="ucr is not in STEADYRNN_DATA")


def files(name: str) -> dict[str, Any]:
    """Return the settings that read the two files of a set as the built-in task does."""
    train, test = (FOLDER / path for path in UCR_SETS[name].paths())
    built_in = make_task("ucr", dataset=name, refit=True)
    assert isinstance(built_in, Ucr)
    whole = {"refit": True, "scale": "none", "patch": built_in.features}
    return {"data": str(train), "test_data": str(test), "header": False, "layout": "rows", "target": "1", **whole}


@pytest.mark.parametrize("name", UCR_SETS)
def test_the_batches_are_those_of_the_built_in_task(name: str) -> None:
    built_in, own = make_task("ucr", dataset=name, refit=True), make_task("series", **files(name))
    pairs = [*((built_in.train_batch(step, 16), own.train_batch(step, 16)) for step in range(3))]
    pairs += zip(built_in.batches("test", 256), own.batches("test", 256), strict=True)
    for expected, found in pairs:
        assert found.lengths is None
        assert torch.equal(found.input, expected.input)
        assert torch.equal(found.target.flatten(), expected.target)


def test_so_is_the_network_that_is_trained_on_them(tmp_path: Path) -> None:
    quick = {"model.width": 8, "train.steps": 30, "train.optimizer.lr": 0.01, "train.device": "cpu", "train.threads": 1}
    built_in = configure("ucr", "spectral", {"task.dataset": "ItalyPowerDemand", "task.refit": True, **quick})
    own = settle({**{f"task.{name}": value for name, value in files("ItalyPowerDemand").items()}, **quick})
    expected = train_network(built_in, tmp_path).result
    same = replace(own.configuration, model=built_in.model, train=built_in.train)
    found = train_network(same, tmp_path, task=own.task).result
    assert {name: found.test[name] for name in expected.test} == expected.test
    assert expected.test["accuracy"] > 0.6
