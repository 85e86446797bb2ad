"""Findings over time: what holds now, and what was worth a notice."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from holdfast.model.health import Fault, Finding, Remedy

NOTICES_KEPT: Final = 20
"""As many as HyperPod keeps in its ``fault-details`` annotation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What is known of one node in this boot."""

    faults: tuple[Fault, ...] = ()
    """What calls for a remedy and still holds, oldest first."""

    notices: tuple[Finding, ...] = ()
    """The newest findings that call for none, oldest first, each ``key`` once."""


def fold(health: Health, findings: Iterable[Finding], *, settled: Collection[str] = ()) -> Health:
    """Take findings in, in the order in which they came.

    The newest word on a ``key`` holds: one that calls for no remedy ends the fault of the same
    key. An event that is found in two logs is one fault.

    Args:
        health: what was known before.
        findings: what was found since.
        settled: families whose present state was just read in full: what is known of
            them and is not among ``findings`` is over.

    """
    findings = tuple(findings)
    faults = {fault.key: fault for fault in health.faults}
    notices = {notice.key: notice for notice in health.notices}
    for finding in findings:
        notices.pop(finding.key, None)
        if finding.remedy is Remedy.NONE:
            faults.pop(finding.key, None)
            notices[finding.key] = finding
        else:
            faults[finding.key] = _fault(finding, faults.get(finding.key))
    found = {finding.key for finding in findings}
    for known in (faults, notices):
        for key in [key for key in known if key[0] in settled and key not in found]:
            del known[key]
    return Health(
        faults=tuple(sorted(faults.values(), key=_oldest_first)),
        notices=tuple(notices.values())[-NOTICES_KEPT:],
    )


def _oldest_first(fault: Fault) -> tuple[datetime, str]:
    return (fault.since, str(fault.key))


def _fault(finding: Finding, known: Fault | None) -> Fault:
    return Fault(
        family=finding.family,
        condition=finding.condition,
        reason=finding.reason,
        severity=finding.severity,
        remedy=finding.remedy,
        message=finding.message,
        since=_since(finding, known),
        code=finding.code,
        device=finding.device,
        urgency=finding.urgency,
        count=1 if known is None else known.count + 1,
    )


def _since(finding: Finding, known: Fault | None) -> datetime:
    if known is None:
        return finding.observed_at
    if finding.remedy is Remedy.RESTART_APP:  # the application that it hit before is gone
        return max(known.since, finding.observed_at)
    return min(known.since, finding.observed_at)
