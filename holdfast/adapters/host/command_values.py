"""Names and numbers in what commands write, for those that look at their change."""

import re
from pathlib import Path
from typing import Final

_DOMAIN: Final = re.compile(r"^ {0,8}domain: {1,8}(\S{1,100}?)(?:-rdm|-dgrm)?\s*$", re.M)
_OF_UNITS: Final = ("ActiveState", "SubState", "Result", "NRestarts")


def efa_domains(_root: Path, text: str) -> dict[str, str]:
    """The devices that ``fi_info -p efa`` shows: ``domain/NAME``, each once."""
    return {f"domain/{name}": "" for name in _DOMAIN.findall(text)}


def units(_root: Path, text: str) -> dict[str, str]:
    """Of each unit that is installed, ``UNIT/PROPERTY``, from what ``systemctl show`` writes."""
    values: dict[str, str] = {}
    for part in text.split("\n\n"):
        rows = dict(line.split("=", 1) for line in part.splitlines() if "=" in line)
        unit = rows.get("Id", "").removesuffix(".service")
        if unit and rows.get("LoadState") == "loaded":
            values |= {f"{unit}/{name}": rows[name] for name in _OF_UNITS if name in rows}
    return values
