"""State of nodes and jobs that decides about attention and alerts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.model.checkpoint_manifests import SaveSummary
from holdfast.model.incidents import Incident
from holdfast.model.nodes import Breaker, Phase, Remediation
from holdfast.model.requests import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedNode:
    """State of a node for alerts and for the items that need attention."""

    name: str
    phase: Phase
    phase_since: datetime
    remediation: Remediation | None = None
    request: Request | None = None
    pause_reason: str = ""
    """Why its repairs are paused; empty if they are not."""

    closed: str = ""
    """Who else than Holdfast made it unschedulable; empty if nobody did."""

    silent_since: datetime | None = None
    """Last heartbeat of an agent that counts as silent; None while it reports."""

    is_faulty: bool = False
    """Whether its agent reports a fault or a condition."""

    fault_since: datetime | None = None
    """Start of the oldest fault that its agent reports; None without a fault."""

    jobs: frozenset[str] = frozenset()
    """References of the jobs on it now."""

    pool: tuple[str, str] = ("", "")
    """Instance group and instance type; empty where not known."""

    replaced_at: tuple[datetime, ...] = ()
    """Times of the automatic replacements of its machine in the last day."""


@dataclass(frozen=True, slots=True)
class PastFailure:
    """Failure of an attempt of a job."""

    kind: str
    """A ``FailureKind``."""

    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedJob:
    """State of a job that matters here."""

    ref: str
    phase: str
    """A ``JobPhase``, or another phase of a job that is not managed now."""

    phase_since: datetime
    reason: str
    nodes: int
    is_interrupted: bool = False
    """Whether its Holdfast process was killed before it ended."""

    last_pools: frozenset[tuple[str, str]] = frozenset()
    """Pools of the nodes of its last attempt; empty if not known."""

    step: int | None = None
    """Last step that it reported."""

    checkpoint_dir: str = ""
    saves: SaveSummary | None = None
    """Saves in that directory; None if they are not verified in the background."""

    failures: tuple[PastFailure, ...] = ()
    """Failures of its attempts, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedFleet:
    """Nodes and jobs of one cluster or run."""

    name: str
    is_active: bool
    breaker: Breaker = field(default_factory=Breaker)
    nodes: Sequence[WatchedNode] = ()
    jobs: Sequence[WatchedJob] = ()
    incidents: Sequence[Incident] = ()
