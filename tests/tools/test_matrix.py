"""Every tool on every layer works or is refused by name, as the page says."""

from functools import cache

import pytest

from tests.tools.outcome import outcome
from tests.tools.page import PAGE, TOOLS, Table, read, render
from tests.tools.subjects import SUBJECTS


@cache
def _shown() -> Table:
    return read(PAGE.read_text(encoding="utf-8"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_does_what_the_page_says(tool: str, subject: str) -> None:
    assert outcome(TOOLS[tool], SUBJECTS[subject]) is _shown()[tool, subject]


def test_the_page_is_as_it_was_written() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert set(_shown()) == {(tool, subject) for tool in TOOLS for subject in SUBJECTS}
    assert render(_shown()) == text
