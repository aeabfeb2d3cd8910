"""The Python code in the README and the documentation pages runs, page by page, top to bottom.

A block that is not meant to run has ``<!-- not run: why -->`` on the line above it. A block whose first line is a path
below ``src`` is a new file of the package: it runs as that module, and later blocks can import it.
"""

import doctest
import os
import re
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import steadyrnn

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^(?P<before>[^\n]*)\n\s*```python\n(?P<code>.*?)^\s*```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# src/(?P<folder>[\w/]+)/(?P<name>\w+)\.py\n")
PAGES = [
    page
    for page in [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
    if "_build" not in page.parts and "```python" in page.read_text(encoding="utf-8")
]


def blocks(page: Path) -> list[tuple[int, str]]:
    """Return the blocks of a page that are meant to run, each with the number of its first line; a list may indent them."""
    text = "\n" + page.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, match.start("code")), textwrap.dedent(match["code"]))
        for match in BLOCK.finditer(text)
        if not match["before"].lstrip().startswith("<!-- not run:")
    ]


def run_session(code: str, names: dict[str, Any], where: str, line: int) -> None:
    """Run a block of ``>>>`` lines and compare what it prints."""
    test = doctest.DocTestParser().get_doctest(code, names, where, where, line)
    report: list[str] = []
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    done = doctest.DocTestRunner(optionflags=flags).run(test, out=report.append, clear_globs=False)
    names.update(test.globs)
    assert done.failed == 0, "".join(report)


def run_code(code: str, names: dict[str, Any], where: str, line: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a block of plain code; one that is a file of the package runs as that module."""
    scope, file = names, FILE.match(code)
    if file is not None:
        package = file["folder"].replace("/", ".")
        module = ModuleType(f"{package}.{file['name']}")
        module.__package__ = package
        monkeypatch.setitem(sys.modules, module.__name__, module)
        scope = vars(module)
    exec(compile("\n" * (line - 1) + code, where, "exec"), scope)
    names.update((name, scope[name]) for name in scope.get("__all__", ()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(os.environ, "STEADYRNN_EXAMPLE_FAST", "1")
    names: dict[str, Any] = {"__name__": "__page__", "torch": torch, "sr": steadyrnn}
    for line, code in blocks(page):
        where = f"{page.name}, line {line}"
        if re.search(r"^>>>", code, re.MULTILINE):  # not one inside a docstring
            run_session(code, names, where, line)
        else:
            run_code(code, names, str(page), line, monkeypatch)


def test_an_indented_block_is_read_as_code(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("1. text\n\n   ```python\n   if True:\n       pass\n   ```\n")
    assert blocks(page) == [(4, "if True:\n    pass\n")]


def test_a_block_that_is_a_file_of_the_package_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {}
    code = '# src/steadyrnn/cells/toy.py\n"""A toy."""\n\nfrom .base import Cell\n\n__all__ = ["Toy"]\n\nclass Toy(Cell): ...\n'
    run_code(code, names, "page", 1, monkeypatch)
    run_code("from steadyrnn.cells.toy import Toy as Imported\n", names, "page", 9, monkeypatch)
    assert names["Imported"] is names["Toy"]
    assert "Cell" not in names


def test_a_block_that_fails_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("text\n\n```python\n>>> 1 + 1\n3\n```\n\n<!-- not run: no data -->\n```python\nload()\n```\n")
    assert blocks(page) == [(4, ">>> 1 + 1\n3\n")]
    with pytest.raises(AssertionError, match="Expected"):
        run_session(">>> 1 + 1\n3\n", {}, "page", 4)
