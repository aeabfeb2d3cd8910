"""The rooms of the package and the doors between them: every import is read, and one outside the plan fails."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = "steadyrnn"
SOURCE = Path(__file__).parents[1] / "src" / PACKAGE

FREE = {"errors", "checks", "activations"}
READERS = {"models", "layers", "constraints", "cells", "engines", "linalg", "gpu", "bounds"}
DOORS: dict[str, set[str]] = {
    "errors": set(),
    "checks": set(),
    "activations": set(),
    "gpu": set(),
    "linalg": {"gpu"},
    "bounds": {"linalg"},
    "cells": set(),
    "tasks": set(),
    "runs": set(),
    "constraints": {"linalg"},
    "engines": {"cells", "bounds", "linalg", "gpu"},
    "layers": {"constraints", "cells", "engines", "linalg"},
    "models": {"layers", "constraints"},
    "certificates": READERS,
    "parallel": READERS | {"certificates", "convert"},
    "probes": READERS | {"certificates"},
    "convert": READERS | {"certificates", "parallel", "runs"},
    "train": {"tasks", "runs", "constraints"},
    "report": {"runs"},
    "jobs": {
        *("__version__", "train", "tasks", "runs", "report", "probes", "certificates", "parallel"),
        *("convert", "models", "layers", "constraints", "cells", "engines", "linalg", "gpu", "bounds"),
    },
    "estimators": {"train", "tasks", "models", "layers", "constraints"},
    "experiments": {
        *("train", "tasks", "runs", "report", "probes", "certificates"),
        *("convert", "models", "layers", "constraints"),
    },
}
# The public face and the command line may open any door; only the command line opens `experiments`.
ANY_DOOR = {"__init__", "__main__", "cli"}
NAMELESS = {"utils", "util", "misc", "common", "helpers", "helper"}
# Third-party packages of the extras: imported where they are used, so that a layer imports without them.
EXTRAS = {
    *("jsonargparse", "yaml", "rich", "tensorboard", "torchmetrics", "onnx", "onnxscript", "onnxruntime"),
    *("matplotlib", "jinja2", "optuna", "submitit", "triton"),
}
LINES = 400


@dataclass(frozen=True)
class Import:
    """One import of one module: where it stands, what it names, and how."""

    line: int
    target: str  # absolute dotted name
    relative: bool
    in_function: bool
    spelled_as_string: bool = False


def room_of(path: Path, package: Path) -> str:
    """Return the room of a file: the first folder below the package, or the file's own name."""
    first = path.relative_to(package).parts[0]
    return first.removesuffix(".py")


def own_room(target: str) -> str | None:
    """Return the room an absolute dotted name leads to, ``""`` for the package itself, None for other packages."""
    parts = target.split(".")
    if parts[0] != PACKAGE:
        return None
    return parts[1] if len(parts) > 1 else ""


def absolute(node: ast.ImportFrom, path: Path, package: Path) -> str:
    """Return the dotted name that ``from ... import`` starts from."""
    if node.level == 0:
        return node.module or ""
    folder = [PACKAGE, *path.relative_to(package).parts[:-1]]
    base = folder[: len(folder) - (node.level - 1)]
    return ".".join([*base, *(node.module.split(".") if node.module else [])])


def imports(path: Path, package: Path) -> Iterator[Import]:
    """Yield every import of a file, at any depth, also ``import_module("steadyrnn...")``."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    within = {
        id(inner)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for inner in ast.walk(outer)
    }
    for node in ast.walk(tree):
        in_function = id(node) in within
        match node:
            case ast.Import():
                for alias in node.names:
                    yield Import(node.lineno, alias.name, False, in_function)
            case ast.ImportFrom():
                base = absolute(node, path, package)
                for alias in node.names:
                    yield Import(node.lineno, f"{base}.{alias.name}", node.level > 0, in_function)
            case ast.Call(args=[ast.Constant(value=str(name)), *_]) if called(node) in {"import_module", "__import__"}:
                yield Import(node.lineno, name, False, in_function, spelled_as_string=True)


def called(node: ast.Call) -> str:
    """Return the last word of what is called: ``import_module`` of ``importlib.import_module``."""
    match node.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def door_faults(path: Path, package: Path) -> Iterator[str]:
    """Yield the imports of a file that the plan of the house does not allow."""
    room = room_of(path, package)
    if room not in DOORS and room not in ANY_DOOR:
        yield f"`{room}` is no room of the house"
        return
    in_hall = path.parent == package
    for found in imports(path, package):
        to = own_room(found.target)
        if to is None:
            if found.in_function and room not in ANY_DOOR and found.target.split(".")[0] not in EXTRAS:
                yield f"line {found.line}: `{found.target}` is imported inside a function and belongs to no extra"
            continue
        if found.in_function and not found.spelled_as_string and room != "cli":
            yield f"line {found.line}: `{found.target}` is imported inside a function"
        if to == room:
            if not found.relative and not found.spelled_as_string:
                yield f"line {found.line}: `{found.target}` lies in the same room: import it relatively"
            continue
        if found.relative and not (in_hall and to in FREE):
            yield f"line {found.line}: `{found.target}` lies in another room: import it absolutely"
        if to == "experiments" and room != "cli":
            yield f"line {found.line}: only `cli` imports `experiments`"
        elif room not in ANY_DOOR and to not in DOORS[room] | FREE:
            yield f"line {found.line}: there is no door from `{room}` to `{to or PACKAGE}`"


def assert_faults(path: Path, package: Path) -> Iterator[str]:
    """Yield the ``assert`` statements of a file: they vanish under ``python -O``."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Assert):
            yield f"line {node.lineno}: `assert`; raise an error from `errors` instead"


def name_faults(path: Path, package: Path) -> Iterator[str]:
    """Yield the parts of a path that name no idea."""
    for part in path.relative_to(package).parts:
        if part.removesuffix(".py").strip("_") in NAMELESS:
            yield f"`{part}` names no idea"


def length_faults(path: Path, package: Path) -> Iterator[str]:
    """Yield the length of a file that is too long."""
    lines = len(path.read_text(encoding="utf-8").splitlines())
    if lines >= LINES:
        yield f"{lines} lines; a file stays under {LINES}"


RULES = {"door": door_faults, "assert": assert_faults, "name": name_faults, "length": length_faults}


def faults(package: Path, rule: str) -> list[str]:
    """Return what one rule finds in a package, a line each."""
    return [
        f"{path.relative_to(package)}: {fault}"
        for path in sorted(package.rglob("*.py"))
        for fault in RULES[rule](path, package)
    ]


@pytest.mark.parametrize("rule", RULES)
def test_the_package_keeps_the_rule(rule: str) -> None:
    assert SOURCE.is_dir()
    found = faults(SOURCE, rule)
    assert not found, "\n".join(found)


def build(root: Path, file: str, source: str) -> Path:
    package = root / PACKAGE
    path = package / file
    path.parent.mkdir(parents=True)
    path.write_text(source, encoding="utf-8")
    return package


@pytest.mark.parametrize(
    ("rule", "file", "source", "expected"),
    [
        ("door", "linalg/a.py", "from steadyrnn.constraints.base import Constraint", "no door"),
        ("door", "linalg/a.py", "import steadyrnn.layers.rnn", "no door"),
        ("door", "linalg/a.py", "import steadyrnn as sr", "no door"),
        ("door", "linalg/a.py", "from steadyrnn import layers", "no door"),
        ("door", "linalg/a.py", "import importlib\nimportlib.import_module('steadyrnn.layers.rnn')", "no door"),
        ("door", "layers/a.py", "if TYPE_CHECKING:\n    from steadyrnn.models.mlp import MLP", "no door"),
        ("door", "engines/cpu/a.py", "from steadyrnn.layers.rnn import RNN", "no door"),
        ("door", "activations.py", "from steadyrnn.linalg.norms import norm", "no door"),
        ("door", "train/a.py", "from steadyrnn.models.mlp import MLP", "no door"),
        ("door", "__init__.py", "import steadyrnn.experiments.zhang", "only `cli`"),
        ("door", "layers/a.py", "from ..linalg.householder import reflect", "import it absolutely"),
        ("door", "layers/a.py", "from .. import linalg", "import it absolutely"),
        ("door", "layers/a.py", "from ..errors import ShapeError", "import it absolutely"),
        ("door", "layers/a.py", "from steadyrnn.layers.driver import run", "import it relatively"),
        ("door", "engines/cpu/a.py", "from steadyrnn.engines.base import Engine", "import it relatively"),
        ("door", "layers/a.py", "def f():\n    from .driver import run", "inside a function"),
        ("door", "layers/a.py", "class A:\n    def f(self):\n        import steadyrnn.linalg.wy", "inside a function"),
        ("door", "layers/a.py", "def f():\n    import json", "belongs to no extra"),
        ("door", "attic/a.py", "", "no room of the house"),
        ("door", "attic.py", "", "no room of the house"),
        ("assert", "linalg/a.py", "def f(x):\n    assert x > 0", "raise an error"),
        ("name", "linalg/utils.py", "", "names no idea"),
        ("name", "layers/_helpers.py", "", "names no idea"),
        ("name", "common/a.py", "", "names no idea"),
        ("name", "misc.py", "", "names no idea"),
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
        ("layers/a.py", "from steadyrnn import linalg\nfrom steadyrnn.activations import ReLU"),
        ("checks.py", "from .errors import ShapeError"),
        ("report/a.py", "def f():\n    import matplotlib.pyplot as plt"),
        ("cli/train.py", "def f():\n    import json\n    from steadyrnn.experiments.zhang import TABLE_2"),
        ("__init__.py", "if TYPE_CHECKING:\n    from steadyrnn.layers.rnn import RNN"),
        ("linalg/a.py", "x = 1\n" * 399),
    ],
)
def test_an_allowed_import_is_not_reported(tmp_path: Path, file: str, source: str) -> None:
    package = build(tmp_path, file, source)
    assert [fault for rule in RULES for fault in faults(package, rule)] == []
