"""Parses Slurm's output about jobs and reservations. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from holdfast.adapters.slurm.commands.hostlist import expand
from holdfast.adapters.slurm.commands.records import records

_FIELDS: Final = (
    "JobArrayID", "JobID", "HetJobID", "HetJobOffset", "State", "Reason", "RestartCnt", "Requeue",
    "BatchFlag", "SubmitTime", "EligibleTime", "StartTime", "EndTime", "NumNodes", "NodeList",
    "ReqNodes", "BatchHost", "UserName", "Partition", "Reservation", "exit_code", "Comment",
)  # fmt: skip
"""The Comment is last, as it may hold any text."""

_ABSENT: Final = ("", "N/A", "n/a", "(null)", "None", "Unknown")

REQUEUE_HOLD: Final = "REQUEUE_HOLD"
WAITING: Final = frozenset(
    ("PENDING", "REQUEUED", REQUEUE_HOLD, "SPECIAL_EXIT", "REQUEUE_FED", "EXPEDITING")
)
"""``EXPEDITING``: requeued with ``--requeue=expedite``, since 25.11; it is first in the queue."""

AT_WORK: Final = frozenset(
    ("RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT")
)
COMPLETING: Final = "COMPLETING"
CONFIGURING: Final = "CONFIGURING"
NOT_LAUNCHED: Final = "launch failed requeued held"
"""Reason of a pending job that Slurm has held after its prolog failed."""

FAILED: Final = "FAILED"
NODE_FAIL: Final = "NODE_FAIL"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchJob:
    """One job; an array task is one job, all components of a heterogeneous job together are one."""

    id: str
    """ID for ``scontrol``: ``7``, or ``7_2`` for an array task."""

    number: str
    """Job number in ``SLURM_JOB_ID``. The last task of an array has the number of the array."""

    state: str
    why: str
    """Reason in Slurm, why the job is pending or how it ended."""

    restarts: int
    """Number of requeues, by anybody."""

    can_requeue: bool
    is_batch: bool
    eligible_at: datetime | None
    """Earliest start time; None if there is none."""

    started_at: datetime | None
    wants: int
    """Minimum number of nodes that it has or requests."""

    nodes: tuple[str, ...]
    """Nodes of the job; while it is completing, nodes that have not released it. Empty if it waits:
    Slurm may still list those of its previous run, if one of them was powered down."""

    pinned: str
    """Required nodes, as its owner wrote them."""

    user: str
    partition: str
    reservation: str
    exit_status: int
    """Wait status, as ``wait`` returns it."""

    comment: str
    submitted_at: datetime | None = None
    """Time of submission, or of the last requeue."""

    ended_at: datetime | None = None
    """End time; for a running job, the end of its time limit."""

    parts: tuple[str, ...] = ()
    """IDs of the components of a heterogeneous job, the leader first."""

    @property
    def exit_code(self) -> int:
        """Return the exit code, as ``subprocess`` reports it: negative for a signal."""
        signal = self.exit_status & 0x7F
        return -signal if signal else self.exit_status >> 8

    @property
    def is_at_work(self) -> bool:
        """Whether its processes may be running normally on the nodes that it was given."""
        return self.state in AT_WORK

    @property
    def has_nodes(self) -> bool:
        """Whether nodes are allocated to it."""
        return self.is_at_work or self.state in (CONFIGURING, COMPLETING)

    @property
    def is_held_after_failure(self) -> bool:
        """Whether Slurm has requeued and held it after its script exited with an error.

        So ends a job with ``--requeue=expedite`` whose Epilog finds no fault, and one with
        ``RequeueExitHold``. The script of a job that a person requeues is ended by a signal.
        """
        return self.state == REQUEUE_HOLD and self.exit_code > 0

    @property
    def is_over(self) -> bool:
        """Whether it has ended, in any state."""
        return not self.has_nodes and self.state not in WAITING


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A reservation of nodes."""

    name: str
    nodes: tuple[str, ...]
    ends_at: datetime | None
    is_active: bool = True
    """Whether it has begun; maintenance is often planned weeks ahead."""


def jobs_format(mark: str) -> str:
    """Return the output format for squeue; ``mark`` must be new each time, and no number.

    A Comment may hold any text, but not a mark that its author could not know. So nobody can forge
    the record of another job.
    """
    return ",".join([*(f"{field}:|" for field in _FIELDS[:-1]), f"{_FIELDS[-1]}:{mark}"])


def parse_batch_jobs(text: str, mark: str) -> dict[str, BatchJob]:
    """Return the jobs in the output of squeue with ``jobs_format(mark)``, by ID.

    Array tasks that are not yet separate jobs are left out.

    Raises:
        ValueError: the output is not as expected.

    """
    found: dict[str, list[tuple[int, BatchJob]]] = {}
    *records, rest = text.split(f"{mark}\n")
    if rest:
        raise ValueError(f"unexpected output of squeue: {rest[:100]!r}")
    for record in records:
        values = record.split("|", len(_FIELDS) - 1)
        if len(values) != len(_FIELDS):
            raise ValueError(f"unexpected output of squeue: {record[:100]!r}")
        job = dict(zip(_FIELDS, values, strict=True))
        if "[" not in job["JobArrayID"]:
            part = _number(job["HetJobOffset"])
            read = _job(job)
            found.setdefault(read.id, []).append((part, read))
    return {name: _whole([job for _, job in sorted(parts, key=_first)])
            for name, parts in found.items()}  # fmt: skip


def parse_reservations(text: str) -> dict[str, Reservation]:
    """Return the reservations in the output of ``scontrol -o show reservation``, by name.

    Raises:
        ValueError: the output is not as expected.

    """
    found: dict[str, Reservation] = {}
    if text.startswith("No reservations"):
        return found
    for line in records(text, "ReservationName="):
        values = {key: value for key, _, value in (word.partition("=") for word in line.split())}
        if not values.get("ReservationName"):
            raise ValueError(f"unexpected output of scontrol: {line[:100]!r}")
        name = values["ReservationName"]
        nodes = _present(values.get("Nodes", ""))
        found[name] = Reservation(
            name=name,
            nodes=expand(nodes),
            ends_at=parse_time(values.get("EndTime", "")),
            is_active=values.get("State") != "INACTIVE",
        )
    return found


def _first(part: tuple[int, BatchJob]) -> int:
    return part[0]


def _job(values: Mapping[str, str]) -> BatchJob:
    het = _present(values["HetJobID"])
    array_id = values["JobArrayID"]
    return BatchJob(
        id=het or array_id,
        number=values["JobID"],
        state=values["State"],
        why=_present(values["Reason"]),
        restarts=_number(values["RestartCnt"]),
        can_requeue=values["Requeue"] == "1",
        is_batch=_number(values["BatchFlag"]) > 0,  # 2 after a failed launch
        eligible_at=parse_time(values["EligibleTime"]),
        started_at=parse_time(values["StartTime"]),
        wants=max(1, _number(values["NumNodes"].partition("-")[0])),
        nodes=() if values["State"] in WAITING else expand(_present(values["NodeList"])),
        pinned=_present(values["ReqNodes"]),
        user=values["UserName"],
        partition=values["Partition"].split(",")[0],
        reservation=_present(values["Reservation"]),
        exit_status=_status(values["exit_code"]),
        comment=_present(values["Comment"]),
        submitted_at=parse_time(values["SubmitTime"]),
        ended_at=parse_time(values["EndTime"]),
        parts=(array_id,) if het else (),
    )


def _whole(parts: list[BatchJob]) -> BatchJob:
    """Return the components of a heterogeneous job as one job, in the least advanced state."""
    leader = parts[0]
    if len(parts) == 1:
        return leader
    order = (COMPLETING, CONFIGURING, *sorted(WAITING))
    state = next((one for one in order if any(part.state == one for part in parts)), leader.state)
    return replace(
        leader,
        state=state,
        wants=sum(part.wants for part in parts),
        nodes=tuple(dict.fromkeys(node for part in parts for node in part.nodes)),
        pinned=",".join(filter(None, (part.pinned for part in parts))),
        exit_status=next((part.exit_status for part in parts if part.exit_status), 0),
        parts=tuple(one for part in parts for one in part.parts),
    )


def _present(value: str) -> str:
    return "" if value in _ABSENT else value


def _number(value: str) -> int:
    return int(value) if value.isascii() and value.isdecimal() else 0


def _status(value: str) -> int:
    """Return the wait status, which 22.05 prints as ``768`` and 24.11 as ``3:0``."""
    code, colon, signal = value.partition(":")
    return _number(code) << 8 | _number(signal) if colon else _number(code)


def parse_time(value: str) -> datetime | None:
    """Return a time that Slurm printed in the time zone of this machine."""
    if not value or not value[0].isdecimal():
        return None
    try:
        return datetime.fromisoformat(value).astimezone()
    except (ValueError, OverflowError) as error:  # overflow: of the year 1 or 9999
        raise ValueError(f"unexpected time: {value[:100]!r}") from error


def joined(nodes: Iterable[str]) -> str:
    """Return node names as scontrol expects them."""
    return ",".join(sorted(nodes))
