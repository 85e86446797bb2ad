"""Where the parts of a machine are found."""

import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine, or a folder with the files of one."""

    root: Path = Path("/")
    """What its ``/sys``, ``/proc`` and ``/run`` are below."""

    path: str | None = None
    """Where its commands are, as in ``PATH``; that of this process if None."""

    def find(self, command: str) -> str | None:
        """The file of a command; None if there is none."""
        return shutil.which(command, path=self.path)

    @property
    def is_elsewhere(self) -> bool:
        """Whether its root is not that of this process, which is in a container, then."""
        return self.root != Path("/")
