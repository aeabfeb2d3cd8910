"""The summary of ``train``: a constant that is not below 1 is no contraction."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from steadyrnn.cli import train
from steadyrnn.jobs.train import TrainedRun


@dataclass
class Outcome:
    steps: int = 1
    reason: str = "done"
    seconds: float = 1.0
    examples_per_second: float = 1.0
    best_step: int = 1
    best: dict[str, float] = field(default_factory=dict)
    test: dict[str, float] = field(default_factory=dict)


class Table:
    def __init__(self) -> None:
        self.rows: list[list[str]] = []

    def table(self, title: str, header: Any, rows: list[list[str]]) -> None:
        self.rows = rows

    def text(self, text: str) -> None:
        pass

    def path(self, path: Path, text: str | None = None) -> None:
        pass

    def result(self, result: dict[str, Any]) -> None:
        pass


@pytest.mark.parametrize(
    ("contraction", "shown"),
    [(2.26516e07, "none (2.26516e+07)"), (1.0000008, "none (1.00001)"), ("inf", "none"), (0.81, "0.81")],
)
def test_what_is_not_below_one_is_no_contraction(contraction: Any, shown: str) -> None:
    configuration = SimpleNamespace(model=SimpleNamespace(name="rnn"), label="addition", scored_part="validation", to_dict=dict)
    request: Any = SimpleNamespace(configuration=configuration)
    certificate = {"contraction": contraction, "stable": contraction == 0.81, "regime": "unknown"}
    facts = {"model": "", "parameters": 1, "metric": "mse", "baselines": {}}
    output: Any = Table()
    outcome: Any = Outcome()
    record = {"certificate": certificate, "reason": None}
    train._print(request, output, TrainedRun(Path("run"), facts, outcome, record))
    assert ["contraction", shown] in [row[:2] for row in output.rows]
