"""Findings about the host, which mostly tell people and repair nothing."""

from holdfast.detectors.contract import Sample
from holdfast.detectors.judgement import LONGEST_MESSAGE
from holdfast.model.health import Finding, Remedy, Severity
from holdfast.model.names import Condition, Reason


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
    """A finding of ``sample``; a notice unless it is said to be more."""
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
