"""Actions that the decision core may choose."""

from dataclasses import dataclass
from datetime import datetime

from holdfast.model.health import Fault, Remedy
from holdfast.model.jobs import Failure, JobPhase
from holdfast.model.names import DeepCheck
from holdfast.model.nodes import CheckResult, Pairing, Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """Mark the node, cordon it and open a remediation."""

    node: str
    fault: Fault
    remedy: Remedy
    """Remedy to carry out, after escalation: it may be stronger than ``fault.remedy``."""

    request_id: str = ""
    check: CheckResult | None = None
    """Result of its check, if tests with other nodes were part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassign:
    """Change the remedy of a quarantined node, for a worse fault or a newer request."""

    node: str
    fault: Fault
    remedy: Remedy
    request_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Request that the jobs leave the node."""

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
    """Whether to remember the machine, so that it is not taken back."""

    request_id: str = ""
    """ID of the person's request that makes a replacement of a reboot; empty if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejoin:
    """The repair is done: the node rejoins and is checked like a new one."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retire:
    """Pass the remediation to the replacement and delete the record of the old node."""

    node: str
    successor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCheck:
    """Start a deep health check on the node."""

    node: str
    kinds: tuple[DeepCheck, ...] = ()
    """Kinds of checks to run; those of the policy if empty."""

    pairing: Pairing | None = None
    """Set if the node is only tested with another node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Set the state of a node's tests with other nodes to ``pairing``."""

    node: str
    pairing: Pairing


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Release the node to jobs."""

    node: str
    forgive: bool = False
    """Whether a person released it: earlier faults no longer count."""

    checked: bool = False
    """Whether it passed a deep health check."""

    check: CheckResult | None = None
    """Result of that check, if tests with other nodes were part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAgentCondition:
    """Record and publish that the agent of a node is silent, or reports again."""

    node: str
    silent_since: datetime | None
    """None once the agent reports again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TripBreaker:
    """Pause all repairs until a person resets the breaker or all nodes stay healthy."""

    reason: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseBreaker:
    """Resume repairs."""

    tripped_at: datetime
    """Time at which the breaker to close was opened."""

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
    """A repair or a requested check that is due but may not start, and why."""

    node: str
    why: str
    is_check: bool = False
    """Whether it is a requested check; ``why`` then names what the check waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Actions for the nodes, and the time of the next evaluation."""

    actions: tuple[NodeAction, ...] = ()
    trip: TripBreaker | None = None
    close: CloseBreaker | None = None
    deferred: tuple[Deferred, ...] = ()
    peer_pools: frozenset[Pool] = frozenset()
    """Pools in which idle nodes are needed as test peers: input of the next snapshot."""

    wake_at: datetime | None = None
    """Next time at which a decision changes by itself; None if only new input can change it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """No action before ``until``; None if only new input can change that."""

    until: datetime | None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAttempt:
    """Launch the ranks of a new attempt."""

    job: str
    placement: tuple[str, ...]
    """Node of each node rank; empty if a scheduler places them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaunch:
    """Launch the recorded attempt again, in case the launch was interrupted."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmStart:
    """All ranks of the attempt run where the scheduler placed them."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAttempt:
    """Send SIGTERM to every rank of the attempt."""

    job: str
    failure: Failure | None
    """None if the job is cancelled or ends with all ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KillAttempt:
    """Send SIGKILL to every remaining process of the attempt."""

    job: str
    nodes: tuple[str, ...] = ()
    """Nodes whose processes are killed, after an exchange; empty for all nodes of the attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The attempt has ended; wait for nodes and for the backoff, then start the next."""

    job: str
    failure: Failure
    start_after: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeNode:
    """Remove the rank on the failed node, to be launched on another; the other ranks stay."""

    job: str
    failure: Failure
    placement: tuple[str, ...]
    """``JobRecord.placement`` afterwards. Without the failed node where a scheduler chooses
    another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The job has ended for good."""

    job: str
    outcome: JobPhase
    reason: str
    failure: Failure | None = None


JobAction = (
    StartAttempt
    | Relaunch
    | ConfirmStart
    | StopAttempt
    | KillAttempt
    | Retry
    | ExchangeNode
    | Finish
)
