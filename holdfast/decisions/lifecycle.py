"""Transitions of a node's record: the only place that knows the phases."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from holdfast.decisions.replacement_limit import recent_replacements
from holdfast.model.actions import (
    Drain,
    NodeAction,
    Pair,
    Quarantine,
    Reassign,
    Reboot,
    Rejoin,
    Release,
    Replace,
    Retire,
    SetAgentCondition,
    StartCheck,
)
from holdfast.model.health import Fault, Remedy, Urgency
from holdfast.model.names import Condition, DeepCheck
from holdfast.model.nodes import (
    CHECKS_LIMIT,
    HISTORY_LIMIT,
    CheckResult,
    NodeRecord,
    NodeView,
    Pairing,
    PastFault,
    Phase,
    Remediation,
    StragglerCheck,
)

STRAGGLER_PERIOD: Final = timedelta(days=1)
"""Time for which a check for a straggler counts for the limits of later ones."""

_DETAIL_LIMIT: Final = 300
"""Maximum length of a stored check result, in characters; the log of the check has the rest."""


def waits_for_jobs(record: NodeRecord) -> bool:
    """Whether the jobs on a node matter: it is draining, or waits for them to end."""
    if record.phase is Phase.DRAINING:
        return True
    remediation = record.remediation
    waits = remediation is not None and remediation.urgency is Urgency.DEFERRED
    return record.phase is Phase.QUARANTINED and waits


def after(node: NodeView, action: NodeAction, now: datetime) -> NodeRecord:
    """Return the record of ``node`` after ``action`` is taken at ``now``.

    For ``Reboot`` and ``Replace`` this is the record to write *before* the provider is called: its
    ``ordered_at`` is None, and ``accepted`` sets it afterwards.
    """
    record = node.record
    match action:
        case Quarantine() | Reassign():
            return _quarantined(record, action, node, now)
        case Drain():
            return replace(record, phase=Phase.DRAINING, phase_since=now)
        case Reboot():
            return _ordered(node, Remedy.REBOOT, Phase.REBOOTING, now)
        case Replace():
            ordered = _ordered(node, Remedy.REPLACE, Phase.REPLACING, now)
            return _approved(ordered, action.request_id) if action.request_id else ordered
        case Rejoin():
            return _rejoined(node, now)
        case Retire():
            return record
        case StartCheck():
            return replace(
                record,
                phase=Phase.CHECKING,
                phase_since=now,
                kinds=action.kinds,
                pairing=action.pairing,
            )
        case Pair(pairing=pairing):
            return replace(record, pairing=pairing)
        case Release():
            return _released(node, action, now)
        case SetAgentCondition(silent_since=since):
            return replace(record, agent_silent_since=since)


def accepted(record: NodeRecord, now: datetime) -> NodeRecord:
    """Return the record after the provider accepted the order."""
    assert record.remediation is not None  # noqa: S101 - orders need a remediation
    remediation = replace(
        record.remediation, ordered_at=now, retry_at=None, is_outcome_unknown=False
    )
    return replace(record, remediation=remediation)


def refused(
    record: NodeRecord, retry_at: datetime, *, is_outcome_unknown: bool = False
) -> NodeRecord:
    """Return the record after the provider refused the order for now, or its response was lost.

    An order whose response was lost once may have been carried out, whatever later tries return.
    """
    remediation = record.remediation
    assert remediation is not None  # noqa: S101 - orders need a remediation
    unknown = remediation.is_outcome_unknown or is_outcome_unknown
    return replace(
        record, remediation=replace(remediation, retry_at=retry_at, is_outcome_unknown=unknown)
    )


def machine_removed(record: NodeRecord) -> NodeRecord:
    """Return the record after the provider reported that the machine does not exist."""
    assert record.remediation is not None  # noqa: S101 - orders need a remediation
    remediation = replace(
        record.remediation, remedy=Remedy.REPLACE, retry_at=None, is_machine_removed=True
    )
    return replace(record, remediation=remediation)


def machine_ordered_on(remediation: Remediation) -> str:
    """Return ``provider_id`` of the machine of a remediation's last order; empty before any."""
    return remediation.machine.partition("#")[0]


def inherited(successor: NodeRecord, predecessor: NodeRecord, now: datetime) -> NodeRecord:
    """Return the record of a replacement that takes over the remediation of its predecessor.

    The replacements of the predecessor continue to count: they are those of one position of the
    cluster, whatever the names of its nodes.
    """
    assert predecessor.remediation is not None  # noqa: S101 - a replaced node has one
    remediation = replace(predecessor.remediation, replacements=0, is_machine_removed=False)
    return replace(
        successor,
        remediation=remediation,
        replaced_at=tuple(sorted((*successor.replaced_at, *recent_replacements(predecessor, now)))),
        straggler_checks=recent_straggler_checks(predecessor, now),
    )


def recent_straggler_checks(record: NodeRecord, now: datetime) -> tuple[StragglerCheck, ...]:
    """Return the checks for stragglers that still count for the limits of later ones."""
    return tuple(one for one in record.straggler_checks if now - one.at < STRAGGLER_PERIOD)


def _quarantined(
    record: NodeRecord, action: Quarantine | Reassign, node: NodeView, now: datetime
) -> NodeRecord:
    fault = action.fault
    old = record.remediation
    remediation = Remediation(
        incident_id=old.incident_id if old else incident_id(node.name, now),
        opened_at=old.opened_at if old else now,
        condition=fault.condition,
        reason=fault.reason,
        remedy=action.remedy,
        urgency=fault.urgency,
        repairs=old.repairs if old else 0,
        machine=old.machine if old else "",
        request_id=action.request_id,
    )
    kinds = _requested_kinds(node, action.request_id)
    record = replace(record, straggler_checks=_straggler_checks(node, action.request_id, now))
    if isinstance(action, Reassign):
        return replace(record, remediation=remediation, kinds=kinds)
    return replace(
        record,
        phase=Phase.QUARANTINED,
        phase_since=now,
        remediation=remediation,
        checks=_with_check(node, action.check, fault, now),
        kinds=kinds,
        pairing=_without_running_tests(record.pairing),
    )


def _requested_kinds(node: NodeView, request_id: str) -> tuple[DeepCheck, ...]:
    request = node.request
    return request.checks if request is not None and request.id == request_id else ()


def _straggler_checks(node: NodeView, request_id: str, now: datetime) -> tuple[StragglerCheck, ...]:
    """Return the recent checks for stragglers, with that of the request if it is one."""
    known, request = recent_straggler_checks(node.record, now), node.request
    if request is None or request.id != request_id or not request.job:
        return known
    return (*known, StragglerCheck(job=request.job, at=now))


def _without_running_tests(pairing: Pairing | None) -> Pairing | None:
    """Return the pairing after the node's tests have ended; it keeps their results."""
    return pairing if pairing is None else replace(pairing, partner="", began_at=None)


def incident_id(node_name: str, now: datetime) -> str:
    """Return the name of the incident that opens on a node now; a node opens one at a time."""
    return f"{node_name}-{now:%Y%m%dT%H%M%S}.{now.microsecond // 1000:03d}"


def _ordered(node: NodeView, remedy: Remedy, phase: Phase, now: datetime) -> NodeRecord:
    record = node.record
    remediation = record.remediation
    assert remediation is not None  # noqa: S101 - decide_node orders need one
    is_repetition = record.phase is phase and remediation.ordered_at is None
    is_new_replacement = remedy is Remedy.REPLACE and not is_repetition
    return replace(
        record,
        phase=phase,
        phase_since=record.phase_since if record.phase is phase else now,
        remediation=replace(
            remediation,
            remedy=remedy,
            repairs=remediation.repairs if is_repetition else remediation.repairs + 1,
            replacements=remediation.replacements + is_new_replacement,
            ordered_at=None,
            retry_at=None,
            is_outcome_unknown=is_repetition and remediation.is_outcome_unknown,
            machine=remediation.machine if is_repetition else node.machine,
        ),
    )


def _approved(record: NodeRecord, request_id: str) -> NodeRecord:
    """Return the record of a replacement that a person has requested during another repair."""
    assert record.remediation is not None  # noqa: S101 - orders need one
    return replace(record, remediation=replace(record.remediation, request_id=request_id))


def _rejoined(node: NodeView, now: datetime) -> NodeRecord:
    record = node.record
    assert record.remediation is not None  # noqa: S101 - a rejoin ends a repair
    is_same = machine_ordered_on(record.remediation) == node.provider_id
    return replace(
        record,
        phase=Phase.JOINING,
        phase_since=now,
        remediation=replace(record.remediation, replacements=0, is_machine_removed=False),
        history=record.history if is_same else (),
        replaced_at=record.replaced_at if is_same else recent_replacements(record, now),
        checks=record.checks if is_same else (),
        kinds=(),
        pairing=None,
        agent_silent_since=None,
    )


def _released(node: NodeView, action: Release, now: datetime) -> NodeRecord:
    record = node.record
    return replace(
        record,
        phase=Phase.SCHEDULABLE,
        phase_since=now,
        remediation=None,
        history=_with_past(node, now),
        cleared_at=now if action.forgive else record.cleared_at,
        checked_machine=node.machine if action.checked else record.checked_machine,
        checks=_with_check(node, action.check, None, now),
        kinds=(),
        pairing=_without_running_tests(record.pairing),
    )


def _with_check(
    node: NodeView, whole: CheckResult | None, fault: Fault | None, now: datetime
) -> tuple[CheckResult, ...]:
    """Return the checks of the machine after a phase; a check that never ended has failed."""
    checks, pairing = node.record.checks, node.record.pairing
    if node.record.phase is not Phase.CHECKING:
        return checks
    over = whole or (node.check if pairing is None else pairing.own)
    if over is None and fault is not None and fault.condition == Condition.DEEP_CHECK:
        over = CheckResult(passed=False, ended_at=now, detail=fault.message)
    if over is None:
        return checks
    return (*checks, replace(over, detail=over.detail[:_DETAIL_LIMIT]))[-CHECKS_LIMIT:]


def _with_past(node: NodeView, now: datetime) -> tuple[PastFault, ...]:
    """Return the history of the machine, which is a new one after a replacement."""
    remediation, history = node.record.remediation, node.record.history
    if remediation is None or remediation.condition in (
        Condition.REQUESTED,
        Condition.AGENT_SILENT,
    ):
        return history
    ordered_on = machine_ordered_on(remediation)
    if ordered_on not in ("", node.provider_id):
        return history
    past = PastFault(
        opened_at=remediation.opened_at,
        closed_at=now,
        reason=remediation.reason,
        remedy=Remedy.REBOOT if ordered_on else Remedy.NONE,
    )
    return (*history, past)[-HISTORY_LIMIT:]
