"""Every note that the code refers to exists, under its name."""

import re
from pathlib import Path

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
