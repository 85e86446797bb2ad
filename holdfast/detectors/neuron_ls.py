"""State of AWS Neuron devices as reported by ``neuron-ls``."""

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Final

from holdfast.detectors.contract import Detector, Profile, Sample
from holdfast.detectors.instance_types import UNKNOWN_EQUIPMENT, Equipment
from holdfast.detectors.judgement import Judgement, counter, state_detector, undecided, whole
from holdfast.detectors.neuron_state import LISTED, Listing, judge_ls, read_ls
from holdfast.detectors.state_reasons import fault
from holdfast.model.health import Remedy
from holdfast.model.names import Reason

EVERY: Final = timedelta(minutes=5)

_LISTED: Final = "listed"
_DEVICE: Final = "neuron"

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


def listed(text: str) -> dict[str, str]:
    """Return the values of a sample: ``listed``, and ``neuronN`` with the number of its cores.

    Empty if the output of ``neuron-ls -j`` is not one of all devices.
    """
    listing = read_ls(text)
    if isinstance(listing, str):
        return {}
    return {_LISTED: ""} | {
        f"{_DEVICE}{number}": "" if cores is None else str(cores)
        for number, cores in listing.items()
    }


def _judge(equipment: Equipment, sample: Sample) -> Judgement:
    is_known = _LISTED in sample.before
    before = _listing(sample.before) if is_known and not equipment.at_once else None
    judgement = judge_ls(
        sample.text, sample.taken_at, expected=equipment.neuron_devices, before=before
    )
    if equipment.at_once or is_known or not judgement.findings:
        return judgement
    # The driver may still be detecting its devices, so the next sample must show the same. If a
    # sample failed before this one, an earlier fault has not ended.
    why = f"{judgement.findings[0].message}, and the reading before is unknown"
    return undecided(why) if sample.before else whole(())


def _listing(values: Mapping[str, str]) -> Listing:
    names = [name for name in values if name.startswith(_DEVICE)]
    numbers = {name: counter(name.removeprefix(_DEVICE)) for name in names}
    return {number: counter(values[name]) for name, number in numbers.items() if number is not None}
