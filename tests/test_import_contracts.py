"""Who may import whom: import-linter checks the contracts in ``pyproject.toml``, which are exactly the table below."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from itertools import permutations
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "steadyrnn"
LINT = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"

SHARED = {"errors", "checks", "activations"}  # open to every package
READ = {"models", "layers", "constraints", "cells", "engines", "linalg", "bounds"}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "checks": {"errors"},
    "activations": {"errors", "checks"},
    "gpu": SHARED,
    "linalg": SHARED | {"gpu"},
    "bounds": SHARED | {"linalg"},
    "cells": SHARED,
    "tasks": SHARED,
    "runs": SHARED,
    "constraints": SHARED | {"linalg"},
    "engines": SHARED | {"cells", "linalg", "gpu"},
    "layers": SHARED | {"constraints", "cells", "engines", "linalg"},
    "models": SHARED | {"layers", "constraints"},
    "certificates": SHARED | READ,
    "parallel": SHARED | READ | {"certificates"},
    "probes": SHARED | READ | {"certificates"},
    "convert": SHARED | READ | {"certificates", "parallel"},
    "train": SHARED | {"tasks", "runs", "constraints"},
    "report": SHARED | {"runs"},
}
ENGINES = ("cpu", "cudnn", "triton", "cuda")
STATEMENTS = {
    "a name": "from steadyrnn.layers.rnn import RNN",
    "a module": "import steadyrnn.layers.rnn",
    "a package": "from steadyrnn import layers",
    "everything": "import steadyrnn as sr",
    "for types only": "if TYPE_CHECKING:\n    from steadyrnn.layers.rnn import RNN",
    "in a function": "def f():\n    from steadyrnn.layers import rnn",
}


def lint(source: Path) -> tuple[int, str]:
    """Check the contracts on the package in a folder; return the exit status and what was printed."""
    command = [sys.executable, "-c", LINT, "--no-logo", "--no-cache", "--config", str(ROOT / "pyproject.toml")]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def refused(folder: Path, pairs: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Plant an import for each pair of modules, the importing one first, in a copy; return the pairs that are refused."""
    package = folder / "steadyrnn"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    for number, (importer, imported) in enumerate(pairs):
        path = package.joinpath(*importer.split("."))
        with (path / f"planted_{number}.py" if path.is_dir() else path.with_suffix(".py")).open("a") as file:
            file.write(f"\nimport steadyrnn.{imported}\n")
    status, printed = lint(folder)
    found = set(re.findall(r"^steadyrnn\.(\S+) is not allowed to import steadyrnn\.(\S+):$", printed, re.MULTILINE))
    assert status == (1 if found else 0), printed
    return found


def test_the_package_keeps_the_contracts() -> None:
    status, printed = lint(ROOT / "src")
    assert status == 0, printed


def test_every_package_is_in_the_table() -> None:
    names = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert names - {"__init__", "__main__", "cli", "jobs", "estimators", "experiments"} == set(MAY_IMPORT)


def test_exactly_what_is_not_in_the_table_is_refused(tmp_path: Path) -> None:
    pairs = set(permutations([*MAY_IMPORT, "cli"], 2))
    allowed = {(importer, imported) for importer, imported in pairs if imported in MAY_IMPORT.get(importer, MAY_IMPORT)}
    assert refused(tmp_path, sorted(pairs)) == pairs - allowed


def test_an_engine_is_refused_to_another_and_to_what_they_share(tmp_path: Path) -> None:
    shared = {(f"engines.{part}", f"engines.{engine}") for part in ("loop", "reference") for engine in ENGINES}
    pairs = {(f"engines.{one}", f"engines.{other}") for one, other in permutations(ENGINES, 2)} | shared
    assert refused(tmp_path, sorted(pairs)) == pairs


@pytest.mark.parametrize("kind", STATEMENTS)
def test_an_import_is_found_however_it_is_written(kind: str, tmp_path: Path) -> None:
    shutil.copytree(SOURCE, tmp_path / "steadyrnn", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "steadyrnn" / "linalg" / "planted.py").write_text(STATEMENTS[kind])
    status, printed = lint(tmp_path)
    assert (status, "steadyrnn.linalg.planted -> steadyrnn" in printed) == (1, True), printed


@pytest.mark.parametrize("file", ["attic/__init__.py", "attic.py"])
def test_a_package_that_is_in_no_contract_is_refused(file: str, tmp_path: Path) -> None:
    shutil.copytree(SOURCE, tmp_path / "steadyrnn", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "steadyrnn" / file).parent.mkdir(exist_ok=True)
    (tmp_path / "steadyrnn" / file).touch()
    status, printed = lint(tmp_path)
    assert (status, "attic" in printed) == (1, True), printed
