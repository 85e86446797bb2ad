"""What a simulated world is made of and what happens in it, as plain data.

Times are counted from the start of the simulation. A node is named by a number: that of the node
in the order of the names, modulo their count, at the time of the happening.
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
    """Something wrong with a machine that its agent reports, such as an XID."""

    remedy: Remedy
    urgency: Urgency = Urgency.IMMEDIATE
    crashes: bool = False
    """Whether the rank on the machine ends when the defect appears."""

    seen_after: timedelta = timedelta(0)
    """From the defect to the agent's report of it."""

    lasts: timedelta | None = None
    """After which the report goes away by itself; None if only a repair helps."""

    relapses: int = 0
    """How many reboots do not cure it."""

    relapse_after: timedelta = timedelta(seconds=30)
    """From the boot to the report of a defect that was not cured."""

    @property
    def reason(self) -> Reason:
        """The cause that the agent names."""
        return _REASONS[self.remedy]

    @property
    def condition(self) -> Condition:
        """The node condition that it sets."""
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
class Breaks:
    """A node gets a defect."""

    at: timedelta
    node: int
    defect: Defect


@dataclass(frozen=True, slots=True, kw_only=True)
class LosesPower:
    """Everything on a node ends; its owner sees the machine powered off."""

    at: timedelta
    node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Vanishes:
    """The owner of a node's machine takes it away: it can be replaced, not rebooted."""

    at: timedelta
    node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hangs:
    """Agent and ranks of a node freeze and cannot be reached."""

    at: timedelta
    node: int
    lasts: timedelta | None = None
    """None: until the machine is rebooted or replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FallsSilent:
    """Only the agent of a node stops speaking; its ranks work on."""

    at: timedelta
    node: int
    lasts: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class RemedyRequest:
    """A person requests something for a node."""

    at: timedelta
    node: int
    verb: Verb
    urgency: Urgency = Urgency.IMMEDIATE


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetsBreaker:
    """A person closes the breaker."""

    at: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancels:
    """A person cancels a job."""

    at: timedelta
    job: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evicts:
    """Somebody takes a rank of a job away that a scheduler has placed."""

    at: timedelta
    job: int
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsOut:
    """The provider has no machine to give."""

    at: timedelta
    lasts: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """No call to the cluster, the jobs or the incidents gets through."""

    at: timedelta
    lasts: timedelta


ScenarioEvent = (
    Breaks
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
    """What comes of one order for a machine."""

    GOOD = "good"
    LOST = "lost"
    """The order was accepted, and nothing follows."""

    DEAD = "dead"
    """The machine appears and never boots."""

    OFFENDER = "offender"
    """The machine sent away last comes back, where the provider still has one."""


class ProviderReply(StrEnum):
    """How the provider answers one call."""

    ACCEPTED = "accepted"
    RETRY_LATER = "retry-later"
    REFUSED = "refused"
    LOST = "lost"
    """The order is carried out, but the caller gets an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """The application itself fails when it reaches a step."""

    step: int
    times: int
    exit_code: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A job and what it does."""

    spec: JobSpec
    submitted_at: timedelta = timedelta(0)
    steps: int
    step_time: timedelta
    load_time: timedelta = timedelta(seconds=30)
    """From the launch of all ranks to the first step."""

    checkpoint_steps: int = 10
    """Steps between two checkpoints."""

    checkpoint_time: timedelta = timedelta(0)
    """How long a checkpoint keeps the job from its next step."""

    crashes: tuple[Crash, ...] = ()
    stop_time: timedelta = timedelta(seconds=1)
    """From SIGTERM to the end of a rank."""

    heeds_sigterm: bool = True
    operator_time: timedelta = timedelta(0)
    """Until an operator has heard that the job is to stop or to run; only where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """How the machines and their owner behave.

    Tuples give one outcome to each order in turn; what comes after their end is good.
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
    """Whether a reboot ends in a machine that never comes back."""

    failed_checks: tuple[bool | None, ...] = ()
    """Whether a deep health check fails; None if it never ends."""

    pair_time: timedelta = timedelta(seconds=10)
    """How long a test between two nodes takes."""

    silent_pairs: tuple[bool | None, ...] = ()
    """Whether a test between two nodes says nothing; None if it never ends."""

    flawed: tuple[int, ...] = ()
    """Machines, by the order in which they came, that fail tests with others, at times."""

    flawed_links: tuple[tuple[int, int], ...] = ()
    """Pairs of machines between which tests fail, at times."""

    flaws_show: float = 0.5
    """How often a flaw makes a test fail."""

    flaws_seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mishaps:
    """What goes wrong with the controller itself, by the number of its call to a port."""

    kills: tuple[tuple[int, bool], ...] = ()
    """The controller dies in these calls: (number, whether the call has taken effect)."""

    failures: tuple[tuple[int, bool], ...] = ()
    """These calls fail: (number, whether the call has taken effect all the same)."""

    downtime: timedelta = timedelta(seconds=5)
    """Until the next controller is there."""

    is_deaf: bool = False
    """No news reaches the controller: it acts only when it asked to be called."""

    jobs_first: bool = False
    """Whether jobs are looked at before nodes in each round."""


class Outright(StrEnum):
    """Faults that no agent can report."""

    POWER = "power"
    HANG = "hang"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wear:
    """Faults that come by chance to every machine, independently and at a constant rate."""

    per_machine_day: float
    """Faults of an average machine in a day."""

    kinds: tuple[tuple[Defect | Outright, float], ...]
    """What happens, and how often beside the others."""

    shape: float | None = None
    """Shape of the gamma distribution, of mean 1, that machines' rates are drawn from; None if
    all machines are alike. The smaller, the more faults fall on few machines."""

    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A whole simulation."""

    nodes: int
    trainings: tuple[Training, ...] = ()
    scenario_events: tuple[ScenarioEvent, ...] = ()
    policy: RemediationPolicy = field(default_factory=RemediationPolicy)
    job_policy: JobPolicy = field(default_factory=JobPolicy)
    hardware: Hardware = field(default_factory=Hardware)
    mishaps: Mishaps = field(default_factory=Mishaps)
    wear: Wear | None = None

    @property
    def has_scheduler(self) -> bool:
        """Whether a scheduler places the jobs: it has a daemon of its own on each node."""
        placings = {training.spec.placing for training in self.trainings}
        return placings == {Placing.SCHEDULER}
