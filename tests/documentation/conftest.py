"""The documentation, built once for all tests of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Return the folder with the pages; the workers of a parallel run share it. STEADYRNN_SITE names one that is built."""
    if built := os.environ.get("STEADYRNN_SITE"):
        return Path(built)
    for needed in ("sphinx", "furo", "myst_parser", "math_core"):
        pytest.importorskip(needed, reason="needs the extra `docs`")
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "site"
    with FileLock(f"{folder}.lock"):
        if not (folder / "html").is_dir():
            command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", str(folder / "doctrees")]
            done = subprocess.run([*command, "docs", str(folder / "making")], cwd=ROOT, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            (folder / "making").rename(folder / "html")
    return folder / "html"
