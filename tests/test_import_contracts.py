"""Who may import whom: import-linter checks the contracts in ``pyproject.toml``, and finds an import that breaks one."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINT = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"


def lint(source: Path) -> subprocess.CompletedProcess[str]:
    """Check the contracts on the package in a folder."""
    command = [sys.executable, "-c", LINT, "--no-logo", "--no-cache", "--config", str(ROOT / "pyproject.toml")]
    return subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)


def test_the_package_keeps_the_contracts() -> None:
    done = lint(ROOT / "src")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("file", "source", "expected"),
    [
        ("linalg/a.py", "from steadyrnn.constraints.base import Constraint", "linalg.a -> steadyrnn.constraints.base"),
        ("linalg/a.py", "import steadyrnn.layers.rnn", "linalg.a -> steadyrnn.layers.rnn"),
        ("linalg/a.py", "import steadyrnn as sr", "linalg.a -> steadyrnn"),
        ("linalg/a.py", "from steadyrnn import layers", "linalg.a -> steadyrnn.layers"),
        ("linalg/a.py", "def f():\n    from steadyrnn.layers import rnn", "linalg.a -> steadyrnn.layers.rnn"),
        ("layers/a.py", "if TYPE_CHECKING:\n    from steadyrnn.models.mlp import MLP", "layers.a -> steadyrnn.models.mlp"),
        ("layers/a.py", "from steadyrnn.bounds.gates import x", "layers.a -> steadyrnn.bounds.gates"),
        ("layers/a.py", "from steadyrnn.gpu.graph import x", "layers.a -> steadyrnn.gpu.graph"),
        ("engines/cpu/a.py", "from steadyrnn.layers.rnn import RNN", "engines.cpu.a -> steadyrnn.layers.rnn"),
        ("engines/cpu/a.py", "from ..triton.tiles import x", "engines.cpu.a -> steadyrnn.engines.triton.tiles"),
        ("engines/cuda/a.py", "from ..cudnn import x", "engines.cuda.a -> steadyrnn.engines.cudnn"),
        ("engines/loop/a.py", "from ..cuda.engine import x", "engines.loop.a -> steadyrnn.engines.cuda.engine"),
        ("activations/a.py", "from steadyrnn.linalg.norms import x", "activations.a -> steadyrnn.linalg.norms"),
        ("cells/a.py", "from steadyrnn.linalg.norms import x", "cells.a -> steadyrnn.linalg.norms"),
        ("tasks/a.py", "from steadyrnn.runs.files import x", "tasks.a -> steadyrnn.runs.files"),
        ("bounds/a.py", "from steadyrnn.gpu.graph import x", "bounds.a -> steadyrnn.gpu.graph"),
        ("constraints/a.py", "from steadyrnn.cells.base import x", "constraints.a -> steadyrnn.cells.base"),
        ("models/a.py", "from steadyrnn.engines.select import x", "models.a -> steadyrnn.engines.select"),
        ("certificates/a.py", "from steadyrnn.tasks.base import x", "certificates.a -> steadyrnn.tasks.base"),
        ("parallel/a.py", "from steadyrnn.probes.band import x", "parallel.a -> steadyrnn.probes.band"),
        ("probes/a.py", "from steadyrnn.parallel.plan import x", "probes.a -> steadyrnn.parallel.plan"),
        ("convert/a.py", "from steadyrnn.train.step import x", "convert.a -> steadyrnn.train.step"),
        ("train/a.py", "from steadyrnn.models.mlp import MLP", "train.a -> steadyrnn.models.mlp"),
        ("report/a.py", "from steadyrnn.tasks.base import x", "report.a -> steadyrnn.tasks.base"),
        ("gpu/a.py", "from steadyrnn.cells.base import x", "gpu.a -> steadyrnn.cells.base"),
        ("convert/a.py", "from steadyrnn.cli.main import x", "convert.a -> steadyrnn.cli.main"),
        ("attic/__init__.py", "", "attic"),
        ("attic.py", "", "attic"),
    ],
)
def test_an_import_outside_the_contracts_is_found(tmp_path: Path, file: str, source: str, expected: str) -> None:
    package = tmp_path / "steadyrnn"
    shutil.copytree(ROOT / "src" / "steadyrnn", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / file).parent.mkdir(exist_ok=True)
    (package / file).write_text(source, encoding="utf-8")
    done = lint(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert expected in " ".join(done.stdout.split())
