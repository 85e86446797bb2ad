"""Training jobs as the decision core sees them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from holdfast.model.names import Reason

ATTEMPT_VARIABLE: Final = "HOLDFAST_ATTEMPT"
"""In the environment of ranks: the number of the attempt. Absent from the first if others launch
it."""

RESTART_REASON_VARIABLE: Final = "HOLDFAST_RESTART_REASON"
"""In the environment of ranks: why the attempt before was stopped."""


class JobPhase(StrEnum):
    """Where a job stands."""

    WAITING = "waiting"
    """For nodes, or for its backoff to pass."""

    STARTING = "starting"
    """The attempt is recorded; its ranks may or may not have been launched."""

    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether nothing will happen to the job any more."""
        return self in (JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.CANCELLED)


class FailureKind(StrEnum):
    """Whose budget a failure spends."""

    HARDWARE = "hardware"
    APPLICATION = "application"
    REQUESTED = "requested"
    """Somebody wanted the node or the rank away: no budget is spent."""


class Placing(StrEnum):
    """Who chooses the nodes of an attempt."""

    HOLDFAST = "holdfast"
    SCHEDULER = "scheduler"
    """That of the platform, when the attempt is launched. Until it has chosen, ranks wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an attempt was stopped, with the evidence."""

    kind: FailureKind
    reason: str
    at: datetime
    since: datetime | None = None
    """When the first rank had ended, where that is known and was before ``at``."""

    node: str = ""
    evidence: str = ""
    step: int | None = None
    """The last step that the attempt reported; None where the job reports none."""

    incident_id: str = ""
    """The incident of the node at fault, once there is one."""

    is_alone: bool | None = None
    """Whether the rank on ``node`` was the only one that failed by itself: the others ran on for
    ``JobPolicy.failure_margin``, or ended because of it. None where that was not observed."""

    @property
    def began_at(self) -> datetime:
        """When the attempt stopped working, as far as that is known."""
        return self.since or self.at


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One attempt that is over."""

    attempt: int
    placement: tuple[str, ...]
    started_at: datetime
    stopped_at: datetime
    """When its last rank was gone."""

    running_at: datetime | None = None
    """When all its ranks ran; None if they never did, or that was not noted."""

    first_step: int | None = None
    """The step it resumed from; None where the job reports none."""

    last_step: int | None = None
    """The last step it reported; None where the job reports none."""

    failure: Failure | None = None
    """None for the attempt that succeeded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What was submitted."""

    name: str
    nodes: int
    max_retries: int = 10
    """Restarts that hardware failures may cost (HyperPod's ``job-max-retry-count``)."""

    max_app_retries: int = 3
    """Restarts that failures of the application itself may cost."""

    same_step_limit: int = 3
    """Failures in a row at one step, without progress between, after which the job is stopped."""

    needs_progress: bool = False
    """Whether failures of nodes count for ``same_step_limit``, too. Where nodes are few and shared,
    a job that gets nowhere is not to take one after the other."""

    grace: timedelta = timedelta(seconds=5)
    """Between SIGTERM and SIGKILL when an attempt is stopped."""

    placing: Placing = Placing.HOLDFAST
    """Who chooses the nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """What Holdfast itself remembers about a job. Stored with the job, written only by us."""

    phase: JobPhase
    phase_since: datetime
    attempt: int = 0
    """1 for the first attempt; 0 before it."""

    placement: tuple[str, ...] = ()
    """Node names in the order of the node ranks of the present or last attempt; where a scheduler
    places them, each node once, and only those that are looked after or gone."""

    hardware_retries: int = 0
    app_retries: int = 0
    same_step_failures: int = 0
    best_step: int | None = None
    """The highest step of any attempt that failed; None where the job reports none."""

    failure: Failure | None = None
    """Of the attempt that is being or was last stopped."""

    started_at: datetime | None = None
    """When the ranks of the present or last attempt had been launched."""

    running_at: datetime | None = None
    """When all ranks of the present or last attempt ran; None until then."""

    attempts: tuple[AttemptRecord, ...] = ()
    """Attempts that are over, oldest first, at most ``ATTEMPTS_LIMIT``."""

    start_after: datetime | None = None
    """Backoff: not to start before this time."""

    reason: str = ""
    """Why the job waits, or how it ended, for people to read."""

    kills: int = 0
    """How often the present attempt was sent SIGKILL."""


ATTEMPTS_LIMIT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RankView:
    """The process of one node rank in the present attempt."""

    rank: int
    node: str
    exit_code: int | None = None
    """None while it runs; negative for the signal that ended it, as in ``subprocess``."""

    ended_at: datetime | None = None
    reason: str = ""
    """What the platform calls its end, such as ``OOMKilled``; empty if it says no more."""

    is_evicted: bool = False
    """It was taken away, by a person, a scheduler or a controller, and did not fail."""

    is_lost: bool = False
    """Its node was lost or has booted anew, in the eyes of the platform, and it with it."""

    is_fenced: bool = False
    """Nothing can run on its node any more, though its end was never told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a job ended by the word of its platform, whatever Holdfast knows of it."""

    outcome: JobPhase
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """One job in a snapshot."""

    spec: JobSpec
    record: JobRecord
    ranks: tuple[RankView, ...] = ()
    """Ranks of attempt ``record.attempt`` that were launched; empty if none was."""

    first_step: int | None = None
    """The first step reported in the present attempt: where it resumed."""

    step: int | None = None
    """The last step reported in the present attempt; None where it reports none."""

    hung_since: datetime | None = None
    """Since when the job makes no progress, by its own limits; None if it is fine."""

    hung_reason: str = Reason.JOB_HUNG
    hung_evidence: str = ""
    """By what it was found, for people to read; empty if only the time is known."""

    unwatched: str = ""
    """Why a hang of the running attempt would not be detected yet, for people to read; empty if it
    would be, or if that was not asked for."""

    cancel_requested: bool = False
    ending: Ending | None = None
    """None while the platform leaves that to be seen from the ranks, or the job goes on."""

    rooms: Mapping[str, int] | None = None
    """Nodes that the scheduler could choose once they are in service, and how many ranks each has
    room for; None unless the job waits and a scheduler places it."""

    away: frozenset[str] = frozenset()
    """Those of ``rooms`` on which the scheduler places nothing at present."""

    is_stop_seen: bool = True
    """Whether nothing launches ranks of an attempt any more that was asked to stop."""
