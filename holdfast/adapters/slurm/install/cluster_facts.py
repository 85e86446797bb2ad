"""Facts of a Slurm cluster that ``holdfast slurm doctor`` checks, as one host sees them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

_NUMBER: Final = re.compile(r"\d+")
_UNSET: Final = ("", "(null)", "n/a")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFacts:
    """Age and clock skew of the last report of one agent."""

    age: timedelta
    """Time since the last report."""

    skew: timedelta
    """Least time that the clock of the node is ahead of the clock of the shared directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """Facts of a cluster, as one host sees them. None where they could not be read."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings from ``scontrol show config``."""

    nodes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """``State``, ``NodeAddr`` and other fields, by node name."""

    problem: str = ""
    """Error of slurmctld; if set, nothing else is known. Empty if it answers."""

    reservations: tuple[str, ...] = ()
    has_plugstack: bool = True
    """Whether plugstack.conf can be read."""

    plugin: str = ""
    """Line of the plugin in plugstack.conf; empty if missing."""

    has_option: bool = True
    """Whether srun has the option ``--auto-resume``."""

    has_supervisor: bool = True
    """Whether the program after ``supervisor=`` can be executed on this host."""

    supervisor_closed: str = ""
    """File or directory on the path of that program that other users cannot execute, with its mode;
    empty if they can."""

    has_munge: bool = True
    """Whether a credential can be encoded and decoded on this host."""

    open_reports: str = ""
    """Who besides root, SlurmUser and this user may change reports; empty if nobody."""

    agents: Mapping[str, AgentFacts] | None = None
    stale_after: timedelta = timedelta(minutes=1)
    is_controlled: bool | None = None
    """Whether a controller runs."""

    max_retries: int | None = None
    """``slurm.max_retries`` of the controller's configuration."""

    join_timeout: timedelta | None = None
    """``nodes.join_timeout`` of the controller's configuration."""

    replace: str = ""
    reboot: str = ""
    """Providers in the controller's configuration."""

    def number(self, key: str, default: int) -> int:
        """Return the number of a setting such as ``30 sec``."""
        found = _NUMBER.match(self.settings.get(key, ""))
        return default if found is None else int(found[0])

    def is_set(self, key: str) -> bool:
        """Whether a setting has a value; newer Slurm versions number some, as ``Prolog[0]``."""
        values = (self.settings.get(key, ""), self.settings.get(f"{key}[0]", ""))
        return any(value not in _UNSET for value in values)

    def items(self, key: str) -> list[str]:
        """Return the items of a setting that is a list."""
        return self.settings.get(key, "").split(",")
