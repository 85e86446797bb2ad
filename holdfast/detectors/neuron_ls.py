"""AWS Neuron devices as ``neuron-ls`` lists them."""

from datetime import timedelta
from typing import Final

from holdfast.detectors.contract import Detector, Profile, Sample
from holdfast.detectors.judgement import Judgement, state_detector
from holdfast.detectors.neuron_state import LISTED, judge_ls

EVERY: Final = timedelta(minutes=5)


def build(_profile: Profile) -> Detector:
    """The detector; all profiles agree on it."""
    return state_detector("neuron-ls", _judge, reads="neuron-ls", settles={LISTED}, every=EVERY)


def _judge(sample: Sample) -> Judgement:
    return judge_ls(sample.text, sample.taken_at)
