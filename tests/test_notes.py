"""Every note that the code refers to exists, under its name, and has the numbers that the code computes."""

import math
import re
from pathlib import Path

from steadyrnn.bounds.memory import horizon, state_radius

ROOT = Path(__file__).parents[1]


def test_every_note_that_is_referred_to_exists() -> None:
    code = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "src").rglob("*.py"))
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "notes").glob("*.md")]
    titles = {title for page in pages for title in re.findall(r"^# Note \[(.+)\]$", page, re.MULTILINE)}
    assert set(re.findall(r"See Note \[(.+?)\]", code)) <= titles


def test_every_note_is_listed() -> None:
    listed = (ROOT / "docs" / "notes" / "index.md").read_text(encoding="utf-8")
    missing = [page.stem for page in (ROOT / "docs" / "notes").glob("*.md") if f"({page.name})" not in listed]
    assert missing == ["index"]


def test_the_windows_in_the_corrections_are_those_of_the_bound() -> None:
    note = (ROOT / "docs" / "notes" / "corrections.md").read_text(encoding="utf-8")
    (row,) = [line for line in note.splitlines() if line.startswith("| Lemma 1, Proposition 1 |")]
    printed = re.findall(r"(\d+), not ([\d.]+), for \$\\lambda = ([\d.]+)\$", row)
    assert "$L_x B_x = 10$" in row
    assert r"$\varepsilon = 10^{-3}$" in row
    for window, logarithm, rate in printed:
        radius = state_radius(float(rate), 10.0)
        assert horizon(float(rate), radius, eps=1e-3) == int(window)
        assert f"{math.log(radius / 1e-3):.1f}" == logarithm
    assert len(printed) == row.count(", not ")
