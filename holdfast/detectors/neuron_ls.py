"""State of AWS Neuron devices as reported by ``neuron-ls``."""

from datetime import timedelta
from functools import partial
from typing import Final

from holdfast.detectors.contract import Detector, Profile, Sample
from holdfast.detectors.instance_types import UNKNOWN_EQUIPMENT, Equipment
from holdfast.detectors.judgement import Judgement, state_detector
from holdfast.detectors.neuron_state import LISTED, judge_ls
from holdfast.detectors.state_reasons import fault
from holdfast.model.health import Remedy
from holdfast.model.names import Reason

EVERY: Final = timedelta(minutes=5)

# fmt: off
STATE_REASONS: Final = (
    fault(LISTED, Reason.NEURON_COUNT, Remedy.REBOOT, "`neuron-ls`: a device is missing, or has "
        "fewer cores than others; AWS's runbook"),
)
# fmt: on


def build(_profile: Profile, equipment: Equipment = UNKNOWN_EQUIPMENT) -> Detector:
    """Return the detector of a node with ``equipment``; all profiles agree on it."""
    judge = partial(_judge, equipment)
    return state_detector(
        "neuron-ls", judge, STATE_REASONS, reads="neuron-ls", settles={LISTED}, every=EVERY
    )


def _judge(equipment: Equipment, sample: Sample) -> Judgement:
    # The first sample may precede the driver's detection of all devices.
    is_believed = bool(sample.before) or equipment.at_once
    expected = equipment.neuron_devices if is_believed else None
    return judge_ls(sample.text, sample.taken_at, expected=expected)
