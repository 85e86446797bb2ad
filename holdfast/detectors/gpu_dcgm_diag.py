"""DCGM's short diagnostic, run periodically on a node that is known to be idle."""

from dataclasses import replace
from datetime import timedelta
from typing import Final

from holdfast.detectors.contract import Detector, Profile, Sample
from holdfast.detectors.gpu_dcgm import DIAGNOSIS, judge_diag
from holdfast.detectors.judgement import Judgement, state_detector
from holdfast.detectors.state_reasons import fault, note
from holdfast.model.health import Remedy
from holdfast.model.names import Reason

EVERY: Final = timedelta(hours=24)

_DIAG_ERROR: Final = "`dcgmi diag`: an error of the severity"

# fmt: off
STATE_REASONS: Final = (
    fault(DIAGNOSIS, Reason.DCGM_DIAG, Remedy.RESET_GPU, f"{_DIAG_ERROR} `RESET` (dcgm_errors.h)"),
    fault(DIAGNOSIS, Reason.DCGM_DIAG, Remedy.REBOOT, f"{_DIAG_ERROR} `TRIAGE` (dcgm_errors.h)"),
    fault(DIAGNOSIS, Reason.DCGM_DIAG, Remedy.REPLACE, f"{_DIAG_ERROR} `ISOLATE` or of none "
        "(dcgm_errors.h)"),
    note(DIAGNOSIS, Reason.DCGM_WARNING, f"{_DIAG_ERROR} `MONITOR` or `CONFIG` (dcgm_errors.h), "
        "a warning, or a test that the host did not let run"),
)
# fmt: on


def build(_profile: Profile) -> Detector:
    """Return the detector; all profiles agree on it.

    It is opt-in: a diagnostic needs exclusive use of the GPUs, fails beside a job, and slows the
    job down.
    """
    detector = state_detector(
        "gpu-dcgm-diag", _judge, STATE_REASONS, reads="dcgm-diag", settles={DIAGNOSIS}, every=EVERY
    )
    return replace(detector, is_opt_in=True)


def _judge(sample: Sample) -> Judgement:
    return judge_diag(sample.text, sample.taken_at)
