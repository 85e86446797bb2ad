"""Files that others read while they are written."""

import os
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Put ``text`` in place of the file; a reader sees the old or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
