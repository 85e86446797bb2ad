"""What commands see of the jobs that one Holdfast looks after, wherever they run.

A platform gives a ``Jobs``: this machine in ``job_status``, Kubernetes in ``kubernetes_jobs``,
Slurm in ``slurm_jobs``; ``open_jobs`` in ``cli/where.py`` chooses.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Protocol

from holdfast.apps.views.nodes import NotFound, no_such
from holdfast.kit.serial import to_plain
from holdfast.model.errors import HoldfastError
from holdfast.model.jobs import AttemptRecord, JobPhase, JobRecord


class NotOurs(HoldfastError):
    """Somebody else does what a person asked for; the message says who, and how to ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt of a job, over or not."""

    attempt: int
    placement: tuple[str, ...]
    """Node names in the order of the node ranks."""

    started_at: datetime
    stopped_at: datetime | None
    """None while it runs, and if Holdfast was killed before it ended."""

    waited: timedelta | None = None
    """From the end of the attempt before to the order to start this one; None for the first."""

    started_in: timedelta | None = None
    """From that order until all ranks ran; None if they never did, or that was not noted."""

    stopped_in: timedelta | None = None
    """From the moment when its failure was seen until no rank was left; None if it had none."""

    first_step: int | None = None
    last_step: int | None = None
    lost_steps: int | None = None
    """Steps that the next attempt did again; None where that is not known."""

    kind: str = ""
    """Whose failure ended it; empty if none did."""

    reason: str = ""
    node: str = ""
    evidence: str = ""
    incident_id: str = ""
    logs: tuple[str, ...] = ()
    """The log file of each node rank, where Holdfast keeps them."""

    @property
    def lasted(self) -> timedelta | None:
        """From its start to its end."""
        return None if self.stopped_at is None else self.stopped_at - self.started_at


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """One job. What a platform has nothing to say about is None or empty."""

    name: str
    id: str = ""
    """Unique ID of a job on this machine, never used again."""

    cluster: str = ""
    """The cluster on this machine that it runs on; empty for a plain run."""

    is_active: bool
    """Whether somebody looks after it now."""

    phase: str
    """A ``JobPhase``, or another word where the job is not looked after now."""

    phase_since: datetime
    reason: str
    """Why it waits, or how it ended."""

    command: str = ""
    """As a person would type it."""

    pid: int | None = None
    """Process of the run's Holdfast, while ``is_active``."""

    started_at: datetime
    nodes: int
    attempt: int
    placement: tuple[str, ...]
    """Node names in the order of the node ranks of the present or last attempt."""

    step: int | None = None
    """The last step that it reported; None where it reports none."""

    hardware_retries: int
    max_retries: int
    app_retries: int
    max_app_retries: int
    grace: timedelta
    cancel_requested: bool = False
    directory: str = ""
    checkpoint_dir: str = ""
    attempts: tuple[Attempt, ...]

    @property
    def ref(self) -> str:
        """Names it among all others: the ID on a cluster, where names come back."""
        return self.id if self.cluster else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStatus:
    """One rank of a job, as its platform runs it."""

    rank: int | None
    """None where its platform gives it no number."""

    node: str
    """Empty until it has one."""

    name: str
    """What the platform calls it, such as a pod."""

    state: str
    """In the platform's words."""

    detail: str = ""
    """Such as how its process ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """Something that was told of a job."""

    at: datetime
    event: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)
    """For programs."""

    def plain(self) -> dict[str, Any]:
        """For programs."""
        fields = {"at": self.at, "event": self.event, "message": self.message}
        return {**to_plain(self.details), **to_plain(fields)}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStory:
    """All about one job."""

    status: JobStatus
    ranks: tuple[RankStatus, ...] = ()
    reported: tuple[JobEvent, ...] = ()
    """Oldest first."""


class Jobs(Protocol):
    """Jobs that Holdfast looks after. Every method may raise ``BackendError``."""

    def jobs(self) -> list[JobStatus]:
        """All of them, those that ended included, the newest last."""
        ...

    def describe(self, job: str) -> JobStory:
        """All about the job that a person means by a name, as ``jobs`` shows it or shorter.

        Raises:
            NotFound: none is meant, or several are.

        """
        ...

    def cancel(self, job: str, confirm: Callable[[JobStatus], None]) -> JobStatus:
        """Ask for the end of the job that a person means.

        Args:
            job: see ``describe``.
            confirm: returns only if the person wants that; called when nothing else is in the way.

        Raises:
            NotFound: none is meant, or several are, or it does not run any more.
            NotOurs: the platform has a command for it; the message names it.

        """
        ...

    @property
    def none_yet(self) -> str:
        """What to tell a person who finds no jobs."""
        ...


def find_name(text: str, names: Sequence[str]) -> str:
    """The job that a person means: by its name, or by parts of it that end with its last.

    Raises:
        NotFound: none is meant, or several are.

    """
    hits = [name for name in names if name == text]
    hits = hits or [name for name in names if _matches(text.split("/"), name.split("/"))]
    if len(hits) > 1:
        raise NotFound(f"{text!r} is ambiguous ({', '.join(hits)}); use a longer prefix")
    if not hits:
        raise NotFound(no_such("job", text, names))
    return hits[0]


def _matches(given: Sequence[str], name: Sequence[str]) -> bool:
    """``llama``, ``team-a/llama`` and ``pytorchjob/llama`` for ``pytorchjob/team-a/llama``."""
    parts = iter(name)
    return (
        len(given) <= len(name) and given[-1] == name[-1] and all(part in parts for part in given)
    )


def attempts_of(record: JobRecord) -> tuple[Attempt, ...]:
    """All attempts of a job, oldest first, the present one included."""
    return tuple(_attempts(record))


def _attempts(record: JobRecord) -> Iterator[Attempt]:
    over = [_attempt(one) for one in record.attempts]
    if record.attempt > (over[-1].attempt if over else 0):
        failure = record.failure if record.phase is JobPhase.STOPPING else None
        present = AttemptRecord(
            attempt=record.attempt,
            placement=record.placement,
            started_at=record.started_at or record.phase_since,
            stopped_at=record.phase_since,
            running_at=record.running_at,
            failure=failure,
        )
        over.append(replace(_attempt(present), stopped_at=None, stopped_in=None))
    yield from over[:1]
    for before, one in pairwise(over):
        ended_at = before.stopped_at
        yield replace(one, waited=one.started_at - ended_at) if ended_at is not None else one


def _attempt(one: AttemptRecord) -> Attempt:
    failure = one.failure
    return Attempt(
        attempt=one.attempt,
        placement=one.placement,
        started_at=one.started_at,
        stopped_at=one.stopped_at,
        started_in=one.running_at - one.started_at if one.running_at is not None else None,
        stopped_in=one.stopped_at - failure.began_at if failure is not None else None,
        first_step=one.first_step,
        last_step=one.last_step,
        kind=failure.kind if failure else "",
        reason=failure.reason if failure else "",
        node=failure.node if failure else "",
        evidence=failure.evidence if failure else "",
        incident_id=failure.incident_id if failure else "",
    )
