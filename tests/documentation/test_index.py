"""The first page leads to every other one, in the groups of the side bar, and says what is found there."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
INDEX = (DOCS / "index.md").read_text(encoding="utf-8")
LINK = re.compile(r"^- \[[^\]]+\]\(([\w/-]+)\.md\): (.+)\.$", re.MULTILINE)
TREE = re.compile(r"```\{toctree\}\n:hidden:\n:caption: (.+)\n\n((?:.+\n)+)```")


def test_each_group_of_links_is_a_group_of_the_side_bar() -> None:
    _, *parts = re.split(r"^## (.+)\n", INDEX.split("```{toctree}")[0], flags=re.MULTILINE)
    links = {title: [page for page, _ in LINK.findall(text)] for title, text in zip(parts[::2], parts[1::2], strict=True)}
    assert links == {caption: pages.split() for caption, pages in TREE.findall(INDEX)}
    assert links
    assert all(links.values())


def test_every_page_is_reached_from_the_first() -> None:
    listed = {page for _, pages in TREE.findall(INDEX) for page in pages.split()}
    pages = {str(page.relative_to(DOCS).with_suffix("")) for page in DOCS.rglob("*.md") if "_build" not in page.parts}
    below = {page for page in pages if f"{Path(page).parent}/index" in listed}
    assert pages - below - {"index"} == listed - below
