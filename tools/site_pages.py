"""Prepares pages for the documentation site (a hook of MkDocs).

Adds the pages at the root of the repository below ``project/``, and rewrites their links. Rewrites
escaped pipes in the code of tables, because MkDocs shows the backslash and GitHub does not.
"""

import html
import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}

_ROW: Final = re.compile(r"^\|.*$", re.MULTILINE)
_CODE: Final = re.compile(r"`([^`]+)`")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files of the site with those pages among them."""
    for source, name in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, f"project/{name}", content=_relinked(text)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """The page with ``<code>`` for code in tables that contains an escaped pipe."""
    return _ROW.sub(lambda row: _CODE.sub(_as_html, row[0]), markdown)


def _as_html(code: re.Match[str]) -> str:
    if "\\|" not in code[1]:
        return code[0]
    text = html.escape(code[1].replace("\\|", "|"), quote=False)
    return f"<code>{text.replace('|', '&#124;')}</code>"


def _relinked(text: str) -> str:
    text = re.sub(r"\]\(docs/", "](../", text)
    for source, name in PAGES.items():
        text = text.replace(f"]({source}", f"]({name}")
    return text
