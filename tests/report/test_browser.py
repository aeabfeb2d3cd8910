"""The page in a real browser: no complaint, no request except for itself, pictures seen, nothing wider than the screen."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from steadyrnn.report.page import write_report

from .browser import Page, chromium, find_chromium
from .folders import write_comparison

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium on the search path; .ci/chromium installs it")

SEEN = """[...document.querySelectorAll('svg.chart')].filter(svg => svg.checkVisibility()).map(svg => {
    const box = svg.getBoundingClientRect(); return [box.width, box.height, svg.querySelectorAll('path.line').length] })"""
SHOWN = "[...document.querySelectorAll('.shown')].filter(tip => getComputedStyle(tip).visibility == 'visible').length"
PLACE = """(() => { const box = document.querySelectorAll('.hit')[10].getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2] })()"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("runs")
    write_comparison(root, seeds=2)
    return write_report([root], root / "report.html", command=["steadyrnn", "report", "runs"]).as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    with chromium(str(CHROMIUM)) as page:
        yield page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "mobile"), [(1200, False), (390, True)])
def test_the_page_is_seen_as_it_should(browser: Page, url: str, tmp_path: Path, width: int, mobile: bool, scheme: str) -> None:
    browser.open(url, width, 900, scheme, mobile)
    seen: list[Any] = browser.evaluate(SEEN)
    browser.screenshot(tmp_path / "page.png")
    assert browser.requests() == [url]
    assert browser.complaints() == []
    assert len(seen) >= 11
    assert all(wide > 250 and high > 150 and lines > 0 for wide, high, lines in seen)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert (tmp_path / "page.png").stat().st_size > 10_000


def test_light_and_dark_have_ink_that_stands_out(browser: Page, url: str) -> None:
    brightness = """['backgroundColor', 'color'].map(key => getComputedStyle(document.body)[key].match(/\\d+/g)
        .slice(0, 3).reduce((sum, part) => sum + Number(part) / 765, 0))"""
    browser.open(url, 1200, 900, "light")
    paper, ink = browser.evaluate(brightness)
    assert paper - ink > 0.7
    browser.open(url, 1200, 900, "dark")
    paper, ink = browser.evaluate(brightness)
    assert ink - paper > 0.7


def test_a_pointer_shows_the_values_without_a_script(browser: Page, url: str) -> None:
    browser.open(url, 1200, 1500)
    assert browser.evaluate(SHOWN) == 0
    browser.hover(*browser.evaluate(PLACE))
    assert browser.evaluate(SHOWN) == 1


def test_a_request_or_a_complaint_would_be_noticed(browser: Page, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text("<img src='http://example.invalid/a.png'><script>console.error('no')</script>", encoding="utf-8")
    browser.open(page.as_uri(), 800, 600)
    assert len(browser.requests()) == 2
    assert len(browser.complaints()) >= 1
