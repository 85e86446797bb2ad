"""What Slurm says of jobs and reservations, read: pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from holdfast.adapters.slurm.commands.hostlist import expand

_FIELDS: Final = (
    "JobArrayID", "JobID", "HetJobID", "HetJobOffset", "State", "Reason", "RestartCnt", "Requeue",
    "BatchFlag", "SubmitTime", "EligibleTime", "StartTime", "EndTime", "NumNodes", "NodeList",
    "ReqNodes", "BatchHost", "UserName", "Partition", "Reservation", "exit_code", "Comment",
)  # fmt: skip
"""The Comment is last: it is the one that may hold anything."""

_ABSENT: Final = ("", "N/A", "n/a", "(null)", "None", "Unknown")

WAITING: Final = frozenset(("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "REQUEUE_FED"))
AT_WORK: Final = frozenset(
    ("RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT")
)
COMPLETING: Final = "COMPLETING"
CONFIGURING: Final = "CONFIGURING"
NOT_LAUNCHED: Final = "launch failed requeued held"
"""Why a job waits that Slurm has parked for good after its prolog failed."""

FAILED: Final = "FAILED"
NODE_FAIL: Final = "NODE_FAIL"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchJob:
    """One job: an array's task is one, all parts of a heterogeneous job together are one."""

    id: str
    """As ``scontrol`` takes it: ``7``, or ``7_2`` for a task."""

    number: str
    """As the job itself knows it, in ``SLURM_JOB_ID``. The last task has that of its array."""

    state: str
    why: str
    """Slurm's word for why it waits, or how it ended."""

    restarts: int
    """How often it was requeued, by whomever."""

    can_requeue: bool
    is_batch: bool
    eligible_at: datetime | None
    """Not to be started before; None if nothing keeps it."""

    started_at: datetime | None
    wants: int
    """Nodes it has or asks for, at least."""

    nodes: tuple[str, ...]
    """Those it has; while it is completing, those that have not let go of it."""

    pinned: str
    """The nodes that it must have, as its owner wrote them."""

    user: str
    partition: str
    reservation: str
    exit_status: int
    """As ``wait`` gives it."""

    comment: str
    submitted_at: datetime | None = None
    """When it was submitted, or began to wait again after it was requeued."""

    ended_at: datetime | None = None
    """When it ended; of a job that runs, when its time limit ends it."""

    parts: tuple[str, ...] = ()
    """The ids of the parts of a heterogeneous job, the leader first."""

    @property
    def exit_code(self) -> int:
        """As ``subprocess`` has it: negative for a signal."""
        signal = self.exit_status & 0x7F
        return -signal if signal else self.exit_status >> 8

    @property
    def is_at_work(self) -> bool:
        """Whether its processes may run where it was placed, undisturbed."""
        return self.state in AT_WORK

    @property
    def has_nodes(self) -> bool:
        """Whether nodes are taken for it."""
        return self.is_at_work or self.state in (CONFIGURING, COMPLETING)

    @property
    def is_over(self) -> bool:
        """Whether it has ended, in one way or another."""
        return not self.has_nodes and self.state not in WAITING


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Nodes that are kept for somebody."""

    name: str
    nodes: tuple[str, ...]
    ends_at: datetime | None
    is_active: bool = True
    """Whether it has begun; maintenance is often planned weeks ahead."""


def jobs_format(mark: str) -> str:
    """The format with which squeue is to be asked; ``mark`` must be new each time, and no number.

    A comment may hold any text. It cannot hold what its author could not know, so that nobody makes
    up another's job.
    """
    return ",".join([*(f"{field}:|" for field in _FIELDS[:-1]), f"{_FIELDS[-1]}:{mark}"])


def parse_batch_jobs(text: str, mark: str) -> dict[str, BatchJob]:
    """The jobs in an answer to ``jobs_format(mark)``, by id.

    Tasks of an array that were not made jobs of their own yet are left out.

    Raises:
        ValueError: it is no such answer.

    """
    found: dict[str, list[tuple[int, BatchJob]]] = {}
    *records, rest = text.split(f"{mark}\n")
    if rest:
        raise ValueError(f"squeue said {rest[:100]!r}")
    for record in records:
        values = record.split("|", len(_FIELDS) - 1)
        if len(values) != len(_FIELDS):
            raise ValueError(f"squeue said {record[:100]!r}")
        job = dict(zip(_FIELDS, values, strict=True))
        if "[" not in job["JobArrayID"]:
            part = _number(job["HetJobOffset"])
            read = _job(job)
            found.setdefault(read.id, []).append((part, read))
    return {name: _whole([job for _, job in sorted(parts, key=_first)])
            for name, parts in found.items()}  # fmt: skip


def parse_reservations(text: str) -> dict[str, Reservation]:
    """The reservations in the answer of ``scontrol -o show reservation``, by name.

    Raises:
        ValueError: it is no such answer.

    """
    found = {}
    for line in text.splitlines():
        if not line or line.startswith("No reservations"):
            continue
        values = {key: value for key, _, value in (word.partition("=") for word in line.split())}
        if not values.get("ReservationName"):
            raise ValueError(f"scontrol said {line[:100]!r}")
        name = values["ReservationName"]
        nodes = _present(values.get("Nodes", ""))
        found[name] = Reservation(
            name=name,
            nodes=expand(nodes),
            ends_at=_time(values.get("EndTime", "")),
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
        is_batch=_number(values["BatchFlag"]) > 0,  # 2 after a launch that failed
        eligible_at=_time(values["EligibleTime"]),
        started_at=_time(values["StartTime"]),
        wants=max(1, _number(values["NumNodes"].partition("-")[0])),
        nodes=expand(_present(values["NodeList"])),
        pinned=_present(values["ReqNodes"]),
        user=values["UserName"],
        partition=values["Partition"].split(",")[0],
        reservation=_present(values["Reservation"]),
        exit_status=_status(values["exit_code"]),
        comment=_present(values["Comment"]),
        submitted_at=_time(values["SubmitTime"]),
        ended_at=_time(values["EndTime"]),
        parts=(array_id,) if het else (),
    )


def _whole(parts: list[BatchJob]) -> BatchJob:
    """The parts of a heterogeneous job as one; it is as far as the part that is least far."""
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
    """As 22.05 tells it, ``768``, and as 24.11 does, ``3:0``."""
    code, colon, signal = value.partition(":")
    return _number(code) << 8 | _number(signal) if colon else _number(code)


def _time(value: str) -> datetime | None:
    """Slurm's commands tell the time of this machine's zone."""
    if not value or not value[0].isdecimal():
        return None
    return datetime.fromisoformat(value).astimezone()


def joined(nodes: Iterable[str]) -> str:
    """Node names as scontrol takes them."""
    return ",".join(sorted(nodes))
