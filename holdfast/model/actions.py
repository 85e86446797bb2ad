"""What the decision core can wish for."""

from dataclasses import dataclass
from datetime import datetime

from holdfast.model.health import Fault, Remedy
from holdfast.model.jobs import Failure, JobPhase
from holdfast.model.names import DeepCheck
from holdfast.model.nodes import CheckResult, Pairing, Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """Mark the node, cordon it and open a course of remediation."""

    node: str
    fault: Fault
    remedy: Remedy
    """What will be done, after the ladder: it may be stronger than ``fault.remedy``."""

    request_id: str = ""
    check: CheckResult | None = None
    """How its check ended, if tests with other nodes were part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassign:
    """Change the remedy of a node in quarantine, for a worse fault or a newer request."""

    node: str
    fault: Fault
    remedy: Remedy
    request_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Ask the jobs of the node to leave."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reboot:
    """Order a reboot of the machine."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replace:
    """Order another machine in place of this one."""

    node: str
    reason: str
    repeat_offender: bool = False
    """Remember the machine, so that it is not taken back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejoin:
    """The repair was done: the node comes back and is checked like a new one."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retire:
    """The replacement is there: hand the course to it and forget the old node."""

    node: str
    successor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCheck:
    """Start a deep health check on the node."""

    node: str
    kinds: tuple[DeepCheck, ...] = ()
    """What it is made of; what the policy says if empty."""

    pairing: Pairing | None = None
    """Given if the node is only to be tested with another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Go on with the tests of a node with others: ``pairing`` is how they stand from now on."""

    node: str
    pairing: Pairing


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Give the node to jobs."""

    node: str
    forgive: bool = False
    """A person released it: faults from before now no longer count."""

    checked: bool = False
    """It passed a deep health check."""

    check: CheckResult | None = None
    """How that ended, if tests with other nodes were part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAgentCondition:
    """Record and publish that the agent of a node is silent, or reports again."""

    node: str
    silent_since: datetime | None
    """None once the agent reports again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TripBreaker:
    """Stop all repairs until a person looks, or all nodes are healthy for long enough."""

    reason: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseBreaker:
    """Let repairs begin again."""

    tripped_at: datetime
    """When the breaker opened that is to close."""

    reason: str


NodeAction = (
    Quarantine
    | Reassign
    | Drain
    | Reboot
    | Replace
    | Rejoin
    | Retire
    | StartCheck
    | Pair
    | Release
    | SetAgentCondition
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deferred:
    """A repair or a requested check that is due but may not begin, and why."""

    node: str
    why: str
    is_check: bool = False
    """Whether it is a requested check; ``why`` is then what that waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do now with the nodes, and when to look again."""

    actions: tuple[NodeAction, ...] = ()
    trip: TripBreaker | None = None
    close: CloseBreaker | None = None
    deferred: tuple[Deferred, ...] = ()
    peer_pools: frozenset[Pool] = frozenset()
    """Pools in which idle nodes are needed as test peers: input of the next snapshot."""

    wake_at: datetime | None = None
    """The next time at which a decision changes by itself; None if only news can change it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing to do before ``until``; None if only news can change that."""

    until: datetime | None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAttempt:
    """Launch the ranks of a new attempt."""

    job: str
    placement: tuple[str, ...]
    """The node of each node rank; empty if a scheduler places them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaunch:
    """Launch the recorded attempt again, in case the launch was interrupted."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmStart:
    """All ranks of the attempt run where the scheduler has placed them."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAttempt:
    """SIGTERM to every rank of the attempt."""

    job: str
    failure: Failure | None
    """None when the job is cancelled or ends with all ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KillAttempt:
    """SIGKILL to every process of the attempt that is left."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The attempt is over; wait for nodes and for the backoff, then start the next."""

    job: str
    failure: Failure
    start_after: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The job has ended for good."""

    job: str
    outcome: JobPhase
    reason: str
    failure: Failure | None = None


JobAction = StartAttempt | Relaunch | ConfirmStart | StopAttempt | KillAttempt | Retry | Finish
