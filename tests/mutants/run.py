"""Run the mutants: ``python -m tests.mutants.run [WORD ...]``; one that survives makes the exit status 1.

Each mutant is a copy of the package with one fault, on which the tests that must notice it are run. First the same tests
are run on the package as it is: a test that fails there would kill anything. With words, only mutants whose file or name
has one of them are run. It takes a while and is meant for the night, not for ``make test``.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.listed import MUTANTS
from tests.mutants.mutant import SOURCE, Mutant

ROOT = Path(__file__).parents[2]
PASSED, FAILED = 0, 1
"""What pytest returns; anything else (a file that cannot be read, no test) is no verdict."""


def tested(package: Path, tests: Sequence[str]) -> int:
    """Run tests on a package and return pytest's status."""
    environment = {**os.environ, "PYTHONPATH": str(package.parent), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *(f"tests/{test}" for test in tests)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (PASSED, FAILED):
        sys.stderr.write(done.stdout + done.stderr)
    return done.returncode


def killed(mutant: Mutant) -> bool:
    """Say whether the tests notice a mutant."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / SOURCE.name
        shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
        mutant.apply(package)
        return tested(package, mutant.tests) == FAILED


def main(words: Sequence[str]) -> int:
    """Run all mutants, or those with one of the words in file or name; return how many survive, at most 1."""
    chosen = [m for m in MUTANTS if not words or any(word in m.file or word in m.name for word in words)]
    for tests in sorted({mutant.tests for mutant in chosen}):
        if tested(SOURCE, tests) != PASSED:
            print(f"without any mutant these do not pass: {' '.join(tests)}")
            return 1
    survivors = 0
    for mutant in chosen:
        start = time.monotonic()
        dead = killed(mutant)
        survivors += not dead
        print(f"{'killed  ' if dead else 'SURVIVED'} {time.monotonic() - start:5.0f} s  {mutant.file}: {mutant.name}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} killed")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
