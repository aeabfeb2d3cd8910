"""Fixtures of the program's tests."""

import os
from pathlib import Path

import pytest

from steadyrnn.cli.main import main
from tests.cli.program import QUICK, Program


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Program:
    monkeypatch.chdir(tmp_path)
    return Program(capsys)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One short run of each of a few systems on the addition problem; nobody writes to them."""
    root = tmp_path_factory.mktemp("cli") / "runs"
    for model, more in (
        ("contractive", ["--model.bound", "0.8"]),
        ("spectral", ["--train.probe.every", "3"]),
        ("lstm", []),
        ("truncated", ["--model.context", "4"]),
    ):
        assert main(["train", "addition", "--model", model, "--out", os.fspath(root), "--quiet", "--json", *QUICK, *more]) == 0
    return root
