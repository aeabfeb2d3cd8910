"""The pages on the program and the models say what the program has, and their command lines run."""

import re
from pathlib import Path

import pytest

from steadyrnn.cli.commands import COMMANDS
from steadyrnn.models.option_checks import OF_NONLINEARITY
from steadyrnn.models.registry import SYSTEMS
from tests.cli.program import Program
from tests.cli.test_examples import run

DOCS = Path(__file__).parents[2] / "docs"
PROGRAM, MODELS = ((DOCS / name).read_text(encoding="utf-8") for name in ("program.md", "systems.md"))


@pytest.mark.parametrize("lines", re.findall(r"```sh\n(.*?)```", PROGRAM, re.DOTALL))
def test_the_command_lines_of_the_page_run(program: Program, lines: str) -> None:
    for line in lines.splitlines():
        run(program, line)


def test_the_page_names_every_command() -> None:
    named = re.findall(r"^\| `([a-z]+)", PROGRAM, re.MULTILINE)
    assert named == [*COMMANDS]


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_page_describes_every_model_as_its_record_does(name: str) -> None:
    (row,) = [line for line in MODELS.splitlines() if line.startswith(f"| `{name}` |")]
    system = SYSTEMS[name]
    assert f"| {system.description} | {system.paper} |" in row
    shared = {"width", "dropout"} if system.reads == "row" else {*SYSTEMS["ornn"].options} & {*SYSTEMS["lstm"].options}
    own = {option for option in system.options if option not in shared}
    own -= {option for option, other in OF_NONLINEARITY.items() if system.options.get("nonlinearity") != other}
    told = dict(re.findall(r"`(\w+)` ?([^,|]*?)(?:,| \|)", row.split("|", 4)[4]))
    assert set(told) == own
    assert all(told[option] == str(value) for option, value in system.options.items() if option in own and value is not None)
