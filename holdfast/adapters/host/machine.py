"""Where the parts of a machine are found."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine, or a folder with the files of one."""

    root: Path = Path("/")
    """What its ``/sys``, ``/proc`` and ``/run`` are below."""

    path: str | None = None
    """Where its commands are, as in ``PATH``; that of this process if None."""
