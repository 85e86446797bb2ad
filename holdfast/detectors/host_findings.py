"""Findings about the host; most of them only inform people."""

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
