"""EFA devices that libfabric finds, as jobs use them."""

from datetime import timedelta
from typing import Final

from holdfast.detectors.contract import Detector, Profile, Sample
from holdfast.detectors.judgement import Judgement, disappeared, state_detector
from holdfast.detectors.network_tools import FI_INFO, judge_fi_info, missing_efa
from holdfast.detectors.state_reasons import fault
from holdfast.model.health import Remedy
from holdfast.model.names import Reason

EVERY: Final = timedelta(minutes=5)

_DOMAIN: Final = "domain/"
_PCI: Final = "pci/"
_HIDDEN: Final = "hidden/"

# fmt: off
STATE_REASONS: Final = (
    fault(FI_INFO, Reason.EFA_COUNT, Remedy.REBOOT, "`fi_info`: an EFA device of this boot is "
        "missing"),
)
# fmt: on


def build(_profile: Profile) -> Detector:
    """Return the detector; all profiles agree on it."""
    return state_detector(
        "efa-devices", _judge, STATE_REASONS, reads="fi-info", settles={FI_INFO}, every=EVERY
    )


def _judge(sample: Sample) -> Judgement:
    """Judge a sample; on a machine that never had an EFA device none can be missing."""
    known = [name for name in sample.seen if name.startswith(_DOMAIN)]
    absent = [name.removeprefix(_DOMAIN) for name in disappeared(sample, known)]
    lost = [
        missing_efa(name, sample.taken_at) for name in absent if not _is_elsewhere(name, sample)
    ]
    judgement = judge_fi_info(sample.text, sample.taken_at)
    return Judgement(
        findings=(*judgement.findings, *lost), undecided=judgement.undecided if known else ""
    )


def _is_elsewhere(device: str, sample: Sample) -> bool:
    """Return whether a device has another name now, or is in another network namespace."""
    own = f"{_PCI}{device}/"
    addresses = {name.removeprefix(own) for name in sample.seen if name.startswith(own)}
    listed = {name.rpartition("/")[2] for name in sample.values if name.startswith((_PCI, _HIDDEN))}
    return not addresses.isdisjoint(listed)
