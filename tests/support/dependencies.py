"""Other people's packages: those that files import, and those that ``pyproject.toml`` declares."""

import ast
import functools
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["ROOT", "declared", "distribution_of", "imported", "modules_of_extras"]

ROOT = Path(__file__).parents[2]


def declared() -> dict[str, set[str]]:
    """Return the distributions that are declared: per extra, and under ``""`` those of the package itself.

    An extra that consists of other extras, as ``steadyrnn[cli,train]``, has what they have.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines: dict[str, list[str]] = {"": project["dependencies"], **project["optional-dependencies"]}

    def expand(extra: str) -> Iterator[str]:
        for requirement in map(Requirement, lines[extra]):
            if requirement.name == project["name"]:
                for part in requirement.extras:
                    yield from expand(part)
            else:
                yield canonicalize_name(requirement.name)

    return {extra: set(expand(extra)) for extra in lines}


def imported(*folders: Path) -> set[str]:
    """Return the first names of the modules that are imported in the files of folders, except Python's own and ours."""
    found = set()
    for path in (path for folder in folders for path in folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Import(names=names):
                    found |= {alias.name.split(".")[0] for alias in names}
                case ast.ImportFrom(module=str(module), level=0):
                    found.add(module.split(".")[0])
    local = {path.stem for folder in folders for path in folder.glob("*.py")}  # a program beside the one that imports it
    return found - sys.stdlib_module_names - local - {"steadyrnn", "tests"}


def distribution_of(module: str) -> str:
    """Return the distribution that installs a module: ``pyyaml`` of ``yaml``."""
    return canonicalize_name(packages_distributions()[module][0])


@functools.cache
def modules_of_extras() -> set[str]:
    """Return the first names of the modules that come with an extra, for users or for development."""
    extras = set().union(*(names for extra, names in declared().items() if extra)) - declared()[""]
    return {
        module
        for module, distributions in packages_distributions().items()
        if extras & {canonicalize_name(name) for name in distributions}
    }
