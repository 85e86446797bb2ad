"""Detector of logs that cannot be read."""

from datetime import timedelta

from holdfast.detectors.contract import LOGS, Detector, Profile, Sample
from holdfast.detectors.judgement import Judgement, state_detector, whole


def build(_profile: Profile) -> Detector:
    """The detector, which is the same for all profiles."""
    return state_detector("log-sources", _judge, reads=LOGS, settles=(), every=timedelta(0))


def _judge(_sample: Sample) -> Judgement:
    """Without an error, all logs are readable."""
    return whole(())
