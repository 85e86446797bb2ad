"""Whether what is said of a detector in the reference is what it says itself."""

from holdfast.detectors.contract import Detector, Readings
from holdfast.detectors.state_reasons import STATE_REASONS
from holdfast.model.health import Finding
from holdfast.model.names import Reason

ROWS = {
    (row.detector, row.family, row.reason, row.severity, row.remedy, row.urgency)
    for row in STATE_REASONS
}


def detected(detector: Detector, readings: Readings) -> list[Finding]:
    """What a detector of state finds; each of it must have its row in the reference."""
    findings = detector.detect(readings)
    for one in findings:
        assert one.reason in detector.reasons
        row = (detector.name, one.family, one.reason, one.severity, one.remedy, one.urgency)
        is_xid = one.family == "dcgm-policy" and one.code is not None
        assert one.reason == Reason.SOURCE_FAILED or is_xid or row in ROWS
    return findings
