"""What ``holdfast slurm doctor`` looks at: a cluster as one machine of it sees it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

_NUMBER: Final = re.compile(r"\d+")
_UNSET: Final = ("", "(null)", "n/a")


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """What the report of one agent tells."""

    age: timedelta
    """Since its last sign of life."""

    skew: timedelta
    """How far the clock of its node is ahead of that of the shared directory, at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """A cluster, as one machine of it sees it. What could not be read is None."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """As ``scontrol show config`` tells them."""

    nodes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """``State``, ``NodeAddr`` and so on, by name."""

    trouble: str = ""
    """Why Slurm cannot be asked; then nothing else is known."""

    reservations: tuple[str, ...] = ()
    has_plugstack: bool = True
    """Whether there is a plugstack.conf."""

    plugin: str = ""
    """Its line in there; empty if there is none."""

    has_option: bool = True
    """Whether srun knows ``--auto-resume``."""

    has_supervisor: bool = True
    """Whether the program that the line names can be run."""

    supervisor_closed: str = ""
    """The file or directory on the way to that program that other users cannot pass or run, with
    its mode; empty if they can."""

    has_munge: bool = True
    """Whether a credential can be made and read here."""

    agents: Mapping[str, Agent] | None = None
    stale_after: timedelta = timedelta(minutes=1)
    is_controlled: bool | None = None
    """Whether a controller is at work."""

    max_retries: int | None = None
    """Of the controller's configuration, as everything that follows."""

    replace: str = ""
    reboot: str = ""
    """The providers of the controller's configuration."""

    def number(self, key: str, default: int) -> int:
        """A setting such as ``30 sec``."""
        found = _NUMBER.match(self.settings.get(key, ""))
        return default if found is None else int(found[0])

    def is_set(self, key: str) -> bool:
        """Whether a setting has a value; those of newer versions may be numbered."""
        values = (self.settings.get(key, ""), self.settings.get(f"{key}[0]", ""))
        return any(value not in _UNSET for value in values)

    def words(self, key: str) -> list[str]:
        """A setting that is a list."""
        return self.settings.get(key, "").split(",")
