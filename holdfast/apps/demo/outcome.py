"""Result of the demo: a recovery for each fault, and whether the final weights are equal."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.apps.demo.faults import Injected
from holdfast.apps.views.jobs import lost_steps
from holdfast.kit.units import format_duration
from holdfast.model.incidents import Incident
from holdfast.model.jobs import AttemptRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRecovery:
    """One fault and its recovery. Durations in seconds."""

    fault: str
    node: str
    action: str
    """Repair of the node: ``replace``, ``reboot``, or ``none`` for a fault of the job."""

    new_node: str
    """The replacement of the node; empty if it was not replaced."""

    detect_s: float
    """From the fault to the decision to stop the job."""

    stop_s: float
    """From then to the end of its last rank."""

    repair_s: float | None
    """From the end of the drain to the first report of the node or its replacement; runs in
    parallel with the restart of the job."""

    start_s: float
    """From the end of the last rank to all ranks of the next attempt being launched."""

    recover_s: float
    """From the fault to the launch of all ranks."""

    lost_steps: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """Result of the demo."""

    ok: bool
    """Whether the job with faults finished, recovered from every fault, and has the same
    weights."""

    steps: int
    final_sha256: str
    reference_sha256: str
    recoveries: tuple[DemoRecovery, ...]
    seconds: float
    damaged: str = ""
    """Checkpoint in which a bit was flipped; empty if none was."""

    resumed_from: str = ""
    """Checkpoint that the job resumed from instead."""

    verdict: str = ""
    """Rank for which the hung job waited, and why; empty if it did not hang."""


def recovered(
    injected: Iterable[Injected],
    attempts: Sequence[AttemptRecord],
    incidents: Iterable[Incident],
) -> tuple[DemoRecovery, ...]:
    """Return each fault with the attempt that it ended and its incident, if it has one."""
    by_number = {attempt.attempt: attempt for attempt in attempts}
    by_id = {incident.id: incident for incident in incidents}
    found = []
    for fault in injected:
        over, following = by_number.get(fault.attempt), by_number.get(fault.attempt + 1)
        if over is None or over.failure is None or following is None:
            continue
        incident = by_id.get(over.failure.incident_id)
        found.append(
            DemoRecovery(
                fault=fault.fault,
                node=fault.node,
                action=incident.remedy if incident is not None else "none",
                new_node=incident.successor if incident is not None else "",
                detect_s=_seconds(fault.at, over.failure.at),
                stop_s=_seconds(over.failure.at, over.stopped_at),
                repair_s=_repair_s(incident),
                start_s=_seconds(over.stopped_at, following.started_at),
                recover_s=_seconds(fault.at, following.started_at),
                lost_steps=lost_steps(over, following.first_step),
            )
        )
    return tuple(found)


def timeline(outcome: DemoResult) -> list[list[str]]:
    """Return the recoveries as the rows of a table, the titles first."""
    titles = ["fault", "node", "action", "detect", "stop", "repair", "start", "down", "lost"]
    rows = [
        [
            one.fault,
            one.node,
            one.action,
            _short(one.detect_s),
            _short(one.stop_s),
            _short(one.repair_s),
            _short(one.start_s),
            _short(one.recover_s),
            f"{one.lost_steps} steps" if one.lost_steps is not None else "-",
        ]
        for one in outcome.recoveries
    ]
    return [titles, *rows]


def _repair_s(incident: Incident | None) -> float | None:
    if incident is None or incident.drained_at is None or incident.repaired_at is None:
        return None
    return _seconds(incident.drained_at, incident.repaired_at)


def _seconds(start: datetime, end: datetime) -> float:
    return round((end - start).total_seconds(), 3)


def _short(seconds: float | None) -> str:
    return "-" if seconds is None else format_duration(timedelta(seconds=seconds))
