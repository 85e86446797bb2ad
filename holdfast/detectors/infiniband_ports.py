"""State of InfiniBand ports as reported by ``ibstat``."""

from dataclasses import replace
from datetime import timedelta
from typing import Final

from holdfast.detectors.contract import Detector, Profile, Sample
from holdfast.detectors.judgement import Judgement, state_detector
from holdfast.detectors.network_state import DOWN_S
from holdfast.detectors.network_tools import IBSTAT, judge_ibstat
from holdfast.detectors.state_reasons import fault
from holdfast.model.health import Remedy
from holdfast.model.names import Reason

EVERY: Final = timedelta(seconds=60)

MIN_COUNT: Final = 1 + DOWN_S // 60
"""Number of consecutive samples in which a port must be down: it may be while a switch restarts."""

# fmt: off
STATE_REASONS: Final = (
    fault(IBSTAT, Reason.LINK_DOWN, Remedy.REBOOT, "`ibstat`: a port with a cable is not active "
        "for more than four minutes; gpud"),
)
# fmt: on


def build(_profile: Profile) -> Detector:
    """Return the detector; all profiles agree on it."""
    return state_detector(
        "infiniband-ports", _judge, STATE_REASONS, reads="ibstat", settles={IBSTAT}, every=EVERY
    )


def _judge(sample: Sample) -> Judgement:
    judgement = judge_ibstat(sample.text, sample.taken_at, is_unplugged_by_will=True)
    lasting = (
        replace(finding, min_count=MIN_COUNT, window=2 * MIN_COUNT * EVERY)
        for finding in judgement.findings
    )
    return replace(judgement, findings=tuple(lasting))
