"""Definition of a simulation: cluster, jobs and scheduled events, as plain data.

Times are relative to the start of the simulation. A node is given by a number: its index in the
sorted names, modulo their count, at the time of the event.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from holdfast.decisions.policy import JobPolicy, RemediationPolicy
from holdfast.model.health import Remedy, Urgency
from holdfast.model.jobs import JobSpec, Placing
from holdfast.model.names import Condition, Reason
from holdfast.model.requests import Verb


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """Defect of a machine that its agent reports, such as an XID."""

    remedy: Remedy
    urgency: Urgency = Urgency.IMMEDIATE
    crashes: bool = False
    """Whether the rank on the machine ends when the defect appears."""

    seen_after: timedelta = timedelta(0)
    """Time from the defect to the agent's report."""

    lasts: timedelta | None = None
    """Time after which the agent no longer reports it; None if only a repair clears it."""

    relapses: int = 0
    """Number of reboots that do not clear it."""

    relapse_after: timedelta = timedelta(seconds=30)
    """Time from the boot to the report of a defect that the reboot did not clear."""

    @property
    def reason(self) -> Reason:
        """Reason that the agent reports."""
        return _REASONS[self.remedy]

    @property
    def condition(self) -> Condition:
        """Node condition that it sets."""
        return _CONDITIONS.get(self.remedy, Condition.SOFTWARE)


_REASONS = {
    Remedy.NONE: Reason.XID_WARNING,
    Remedy.RESTART_APP: Reason.XID_RESTART_APP,
    Remedy.RESET_GPU: Reason.XID_RESET,
    Remedy.REBOOT: Reason.XID_REBOOT,
    Remedy.REPLACE: Reason.XID_REPLACE,
}
_CONDITIONS = {
    Remedy.RESET_GPU: Condition.NVIDIA_REBOOT,
    Remedy.REBOOT: Condition.NVIDIA_REBOOT,
    Remedy.REPLACE: Condition.NVIDIA_TERMINATE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DefectAppears:
    """A node gets a defect."""

    at: timedelta
    node: int
    defect: Defect


@dataclass(frozen=True, slots=True, kw_only=True)
class LosesPower:
    """A node loses power; its provider reports the machine as powered off."""

    at: timedelta
    node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Vanishes:
    """The provider terminates a node's machine: it can be replaced, not rebooted."""

    at: timedelta
    node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hangs:
    """Agent and ranks of a node freeze and are unreachable."""

    at: timedelta
    node: int
    lasts: timedelta | None = None
    """None: until the machine is rebooted or replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FallsSilent:
    """The agent of a node stops reporting; its ranks continue."""

    at: timedelta
    node: int
    lasts: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class RemedyRequest:
    """An operator requests a remedy for a node."""

    at: timedelta
    node: int
    verb: Verb
    urgency: Urgency = Urgency.IMMEDIATE


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetsBreaker:
    """An operator resets the circuit breaker."""

    at: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancels:
    """A user cancels a job."""

    at: timedelta
    job: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evicts:
    """A rank of a job is evicted; only for jobs of a scheduler."""

    at: timedelta
    job: int
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsOut:
    """The provider has no capacity."""

    at: timedelta
    lasts: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """All calls to the cluster, the jobs and the incidents fail."""

    at: timedelta
    lasts: timedelta


ScenarioEvent = (
    DefectAppears
    | LosesPower
    | Vanishes
    | Hangs
    | FallsSilent
    | RemedyRequest
    | ResetsBreaker
    | Cancels
    | Evicts
    | RunsOut
    | Outage
)


class Delivery(StrEnum):
    """Outcome of one order for a machine."""

    GOOD = "good"
    LOST = "lost"
    """The order was accepted, but no machine appears."""

    DEAD = "dead"
    """The machine appears and never boots."""

    OFFENDER = "offender"
    """The machine returned last is delivered again, if the provider still has one."""


class ProviderReply(StrEnum):
    """Response of the provider to one call."""

    ACCEPTED = "accepted"
    RETRY_LATER = "retry-later"
    REFUSED = "refused"
    LOST = "lost"
    """The order takes effect, but the caller gets an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """Failure of the application at a step."""

    step: int
    times: int
    exit_code: int = 1


class CheckpointFault(StrEnum):
    """Faults of a checkpoint that show when an attempt resumes."""

    DAMAGED = "damaged"
    """Verification finds it; the framework cannot load it."""

    POISONED = "poisoned"
    """It is complete, and each attempt that resumes from it fails in its first step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadCheckpoint:
    """Fault of the first checkpoint that a job saves at or after a step."""

    step: int
    fault: CheckpointFault


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A job and its behavior."""

    spec: JobSpec
    submitted_at: timedelta = timedelta(0)
    steps: int
    step_time: timedelta
    load_time: timedelta = timedelta(seconds=30)
    """Time from the launch of all ranks to the first step."""

    checkpoint_steps: int = 10
    """Steps between two checkpoints."""

    checkpoint_time: timedelta = timedelta(0)
    """Time for which saving a checkpoint blocks the job."""

    crashes: tuple[Crash, ...] = ()
    bad_checkpoints: tuple[BadCheckpoint, ...] = ()
    stop_time: timedelta = timedelta(seconds=1)
    """Time from SIGTERM to the end of a rank."""

    handles_sigterm: bool = True
    operator_time: timedelta = timedelta(0)
    """Delay until an operator suspends or resumes the job; only for jobs of a scheduler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """Behavior of the machines and their provider.

    Tuples give one outcome to each order in turn; later orders succeed.
    """

    heartbeat: timedelta = timedelta(seconds=10)
    boot_time: timedelta = timedelta(seconds=30)
    reboot_time: timedelta = timedelta(seconds=60)
    replace_time: timedelta = timedelta(seconds=120)
    check_time: timedelta = timedelta(seconds=60)
    keeps_names: bool = False
    """Whether a replacement takes the node's name, as on Slurm, or a new one."""

    answers: tuple[ProviderReply, ...] = ()
    retry_after: timedelta = timedelta(seconds=20)
    deliveries: tuple[Delivery, ...] = ()
    lost_reboots: tuple[bool, ...] = ()
    """Whether the machine never returns from a reboot."""

    failed_checks: tuple[bool | None, ...] = ()
    """Whether a deep health check fails; None if it never ends."""

    pair_time: timedelta = timedelta(seconds=10)
    """Duration of a pair test."""

    silent_pairs: tuple[bool | None, ...] = ()
    """Whether a pair test ends without a result; None if it never ends."""

    flawed: tuple[int, ...] = ()
    """Machines, by order of creation, whose pair tests sometimes fail."""

    flawed_links: tuple[tuple[int, int], ...] = ()
    """Pairs of machines between which pair tests sometimes fail."""

    flaws_show: float = 0.5
    """Probability that a flaw makes a pair test fail."""

    flaws_seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerFaults:
    """Faults of the controller itself, by the number of its call to a port."""

    kills: tuple[tuple[int, bool], ...] = ()
    """Calls in which the controller is killed: (number, whether the call takes effect)."""

    failures: tuple[tuple[int, bool], ...] = ()
    """Calls that fail: (number, whether the call takes effect nevertheless)."""

    downtime: timedelta = timedelta(seconds=5)
    """Time until the next controller starts."""

    misses_events: bool = False
    """Whether the controller is never woken by changes, only at the times that it returns."""

    jobs_first: bool = False
    """Whether each round reconciles jobs before nodes."""


class MachineFailure(StrEnum):
    """Machine failures that no agent can report."""

    POWER = "power"
    HANG = "hang"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wear:
    """Random faults of every machine, independent and at a constant rate."""

    per_machine_day: float
    """Faults per day of an average machine."""

    kinds: tuple[tuple[Defect | MachineFailure, float], ...]
    """Defects or failures, each with its relative frequency."""

    shape: float | None = None
    """Shape of the gamma distribution with mean 1 of the machines' relative fault rates; None for
    equal rates. A smaller shape concentrates the faults on fewer machines."""

    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A complete simulation."""

    nodes: int
    trainings: tuple[Training, ...] = ()
    scenario_events: tuple[ScenarioEvent, ...] = ()
    policy: RemediationPolicy = field(default_factory=RemediationPolicy)
    job_policy: JobPolicy = field(default_factory=JobPolicy)
    hardware: Hardware = field(default_factory=Hardware)
    controller_faults: ControllerFaults = field(default_factory=ControllerFaults)
    wear: Wear | None = None

    @property
    def has_scheduler(self) -> bool:
        """Whether a scheduler, with a daemon on each node, places the jobs."""
        placings = {training.spec.placing for training in self.trainings}
        return placings == {Placing.SCHEDULER}
