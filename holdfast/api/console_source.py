"""Port of the console: the data that it shows and the requests that it records."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from holdfast.model.errors import HoldfastError

Json = dict[str, Any]

Tables = Mapping[str, Mapping[str, Json]]
"""``table -> key -> row``: the overview data of all pages, serializable as JSON."""


class UnknownObject(HoldfastError):
    """No node or job of that name exists, or it was removed."""


class NotAccepted(HoldfastError):
    """The request of a person would have no effect; the message states why."""


class ConsoleAction(StrEnum):
    """Actions that a person may request on the console."""

    REBOOT = "reboot"
    REPLACE = "replace"
    DEEP_CHECK = "deep-check"
    RELEASE = "release"
    HOLD = "hold"
    UNHOLD = "unhold"
    RESET_BREAKER = "reset-breaker"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairRequest:
    """Request of a person."""

    act: ConsoleAction
    fleet: str
    node: str = ""
    """Name of the node; empty if the action concerns the whole fleet."""

    why: str = ""
    """Reason for other operators; may be empty."""

    when_idle: bool = False
    """Whether to start only when no job runs on the node."""


class ConsoleBackend(Protocol):
    """Data source of the console; thread-safe. Every method may raise ``BackendError``."""

    @property
    def pause_s(self) -> float:
        """Polling interval in seconds."""
        ...

    def look(self) -> Tables:
        """Current rows of all tables."""
        ...

    def node(self, fleet: str, name: str) -> Json:
        """Details of a node.

        Raises:
            NothingThere: no such node exists.

        """
        ...

    def job(self, name: str) -> Json:
        """Details of a job.

        Raises:
            NothingThere: no such job exists.

        """
        ...

    def goodput(self) -> Json:
        """Job time by use, of all jobs up to now."""
        ...

    def submit(self, repair: RepairRequest, person: str) -> str:
        """Record the request of a person; returns the message to show to them.

        Raises:
            NothingThere: no such node or fleet exists.
            InVain: no controller would act on it.

        """
        ...
