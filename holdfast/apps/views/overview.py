"""Snapshot of all fleets and jobs, and what of it needs a person."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.manifests import DirectoryManifests
from holdfast.apps.views.jobs import INTERRUPTED, JobStatus
from holdfast.apps.views.nodes import Fleet, NodeStatus
from holdfast.decisions.attention import Attention, needs_attention
from holdfast.decisions.incident_steps import FleetState
from holdfast.decisions.watched_fleets import PastFailure, WatchedFleet, WatchedJob, WatchedNode
from holdfast.model.checkpoint_manifests import SaveSummary
from holdfast.model.incidents import Incident
from holdfast.model.jobs import JobPhase
from holdfast.model.names import Condition
from holdfast.model.nodes import Breaker

_ON_NODES: Final = (JobPhase.STARTING, JobPhase.RUNNING, JobPhase.STOPPING)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSnapshot:
    """A fleet at one time."""

    name: str
    is_active: bool
    breaker: Breaker
    nodes: Sequence[NodeStatus]
    incidents: Sequence[Incident]


def snapshot(fleet: Fleet) -> FleetSnapshot:
    """Read a fleet.

    Raises:
        BackendError: its state cannot be read.

    """
    return FleetSnapshot(
        name=fleet.name,
        is_active=fleet.is_active,
        breaker=fleet.breaker(),
        nodes=fleet.nodes(),
        incidents=fleet.incidents(),
    )


def attention(
    fleets: Sequence[FleetSnapshot], jobs: Iterable[JobStatus], now: datetime
) -> list[Attention]:
    """Return what needs a person, the most urgent first; see ``decisions/attention.py``."""
    return needs_attention(watched(fleets, jobs), now)


def watched(fleets: Sequence[FleetSnapshot], jobs: Iterable[JobStatus]) -> list[WatchedFleet]:
    """Return what decides about attention and alerts."""
    owners = defaultdict[str, list[JobStatus]](list)
    names = {one.name for one in fleets}
    for job in _latest(jobs):
        named = job.cluster or job.name  # a run on this machine has the name of its job
        owners[named if named in names else fleets[0].name if fleets else ""].append(job)
    return [_watched(one, owners[one.name]) for one in fleets]


def incident_state(fleet: FleetSnapshot, found: Iterable[Attention]) -> FleetState:
    """Return the state that decides what to do about incidents of a fleet.

    Args:
        fleet: the fleet.
        found: what needs a person, as of ``attention``.

    """
    return FleetState(
        is_active=fleet.is_active,
        is_breaker_open=fleet.breaker.tripped_at is not None,
        phases={node.name: node.phase for node in fleet.nodes},
        pauses={node.name: node.pause_reason for node in fleet.nodes if node.pause_reason},
        attention=[one for one in found if one.fleet == fleet.name],
    )


def placed(jobs: Iterable[JobStatus]) -> dict[str, set[str]]:
    """Return ``node -> references of the jobs whose ranks are on it now``."""
    found = defaultdict[str, set[str]](set)
    for job in jobs:
        if job.is_active and job.phase in _ON_NODES:
            for node in job.placement:
                found[node].add(job.ref)
    return found


def _latest(jobs: Iterable[JobStatus]) -> Iterable[JobStatus]:
    """Return all active jobs and, of those that have ended, the last one of each name."""
    last: dict[tuple[str, str], JobStatus] = {}
    active = []
    for job in sorted(jobs, key=lambda one: one.started_at):
        last[job.cluster, job.name] = job
        if job.is_active:
            active.append(job)
    return [*(one for one in last.values() if not one.is_active), *active]


def _watched(fleet: FleetSnapshot, jobs: Sequence[JobStatus]) -> WatchedFleet:
    on = placed(jobs)
    pools = {node.name: (node.group, node.instance_type) for node in fleet.nodes}
    return WatchedFleet(
        name=fleet.name,
        is_active=fleet.is_active,
        breaker=fleet.breaker,
        nodes=[_node(one, frozenset(on.get(one.name, ()))) for one in fleet.nodes],
        jobs=[
            WatchedJob(
                ref=job.ref,
                phase=job.phase,
                phase_since=job.phase_since,
                reason=job.reason,
                nodes=job.nodes,
                is_interrupted=job.phase == INTERRUPTED,
                last_pools=frozenset(pools[node] for node in job.placement if node in pools),
                step=job.step,
                checkpoint_dir=job.checkpoint_dir,
                saves=_saves(job),
                failures=tuple(
                    PastFailure(one.kind, one.stopped_at)
                    for one in job.attempts
                    if one.kind and one.stopped_at is not None
                ),
            )
            for job in jobs
        ],
        incidents=fleet.incidents,
    )


def _saves(job: JobStatus) -> SaveSummary | None:
    if not job.is_active or not job.checkpoint_dir:
        return None
    return DirectoryManifests(Path(job.checkpoint_dir)).read_summary()


def _node(node: NodeStatus, jobs: frozenset[str]) -> WatchedNode:
    is_silent = Condition.AGENT_SILENT in node.conditions
    return WatchedNode(
        name=node.name,
        phase=node.phase,
        phase_since=node.phase_since,
        remediation=node.remediation,
        request=node.request,
        pause_reason=node.pause_reason,
        closed=node.closed,
        silent_since=(node.heartbeat_at or node.phase_since) if is_silent else None,
        is_faulty=any(name != Condition.AGENT_SILENT for name in node.conditions),
        fault_since=min((one.since for one in node.faults), default=None),
        jobs=jobs or frozenset(one for one in node.job.split(",") if one),
        pool=(node.group, node.instance_type),
        replaced_at=node.replaced_at,
    )
