"""Memory errors counted by the memory controllers.

The kernel log reports the same errors, so that a finding of either is the same fault as, and
corroborates, one of the other.
"""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from holdfast.detectors import host_hardware
from holdfast.detectors.contract import Detector, Profile, Sample
from holdfast.detectors.judgement import Judgement, host_finding, rise, state_detector, whole
from holdfast.detectors.state_reasons import fault, note
from holdfast.model.health import Finding, Remedy, Severity
from holdfast.model.names import Condition, Reason

EVENTS: Final = host_hardware.FAMILY
EVERY: Final = timedelta(minutes=1)

_COUNTER: Final = re.compile(r"mc(?P<number>[0-9]{1,3})/(?P<kind>ue|ce)_(?:noinfo_)?count")

# fmt: off
STATE_REASONS: Final = (
    fault(EVENTS, Reason.EDAC_UNCORRECTED, Remedy.REPLACE, "sysfs: the memory controller counts "
        "uncorrected errors; AWS's runbook"),
    note(EVENTS, Reason.EDAC_CORRECTED, "sysfs: the memory controller counts corrected errors"),
)
# fmt: on


def build(_profile: Profile) -> Detector:
    """Return the detector; all profiles agree on it."""
    return state_detector(
        "edac-state", _judge, STATE_REASONS, reads="edac", settles=(), every=EVERY
    )


def _judge(sample: Sample) -> Judgement:
    return whole(_findings(sample))


def _findings(sample: Sample) -> Iterator[Finding]:
    for name in sample.values:
        by, counter = rise(sample, name), _COUNTER.fullmatch(name)
        if not by or counter is None:
            continue
        controller = f"MC{counter['number']}"  # as in the kernel log
        if counter["kind"] == "ue":
            yield host_finding(
                sample, EVENTS, Reason.EDAC_UNCORRECTED,
                f"{controller} counted {by} memory errors that it could not correct",
                device=controller, condition=Condition.HOST_HARDWARE,
                severity=Severity.FATAL, remedy=Remedy.REPLACE,
            )  # fmt: skip
        else:
            why = f"{controller} corrected {by} memory errors"
            yield host_finding(sample, EVENTS, Reason.EDAC_CORRECTED, why, device=controller)
