"""A table of results that tests record, and that is committed as JSON: rows by columns."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class MatrixTable:
    """Rows and columns, and the file of the committed results."""

    name: str
    titles: Mapping[str, str]
    """Title of each row."""

    columns: tuple[str, ...]
    file: Path

    def recorded(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Results by row and column."""
        if not self.file.exists():
            return {}
        known: dict[str, dict[str, dict[str, Any]]] = json.loads(
            self.file.read_text(encoding="utf-8")
        )
        return known

    def outcome(self, row: str, column: str) -> dict[str, Any] | None:
        """The recorded outcome; None if there is none."""
        result = self.recorded().get(row, {}).get(column)
        return None if result is None else result["outcome"]
