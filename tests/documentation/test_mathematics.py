"""The note on mathematics has every section that the project cites, and names modules that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTE = (ROOT / "docs" / "notes" / "mathematics.md").read_text(encoding="utf-8")
SECTIONS = set(re.findall(r"^### (\d+\.\d+) ", NOTE, re.MULTILINE))
CHAPTERS = set(re.findall(r"^## (\d+)\. ", NOTE, re.MULTILINE))
CITED = re.compile(
    r"Note \[mathematics\],\s+(?:#\s+)?sections?\s+((?:\d+(?:\.\d+)?(?:, (?:and )?| and | to )?)+)"
    r"|mathematics\.md, (\d+\.\d+)"
)
PAGES_WITH_PATHS = ("CONTRIBUTING.md", "docs/notes/mathematics.md", "docs/notes/gpu-kernels.md")


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "examples", "docs"])
def test_every_section_that_is_cited_exists(folder: str) -> None:
    missing = [
        f"{path.relative_to(ROOT)}: {number}"
        for path in sorted((ROOT / folder).rglob("*.*"))
        if path.suffix in {".py", ".md", ".cu"} and "_build" not in path.parts and path != Path(__file__)
        for cited in CITED.findall(path.read_text(encoding="utf-8"))
        for number in re.findall(r"\d+(?:\.\d+)?", " ".join(cited))
        if number not in SECTIONS | CHAPTERS
    ]
    assert missing == []


def test_the_sections_are_numbered_in_order() -> None:
    numbers = [tuple(map(int, number.split("."))) for number in re.findall(r"^### (\d+\.\d+) ", NOTE, re.MULTILINE)]
    assert numbers == sorted(set(numbers))


def test_every_section_names_its_code_or_links_results() -> None:
    parts = re.split(r"^### ", NOTE, flags=re.MULTILINE)[1:]
    without = [part.splitlines()[0] for part in parts if "**Code.**" not in part]
    assert all(title.startswith("8.") for title in without), without


@pytest.mark.parametrize("page", PAGES_WITH_PATHS)
def test_the_files_that_a_page_names_exist(page: str) -> None:
    text = re.sub(r"^ *```.*?^ *```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"`((?:[\w-]+/)+[\w-]+\.(?:py|cu|md|json))`", text))
    new = {"tests/layers/test_mgu.py", "tests/tasks/test_mean.py"}  # what a reader is told to create
    places = [ROOT, ROOT / "src" / "steadyrnn", ROOT / "tests" / "constraints"]
    assert {name for name in named - new if not any((place / name).exists() for place in places)} == set()


def test_a_citation_is_found() -> None:
    text = "proved in Note [mathematics], sections 5.2 and 7.1. See diagonal scaling (docs/notes/mathematics.md, 5.3)"
    assert re.findall(r"\d+\.\d+", " ".join(" ".join(cited) for cited in CITED.findall(text))) == ["5.2", "7.1", "5.3"]
