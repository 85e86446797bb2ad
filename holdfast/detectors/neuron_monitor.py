"""State of AWS Neuron devices and runtimes as ``neuron-monitor`` reports it continuously."""

from datetime import timedelta
from typing import Final

from holdfast.detectors.contract import Detector, Profile, Sample
from holdfast.detectors.judgement import Judgement, state_detector, whole
from holdfast.detectors.neuron_state import judge_monitor

EVERY: Final = timedelta(seconds=5)
"""Its own reporting interval, so that it never blocks."""


def build(_profile: Profile) -> Detector:
    """Return the detector; all profiles agree on it."""
    return state_detector("neuron-monitor", _judge, reads="neuron-monitor", settles=(), every=EVERY)


def _judge(sample: Sample) -> Judgement:
    return judge_monitor(sample.text, sample.taken_at) if sample.text else whole(())
