"""The commands of the README run: the program's as they stand, make's with training cut short."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.program import Program
from tests.cli.test_examples import run

ROOT = Path(__file__).parents[2]
LINES = [
    line.split("#")[0].strip()
    for block in re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    for line in block.splitlines()
]


def test_every_line_is_of_the_program_or_of_make() -> None:
    assert {line.split()[0] for line in LINES} == {"make", "steadyrnn"}
    assert [line for line in LINES if line.startswith("make")] == ["make demo", "make test"]


def test_the_programs_lines_run_one_after_another(program: Program) -> None:
    for line in LINES:
        if line.startswith("steadyrnn"):
            run(program, line)


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.skipif(not (ROOT / ".venv" / ".ready").exists(), reason="needs the environment that make sets up")
def test_make_demo_runs_to_the_report(tmp_path: Path) -> None:
    settings = {**os.environ, "STEADYRNN_EXAMPLE_FAST": "1", "STEADYRNN_DEMO_OUT": str(tmp_path / "demo")}
    settings.pop("MAKEFLAGS", None)
    done = subprocess.run(
        ["make", "--no-print-directory", "demo"], cwd=ROOT, env=settings, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "report.html in a browser" in done.stdout
    assert (tmp_path / "demo" / "report.html").stat().st_size > 10_000
    assert (tmp_path / "demo" / "unitary" / "model.safetensors").exists()
