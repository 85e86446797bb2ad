"""A real browser for all tests of this folder, and a console for it to look at."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page, expect, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1] / "apps"))  # its made-up runs and its servers

from console_server import Site, site

CHROMIUM = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Ends with the file: as long as it lasts, nothing else in this process can use asyncio."""
    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if found is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        # Chromium has no sandbox for root, as whom tests in containers run.
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        one = playwright.chromium.launch(executable_path=found, args=flags)
        yield one
        one.close()


@pytest.fixture(scope="module")
def console(tmp_path_factory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("console")) as one:
        yield one


def go(page: Page, url: str) -> None:
    """Open a page, once more if the network of this machine changed: other tests add interfaces."""
    try:
        page.goto(url)
    except Error as error:
        if "ERR_NETWORK_CHANGED" not in error.message:
            raise
        page.goto(url)


@dataclass
class Visits:
    """Opens pages of people who have logged in, and notes what goes wrong in them."""

    browser: Browser
    console: Site
    contexts: list[BrowserContext] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def page(self, person: str = "ada", path: str = "", at: Site | None = None, **look) -> Page:
        """A page in a browser of its own.

        Args:
            person: who has logged in; nobody if empty.
            path: of the page, such as ``jobs``.
            at: another console than that of all.
            look: of the browser, such as ``color_scheme``.

        """
        where = at or self.console
        context = self.browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **look})
        self.contexts.append(context)
        if person:
            name, _, value = where.visitor(person).cookie.partition("=")
            context.add_cookies(
                [{"name": name, "value": value, "url": f"{where.served.url}/console"}]
            )
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", lambda said: self._note(said.type, said.text))
        go(page, f"{where.served.url}/#/{path}")
        return page

    def _note(self, kind: str, text: str) -> None:
        # A browser reports every answer that is no success; those that are meant are tested.
        if kind == "error" and not text.startswith("Failed to load resource"):
            self.wrong.append(text)


@pytest.fixture
def visit(browser, console) -> Iterator[Callable[..., Page]]:
    """Opens pages; a test fails if a page has an error or breaks a rule of its policy."""
    visits = Visits(browser, console)
    yield visits.page
    for context in visits.contexts:
        context.close()
    assert visits.wrong == []
