"""Container runtimes and the kubelet: daemons that stopped responding in this boot."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from holdfast.detectors.contract import Detector, Profile, Sample
from holdfast.detectors.judgement import Judgement, disappeared, host_finding, state_detector, whole
from holdfast.detectors.state_reasons import StateReason
from holdfast.model.health import Finding, Remedy, Severity
from holdfast.model.names import Reason

FAMILY: Final = "runtime-state"
EVERY: Final = timedelta(seconds=30)

_REASONS: Final = {
    "containerd": Reason.RUNTIME_DOWN,
    "crio": Reason.RUNTIME_DOWN,
    "docker": Reason.RUNTIME_DOWN,
    "kubelet": Reason.KUBELET_DOWN,
}

# fmt: off
STATE_REASONS: Final = (
    StateReason(FAMILY, Reason.RUNTIME_DOWN, Severity.FATAL, Remedy.NONE, "its socket: it "
        "stopped responding in this boot; gpud"),
    StateReason(FAMILY, Reason.KUBELET_DOWN, Severity.FATAL, Remedy.NONE, "its port: it stopped "
        "responding in this boot; EKS node monitoring agent"),
)
# fmt: on


def build(_profile: Profile) -> Detector:
    """Return the detector; all profiles agree on it."""
    return state_detector(
        "runtime-state", _judge, STATE_REASONS, reads="runtime", settles={FAMILY}, every=EVERY
    )


def _judge(sample: Sample) -> Judgement:
    return whole(_findings(sample))


def _findings(sample: Sample) -> Iterator[Finding]:
    for name in disappeared(sample, list(_REASONS)):
        why = f"{name} stopped responding; see journalctl -u {name}"
        yield host_finding(
            sample, FAMILY, _REASONS[name], why, device=name, severity=Severity.FATAL
        )
