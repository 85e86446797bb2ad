"""Findings over time: what holds now, and what was worth a notice."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from holdfast.detectors.causes import follows
from holdfast.model.health import Fault, Finding, Remedy, Severity

NOTICES_KEPT: Final = 20
"""As many as HyperPod keeps in its ``fault-details`` annotation."""

ONE_SIGHTING: Final = timedelta(seconds=10)
"""Findings of one kind that lie closer together count once towards ``min_count``: one hiccup of a
disk fails all commands that wait for it, and an event is told in two logs whose clocks differ."""

Key = tuple[str, str, int | None, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What is known of one node in this boot."""

    faults: tuple[Fault, ...] = ()
    """What calls for a remedy and still holds, oldest first."""

    notices: tuple[Finding, ...] = ()
    """The newest findings that call for none, oldest first, each ``key`` once; those with
    ``seen_at`` would call for one if they were seen more often."""


def fold(health: Health, findings: Iterable[Finding], *, settled: Collection[str] = ()) -> Health:
    """Take findings in, in the order in which they came.

    The newest word on a ``key`` holds: one that calls for no remedy ends the fault of the same
    key. An event that is found in two logs is one fault. What follows from a fault (see
    ``causes``) is counted with it and told no more.

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
        _take(finding, faults, notices, is_event=finding.family not in settled)
    found = {finding.key for finding in findings}
    for known in (faults, notices):
        for key in [key for key in known if key[0] in settled and key not in found]:
            del known[key]
    return Health(
        faults=tuple(sorted(faults.values(), key=_oldest_first)),
        notices=_newest(tuple(notices.values())),
    )


def _take(
    finding: Finding,
    faults: dict[Key, Fault],
    notices: dict[Key, Finding],
    *,
    is_event: bool,
) -> None:
    key = finding.key
    known = faults.get(key)
    seen_at = _seen_at(finding, notices.pop(key, None))
    roots = [fault for fault in faults.values() if follows(finding, fault)]
    if roots and known is None:
        root = min(roots, key=_oldest_first)
        faults[root.key] = replace(root, followers=root.followers + 1)
    elif finding.remedy is Remedy.NONE:
        faults.pop(key, None)
        notices[key] = finding
    elif known is not None or len(seen_at) >= finding.min_count:
        fault = _fault(finding, known, len(seen_at), is_event=is_event)
        faults[key] = replace(fault, followers=fault.followers + _gather(fault, faults, notices))
    else:
        notices[key] = replace(
            finding, severity=Severity.WARNING, remedy=Remedy.NONE, seen_at=seen_at
        )


def _seen_at(finding: Finding, noticed: Finding | None) -> tuple[datetime, ...]:
    """When ``finding`` was seen within its window, this time among them."""
    now = finding.observed_at
    earlier = noticed.seen_at if noticed is not None else ()
    if any(abs(now - at) < ONE_SIGHTING for at in earlier):
        return earlier
    newest = max((now, *earlier))
    return tuple(at for at in sorted((*earlier, now)) if newest - at <= finding.window)


def _gather(root: Fault, faults: dict[Key, Fault], notices: dict[Key, Finding]) -> int:
    """Take away what was known and follows from ``root``. Returns how many findings that were."""
    gathered = 0
    for key, notice in list(notices.items()):
        if follows(notice, root):
            gathered += 1
            del notices[key]
    for key, fault in list(faults.items()):
        if key != root.key and follows(fault, root):
            gathered += fault.count + fault.followers
            del faults[key]
    return gathered


def _newest(notices: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """As many as are kept; what may yet become a fault stays before what never does."""
    superfluous = len(notices) - NOTICES_KEPT
    harmless_first = sorted(notices, key=lambda notice: bool(notice.seen_at))
    dropped = {notice.key for notice in harmless_first[: max(superfluous, 0)]}
    return tuple(notice for notice in notices if notice.key not in dropped)


def _oldest_first(fault: Fault) -> tuple[datetime, str]:
    return (fault.since, str(fault.key))


def _fault(finding: Finding, known: Fault | None, sightings: int, *, is_event: bool) -> Fault:
    before = None if known is None else known.seen_at
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
        seen_at=max(before or finding.observed_at, finding.observed_at) if is_event else before,
        followers=0 if known is None else known.followers,
        count=sightings if known is None else known.count + 1,
    )


def _since(finding: Finding, known: Fault | None) -> datetime:
    if known is None:
        return finding.observed_at
    if finding.remedy is Remedy.RESTART_APP:  # the application that it hit before is gone
        return max(known.since, finding.observed_at)
    return min(known.since, finding.observed_at)
