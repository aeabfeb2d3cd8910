"""No page is wider than a phone: what is wide scrolls in a box of its own."""

from pathlib import Path
from typing import Any

import pytest

from tests.report.browser import chromium, find_chromium

CHROMIUM = find_chromium()
WIDTH = 390
TOO_WIDE = """(() => {
    const content = document.querySelector('.content') ?? document.body, edge = content.getBoundingClientRect().right + 0.5;
    const boxed = part => { for (let box = part.parentElement; box && box !== content; box = box.parentElement)
        if (getComputedStyle(box).overflowX !== 'visible') return true; return false };
    const beyond = [...content.querySelectorAll('*')].filter(part => part.getBoundingClientRect().right > edge && !boxed(part));
    return beyond.slice(0, 3).map(part => part.tagName + ' ' + part.textContent.slice(0, 60));
})()"""
UNSEEN = """[...document.querySelectorAll('math')]
    .filter(math => math.checkVisibility() && !math.getBoundingClientRect().width).length"""


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium on the search path; .ci/chromium installs it")
def test_no_page_is_wider_than_a_phone(site: Path) -> None:
    faults: dict[str, Any] = {}
    with chromium(str(CHROMIUM)) as browser:
        source = sorted(site.glob("_modules/**/*.html"))  # of one template: every tenth is enough
        for page in sorted({*site.rglob("*.html")} - {*source}) + source[::10]:
            browser.open(page.as_uri(), WIDTH, 844, mobile=True)
            wide = browser.evaluate("Math.max(document.documentElement.scrollWidth, innerWidth)")
            found = [wide] if wide > WIDTH else []
            found += browser.evaluate(TOO_WIDE)
            found += [address for address in browser.requests() if not address.startswith(("file:", "data:"))]
            found += browser.complaints()
            if unseen := browser.evaluate(UNSEEN):
                found.append(f"{unseen} formulas have no width")
            if found:
                faults[str(page.relative_to(site))] = found
    assert faults == {}
