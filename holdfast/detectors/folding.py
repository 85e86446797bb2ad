"""Folding of findings over time into faults and notices."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from holdfast.detectors.causes import decides, follows
from holdfast.detectors.corroborations import supports
from holdfast.model.health import Fault, Finding, Remedy, Severity

NOTICES_KEPT: Final = 20
"""As many as HyperPod keeps in its ``fault-details`` annotation."""

ONE_SIGHTING: Final = timedelta(seconds=10)
"""Findings of one kind within this time count once towards ``min_count``: one failure of a disk
fails all commands that wait for it, and an event may be in two logs whose clocks differ."""

Key = tuple[str, str, int | None, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """State of one node in this boot."""

    faults: tuple[Fault, ...] = ()
    """Faults that need a remedy and are still present, oldest first."""

    notices: tuple[Finding, ...] = ()
    """Newest findings that need no remedy, oldest first, each ``key`` once; those with ``seen_at``
    would need one if they occurred more often."""

    suspects: tuple[Fault, ...] = ()
    """Faults that would be in ``faults`` if another sample supported them, oldest first."""

    @property
    def reported(self) -> tuple[Finding, ...]:
        """Notices, and one for each suspect."""
        return (*self.notices, *map(_warning, self.suspects))


def fold(health: Health, findings: Iterable[Finding], *, settled: Collection[str] = ()) -> Health:
    """Fold findings into the state of a node, in the order in which they came.

    The newest finding of a ``key`` applies: one that needs no remedy ends the fault of the same
    key. An event that is found in two logs is one fault. A consequence of a fault (see ``causes``)
    is counted with it and reported once. A finding that needs corroboration is a suspect until it
    is corroborated; then it is a fault like any other.

    Args:
        health: state before.
        findings: new findings.
        settled: families whose present state was just read in full: their known findings that are
            not among ``findings`` have ended.

    """
    findings = tuple(findings)
    faults = {fault.key: fault for fault in (*health.faults, *health.suspects)}
    notices = {notice.key: notice for notice in health.notices}
    for finding in findings:
        _take(finding, faults, notices, is_event=finding.family not in settled)
        _corroborate(faults, notices)
    found = {finding.key for finding in findings}
    for known in (faults, notices):
        for key in [key for key in known if key[0] in settled and key not in found]:
            del known[key]
    in_order = sorted(faults.values(), key=_oldest_first)
    return Health(
        faults=tuple(fault for fault in in_order if not fault.corroborated_within),
        notices=_newest(tuple(notices.values())),
        suspects=tuple(fault for fault in in_order if fault.corroborated_within),
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
    if finding.corroborated_within and _is_immune(finding, known, notices.get(key)):
        if known is not None:
            faults[key] = replace(known, count=known.count + 1)
        return
    seen_at = _seen_at(finding, notices.pop(key, None))
    roots = [] if known is not None else _roots(finding, faults)
    if roots:
        faults[roots[0].key] = _gather(_with_follower(roots[0], finding), faults, notices)
    elif finding.remedy is Remedy.NONE:
        faults.pop(key, None)
        notices[key] = finding
    elif known is not None or len(seen_at) >= finding.min_count:
        faults[key] = _fault(finding, known, len(seen_at), is_event=is_event)
        for root in (*_roots(faults[key], faults), faults[key]):
            if root.key in faults:
                faults[root.key] = _gather(root, faults, notices)
    else:
        notices[key] = replace(
            finding, severity=Severity.WARNING, remedy=Remedy.NONE, seen_at=seen_at
        )


def _is_immune(doubtful: Finding, known: Fault | None, noticed: Finding | None) -> bool:
    """Whether what is known must not change by a finding that may be forged.

    Such a finding ends no fault and no suspect, changes the remedy of no certain fault, and neither
    adds to nor resets the count of certain findings that are not yet often enough.
    """
    if known is not None:
        return doubtful.remedy is Remedy.NONE or not known.corroborated_within
    return noticed is not None and bool(noticed.seen_at) and not noticed.corroborated_within


def _corroborate(faults: dict[Key, Fault], notices: dict[Key, Finding]) -> None:
    """Turn corroborated suspects into faults."""
    suspects = [fault for fault in faults.values() if fault.corroborated_within]
    for key in [suspect.key for suspect in sorted(suspects, key=_oldest_first)]:
        if key not in faults:
            continue  # it is a consequence of another
        known: list[Fault | Finding] = [*faults.values(), *notices.values()]
        corroborations = [one for one in known if supports(one, faults[key])]
        if corroborations:
            fault = _corroborated(faults[key], min(corroborations, key=_by_text).message)
            faults[key] = fault
            for root in (*_roots(fault, faults), fault):
                if root.key in faults:
                    faults[root.key] = _gather(root, faults, notices)


def _seen_at(finding: Finding, noticed: Finding | None) -> tuple[datetime, ...]:
    """Return the times of ``finding`` within its window, the present one included."""
    now = finding.observed_at
    is_same = noticed is not None and (
        bool(finding.corroborated_within) or not noticed.corroborated_within
    )  # what may be forged adds nothing to what is certain
    earlier = noticed.seen_at if noticed is not None and is_same else ()
    if any(abs(now - at) < ONE_SIGHTING for at in earlier):
        return earlier
    newest = max((now, *earlier))
    return tuple(at for at in sorted((*earlier, now)) if newest - at <= finding.window)


def _roots(finding: Finding | Fault, faults: dict[Key, Fault]) -> list[Fault]:
    """Return the faults of which ``finding`` is a consequence, oldest first."""
    return sorted(
        (fault for fault in faults.values() if _is_covered(finding, fault)), key=_oldest_first
    )


def _is_covered(finding: Finding | Fault, root: Fault) -> bool:
    """Return whether ``root`` may stand for ``finding``: a suspect hides nothing certain."""
    is_certain = finding.remedy is not Remedy.NONE and not finding.corroborated_within
    return (
        finding.key != root.key
        and follows(finding, root)
        and not (root.corroborated_within and is_certain)
    )


def _gather(root: Fault, faults: dict[Key, Fault], notices: dict[Key, Finding]) -> Fault:
    """Return ``root`` with its known consequences, which are removed."""
    for key, notice in list(notices.items()):
        if _is_covered(notice, root):
            root = _with_follower(root, notices.pop(key))
    for key, fault in list(faults.items()):
        if _is_covered(fault, root):
            root = _with_follower(root, faults.pop(key))
    return root


def _with_follower(root: Fault, one: Finding | Fault) -> Fault:
    decided = set(root.decides)
    if decides(root, one) and one.code is not None:
        decided.add(one.code)
    count = 1 if isinstance(one, Finding) else one.count + one.followers
    return replace(root, followers=root.followers + count, decides=tuple(sorted(decided)))


def _corroborated(suspect: Fault, evidence: str) -> Fault:
    message = f"{suspect.message} [corroborated by: {evidence}]"
    return replace(suspect, corroborated_within=timedelta(0), message=message)


def _warning(suspect: Fault) -> Finding:
    why = f"uncorroborated, would need {suspect.remedy}: {suspect.message}"
    return Finding(
        family=suspect.family,
        condition=suspect.condition,
        reason=suspect.reason,
        severity=Severity.WARNING,
        remedy=Remedy.NONE,
        message=why,
        observed_at=suspect.seen_at or suspect.since,
        code=suspect.code,
        device=suspect.device,
    )


def _newest(notices: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Return as many as are kept; those that may become a fault are dropped last."""
    superfluous = len(notices) - NOTICES_KEPT
    harmless_first = sorted(notices, key=lambda notice: bool(notice.seen_at))
    dropped = {notice.key for notice in harmless_first[: max(superfluous, 0)]}
    return tuple(notice for notice in notices if notice.key not in dropped)


def _oldest_first(fault: Fault) -> tuple[datetime, list[str]]:
    return (fault.since, _by_text(fault))


def _by_text(one: Fault | Finding) -> list[str]:
    """Return the key as in a report, where all parts are text."""
    return [str(part) for part in one.key]


def _fault(finding: Finding, known: Fault | None, sightings: int, *, is_event: bool) -> Fault:
    before = None if known is None else known.seen_at
    is_certain = known is not None and not known.corroborated_within
    fault = Fault(
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
        decides=() if known is None else known.decides,
        corroborated_within=timedelta(0) if is_certain else finding.corroborated_within,
    )
    if known is not None and known.corroborated_within and not finding.corroborated_within:
        return replace(fault, message=_corroborated(known, finding.message).message)
    return fault


def _since(finding: Finding, known: Fault | None) -> datetime:
    if known is None:
        return finding.observed_at
    if finding.remedy is Remedy.RESTART_APP:  # the earlier application is gone
        return max(known.since, finding.observed_at)
    return min(known.since, finding.observed_at)
