"""Every example of every help is executed, one after another, in an empty folder."""

import os
import shlex
from pathlib import Path

import pytest

from steadyrnn.cli.commands import COMMANDS
from tests.cli.program import Program

NEEDS_DATA = ("data check",)


def run(program: Program, example: str) -> None:
    words = shlex.split(example)
    assert words.pop(0) == "steadyrnn"
    file = None
    if ">" in words:
        words, file = words[: words.index(">")], words[words.index(">") + 1]
    done = program(*words)
    assert done.status == 0, (example, done.err)
    assert done.out, example
    if file is not None:
        Path(file).write_text(done.out, encoding="utf-8")
    if "--json" in words:
        assert done.json


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_the_examples_of_a_help_run(program: Program, name: str) -> None:
    page = program(*filter(None, [name, "--help"])).out
    for example in page.split("Examples:\n")[1].splitlines():
        if any(words in example for words in NEEDS_DATA) and "STEADYRNN_DATA" not in os.environ:
            pytest.skip("needs the data folder that STEADYRNN_DATA names")
        run(program, example.strip())
