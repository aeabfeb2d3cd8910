"""The example of sktime on the page of estimators."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "estimators.md"
BLOCK = re.compile(r"test_sktime\.py runs it[^\n]*\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_example_of_the_page_learns() -> None:
    pytest.importorskip("sktime", reason="sktime is not installed")
    found = BLOCK.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None
    names: dict[str, Any] = {}
    exec(compile(found[1], str(PAGE), "exec"), names)
    assert np.abs(names["future"].to_numpy() - np.sin(np.arange(150, 153) / 4)).max() < 0.5  # of a wave of height 2
    assert (names["chain"].predict(names["X"]) == names["y"]).mean() > 0.9
