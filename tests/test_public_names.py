"""The public face: one table of names, the same for the type checker, the documentation and the reader."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import steadyrnn
from tests.support.dependencies import modules_of_extras

ROOT = Path(__file__).parents[1]
FACE = ROOT / "src" / "steadyrnn" / "__init__.py"
API = ROOT / "docs" / "api"

PUBLIC: dict[str, str] = steadyrnn._PUBLIC
OPTIONAL = sorted(modules_of_extras())


def typed_imports() -> dict[str, str]:
    """Return the names that ``__init__.py`` imports for the type checker, with their modules."""
    blocks = [
        node
        for node in ast.parse(FACE.read_text(encoding="utf-8")).body
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
    ]
    return {
        alias.asname or alias.name: node.module or ""
        for block in blocks
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def documented_names() -> set[str]:
    """Return the names that the pages of ``docs/api`` describe: one by one, or by the whole module they come from."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in API.glob("*.md"))
    named = re.findall(r"^\.\. auto(?:class|function|exception|data):: steadyrnn\.(\w+)$", text, re.MULTILINE)
    modules = re.findall(r"^\.\. automodule:: ([\w.]+)$", text, re.MULTILINE)
    return {*named, *(name for name, module in PUBLIC.items() if module in modules)}


def in_fresh_interpreter(program: str) -> str:
    """Run a program in an interpreter of its own and return what it prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_type_checker_sees_the_table() -> None:
    assert typed_imports() == PUBLIC


def test_all_and_dir_list_the_table() -> None:
    assert set(steadyrnn.__all__) - {"__version__"} == set(PUBLIC)
    assert set(PUBLIC) <= set(dir(steadyrnn))


def test_the_documentation_describes_the_table() -> None:
    assert documented_names() == set(PUBLIC)


def test_the_documentation_index_lists_the_table() -> None:
    words = set(re.findall(r"`([A-Za-z_]\w*)`", (API / "index.md").read_text(encoding="utf-8")))
    assert set(PUBLIC) <= words


def test_an_unknown_name_is_refused_by_name() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        steadyrnn.no_such_name  # noqa: B018


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_public_name_is_the_object_of_its_module(name: str) -> None:
    assert getattr(steadyrnn, name) is getattr(importlib.import_module(PUBLIC[name]), name)


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_public_name_has_a_docstring_with_an_example(name: str) -> None:
    thing = getattr(steadyrnn, name)
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        pytest.skip("neither a class nor a function")
    own = thing.__dict__.get("__doc__") if inspect.isclass(thing) else thing.__doc__
    assert own, f"`{name}` has no docstring of its own"
    if not (inspect.isclass(thing) and issubclass(thing, Exception)):
        assert re.search(r"^\s*Examples?:", own, re.MULTILINE), f"`{name}` has no `Example:`"
        assert ">>>" in own, f"the example of `{name}` does not run"


def test_importing_the_package_imports_no_triton() -> None:
    assert in_fresh_interpreter("import steadyrnn, sys; print('triton' in sys.modules)") == "False"


def test_every_public_name_but_the_estimators_comes_without_optional_packages() -> None:
    program = (
        "import sys\n"
        f"for name in {OPTIONAL!r}: sys.modules[name] = None\n"  # as if not installed
        "import steadyrnn\n"
        "for name, module in steadyrnn._PUBLIC.items():\n"
        "    if not module.startswith('steadyrnn.estimators'): getattr(steadyrnn, name)\n"
        "print('ok')"
    )
    assert in_fresh_interpreter(program) == "ok"
