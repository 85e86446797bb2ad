"""Root directory and command path of a machine."""

import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine, or a directory with its files."""

    root: Path = Path("/")
    """Directory that contains its ``/sys``, ``/proc`` and ``/run``."""

    path: str | None = None
    """Search path of its commands, like ``PATH``; that of this process if None."""

    def find(self, command: str) -> str | None:
        """Return the path of a command; None if it is not found."""
        return shutil.which(command, path=self.path)

    @property
    def is_elsewhere(self) -> bool:
        """Whether the root differs from that of this process, which then runs in a container."""
        return self.root != Path("/")
