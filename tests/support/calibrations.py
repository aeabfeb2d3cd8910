"""Made-up tables of engines' times, and engines that stand in for those of a GPU."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from steadyrnn.cells.base import State
from steadyrnn.engines.base import Engine, Recurrence
from steadyrnn.engines.calibration_table import packaged_table, read_table
from steadyrnn.engines.reference import ReferenceEngine
from steadyrnn.engines.select import _ANSWERS, ENGINES

__all__ = ["H200", "Fake", "engines_in_place", "forget", "row", "write_table"]

H200 = ("NVIDIA H200", (9, 0))


class Fake(Engine):
    """An engine of any name that runs the reference loop, adds its mark to the outputs, and refuses for a given reason."""

    def __init__(self, name: str, why_not: str | None = None, mark: float = 0.0) -> None:
        self.name, self.why_not, self.mark = name, why_not, mark

    def refusal(self, recurrence: Recurrence) -> str | None:
        """Return the given reason."""
        return self.why_not

    def run(self, recurrence: Recurrence) -> tuple[Tensor, State]:
        """Run the reference, and leave a mark."""
        output, state = ReferenceEngine().run(recurrence)
        return output + self.mark, state


@contextmanager
def engines_in_place(*engines: Engine) -> Iterator[None]:
    """Put these engines in the place of the package's for a while."""
    before = dict(ENGINES)
    ENGINES.clear()
    ENGINES.update({engine.name: engine for engine in engines})
    try:
        yield
    finally:
        ENGINES.clear()
        ENGINES.update(before)


def forget() -> None:
    """Have tables read, and engines asked, afresh."""
    for function in (read_table, packaged_table):
        function.cache_clear()
    _ANSWERS.clear()


def row(
    forward: Mapping[str, Any], training: Mapping[str, Any] | None = None, *, cell: str = "rnn-tanh", dtype: str = "float32",
    n: int = 128, B: int = 16, rank: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return an entry of a table; the times with gradients are those without, if none are given."""
    times = {"forward": dict(forward), "training": dict(forward if training is None else training)}
    return {"cell": cell, "dtype": dtype, "n": n, "B": B, "rank": rank, **times}


def write_table(path: Path, *rows: dict[str, Any], **header: Any) -> Path:
    """Write a table and return where it is."""
    path.write_text(json.dumps({"format": 1, "device": H200[0], "rows": rows, **header}), encoding="utf-8")
    return path
