"""What tests and doctests share: one thread, a fixed seed, a clean default dtype, and names for doctests."""

import importlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _steady_torch() -> Iterator[None]:
    dtype = torch.get_default_dtype()
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(dtype)


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace["torch"] = torch
    doctest_namespace["sr"] = importlib.import_module("steadyrnn")


@pytest.fixture(scope="session")
def _example_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with ``runs/``, in which there is one small run of ``stable-rnn`` on ``addition``."""
    recipes, jobs = (importlib.import_module(f"steadyrnn.jobs.{name}") for name in ("recipes", "train"))
    folder = tmp_path_factory.mktemp("examples")
    sizes = {"model.width": 4, "task.length": 5, "train.steps": 2, "train.batch_size": 8}
    jobs.train_network(recipes.configure("addition", "stable-rnn", sizes), folder / "runs")
    return folder


@pytest.fixture(autouse=True)
def _example_folder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: Any) -> None:
    """Run the examples of ``jobs`` in a folder of their own, where there is a run to read."""
    if isinstance(request.node, pytest.DoctestItem) and request.node.path.parent.name == "jobs":
        folder = tmp_path_factory.mktemp("example")
        shutil.copytree(request.getfixturevalue("_example_runs") / "runs", folder / "runs")
        monkeypatch.chdir(folder)
