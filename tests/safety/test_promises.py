"""Each promise of SECURITY.md has a test, and that test exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)
NETWORK = {"socket", "urllib", "http", "requests", "ftplib", "smtplib", "ssl", "asyncio", "aiohttp", "huggingface_hub"}
MAY = {"runs/owner.py": "the name of this machine, for a lock's message"}


def test_every_promise_names_a_test() -> None:
    table = TEXT.split("| promise | test |")[1].split("\n\n")[0].strip().splitlines()[1:]
    assert len(table) >= 12
    for row in table:
        assert re.search(r"`tests/[\w/]+\.py::test_\w+`", row), row


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_the_test_of_a_promise_exists(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body)


def test_no_module_of_the_package_opens_a_connection() -> None:
    for path in sorted((ROOT / "src" / "steadyrnn").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Import(names=names):
                    found = [name.name for name in names]
                case ast.ImportFrom(module=str(module), level=0):
                    found = [module]
                case _:
                    continue
            used = {name.split(".")[0] for name in found} & NETWORK
            assert not used or path.relative_to(ROOT / "src" / "steadyrnn").as_posix() in MAY, (path, used)


def test_the_source_distribution_and_the_documentation_have_the_page() -> None:
    assert '"SECURITY.md"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert "SECURITY.md" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "../SECURITY.md" in (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
