"""Folding of findings over time into faults and notices."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from holdfast.detectors.causes import CAUSE, CONSEQUENCES, causes_of, decides, follows
from holdfast.detectors.corroborations import SUPPORTED_BY, SUPPORTERS, supports
from holdfast.detectors.known_findings import (
    Key,
    KnownFindings,
    by_text,
    oldest_first,
)
from holdfast.model.health import Fault, Finding, Remedy, Severity

ONE_SIGHTING: Final = timedelta(seconds=10)
"""Findings of one kind within this time count once towards ``min_count``: one failure of a disk
fails all commands that wait for it, and an event may be in two logs whose clocks differ."""


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
        """The notices, and one for each suspect."""
        suspected = {suspect.key for suspect in self.suspects}
        notices = (one for one in self.notices if one.key not in suspected)
        return (*notices, *map(_warning, self.suspects))


def fold(health: Health, findings: Iterable[Finding], *, settled: Collection[str] = ()) -> Health:
    """Fold findings into the state of a node, in the order in which they came.

    The newest finding of a ``key`` applies: one that needs no remedy ends the fault of the same
    key. An event that is found in two logs is one fault. A consequence of a fault (see ``causes``)
    is counted with it and reported once. A finding that needs corroboration is a suspect until it
    is corroborated; then it is a fault like any other.
    Of each family, ``FAULTS_KEPT`` faults are kept and one more that stands for all others, so that
    the cost of a finding does not depend on how many devices the findings before it name.

    Args:
        health: state before.
        findings: new findings.
        settled: families whose present state was just read in full: their known findings that are
            not among ``findings`` have ended.

    """
    known = KnownFindings((*health.faults, *health.suspects), health.notices)
    found: set[Key] = set()
    for finding in findings:
        found.add(finding.key)
        _take(finding, known, is_event=finding.family not in settled)
        _corroborate(finding, known)
    for key in known.keys_of(settled) - found - known.summarized:
        known.end(key)
    in_order = sorted(known.faults.values(), key=oldest_first)
    return Health(
        faults=tuple(fault for fault in in_order if not fault.corroborated_within),
        notices=known.newest_notices(),
        suspects=tuple(fault for fault in in_order if fault.corroborated_within),
    )


def _take(finding: Finding, known: KnownFindings, *, is_event: bool) -> None:
    key = finding.key
    fault, noticed = known.faults.get(key), known.notices.get(key)
    if finding.corroborated_within and _is_immune(finding, fault, noticed):
        if fault is not None:
            known.put(replace(fault, count=fault.count + 1))
        return
    known.notices.pop(key, None)
    seen_at = _seen_at(finding, noticed)
    roots = [] if fault is not None else _roots(finding, known)
    is_proven = len(seen_at) >= finding.min_count or (
        fault is not None and not _is_only_suspect(fault, finding)
    )
    if roots:
        known.put(_gather(_with_follower(roots[0], finding), known))
    elif finding.remedy is Remedy.NONE:
        known.end(key)
        known.note(finding)
    elif is_proven and fault is None and known.is_full(finding):
        known.put_summary(finding, is_event=is_event)
    elif is_proven:
        _put(_fault(finding, fault, len(seen_at), is_event=is_event), known)
    else:
        known.note(replace(finding, severity=Severity.WARNING, remedy=Remedy.NONE, seen_at=seen_at))


def _put(fault: Fault, known: KnownFindings) -> None:
    known.put(fault)
    for root in (*_roots(fault, known), fault):
        if root.key in known.faults:
            known.put(_gather(root, known))


def _is_only_suspect(fault: Fault, finding: Finding) -> bool:
    """Whether all evidence of ``fault`` may be forged, and ``finding`` may not."""
    return bool(fault.corroborated_within) and not finding.corroborated_within


def _is_immune(doubtful: Finding, known: Fault | None, noticed: Finding | None) -> bool:
    """Whether what is known must not change by a finding that may be forged.

    Such a finding ends no fault and no suspect, changes the remedy of no certain fault, and neither
    adds to nor resets the count of certain findings that are not yet often enough.
    """
    if noticed is not None and noticed.seen_at and not noticed.corroborated_within:
        return True
    return known is not None and (doubtful.remedy is Remedy.NONE or not known.corroborated_within)


def _corroborate(finding: Finding, known: KnownFindings) -> None:
    """Turn suspects into faults that another reading supports, after ``finding`` was taken in."""
    keys = [finding.key, *known.suspects_of(SUPPORTED_BY.get(finding.family, ()))]
    while keys:
        suspect = known.faults.get(keys.pop(0))
        if suspect is None or not suspect.corroborated_within:
            continue
        evidence = [one for one in known.of(SUPPORTERS[suspect.family]) if supports(one, suspect)]
        if evidence:
            _put(_corroborated(suspect, min(evidence, key=by_text).message), known)
            keys += known.suspects_of(SUPPORTED_BY.get(suspect.family, ()))


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


def _roots(finding: Finding | Fault, known: KnownFindings) -> list[Fault]:
    """Return the faults that ``finding`` follows from, oldest first."""
    candidates = known.of_device(*reach) if (reach := causes_of(finding)) is not None else ()
    return sorted((fault for fault in candidates if _is_covered(finding, fault)), key=oldest_first)


def _is_covered(finding: Finding | Fault, root: Fault) -> bool:
    """Return whether ``root`` may stand for ``finding``: a suspect hides nothing certain."""
    is_certain = finding.remedy is not Remedy.NONE and not finding.corroborated_within
    return (
        finding.key != root.key
        and follows(finding, root)
        and not (root.corroborated_within and is_certain)
    )


def _gather(root: Fault, known: KnownFindings) -> Fault:
    """Return ``root`` with all that was known and follows from it, which is removed."""
    if root.family != CAUSE:
        return root
    for notice in list(known.notices.values()):
        if _is_covered(notice, root):
            root = _with_follower(root, known.notices.pop(notice.key))
    for fault in (*known.of_device(CAUSE, root.device), *known.faults_of(CONSEQUENCES)):
        if _is_covered(fault, root) and fault.key in known.faults:
            root = _with_follower(root, fault)
            known.end(fault.key)
    return root


def _with_follower(root: Fault, one: Finding | Fault) -> Fault:
    decided = set(root.decides)
    is_trusted = bool(root.corroborated_within) or not one.corroborated_within
    if decides(root, one) and one.code is not None and is_trusted:
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
