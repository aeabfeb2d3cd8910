"""The built pages need no network, and no formula on them is left as it was typed."""

import pickle
import re
import subprocess
import sys
from base64 import b64decode
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
ELSEWHERE = re.compile(r"\s*(?:https?:)?//", re.IGNORECASE)
STYLE_ADDRESS = re.compile(r"""(?:url\(|@import)\s*["']?([^"')]+)""")
RAW = re.compile(r"\\[a-zA-Z]+|\\[()\[\]]|\$")
CODE = {"code", "pre", "script", "style", "title"}
EMPTY = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


class Reader(HTMLParser):
    """Collects what a page loads, its formulas, and the text outside of code."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.inside: list[str] = []
        self.text, self.formulas, self.tags = "", "", []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in EMPTY:
            self.inside.append(tag)
        for name, value in attributes:
            if value and (name in {"src", "srcset", "data", "poster"} or (name == "href" and tag == "link")):
                self.loads.append(value)
            if value and name == "style":
                self.loads += STYLE_ADDRESS.findall(value)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.inside:
            while self.inside.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if "style" in self.inside:
            self.loads += STYLE_ADDRESS.findall(data)
        if "math" in self.inside:
            self.formulas += data
        elif not CODE & set(self.inside):
            self.text += data


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Reader]:
    return {str(page.relative_to(site)): Reader(page) for page in sorted(site.rglob("*.html"))}


@pytest.mark.slow
def test_a_page_loads_nothing_from_another_host(site: Path, pages: dict[str, Reader]) -> None:
    loads = {name: page.loads for name, page in pages.items()}
    loads |= {sheet.name: STYLE_ADDRESS.findall(sheet.read_text(encoding="utf-8")) for sheet in site.rglob("*.css")}
    assert any(loads.values())
    assert {name: found for name, all in loads.items() if (found := [*filter(ELSEWHERE.match, all)])} == {}


@pytest.mark.slow
def test_every_formula_is_mathml(site: Path, pages: dict[str, Reader]) -> None:
    from docutils import nodes

    doctrees = site.parent / "doctrees"
    for file in doctrees.rglob("*.doctree"):
        tree = pickle.loads(file.read_bytes())
        formulas = [*tree.findall(nodes.math), *tree.findall(nodes.math_block)]
        page = pages[str(file.relative_to(doctrees).with_suffix(".html"))]
        assert page.tags.count("math") >= len(formulas), file.name
    assert {name: page.tags.count("merror") for name, page in pages.items() if "merror" in page.tags} == {}
    assert {name: found for name, page in pages.items() if (found := RAW.findall(page.formulas))} == {}


@pytest.mark.slow
def test_no_text_is_an_unread_formula(pages: dict[str, Reader]) -> None:
    texts = {name: page.text for name, page in pages.items() if not name.startswith("_modules")}
    assert {name: found for name, text in texts.items() if (found := RAW.findall(text))} == {}


@pytest.mark.slow
def test_the_font_of_the_pages_has_every_character_of_their_formulas(site: Path, pages: dict[str, Reader]) -> None:
    from fontTools.ttLib import TTFont

    sheet = (site / "_static" / "math.css").read_text(encoding="utf-8")
    (data,) = re.findall(r"data:font/woff;base64,([\w+/=]+)", sheet)
    font = TTFont(BytesIO(b64decode(data)))
    drawn = {letter for page in pages.values() for letter in page.formulas if letter.isprintable() and not letter.isspace()}
    drawn |= {"√" for page in pages.values() if {"msqrt", "mroot"} & set(page.tags)}
    drawn -= {"\N{VARIATION SELECTOR-1}"}
    assert {letter for letter in drawn if ord(letter) not in font.getBestCmap()} == set()
    assert "MATH" in font


@pytest.mark.parametrize(
    ("formula", "status"), [(r"\lVert x \rVert", 0), (r"a &\le b \\ c &= d", 0), (r"\nosuchcommand x", 1), (r"\frac{1", 1)]
)
def test_a_formula_that_cannot_be_read_fails_the_build(tmp_path: Path, formula: str, status: int) -> None:
    pytest.importorskip("math_core", reason="needs the extra `docs`")
    search = f"import sys\nsys.path.insert(0, {str(DOCS / '_extensions')!r})\n"
    (tmp_path / "conf.py").write_text(search + "extensions = ['mathml']\nhtml_math_renderer = 'mathml'\n")
    (tmp_path / "index.rst").write_text(f"Page\n====\n\n.. math::\n\n   {formula}\n")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(tmp_path), str(tmp_path / "html")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    assert ("this formula cannot be converted" in done.stderr) == bool(status)
