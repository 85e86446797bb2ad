"""Training jobs as the decision core sees them."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

ATTEMPT_VARIABLE: Final = "HOLDFAST_ATTEMPT"
"""Environment variable of ranks: number of the attempt. Missing from the first attempt if another
program launches it."""

RESTART_REASON_VARIABLE: Final = "HOLDFAST_RESTART_REASON"
"""Environment variable of ranks: why the previous attempt was stopped."""

PROGRESS_VARIABLE: Final = "HOLDFAST_PROGRESS_FILE"
"""Environment variable of ranks: file to which they append the number, and the loss, of each step
that is done."""

JOB_VARIABLE: Final = "HOLDFAST_JOB"
"""Environment variable of ranks: name of their job."""

SECTIONS_VARIABLE: Final = "HOLDFAST_SECTIONS_DIR"
"""Environment variable of ranks: directory in which each writes how long it was in sections."""

REPLAY_VARIABLE: Final = "HOLDFAST_REPLAY"
"""Environment variable of a script in replay mode: number of the steps to do."""

EVIDENCE_VARIABLE: Final = "HOLDFAST_EVIDENCE_FILE"
"""Environment variable of ``holdfast launch``: file for the evidence of a hang."""

LOG_RULES_VARIABLE: Final = "HOLDFAST_LOG_RULES"
"""Environment variable of a supervised step of Slurm: file with the log rules of the job."""

SKIP_STEPS_VARIABLE: Final = "HOLDFAST_SKIP_STEPS"
"""Environment variable of ranks: numbers of the steps to skip, separated by commas."""

BAD_LOSS_VARIABLE: Final = "HOLDFAST_BAD_LOSS"
"""Environment variable of ranks: step with the loss for which the previous attempt was stopped, and
the time at which it was found, as ``30@2026-01-01T12:00:00.000+00:00``; empty for other reasons."""

CHECKPOINTS_VARIABLE: Final = "HOLDFAST_CHECKPOINT_DIR"
"""Environment variable of ranks: directory to which the job saves."""

CHECKPOINT_WATCH_VARIABLE: Final = "HOLDFAST_CHECKPOINT_WATCH"
"""Environment variable that turns off the background verification of checkpoints with ``0``.
Holdfast also sets it for programs whose checkpoints another process watches already."""

CHECKPOINT_MIRROR_VARIABLE: Final = "HOLDFAST_CHECKPOINT_MIRROR"
"""Environment variable with a location to which the checkpoints of a job are copied while it runs,
and from which they are restored."""

LAUNCH_KEY_VARIABLE: Final = "HOLDFAST_LAUNCH_KEY"
"""Environment variable of the launchers of a job: the secret that they share."""


FENCED_VARIABLE: Final = "HOLDFAST_LAUNCH_FENCED"
"""Environment variable of ``holdfast launch``: set to ``1`` where a launcher starts only after all
ranks of the one that it replaces have ended, and where whoever ends a job ends all launchers."""


class JobPhase(StrEnum):
    """Phase of a job."""

    WAITING = "waiting"
    """Waiting for nodes, or for its backoff to pass."""

    STARTING = "starting"
    """The attempt is recorded; its ranks may or may not have been launched."""

    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether the job has ended and will not restart."""
        return self in (JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.CANCELLED)


class FailureKind(StrEnum):
    """Kind of a failure: which retries it uses."""

    HARDWARE = "hardware"
    APPLICATION = "application"
    REQUESTED = "requested"
    """A person or scheduler removed the node or the rank: no retry is used."""


class LossAction(StrEnum):
    """What to do when the loss of a job is not finite or spikes."""

    ASK = "ask"
    """Report it and let the job run: a person decides."""

    STOP = "stop"
    """Stop the job; it has failed."""

    ROLLBACK = "rollback"
    """Restart from the last checkpoint before that step."""

    SKIP = "skip"
    """As ``rollback``, and name the step and the one before in ``$HOLDFAST_SKIP_STEPS``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """Report of one step of a job."""

    step: int
    loss: float | None = None
    """None if the report has none; may be NaN or infinite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossFault:
    """Loss of an attempt that is not finite, or that spiked."""

    reason: str
    step: int
    evidence: str
    action: LossAction


class Placing(StrEnum):
    """Who chooses the nodes of an attempt."""

    HOLDFAST = "holdfast"
    SCHEDULER = "scheduler"
    """The platform's scheduler, when the attempt is launched. Until it has chosen, ranks wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an attempt was stopped, with the evidence."""

    kind: FailureKind
    reason: str
    at: datetime
    since: datetime | None = None
    """Time at which the first rank ended, if known and before ``at``."""

    node: str = ""
    evidence: str = ""
    step: int | None = None
    """Last step that the attempt reported; None where the job reports none."""

    incident_id: str = ""
    """Incident of the faulty node, once there is one."""

    cause: str = ""
    """Value of ``Cause``; empty if the log of the rank that failed first gave none."""

    is_alone: bool | None = None
    """Whether only the rank on ``node`` failed by itself: the others ran on for
    ``JobPolicy.failure_margin``, or ended because of it. None where that was not observed."""

    loss_action: LossAction | None = None
    """What follows if the loss at ``step`` is the reason; None for any other reason."""

    @property
    def began_at(self) -> datetime:
        """Time at which the attempt stopped working, as far as known."""
        return self.since or self.at


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One attempt that has ended."""

    attempt: int
    placement: tuple[str, ...]
    started_at: datetime
    stopped_at: datetime
    """Time at which its last rank was gone."""

    running_at: datetime | None = None
    """Time at which all its ranks ran; None if they never did, or if that was not recorded."""

    first_step: int | None = None
    """Step that it resumed from; None where the job reports none."""

    last_step: int | None = None
    """Last step that it reported; None where the job reports none."""

    failure: Failure | None = None
    """None for the attempt that succeeded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """End of a job as its platform reports it, whatever Holdfast knows of it."""

    outcome: JobPhase
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """Submitted specification of a job."""

    name: str
    nodes: int
    max_retries: int = 10
    """Maximum number of restarts after hardware failures (HyperPod's ``job-max-retry-count``)."""

    max_app_retries: int = 3
    """Maximum number of restarts after failures of the application itself."""

    max_all_retries: int | None = None
    """Maximum number of restarts after both kinds of failures together; None: no such limit."""

    same_step_limit: int = 3
    """Number of consecutive failures without progress after which the job is stopped."""

    needs_progress: bool = False
    """Whether failures of nodes count for ``same_step_limit``, too. Where nodes are few and shared,
    a job without progress must not use up one after the other."""

    grace: timedelta = timedelta(seconds=5)
    """Time between SIGTERM and SIGKILL when an attempt is stopped."""

    fault_grace: timedelta | None = None
    """The same time when a fault of hardware stops the attempt; None for
    ``JobPolicy.fault_grace``. At most ``grace`` counts."""

    placing: Placing = Placing.HOLDFAST
    """Who chooses the nodes."""

    keeps_ranks: bool = False
    """Whether launchers in its ranks restart what they run, so that one failed node can be
    exchanged while the other ranks stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangedNode:
    """A node whose rank was removed while the others stayed."""

    node: str
    at: datetime
    """Ranks that were created there before do not belong to the job any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """Holdfast's own state of a job. Stored with the job, written only by Holdfast."""

    phase: JobPhase
    phase_since: datetime
    attempt: int = 0
    """1 for the first attempt; 0 before it."""

    placement: tuple[str, ...] = ()
    """Node names in the order of the node ranks of the present or last attempt; where a scheduler
    places them, each node once, and only those that Holdfast manages or that are gone."""

    hardware_retries: int = 0
    app_retries: int = 0
    same_step_failures: int = 0
    best_step: int | None = None
    """Highest step of any failed attempt; None where the job reports none."""

    failure: Failure | None = None
    """Failure of the attempt that is being or was last stopped."""

    started_at: datetime | None = None
    """Time at which the ranks of the present or last attempt were launched."""

    running_at: datetime | None = None
    """Time at which all ranks of the present or last attempt ran; None until then."""

    attempts: tuple[AttemptRecord, ...] = ()
    """Ended attempts, oldest first, at most ``ATTEMPTS_LIMIT``."""

    start_after: datetime | None = None
    """Earliest time of the next start, for the backoff."""

    reason: str = ""
    """Message for people: why the job waits, or how it ended."""

    kills: int = 0
    """Number of times that the present attempt was sent SIGKILL."""

    exchanged: tuple[ExchangedNode, ...] = ()
    """Nodes that were exchanged since all ranks were last launched, each with its latest exchange;
    empty if the present attempt launched all ranks."""


ATTEMPTS_LIMIT = 100
