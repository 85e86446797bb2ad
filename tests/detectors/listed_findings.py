"""Whether what is said of a detector in the reference is what it says itself."""

from holdfast.detectors.contract import Detector, Readings
from holdfast.detectors.state_reasons import StateReason
from holdfast.model.health import Finding
from holdfast.model.names import Reason


def rating(one: Finding | StateReason) -> tuple[str, ...]:
    return (one.family, one.reason, one.severity, one.remedy, one.urgency)


def detected(detector: Detector, readings: Readings) -> list[Finding]:
    """What a detector of state finds; each of it must have its row in the reference."""
    findings = detector.detect(readings)
    for one in findings:
        assert one.reason in detector.reasons
        is_xid = one.family == "dcgm-policy" and one.code is not None
        is_listed = rating(one) in map(rating, detector.state_reasons)
        assert one.reason == Reason.SOURCE_FAILED or is_xid or is_listed, (
            f"{detector.name}: add {rating(one)} to its STATE_REASONS"
        )
    return findings
