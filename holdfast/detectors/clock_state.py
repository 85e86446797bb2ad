"""Synchronization of the clock: times of several nodes must be comparable."""

from datetime import timedelta
from typing import Final

from holdfast.detectors.contract import Detector, Profile, Sample
from holdfast.detectors.judgement import Judgement, host_finding, state_detector, whole
from holdfast.detectors.state_reasons import note
from holdfast.model.names import Reason

FAMILY: Final = "clock-state"
EVERY: Final = timedelta(minutes=5)

# fmt: off
STATE_REASONS: Final = (
    note(FAMILY, Reason.CLOCK_UNSYNCHRONIZED, "`adjtimex`, in two samples; EKS node monitoring "
        "agent"),
)
# fmt: on


def build(_profile: Profile) -> Detector:
    """Return the detector; all profiles agree on it."""
    return state_detector(
        "clock-state", _judge, STATE_REASONS, reads="clock", settles={FAMILY}, every=EVERY
    )


def _judge(sample: Sample) -> Judgement:
    """Judge two samples in a row: a clock is not synchronized while its daemon starts."""
    is_lost = [values.get("synchronized") == "no" for values in (sample.values, sample.before)]
    why = "the kernel's clock is not synchronized: is chronyd or systemd-timesyncd running?"
    return whole(
        [host_finding(sample, FAMILY, Reason.CLOCK_UNSYNCHRONIZED, why)] if all(is_lost) else []
    )
