"""The program run in this process: its exit status and what it printed."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from steadyrnn.cli.main import main

TINY = ["--task.length", "10", "--task.validation", "50", "--task.test", "50", "--train.steps", "6", "--train.batch_size", "8"]
QUICK = [*TINY, "--train.device", "cpu", "--model.width", "8"]


@dataclass(frozen=True)
class Done:
    """What a call left behind."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The JSON object on stdout, which holds nothing else."""
        return json.loads(self.out)


class Program:
    """Runs command lines in the current folder."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *words: str) -> Done:
        self.capsys.readouterr()
        status = main(words)
        captured = self.capsys.readouterr()
        return Done(status, captured.out, captured.err)
