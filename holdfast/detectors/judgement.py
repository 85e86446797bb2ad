"""Evaluates one reading of a state, for the agent and for ``holdfast scan``."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Final

from holdfast.detectors.contract import Detector, Readings, Sample
from holdfast.detectors.state_reasons import StateReason
from holdfast.model.health import Finding, Remedy, Severity
from holdfast.model.names import Condition, Reason

LONGEST_MESSAGE: Final = 1000
"""Maximum length of the evidence in a finding, in characters."""

Kind = Callable[[str, str], bool]

_DIGITS: Final = 25
"""Maximum digits of a counter; 2**64 has 20."""


class HealthState(StrEnum):
    """Health of a node by one reading."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    UNKNOWN = "unknown"
    """Undecidable: nothing was measured, the output is truncated, or the tool failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Evaluation of one reading."""

    findings: tuple[Finding, ...] = ()
    undecided: str = ""
    """Why the reading was incomplete; empty if it was complete."""

    @property
    def verdict(self) -> HealthState:
        """Unhealthy if a finding is a fault; healthy only if the reading was complete."""
        if any(is_fault(finding) for finding in self.findings):
            return HealthState.UNHEALTHY
        return HealthState.UNKNOWN if self.undecided else HealthState.HEALTHY


def is_fault(finding: Finding) -> bool:
    """Whether the node must not run jobs while this finding holds."""
    return finding.severity is Severity.FATAL or finding.remedy is not Remedy.NONE


def whole(findings: Iterable[Finding]) -> Judgement:
    """Return the evaluation of a complete reading."""
    return Judgement(findings=tuple(findings))


def undecided(why: str, findings: Iterable[Finding] = ()) -> Judgement:
    """Return the evaluation of an incomplete reading."""
    return Judgement(findings=tuple(findings), undecided=why)


def state_detector(
    name: str,
    judge: Callable[[Sample], Judgement],
    state_reasons: tuple[StateReason, ...],
    *,
    reads: str,
    settles: Collection[str],
    every: timedelta,
) -> Detector:
    """Build a detector of one source of state.

    Args:
        name: name of the detector.
        judge: evaluates a sample that was read successfully.
        state_reasons: all that it may report, except that its source cannot be read.
        reads: name of the sample.
        settles: see ``Detector.settles``.
        every: see ``Detector.every``.

    """
    return Detector(
        name=name,
        reads=frozenset({reads}),
        detect=partial(_detect, reads, judge),
        state_reasons=state_reasons,
        reasons=frozenset({Reason.SOURCE_FAILED, *(row.reason for row in state_reasons)}),
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
    """Return the notice that a source cannot be read, which is no reason for a repair."""
    return Finding(
        family=_unread(name),
        condition=Condition.SOFTWARE,
        reason=Reason.SOURCE_FAILED,
        severity=Severity.WARNING,
        remedy=Remedy.NONE,
        message=f"cannot evaluate {name}: {why}"[:LONGEST_MESSAGE],
        observed_at=now,
        device=name,
    )


def counter(text: str | None) -> int | None:
    """Parse a whole number that is not negative; None for any other text."""
    if text is None or not text.isascii() or not text.isdigit() or len(text) > _DIGITS:
        return None
    return int(text)


def rise(sample: Sample, name: str) -> int:
    """Return the increase of a counter since the previous reading.

    0 if one of both is unknown, or if it decreased: then it was reset.
    """
    now, before = counter(sample.values.get(name)), counter(sample.before.get(name))
    return 0 if now is None or before is None else max(0, now - before)


def disappeared(sample: Sample, names: Collection[str]) -> list[str]:
    """Return those of ``names`` that were present in this boot and are missing in two readings.

    Missing once may be a driver reload.
    """
    absent = [name for name in names if name in sample.seen and name not in sample.values]
    return sorted(name for name in absent if name not in sample.before)


def shortage(sample: Sample, expected: int | None, kind: Kind, *, at_once: bool) -> int:
    """Return the number of devices that are missing from ``expected``.

    Args:
        sample: the reading.
        expected: expected number of devices; None if unknown.
        kind: whether a value, by its name and text, stands for one device.
        at_once: whether one reading is enough; otherwise the previous one must show it as well.

    """
    if expected is None or not (sample.before or at_once):
        return 0
    readings = (sample.values,) if at_once else (sample.values, sample.before)
    return max(0, expected - max(sum(kind(*value) for value in v.items()) for v in readings))


def _unread(name: str) -> str:
    return f"source:{name}"


def host_finding(
    sample: Sample,
    family: str,
    reason: Reason,
    message: str,
    *,
    device: str = "",
    condition: Condition = Condition.SOFTWARE,
    severity: Severity = Severity.WARNING,
    remedy: Remedy = Remedy.NONE,
) -> Finding:
    """Return a finding of ``sample``; a notice unless severity and remedy are given."""
    return Finding(
        family=family,
        condition=condition,
        reason=reason,
        severity=severity,
        remedy=remedy,
        message=message[:LONGEST_MESSAGE],
        observed_at=sample.taken_at,
        device=device,
    )
