"""Every package that is imported is declared, and every one that is declared for users is imported."""

import pytest

from tests.support.dependencies import ROOT, declared, distribution_of, imported

FOR_DEVELOPERS = {"dev", "docs"}
FOR_USERS = [extra for extra in declared() if extra and extra not in {*FOR_DEVELOPERS, "all"}]
WITH_TORCH = {"triton"}  # torch brings the version that it needs, where there is one


def used_by(*folders: str) -> set[str]:
    return {distribution_of(module) for module in imported(*(ROOT / folder for folder in folders))}


def test_what_the_package_imports_is_declared_and_nothing_else() -> None:
    promised = declared()
    assert used_by("src") - WITH_TORCH == promised[""].union(*(promised[extra] for extra in FOR_USERS))


def test_an_extra_repeats_nothing_that_the_package_needs_anyway() -> None:
    assert not any(declared()[extra] & declared()[""] for extra in FOR_USERS)


def test_what_tests_benchmarks_examples_and_documentation_import_is_declared() -> None:
    assert used_by("tests", "benchmarks", "examples", "docs") <= set().union(*declared().values())


def test_all_has_every_extra_of_a_user() -> None:
    assert declared()["all"] == set().union(*(declared()[extra] for extra in FOR_USERS))


@pytest.mark.parametrize("extra", sorted(declared()))
def test_a_declared_package_has_a_pinned_version(extra: str) -> None:
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert declared()[extra] <= pinned
