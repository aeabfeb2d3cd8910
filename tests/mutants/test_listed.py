"""The list of mutants fits the package: each changes what is there, into something that is still a program."""

import ast

import pytest

from tests.mutants.listed import MUTANTS
from tests.mutants.mutant import SOURCE, Mutant
from tests.mutants.run import ROOT, Verdict


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.file}: {mutant.name}")
def test_a_mutant_changes_one_place_and_names_tests_that_exist(mutant: Mutant) -> None:
    text = (SOURCE / mutant.file).read_text(encoding="utf-8")
    assert mutant.mutated(text) != text
    if mutant.file.endswith(".py"):
        ast.parse(mutant.mutated(text))
    assert mutant.tests
    for test in mutant.tests:
        file, _, name = test.partition("[")[0].partition("::")
        assert f"def {name}" in (ROOT / "tests" / file).read_text(encoding="utf-8")


def test_every_package_has_a_mutant() -> None:
    packages = {path.parent.relative_to(SOURCE).as_posix() for path in SOURCE.glob("*/**/*.py") if path.name != "__init__.py"}
    assert {mutant.file.rpartition("/")[0] for mutant in MUTANTS} >= packages
    assert len(MUTANTS) >= 50


def test_no_mutant_is_listed_twice() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize(
    ("verdict", "killed"),
    [
        (Verdict(1, "tests.a::test_b", "AssertionError: assert 1 == 2"), True),
        (Verdict(1, "tests.a::test_b", "Failed: DID NOT RAISE <class 'ValueError'>"), True),
        (Verdict(0), False),
        (Verdict(1), False),  # files could not be read
        (Verdict(1, "tests.a::test_b", "ImportError: cannot import name 'c'"), False),
        (Verdict(1, "tests.a::test_b", "Failed: Timeout (>120.0s) from pytest-timeout."), False),
        (Verdict(4), False),
    ],
)
def test_only_a_test_that_notices_a_wrong_result_kills(verdict: Verdict, killed: bool) -> None:
    assert verdict.killed == killed
