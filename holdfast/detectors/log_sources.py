"""Detector of logs that cannot be read."""

from datetime import timedelta

from holdfast.detectors.contract import LOGS, Detector, Profile, Sample
from holdfast.detectors.judgement import Judgement, state_detector, whole


def build(_profile: Profile) -> Detector:
    """Return the detector; all profiles agree on it."""
    return state_detector("log-sources", _judge, (), reads=LOGS, settles=(), every=timedelta(0))


def _judge(_sample: Sample) -> Judgement:
    """Return the failed log; without an error, all logs are readable."""
    return whole(())
