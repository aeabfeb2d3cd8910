"""Run the mutants: ``python -m tests.mutants.run [--jobs N] [WORD ...]``; one that survives makes the exit status 1.

Each mutant is a copy of the package with one fault, on which the tests that must notice it are run. First all these tests
are run on a copy without a fault: a test that fails there would kill anything. With words, only mutants whose file or name
has one of them are run. It takes a while and is meant for the night, not for ``make test``.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from tests.mutants.listed import MUTANTS
from tests.mutants.mutant import SOURCE, Mutant

ROOT = Path(__file__).parents[2]
PASSED, FAILED = 0, 1
"""What pytest returns; anything else (no test, a file that cannot be read) is no verdict."""
NO_VERDICT = ("ImportError", "ModuleNotFoundError", "NameError", "SyntaxError", "Timeout")
"""How a test fails that has noticed no wrong result: the mutant is no program, or does not end."""
LONGEST = 120
"""Seconds that one test may take; a mutant that takes longer is not killed."""


class Verdict(NamedTuple):
    """What the tests say of a package."""

    status: int
    test: str = ""  # the first that failed
    reason: str = ""

    @property
    def killed(self) -> bool:
        """Whether a test has noticed a wrong result; an error while tests are read or set up is not one."""
        return self.status == FAILED and bool(self.test) and not any(word in self.reason for word in NO_VERDICT)


def run_tests(tests: Sequence[str], mutant: Mutant | None = None) -> Verdict:
    """Run tests on a copy of the package, with a fault in it or without."""
    with tempfile.TemporaryDirectory() as folder:
        package, report = Path(folder, "src", SOURCE.name), Path(folder, "report.xml")
        shutil.copytree(SOURCE, package)  # compiled files too: they belong to the sources by time and size
        if mutant is not None:
            mutant.apply(package)
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"--timeout={LONGEST}",
                   f"--junitxml={report}", *(f"tests/{test}" for test in tests)]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": str(package.parent), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if mutant is None and done.returncode != PASSED:
            print(done.stdout + done.stderr)
        return read_verdict(done.returncode, report)


def read_verdict(status: int, report: Path) -> Verdict:
    """Return the verdict that pytest has written down."""
    for case in ElementTree.parse(report).iter("testcase") if report.is_file() else ():
        failure = case.find("failure")
        if failure is not None:
            return Verdict(status, f"{case.get('classname', '')}::{case.get('name', '')}", failure.get("message", ""))
    return Verdict(status)


def judge(mutant: Mutant) -> bool:
    """Run the tests of a mutant, print what became of it, and say whether it was killed."""
    start = time.monotonic()
    verdict = run_tests(mutant.tests, mutant)
    word = "killed" if verdict.killed else "SURVIVED" if verdict.status == PASSED else "NO VERDICT"
    reason = " ".join(verdict.reason.split())[:100]
    print(f"{word:10} {time.monotonic() - start:4.0f} s  {mutant.file}: {mutant.name} | {verdict.test} | {reason}", flush=True)
    return verdict.killed


def main(arguments: Sequence[str]) -> int:
    """Run all mutants, or those with one of the words in file or name; return 0 if all are killed, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.run", description="Run the mutants.")
    parser.add_argument("words", nargs="*", metavar="WORD", help="part of a mutant's file or name; without any, all are run")
    parser.add_argument("--jobs", type=int, default=1, help="how many to run at once")
    given = parser.parse_args(arguments)
    chosen = [m for m in MUTANTS if not given.words or any(word in m.file or word in m.name for word in given.words)]
    start = time.monotonic()
    if run_tests(sorted({test for mutant in chosen for test in mutant.tests})).status != PASSED:
        print("the tests do not pass without a mutant either")
        return 1
    print(f"the tests pass without a mutant: {time.monotonic() - start:.0f} s", flush=True)
    with ThreadPoolExecutor(given.jobs) as pool:
        killed = sum(pool.map(judge, chosen))
    print(f"{killed} of {len(chosen)} killed, {time.monotonic() - start:.0f} s")
    return int(killed < len(chosen))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
