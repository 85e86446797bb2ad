"""Events of jobs and their attempts."""

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from holdfast.model.events.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInputRejected(Event):
    """A value on a job is invalid."""

    name: ClassVar[str] = "job.input_rejected"
    job: str
    key: str
    value: str
    expected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted(Event):
    """All ranks of an attempt were launched."""

    name: ClassVar[str] = "job.attempt_started"
    job: str
    attempt: int
    nodes: tuple[str, ...]
    stopped_in: timedelta | None = None
    """Time from the failure of the previous attempt until no rank was left; None if none failed."""

    waited: timedelta | None = None
    """Time from then until this attempt was ordered to start."""

    started_in: timedelta | None = None
    """Time from that order until all ranks ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointChosen(Event):
    """The next attempt loads a checkpoint other than the newest, or none can be chosen."""

    name: ClassVar[str] = "job.checkpoint_chosen"
    job: str
    attempt: int
    why: str
    """Defect of each checkpoint, what was changed, and which checkpoint is loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStopped(Event):
    """An attempt is being stopped."""

    name: ClassVar[str] = "job.attempt_stopped"
    job: str
    attempt: int
    kind: str
    reason: str
    node: str
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptKilled(Event):
    """Processes of an attempt exceeded the grace period and were sent SIGKILL."""

    name: ClassVar[str] = "job.attempt_killed"
    job: str
    attempt: int
    nodes: tuple[str, ...] = ()  # empty if only the confirmation of the platform is missing
    after: timedelta | None = None  # since SIGTERM; None if nothing runs on the nodes any more


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRetried(Event):
    """A job will get another attempt; the kind shows which retries it used."""

    name: ClassVar[str] = "job.retried"
    job: str
    kind: str
    reason: str
    cause: str = ""
    """Root cause of a failed rank, such as ``DiskFull``; empty if it is not known."""

    node: str = ""
    """Node of the failure; empty if there is none. It may differ from that of ``attempt.stopped``:
    the rank that failed first may end last."""

    hardware_retries: int
    app_retries: int
    max_retries: int
    """Maximum number of hardware retries."""

    max_app_retries: int
    exchanged: str = ""
    """Node that is exchanged while the other ranks stay; empty if the whole job restarts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWaits(Event):
    """A job cannot start yet."""

    name: ClassVar[str] = "job.waits"
    job: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUnwatched(Event):
    """A running job has reported no step so far, so a hang of it is not detected."""

    name: ClassVar[str] = "job.unwatched"
    job: str
    attempt: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHangSuspected(Event):
    """A running job seems to hang; it continues, because no timeout has passed."""

    name: ClassVar[str] = "job.hang_suspected"
    job: str
    attempt: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStragglerFound(Event):
    """A rank of a running job is slower than the others, which wait for it; the job continues."""

    name: ClassVar[str] = "job.straggler_found"
    job: str
    attempt: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLossFault(Event):
    """The loss of a running job is not finite, or has spiked; it continues, and a person decides.

    On Slurm, ``why`` states what the supervisor of its step does.
    """

    name: ClassVar[str] = "job.loss_fault"
    job: str
    attempt: int
    reason: str
    step: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFinished(Event):
    """A job has ended and is not restarted."""

    name: ClassVar[str] = "job.finished"
    job: str
    outcome: str
    reason: str
