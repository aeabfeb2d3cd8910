"""The list of mutants fits the package: each changes what is there, into something that is still a program."""

import ast

import pytest

from tests.mutants.listed import MUTANTS
from tests.mutants.mutant import SOURCE, Mutant
from tests.mutants.run import ROOT


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.file}: {mutant.name}")
def test_a_mutant_changes_one_place_and_names_tests_that_exist(mutant: Mutant) -> None:
    text = (SOURCE / mutant.file).read_text(encoding="utf-8")
    assert mutant.mutated(text) != text
    if mutant.file.endswith(".py"):
        ast.parse(mutant.mutated(text))
    assert mutant.tests
    assert all((ROOT / "tests" / test.partition("::")[0]).is_file() for test in mutant.tests)


def test_every_package_has_a_mutant() -> None:
    packages = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").is_file()}
    assert {mutant.file.partition("/")[0] for mutant in MUTANTS} >= packages
    assert len(MUTANTS) >= 40
