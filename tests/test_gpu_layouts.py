"""The benchmark of layouts, as far as it goes without a GPU: which it measures, and that what it calls runs."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from steadyrnn.engines.cuda.kernels import dense
from steadyrnn.engines.cuda.plan.layouts import gather_layout, scatter_layout
from tests.support.emulated import emulate, is_there

FOLDER = Path(__file__).parents[1] / "benchmarks"

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the benchmarks are not part of a source package")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module ``gpu_layouts``."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return import_module("gpu_layouts")


def test_what_the_plan_takes_comes_first_and_is_compared(bench: Any) -> None:
    shapes = [shape for shape in bench.shapes() if bench.layouts(shape)]
    assert len(shapes) > 50
    for shape in shapes:
        plan = gather_layout if shape.kernel == "gather" else scatter_layout
        first, *others = bench.layouts(shape)
        assert first == plan(shape.n, shape.gates, shape.B, bench.PROCESSORS, shape.narrow)
        assert len({first, *others}) == 1 + len(others)
    assert any(one.posted for shape in shapes for one in bench.layouts(shape))
    assert not any(one.posted for shape in shapes if shape.kernel == "scatter" for one in bench.layouts(shape))


@pytest.mark.skipif(not is_there(), reason="g++ is not installed, or this is not Linux")
@pytest.mark.parametrize(
    ("kernel", "n", "gates", "narrow"), [("gather", 34, 1, False), ("gather", 64, 3, True), ("scatter", 33, 4, False)]
)
def test_every_layout_runs(bench: Any, kernel: str, n: int, gates: int, narrow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(bench, "measure", lambda call: calls.append(call()) or 6.0)
    emulate(monkeypatch, 4, dense)
    shape = bench.Shape(kernel, n, gates, 9, narrow)
    layouts = bench.layouts(shape, 4)
    assert layouts
    assert [bench.microseconds(shape, one, "cpu", steps=3) for one in layouts] == [2.0] * len(layouts)
    assert calls == [None] * len(layouts)


def test_how_much_slower_the_first_is_than_the_fastest(bench: Any) -> None:
    rows = [{"shape": "a", "us": 3.0}, {"shape": "b", "us": 1.0}, {"shape": "a", "us": 2.0}, {"shape": "b", "us": 4.0}]
    assert bench.regrets(rows) == {"a": 1.5, "b": 1.0}


@pytest.mark.parametrize(("words", "told"), [(["--only", "nothing"], "No shape"), ([], "no GPU")])
def test_what_cannot_be_measured_is_told(words: list[str], told: str) -> None:
    if torch.cuda.is_available() and not words:
        pytest.skip("there is a GPU")
    ran = subprocess.run([sys.executable, str(FOLDER / "gpu_layouts.py"), *words], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert told in ran.stderr
