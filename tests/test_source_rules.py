"""Rules for the files of the package that neither ruff nor import-linter has: how to import, no ``assert``, names, lengths."""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.dependencies import modules_of_extras

PACKAGE = "steadyrnn"
SOURCE = Path(__file__).parents[1] / "src" / PACKAGE

TOP = {"__init__", "__main__", "cli"}  # these import when something is requested, so that help and a first import are quick
VAGUE = {"utils", "util", "misc", "common", "helpers", "helper"}
LINES = 400
PRIVATE = ("gpu/torch_private.py", "checks.py")  # all packages may import `checks`, and some may not import `gpu`


@dataclass(frozen=True)
class Import:
    """One import of one module: where it is, what it names, and how."""

    line: int
    target: str  # absolute dotted name
    relative: bool = False
    in_function: bool = False
    by_string: bool = False

    @property
    def top_level(self) -> str:
        return self.target.split(".")[0]


def package_of(path: Path, root: Path) -> str:
    """Return the package of a file: the first folder below ``steadyrnn``, or the file's own name."""
    return path.relative_to(root).parts[0].removesuffix(".py")


def package_named(target: str) -> str:
    """Return the package that a dotted name of ours is in, ``""`` for ``steadyrnn`` itself."""
    return [*target.split("."), ""][1]


def imports_in(path: Path, root: Path) -> Iterator[Import]:
    """Yield every import of a file, at any depth, also ``import_module("steadyrnn...")``."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    inside = {id(inner) for outer in ast.walk(tree) if isinstance(outer, functions) for inner in ast.walk(outer)}
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                for alias in node.names:
                    yield Import(node.lineno, alias.name, in_function=id(node) in inside)
            case ast.ImportFrom():
                base = absolute_base(node, path, root)
                for alias in node.names:
                    yield Import(node.lineno, f"{base}.{alias.name}", node.level > 0, id(node) in inside)
            case ast.Call(
                func=ast.Attribute(attr="import_module" | "__import__") | ast.Name(id="import_module" | "__import__"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield Import(node.lineno, name, by_string=True)


def absolute_base(node: ast.ImportFrom, path: Path, root: Path) -> str:
    """Return the dotted name that ``from ... import`` starts from."""
    if node.level == 0:
        return node.module or ""
    folder = [PACKAGE, *path.relative_to(root).parts[:-1]]
    base = folder[: len(folder) - (node.level - 1)]
    return ".".join([*base, *(node.module.split(".") if node.module else [])])


def relative_faults(path: Path, root: Path) -> Iterator[str]:
    """Yield imports that are relative across packages, or absolute within one."""
    package = package_of(path, root)
    for one in imports_in(path, root):
        if one.top_level != PACKAGE or one.by_string:
            continue
        within = path.parent == root or package_named(one.target) == package
        if one.relative and not within:
            yield f"line {one.line}: `{one.target}` is in another package: import it absolutely"
        if not one.relative and package_named(one.target) == package:
            yield f"line {one.line}: `{one.target}` is in the same package: import it relatively"


def function_faults(path: Path, root: Path) -> Iterator[str]:
    """Yield imports inside functions: only the command line has those, and others of packages that may be missing."""
    package = package_of(path, root)
    for one in (one for one in imports_in(path, root) if one.in_function):
        if one.top_level == PACKAGE and package != "cli":
            yield f"line {one.line}: `{one.target}` is imported inside a function"
        elif one.top_level != PACKAGE and package not in TOP and one.top_level not in modules_of_extras():
            yield f"line {one.line}: `{one.target}` is imported inside a function and belongs to no extra"


def string_faults(path: Path, root: Path) -> Iterator[str]:
    """Yield modules of other packages that are imported by a string, which import-linter does not see."""
    package = package_of(path, root)
    for one in imports_in(path, root):
        if one.by_string and one.top_level == PACKAGE and package not in TOP | {package_named(one.target)}:
            yield f"line {one.line}: `{one.target}` is in another package: import it with a statement"


def experiment_faults(path: Path, root: Path) -> Iterator[str]:
    """Yield imports of ``experiments`` outside itself and the command line."""
    if package_of(path, root) not in {"cli", "experiments"}:
        for one in imports_in(path, root):
            if one.top_level == PACKAGE and package_named(one.target) == "experiments":
                yield f"line {one.line}: only `cli` imports `experiments`"


def assert_faults(path: Path, root: Path) -> Iterator[str]:
    """Yield ``assert`` statements: they vanish under ``python -O``."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Assert):
            yield f"line {node.lineno}: `assert`; raise an error from `errors` instead"


def private_faults(path: Path, root: Path) -> Iterator[str]:
    """Yield private names of torch outside the two files that gather them; ops (``torch.ops.aten._x``) have no other name."""
    if path.relative_to(root).as_posix() in PRIVATE:
        return
    advice = f"gather it in `{'` or `'.join(PRIVATE)}`"
    for one in imports_in(path, root):
        if one.top_level == "torch" and any(part.startswith("_") for part in one.target.split(".")):
            yield f"line {one.line}: `{one.target}` is private to torch: {advice}"
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and re.fullmatch(r"torch(\.(?!ops\.)\w+)*\._[a-zA-Z]\w*", ast.unparse(node)):
            yield f"line {node.lineno}: `{ast.unparse(node)}` is private to torch: {advice}"


def name_faults(path: Path, root: Path) -> Iterator[str]:
    """Yield parts of a path that do not say what is inside."""
    for part in path.relative_to(root).parts:
        if part.removesuffix(".py").strip("_") in VAGUE:
            yield f"`{part}` does not say what is inside"


def length_faults(path: Path, root: Path) -> Iterator[str]:
    """Yield the length of a file that is too long."""
    lines = len(path.read_text(encoding="utf-8").splitlines())
    if lines >= LINES:
        yield f"{lines} lines; a file has fewer than {LINES}"


RULES: dict[str, Callable[[Path, Path], Iterator[str]]] = {
    "relative": relative_faults,
    "function": function_faults,
    "string": string_faults,
    "experiments": experiment_faults,
    "assert": assert_faults,
    "private": private_faults,
    "name": name_faults,
    "length": length_faults,
}


def faults(root: Path, rule: str) -> list[str]:
    """Return what one rule finds in a package, one line each."""
    return [f"{path.relative_to(root)}: {fault}" for path in sorted(root.rglob("*.py")) for fault in RULES[rule](path, root)]


@pytest.mark.parametrize("rule", RULES)
def test_the_package_keeps_the_rule(rule: str) -> None:
    assert SOURCE.is_dir()
    found = faults(SOURCE, rule)
    assert not found, "\n".join(found)


def build(folder: Path, file: str, source: str) -> Path:
    """Return a package with one file."""
    root = folder / PACKAGE
    (root / file).parent.mkdir(parents=True)
    (root / file).write_text(source, encoding="utf-8")
    return root


@pytest.mark.parametrize(
    ("rule", "file", "source", "expected"),
    [
        ("relative", "layers/a.py", "from ..linalg.householder import reflect", "import it absolutely"),
        ("relative", "layers/a.py", "from .. import linalg", "import it absolutely"),
        ("relative", "layers/a.py", "from ..errors import ShapeError", "import it absolutely"),
        ("relative", "layers/a.py", "from steadyrnn.layers.driver import run", "import it relatively"),
        ("relative", "engines/cpu/a.py", "from steadyrnn.engines.base import Engine", "import it relatively"),
        ("function", "layers/a.py", "def f():\n    from .driver import run", "inside a function"),
        ("function", "layers/a.py", "class A:\n    def f(self):\n        import steadyrnn.linalg.wy", "inside a function"),
        ("function", "layers/a.py", "def f():\n    import json", "belongs to no extra"),
        ("function", "layers/a.py", "def f():\n    import torch", "belongs to no extra"),
        ("string", "linalg/a.py", "import importlib\nimportlib.import_module('steadyrnn.layers.rnn')", "with a statement"),
        ("string", "linalg/a.py", "def f():\n    return __import__('steadyrnn.layers.rnn')", "with a statement"),
        ("experiments", "__init__.py", "import steadyrnn.experiments.zhang", "only `cli`"),
        ("assert", "linalg/a.py", "def f(x):\n    assert x > 0", "raise an error"),
        ("private", "linalg/a.py", "from torch._C import _get_dispatch_mode", "private to torch"),
        ("private", "linalg/a.py", "import torch\nx = torch.autograd.forward_ad._current_level", "private to torch"),
        ("private", "linalg/a.py", "import torch\nx = torch._C", "private to torch"),
        ("name", "linalg/utils.py", "", "does not say"),
        ("name", "layers/_helpers.py", "", "does not say"),
        ("name", "common/a.py", "", "does not say"),
        ("name", "misc.py", "", "does not say"),
        ("length", "linalg/a.py", "x = 1\n" * 400, "400 lines"),
    ],
)
def test_a_broken_rule_is_found(tmp_path: Path, rule: str, file: str, source: str, expected: str) -> None:
    found = faults(build(tmp_path, file, source), rule)
    assert len(found) == 1
    assert expected in found[0]


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("linalg/a.py", "import torch\nfrom .norms import norm\nfrom steadyrnn.errors import ShapeError"),
        (
            "engines/cpu/a.py",
            "from ..base import Engine\nfrom .scratch import Scratch\nfrom steadyrnn.cells.rnn import step",
        ),
        ("engines/triton/a.py", "def f():\n    return import_module('steadyrnn.engines.triton.kernels')"),
        ("layers/a.py", "from steadyrnn import linalg\nfrom steadyrnn.activations import ReLU"),
        ("checks.py", "from .errors import ShapeError"),
        ("gpu/torch_private.py", "from torch._C import _get_dispatch_mode"),
        ("engines/cudnn.py", "import torch\nrun = torch.ops.aten._cudnn_rnn\nversion = torch.__version__"),
        ("report/a.py", "def f():\n    import matplotlib.pyplot as plt"),
        ("cli/train.py", "def f():\n    import json\n    from steadyrnn.experiments.zhang import TABLE_2"),
        ("__init__.py", "if TYPE_CHECKING:\n    from steadyrnn.layers.rnn import RNN"),
        ("linalg/a.py", "x = 1\n" * 399),
    ],
)
def test_what_is_allowed_is_not_reported(tmp_path: Path, file: str, source: str) -> None:
    root = build(tmp_path, file, source)
    assert [fault for rule in RULES for fault in faults(root, rule)] == []
