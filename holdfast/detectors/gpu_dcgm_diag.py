"""DCGM's short diagnostic, run periodically on a node that is known to be idle."""

from dataclasses import replace
from datetime import timedelta
from typing import Final

from holdfast.detectors.contract import Detector, Profile, Sample
from holdfast.detectors.gpu_dcgm import DIAGNOSIS, judge_diag
from holdfast.detectors.judgement import Judgement, state_detector

EVERY: Final = timedelta(hours=24)


def build(_profile: Profile) -> Detector:
    """Return the detector; all profiles agree on it.

    It is opt-in: a diagnostic needs exclusive use of the GPUs, fails beside a job, and slows the
    job down.
    """
    return replace(
        state_detector(
            "gpu-dcgm-diag", _judge, reads="dcgm-diag", settles={DIAGNOSIS}, every=EVERY
        ),
        is_opt_in=True,
    )


def _judge(sample: Sample) -> Judgement:
    return judge_diag(sample.text, sample.taken_at)
