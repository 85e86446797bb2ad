"""View of jobs for commands, on every platform.

Each platform implements ``Jobs``: ``views/run_jobs.py`` for this machine, ``kubernetes/jobs.py``
and ``slurm/jobs.py``; ``open_jobs`` in ``target.py`` selects one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast.apps.views.not_found import NotFound, no_such
from holdfast.kit.serial import to_plain
from holdfast.model.errors import HoldfastError
from holdfast.model.jobs import AttemptRecord, JobPhase, JobRecord
from holdfast.model.sagemaker import EventLevel

if TYPE_CHECKING:  # lists of jobs show neither evidence nor logs
    from holdfast.apps.views.rank_logs import LogPart, LogRequest
    from holdfast.decisions.hang_evidence import HangEvidence

INTERRUPTED: Final = "interrupted"
"""Phase of a job that had not ended when its Holdfast process was killed."""


class UnsupportedOnPlatform(HoldfastError):
    """Request that the platform carries out, not Holdfast; the message names the command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Attempt of a job, ended or active."""

    attempt: int
    placement: tuple[str, ...]
    """Node names in the order of the node ranks."""

    started_at: datetime
    stopped_at: datetime | None
    """None while it runs, and if Holdfast was killed before it ended."""

    waited: timedelta | None = None
    """Time from the end of the previous attempt to the launch of this one; None for the first."""

    started_in: timedelta | None = None
    """Time from the launch until all ranks ran; None if they never ran or it was not recorded."""

    stopped_in: timedelta | None = None
    """Time from the detection of its failure until no rank was left; None without a failure."""

    first_step: int | None = None
    last_step: int | None = None
    lost_steps: int | None = None
    """Number of steps that the next attempt repeated; None if not known."""

    kind: str = ""
    """``FailureKind`` of the failure that ended it; empty if none did."""

    reason: str = ""
    node: str = ""
    evidence: str = ""
    incident_id: str = ""
    logs: tuple[str, ...] = ()
    """Log file of each node rank, if Holdfast stores them."""

    @property
    def lasted(self) -> timedelta | None:
        """Time from its start to its end; None if it has not ended."""
        return None if self.stopped_at is None else self.stopped_at - self.started_at


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """Job. Fields that a platform does not provide are None or empty."""

    name: str
    id: str = ""
    """Unique ID of a job on this machine, never reused."""

    cluster: str = ""
    """Cluster on this machine that it runs on; empty for a plain run."""

    is_active: bool
    """Whether it is managed now."""

    phase: str
    """A ``JobPhase``, or another state such as ``INTERRUPTED`` if the job is not managed now."""

    phase_since: datetime
    reason: str
    """Why it waits, or how it ended."""

    command: str = ""
    """Command line, quoted for a shell."""

    pid: int | None = None
    """PID of the run's Holdfast process, while ``is_active``."""

    started_at: datetime
    nodes: int
    attempt: int
    placement: tuple[str, ...]
    """Node names in the order of the node ranks of the current or last attempt."""

    step: int | None = None
    """Last step that it reported; None if it reports none."""

    steps_per_second: float | None = None
    """Mean step rate of the current or last attempt over its last 5 minutes; None if unknown."""

    stragglers: str = ""
    """Which rank the others wait for, or why that is unknown; empty if no samples were taken."""

    hardware_retries: int
    max_retries: int
    app_retries: int
    max_app_retries: int
    grace: timedelta
    cancel_requested: bool = False
    directory: str = ""
    checkpoint_dir: str = ""
    cancel_command: str = ""
    """Command that cancels it, if its platform does and not Holdfast."""

    attempts: tuple[Attempt, ...]

    @property
    def ref(self) -> str:
        """Unique reference: the ID on a cluster, where names may be reused, else the name."""
        return self.id if self.cluster else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStatus:
    """Rank of a job, as its platform runs it."""

    rank: int | None
    """None if the platform assigns no number."""

    node: str
    """Name of its node; empty before it has one."""

    name: str
    """Name on the platform, such as that of a pod."""

    state: str
    """State on the platform, in its terms."""

    detail: str = ""
    """Further information, such as how its process ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """Event of a job."""

    at: datetime
    event: str
    level: EventLevel
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of JSON and YAML output."""

    def plain(self) -> dict[str, Any]:
        """For programs."""
        fields = {
            "at": self.at,
            "event": self.event,
            "level": self.level,
            "message": self.message,
        }
        return {**to_plain(self.details), **to_plain(fields)}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDetails:
    """Job with its ranks and events."""

    status: JobStatus
    ranks: tuple[RankStatus, ...] = ()
    reported: tuple[JobEvent, ...] = ()
    """Events, oldest first."""


class Jobs(Protocol):
    """Jobs that Holdfast manages. Every method may raise ``BackendError``."""

    def jobs(self) -> list[JobStatus]:
        """Return all jobs, including ended ones, the newest last."""
        ...

    def with_steps(self, jobs: Sequence[JobStatus], within: timedelta) -> list[JobStatus]:
        """Return jobs with their last steps and step rates, where ``jobs`` leaves them out.

        Args:
            jobs: what ``jobs`` has returned, or a part of it.
            within: time to wait for them; what is not known by then is known in a later call.

        """
        ...

    def describe(self, job: str) -> JobDetails:
        """Return the details of a job, by its name or a unique part of it.

        Raises:
            NotFound: no job matches, or several do.

        """
        ...

    def cancel(self, job: str, confirm: Callable[[JobStatus], None]) -> JobStatus:
        """Request the cancellation of a job.

        Args:
            job: see ``describe``.
            confirm: returns only if the cancellation is confirmed; called last.

        Raises:
            NotFound: no job matches, several do, or it does not run any more.
            UnsupportedOnPlatform: the platform has a command for it; the message names it.

        """
        ...

    def read_log(self, job: str, request: "LogRequest") -> "LogPart":
        """Return a part of the log of a rank.

        Raises:
            NotFound: no job matches, several do, or it has no such rank, attempt or log.
            UnsupportedOnPlatform: Holdfast cannot read its logs; the message names where they are.

        """
        ...

    def evidence(self, job: str, attempt: int | None) -> "HangEvidence":
        """Return the evidence of a hang.

        Args:
            job: see ``describe``.
            attempt: number of the attempt; None for the last one that hung.

        Raises:
            NotFound: no job matches, several do, or there is no evidence of it.

        """
        ...

    @property
    def none_yet(self) -> str:
        """Message for an empty list of jobs."""
        ...


def find_name(text: str, names: Sequence[str]) -> str:
    """Return the job with this name, or with a name of which ``text`` gives parts and the last one.

    Raises:
        NotFound: no job matches, or several do.

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
    """Return all attempts of a job, oldest first, including the current one."""
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


def lost_steps(over: AttemptRecord, resumed_from: int | None) -> int | None:
    """Return the steps of an attempt that the next one repeated; None if the job reports none."""
    if over.last_step is None or resumed_from is None:
        return None
    return max(0, over.last_step - resumed_from)
