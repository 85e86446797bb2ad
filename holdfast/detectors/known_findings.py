"""Index of the faults and notices of a node, of bounded size."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Final

from holdfast.model.health import Fault, Finding, Remedy, Severity, Urgency
from holdfast.model.names import Reason

NOTICES_KEPT: Final = 20
"""As many as HyperPod keeps in its ``fault-details`` annotation."""

FAULTS_KEPT: Final = 100
"""Faults of each family, and as many suspects. A node has at most 16 Neuron devices or 32 EFA
devices, each with a few kinds of faults: more devices do not exist, or the log repeats itself."""

Key = tuple[str, str, int | None, str]


class KnownFindings:
    """Faults and suspects by key, family and device; notices by key, oldest first."""

    def __init__(self, faults: Iterable[Fault], notices: Iterable[Finding]) -> None:
        self.faults: dict[Key, Fault] = {}
        """Read only; see ``put`` and ``end``."""

        self.notices: dict[Key, Finding] = {notice.key: notice for notice in notices}
        self.summarized: set[Key] = set()
        """Keys of the summaries that were put."""

        self._by_family: defaultdict[str, dict[Key, None]] = defaultdict(dict)
        self._by_device: defaultdict[tuple[str, str], dict[Key, None]] = defaultdict(dict)
        self._suspects: defaultdict[str, dict[Key, None]] = defaultdict(dict)
        for fault in faults:
            self.put(fault)

    def put(self, fault: Fault) -> None:
        """Add ``fault``, or replace the one of the same key."""
        key = fault.key
        self.faults[key] = fault
        self._by_family[fault.family][key] = None
        self._by_device[fault.family, fault.device][key] = None
        if fault.corroborated_within:
            self._suspects[fault.family][key] = None
        else:
            self._suspects[fault.family].pop(key, None)

    def end(self, key: Key) -> None:
        """Remove the fault and the notice of ``key``, if there are any."""
        self.notices.pop(key, None)
        fault = self.faults.pop(key, None)
        if fault is not None:
            self._by_family[fault.family].pop(key)
            self._by_device[fault.family, fault.device].pop(key)
            self._suspects[fault.family].pop(key, None)

    def note(self, notice: Finding) -> None:
        """Add ``notice`` as the newest."""
        self.notices[notice.key] = notice
        if len(self.notices) > 2 * NOTICES_KEPT:
            self.notices = {one.key: one for one in self.newest_notices()}

    def newest_notices(self) -> tuple[Finding, ...]:
        """Return the notices to keep: those that may become a fault before those that do not.

        Those that may be forged are dropped first: they must not push out what the kernel logged.
        """
        superfluous = len(self.notices) - NOTICES_KEPT
        least_first = sorted(self.notices.values(), key=_importance)
        dropped = {notice.key for notice in least_first[: max(superfluous, 0)]}
        return tuple(one for one in self.notices.values() if one.key not in dropped)

    def is_full(self, finding: Finding) -> bool:
        """Return whether no fault, or no suspect, can be added to the family of ``finding``."""
        suspects = len(self._suspects[finding.family])
        certain = len(self._by_family[finding.family]) - suspects
        return (suspects if finding.corroborated_within else certain) >= FAULTS_KEPT

    def put_summary(self, finding: Finding, *, is_event: bool) -> None:
        """Count ``finding`` in the fault that stands for all that are not kept.

        That fault has the strongest remedy among them. Suspects that are not kept are a notice.
        """
        key = (finding.family, Reason.FAULTS_OMITTED, None, "")
        self.summarized.add(key)
        if finding.corroborated_within:
            why = f"more than {FAULTS_KEPT} devices are named by lines that may be forged: "
            self.note(_summary_notice(finding, f"{why}{finding.message}"))
            return
        known = self.faults.get(key)
        worst = finding if known is None or _weight(finding) > _weight(known) else known
        count = 1 if known is None else known.count + 1
        since = [finding.observed_at, *([known.since] if known is not None else [])]
        self.put(
            Fault(
                family=finding.family,
                condition=worst.condition,
                reason=Reason.FAULTS_OMITTED,
                severity=worst.severity,
                remedy=worst.remedy,
                message=worst.message,
                since=max(since) if worst.remedy is Remedy.RESTART_APP else min(since),
                urgency=worst.urgency,
                seen_at=finding.observed_at if is_event else None,
                count=count,
            )
        )

    def of(self, families: Collection[str]) -> Iterator[Fault | Finding]:
        """Yield the faults and notices of ``families``."""
        yield from self.faults_of(families)
        yield from (notice for notice in self.notices.values() if notice.family in families)

    def faults_of(self, families: Iterable[str]) -> Iterator[Fault]:
        """Yield the faults and suspects of ``families``."""
        for family in families:
            yield from [self.faults[key] for key in self._by_family[family]]

    def of_device(self, family: str, device: str | None) -> list[Fault]:
        """Return the faults of ``device``; of the whole family if it is None."""
        keys = self._by_family[family] if device is None else self._by_device[family, device]
        return [self.faults[key] for key in keys]

    def suspects_of(self, families: Iterable[str]) -> list[Key]:
        """Return the keys of the suspects of ``families``, the oldest first."""
        found = [self.faults[key] for family in families for key in self._suspects[family]]
        return [fault.key for fault in sorted(found, key=oldest_first)]

    def keys_of(self, families: Iterable[str]) -> set[Key]:
        """Return the keys of the faults, suspects and notices of ``families``."""
        chosen = set(families)
        noticed = {key for key in self.notices if key[0] in chosen}
        return noticed.union(*(self._by_family[family] for family in chosen))


def oldest_first(fault: Fault) -> tuple[object, list[str]]:
    """Return a key to sort by: the time, then the key."""
    return (fault.since, by_text(fault))


def by_text(one: Fault | Finding) -> list[str]:
    """Return a key as it is in a report, too, where names are mere text."""
    return [str(part) for part in one.key]


def _importance(notice: Finding) -> tuple[bool, bool]:
    return (not notice.corroborated_within, bool(notice.seen_at))


def _weight(one: Fault | Finding) -> tuple[int, bool]:
    return (one.remedy.strength, one.urgency is Urgency.IMMEDIATE)


def _summary_notice(finding: Finding, message: str) -> Finding:
    return replace(
        finding,
        reason=Reason.FAULTS_OMITTED,
        severity=Severity.WARNING,
        remedy=Remedy.NONE,
        message=message,
        code=None,
        device="",
    )
