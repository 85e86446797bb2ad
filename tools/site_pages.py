"""Adds the pages at the root of the repository to the documentation site (a hook of MkDocs).

They are shown below ``project/``; their links into ``docs`` and to each other are rewritten.
"""

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


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files of the site with those pages among them."""
    for source, name in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, f"project/{name}", content=_relinked(text)))
    return files


def _relinked(text: str) -> str:
    text = re.sub(r"\]\(docs/", "](../", text)
    for source, name in PAGES.items():
        text = text.replace(f"]({source}", f"]({name}")
    return text
