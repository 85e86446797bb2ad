"""The README as a rendered page, on a desktop and on a phone."""

from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from playwright.sync_api import Browser

ROOT = Path(__file__).parents[2]
SHOTS = ROOT / "build/console"

# GitHub's rules for width: https://github.com/sindresorhus/github-markdown-css
STYLE = """
body { margin: 16px; font: 16px/1.5 sans-serif; overflow-wrap: break-word; }
img { max-width: 100%; }
pre, table { display: block; width: max-content; max-width: 100%; overflow: auto; }
td, th { border: 1px solid #ccc; padding: 6px 13px; }
"""

TOO_WIDE = """
() => [...document.querySelectorAll('p, li, h1, h2, img')]
    .filter(one => one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0
        || one.getBoundingClientRect().right > innerWidth)
    .map(one => one.textContent.slice(0, 80) || one.src)
"""


@pytest.mark.parametrize(("name", "width", "height"), [("desktop", 1012, 900), ("phone", 390, 844)])
def test_it_is_readable_without_scrolling_sideways(
    browser: Browser, tmp_path: Path, name: str, width: int, height: int
) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    body = MarkdownIt("commonmark").enable("table").render(text)
    file = tmp_path / "README.html"
    file.write_text(
        f'<!doctype html><meta name="viewport" content="width=device-width">'
        f'<base href="{ROOT.as_uri()}/"><style>{STYLE}</style>{body}',
        encoding="utf-8",
    )
    page = browser.new_page(viewport={"width": width, "height": height})
    page.goto(file.as_uri())

    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(TOO_WIDE) == []
    pictures = page.evaluate("[...document.images].map(one => one.naturalWidth)")
    assert len(pictures) == 4
    assert all(pictures)
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"readme-{name}.png", full_page=True)
    page.close()
