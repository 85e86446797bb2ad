"""What one reading of a state means: shared by the agent and by those who judge captured files."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Final

from holdfast.detectors.contract import Detector, Readings, Sample
from holdfast.detectors.state_reasons import reasons_of
from holdfast.model.health import Finding, Remedy, Severity
from holdfast.model.names import Condition, Reason

LONGEST_MESSAGE: Final = 1000
"""Characters of evidence that a finding carries."""

Kind = Callable[[str, str], bool]

_DIGITS: Final = 25
"""Longer ones are no counter: 2**64 has 20."""


class HealthState(StrEnum):
    """What can be said of the node."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    UNKNOWN = "unknown"
    """It cannot be decided: nothing was measured, or the end is missing, or the tool failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What one reading means."""

    findings: tuple[Finding, ...] = ()
    undecided: str = ""
    """Why not everything could be judged; empty if it was."""

    @property
    def verdict(self) -> HealthState:
        """Unhealthy by what was found; healthy only if nothing stayed undecided."""
        if any(is_fault(finding) for finding in self.findings):
            return HealthState.UNHEALTHY
        return HealthState.UNKNOWN if self.undecided else HealthState.HEALTHY


def is_fault(finding: Finding) -> bool:
    """Whether the node is not fit for work while this holds."""
    return finding.severity is Severity.FATAL or finding.remedy is not Remedy.NONE


def whole(findings: Iterable[Finding]) -> Judgement:
    """The judgement of a reading that told everything."""
    return Judgement(findings=tuple(findings))


def undecided(why: str, findings: Iterable[Finding] = ()) -> Judgement:
    """The judgement of a reading that did not tell enough."""
    return Judgement(findings=tuple(findings), undecided=why)


def state_detector(
    name: str,
    judge: Callable[[Sample], Judgement],
    *,
    reads: str,
    settles: Collection[str],
    every: timedelta,
) -> Detector:
    """A detector of what holds now.

    Args:
        name: of the detector.
        judge: judges a sample that was read.
        reads: the name of the sample.
        settles: see ``Detector.settles``.
        every: see ``Detector.every``.

    """
    return Detector(
        name=name,
        reads=frozenset({reads}),
        detect=partial(_detect, reads, judge),
        reasons=reasons_of(name),
        every=every,
        settles=frozenset({*settles, _unread(reads)}),
    )


def _detect(name: str, judge: Callable[[Sample], Judgement], readings: Readings) -> list[Finding]:
    sample = readings.samples.get(name)
    if sample is None:
        return []
    judgement = undecided(sample.error) if sample.error else judge(sample)
    findings = list(judgement.findings)
    if judgement.undecided:
        findings.append(source_failed(name, judgement.undecided, sample.taken_at))
    return findings


def source_failed(name: str, why: str, now: datetime) -> Finding:
    """Tells people that a source is blind. It is a notice: blindness is no reason for a repair."""
    return Finding(
        family=_unread(name),
        condition=Condition.SOFTWARE,
        reason=Reason.SOURCE_FAILED,
        severity=Severity.WARNING,
        remedy=Remedy.NONE,
        message=f"cannot judge {name}: {why}"[:LONGEST_MESSAGE],
        observed_at=now,
        device=name,
    )


def counter(text: str | None) -> int | None:
    """A whole number that is not negative; None for anything else."""
    if text is None or not text.isascii() or not text.isdigit() or len(text) > _DIGITS:
        return None
    return int(text)


def rise(sample: Sample, name: str) -> int:
    """By how much a counter has grown since the reading before.

    0 if it is not known then or now, and if it became smaller: then it began anew.
    """
    now, before = counter(sample.values.get(name)), counter(sample.before.get(name))
    return 0 if now is None or before is None else max(0, now - before)


def gone(sample: Sample, names: Collection[str]) -> list[str]:
    """Those of ``names`` that were there in this boot and are missing twice in a row.

    Once may be a driver that is being loaded anew.
    """
    absent = [name for name in names if name in sample.seen and name not in sample.values]
    return sorted(name for name in absent if name not in sample.before)


def shortage(sample: Sample, expected: int | None, kind: Kind, *, at_once: bool) -> int:
    """By how many devices fewer than ``expected`` there are.

    Args:
        sample: what was read.
        expected: how many there should be; None if that is not known.
        kind: tells by its name and text whether a value stands for one device.
        at_once: whether the reading before need not have shown it, too.

    """
    if expected is None or not (sample.before or at_once):
        return 0
    readings = (sample.values,) if at_once else (sample.values, sample.before)
    return max(0, expected - max(sum(kind(*value) for value in v.items()) for v in readings))


def _unread(name: str) -> str:
    return f"source:{name}"
