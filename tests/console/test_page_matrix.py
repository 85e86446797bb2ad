"""Every page at 12, 5,000 and 50,000 nodes, on a desktop and a phone, light and dark.

A page is loaded once for each size; its looks are changed while it is open. Pictures are kept in
``build/console/SIZE``.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from effort import variants
from page_checks import keep_picture, violations
from playwright.sync_api import Browser, Page, expect

from tests.engines.made_console import BIG_JOB, FLEET, TOKEN, name_of

ROOT = Path(__file__).parents[2]
SHOTS = ROOT / "build/console"
SIZES = (12, 5_000, 50_000)
TIMEOUT_MS = 240_000
"""Of a page of 50,000 nodes on a busy machine."""

ELEMENTS = 12_000
"""Maximum number of elements of a page: what is out of sight is not drawn."""

DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 360, "height": 740}
LOOKS = {
    "desktop-light": (DESKTOP, "light"),
    "phone-light": (PHONE, "light"),
    "phone-dark": (PHONE, "dark"),
    "desktop-dark": (DESKTOP, "dark"),
}
LARGE_LOOKS = ("desktop-light", "phone-dark")
"""Looks of 50,000 nodes, which take ten times as long: each of both sizes and themes once."""


@dataclass(frozen=True)
class Row:
    """A page, and a text that it shows once it is complete."""

    path: str
    text: str


PAGES = {
    "fleet": Row("fleet", "{nodes} nodes"),
    "fleet-table": Row("fleet?view=table", "{nodes} nodes"),
    "fleet-filtered": Row("fleet?state=faulty&q=workers", "of {nodes} nodes"),
    "node": Row(f"node/{FLEET}/{name_of(0)}", "8 GPUs, NVIDIA H200"),
    "jobs": Row("jobs", " jobs"),
    "job": Row(f"job/{BIG_JOB}", "Time by use"),
    "log": Row(f"log/{BIG_JOB}?rank=1", "step 2999"),
    "checkpoints": Row(f"checkpoints/{BIG_JOB}", "checkpoint-200"),
    "incidents": Row("incidents", "incidents"),
    "incident": Row(f"incident/{FLEET}/open-1", "fallen off the bus"),
    "goodput": Row("goodput", "Lost time by cause"),
    "trends": Row("trends?range=7d", "Nodes by state"),
    "clusters": Row("clusters", FLEET),
    "cluster": Row(f"cluster/{FLEET}", "Instance groups"),
    "new-cluster": Row("new-cluster", "Create cluster"),
    "audit": Row("audit", "LogIn"),
    "unknown": Row("nowhere", "There is no page"),
}


@pytest.fixture(scope="module", params=variants(SIZES))
def size(request) -> int:
    return request.param


@pytest.fixture(scope="module")
def opened(browser: Browser, size: int) -> Iterator[Callable[[str], Page]]:
    """Opens pages of an administrator; a test fails if a page has an error."""
    argv = [sys.executable, "-m", "tests.engines.made_console", str(size)]
    wrong: list[str] = []
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = f"http://127.0.0.1:{server.stdout.readline().strip()}/"
            page = browser.new_page(reduced_motion="reduce", viewport=DESKTOP)
            page.set_default_timeout(TIMEOUT_MS)
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.goto(url)
            page.get_by_label("Token").fill(TOKEN.strip())
            page.keyboard.press("Enter")
            expect(page.locator(".status")).to_have_text("Live", timeout=TIMEOUT_MS)

            def visit(path: str) -> Page:
                page.set_viewport_size(DESKTOP)
                page.goto(f"{url}#/{path}")
                return page

            yield visit
            page.close()
        finally:
            server.kill()  # it may be in the middle of a page of 50,000 nodes
    assert wrong == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_for_everybody_at_every_size(
    opened: Callable[[str], Page], size: int, name: str
) -> None:
    row = PAGES[name]
    page = opened(row.path)
    expect(page.locator("main h1")).to_be_visible(timeout=TIMEOUT_MS)
    text = row.text.format(nodes=f"{size:,}")
    expect(page.locator("main")).to_contain_text(text, timeout=TIMEOUT_MS)
    expect(page.locator(".loading")).to_have_count(0, timeout=TIMEOUT_MS)
    assert page.evaluate("document.querySelectorAll('*').length") < ELEMENTS

    found = {}
    for look in LOOKS if size < max(SIZES) else LARGE_LOOKS:
        viewport, theme = LOOKS[look]
        dress(page, viewport, theme)
        keep_picture(page, SHOTS / str(size) / f"{name}-{look}.png")
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= viewport["width"], look
        found[look] = broken_rules(page, theme)
    assert {look: wrong for look, wrong in found.items() if wrong} == {}


def dress(page: Page, viewport: dict[str, int], theme: str) -> None:
    """Change the size of the window and the theme, as a user does."""
    page.set_viewport_size(viewport)
    if page.locator("html").get_attribute("data-theme") != theme:
        page.get_by_role("button", name=f"Switch to the {theme} theme").click()
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")


def broken_rules(page: Page, theme: str) -> list[tuple[str, ...]]:
    # In dark, the colors alone are other ones.
    rules = {"runOnly": ["color-contrast"]} if theme == "dark" else {}
    return [
        (one["id"], one["help"], node["html"][:200], node["failureSummary"][:300])
        for one in violations(page, **rules)
        for node in one["nodes"]
    ]
