"""What the console shows and asks for, as its server sees it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from holdfast.model.errors import HoldfastError

Json = dict[str, Any]

Tables = Mapping[str, Mapping[str, Json]]
"""``table -> key -> row``: all that pages show of the whole, ready for JSON."""


class UnknownObject(HoldfastError):
    """There is no node or job of that name, or not any more."""


class NotAccepted(HoldfastError):
    """What a person asked for cannot be taken up; the message says why."""


class ConsoleAction(StrEnum):
    """What a person may ask for on the console."""

    REBOOT = "reboot"
    REPLACE = "replace"
    DEEP_CHECK = "deep-check"
    RELEASE = "release"
    HOLD = "hold"
    UNHOLD = "unhold"
    RESET_BREAKER = "reset-breaker"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairRequest:
    """What a person asks for."""

    act: ConsoleAction
    fleet: str
    node: str = ""
    """Empty where the act is about the whole fleet."""

    why: str = ""
    """For the others; may be empty."""

    when_idle: bool = False
    """Begin when no job runs on the node any more."""


class ConsoleBackend(Protocol):
    """Where the console has all from, for any thread. Everything may raise ``BackendError``."""

    @property
    def pause_s(self) -> float:
        """How many seconds to leave between two looks."""
        ...

    def look(self) -> Tables:
        """All rows of all tables as they are now."""
        ...

    def node(self, fleet: str, name: str) -> Json:
        """All about one node.

        Raises:
            NothingThere: there is no such node.

        """
        ...

    def job(self, name: str) -> Json:
        """All about one job.

        Raises:
            NothingThere: there is no such job.

        """
        ...

    def goodput(self) -> Json:
        """How the time of all jobs was spent, up to now."""
        ...

    def submit(self, repair: RepairRequest, person: str) -> str:
        """Record a wish in the name of a person; what is told to them.

        Raises:
            NothingThere: there is no such node or fleet.
            InVain: nobody would take it up.

        """
        ...
