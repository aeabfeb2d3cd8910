"""A finished sweep, made once."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from steadyrnn.jobs.search.result import Standing
from steadyrnn.jobs.sweep import run_sweep
from tests.jobs.search.sweeps import grid


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Standing:
    """A sweep of two trials; tests change copies of its folder."""
    return run_sweep(grid(0.01, 0.02), tmp_path_factory.mktemp("finished"), jobs=1)


@pytest.fixture
def two(finished: Standing, tmp_path: Path) -> Standing:
    """The finished sweep in a folder of the test's own."""
    shutil.copytree(finished.folder, tmp_path / "copy")
    return replace(finished, folder=tmp_path / "copy")
