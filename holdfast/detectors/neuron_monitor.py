"""State of AWS Neuron devices and runtimes as ``neuron-monitor`` reports it continuously."""

from datetime import timedelta
from typing import Final

from holdfast.detectors.contract import Detector, Profile, Sample
from holdfast.detectors.judgement import Judgement, state_detector, whole
from holdfast.detectors.neuron_state import EVENTS, NEURON_GUIDE, judge_monitor
from holdfast.detectors.state_reasons import fault, note
from holdfast.model.health import Remedy
from holdfast.model.names import Reason

EVERY: Final = timedelta(seconds=5)
"""Its own reporting interval, so that it never blocks."""

# fmt: off
STATE_REASONS: Final = (
    fault(EVENTS, Reason.NEURON_SRAM, Remedy.REPLACE, "`neuron-monitor`: "
        f"`sram_ecc_uncorrected`; {NEURON_GUIDE}"),
    fault(EVENTS, Reason.NEURON_HBM, Remedy.REPLACE, "`neuron-monitor`: "
        f"`mem_ecc_uncorrected`; {NEURON_GUIDE}"),
    note(EVENTS, Reason.NEURON_HARDWARE, "`neuron-monitor`: executions failed with "
        "hardware errors"),
)
# fmt: on


def build(_profile: Profile) -> Detector:
    """Return the detector; all profiles agree on it."""
    return state_detector(
        "neuron-monitor", _judge, STATE_REASONS, reads="neuron-monitor", settles=(), every=EVERY
    )


def _judge(sample: Sample) -> Judgement:
    return judge_monitor(sample.text, sample.taken_at) if sample.text else whole(())
