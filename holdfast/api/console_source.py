"""Port of the console: the data that it shows and the requests that it records."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from holdfast.model.errors import HoldfastError

Json = dict[str, Any]

Tables = Mapping[str, Mapping[str, Json]]
"""``table -> key -> row``: the overview data of all pages, serializable as JSON."""


_OF_FLEETS: Final = ("nodes", "jobs", "incidents", "attention", "alerts")
"""Tables whose rows have the column ``fleet``."""


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


def visible(tables: Tables, may_see: Callable[[str], bool]) -> Tables:
    """Rows of some fleets only. ``may_see`` receives the name of a fleet."""
    found: dict[str, Mapping[str, Json]] = {"notes": tables.get("notes", {})}
    for table, column in (("fleets", "name"), *((one, "fleet") for one in _OF_FLEETS)):
        rows = tables.get(table, {})
        found[table] = {key: row for key, row in rows.items() if may_see(row[column])}
    notes = dict(found["notes"])
    for table in ("incidents", "attention"):  # the totals are of all fleets
        notes[table] = {"all": len(found[table])}
    return {**found, "notes": notes}


class ConsoleBackend(Protocol):
    """Data source of the console; thread-safe. Every method may raise ``BackendError``."""

    @property
    def pause_s(self) -> float:
        """Polling interval in seconds."""
        ...

    def read_tables(self) -> Tables:
        """Current rows of all tables."""
        ...

    def node(self, fleet: str, name: str) -> Json:
        """Details of a node.

        Raises:
            UnknownObject: no such node exists.

        """
        ...

    def incident(self, fleet: str, name: str) -> Json:
        """Row of an incident, however old, and ``next``, what an operator does about it.

        Raises:
            UnknownObject: no such incident exists.

        """
        ...

    def job(self, name: str) -> Json:
        """Details of a job.

        Raises:
            UnknownObject: no such job exists.

        """
        ...

    def checkpoints(self, job: str) -> Json:
        """Checkpoints of a job: ``rows``, the newest first, and ``message`` if there are none.

        Raises:
            UnknownObject: no such job exists.

        """
        ...

    def evidence(self, job: str) -> Json:
        """Evidence of the last hang of a job: the verdict, and the ranks by stack.

        Raises:
            UnknownObject: no such job exists, or there is no evidence of a hang.

        """
        ...

    def fleet_of_job(self, name: str) -> str:
        """Name of the fleet of a job.

        Raises:
            UnknownObject: no such job exists.

        """
        ...

    def read_log(self, job: str, rank: int, attempt: int, after: str) -> Json:
        """Part of the log of a rank.

        Args:
            job: name of the job.
            rank: node rank.
            attempt: number of the attempt; 0 for the current or last one.
            after: ``cursor`` of the part before; empty for the last lines, ``0`` for the first.

        Returns:
            ``text``, ``cursor``, ``attempt``, ``is_cut`` and ``has_more``.

        Raises:
            UnknownObject: no such job, rank, attempt or log exists.
            NotAccepted: the platform does not let Holdfast read it; the message states where it is.

        """
        ...

    def cancel_job(self, job: str) -> str:
        """Request the cancellation of a job; returns the message to show.

        Raises:
            UnknownObject: no such job exists, or it has ended.
            NotAccepted: the platform cancels it, not Holdfast; the message names the command.

        """
        ...

    def goodput(self, may_see: Callable[[str], bool]) -> Json:
        """Job time by use, of all jobs up to now in the fleets with these names."""
        ...

    def trends(self, hours: int, may_see: Callable[[str], bool]) -> Json:
        """Faults, repairs and goodput of the last hours, in the fleets with these names."""
        ...

    def metrics(self, may_see: Callable[[str], bool]) -> str:
        """Metrics of the fleets with these names, in Prometheus' text format."""
        ...

    def submit(self, repair: RepairRequest, person: str) -> str:
        """Record the request of a person; returns the message to show to them.

        Raises:
            UnknownObject: no such node or fleet exists.
            NotAccepted: no controller would act on it.

        """
        ...
