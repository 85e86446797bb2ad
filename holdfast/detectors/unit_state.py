"""Daemons of a node in systemd: failed units, and units that restart repeatedly."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from holdfast.detectors.contract import Detector, Profile, Sample
from holdfast.detectors.judgement import (
    Judgement,
    host_finding,
    rise,
    state_detector,
    undecided,
    whole,
)
from holdfast.detectors.state_reasons import StateReason, note
from holdfast.model.health import Finding, Remedy, Severity
from holdfast.model.names import Reason

FAMILY: Final = "unit-state"
EVERY: Final = timedelta(minutes=5)

RESTARTS: Final = 2
"""Maximum number of restarts since the last sample; node-problem-detector reports five in 20
minutes."""

# fmt: off
STATE_REASONS: Final = (
    StateReason(FAMILY, Reason.UNIT_FAILED, Severity.FATAL, Remedy.NONE, "`systemctl`: `failed`, "
        "in two samples; EKS node monitoring agent"),
    note(FAMILY, Reason.UNIT_RESTARTS, "`systemctl`: restarted twice or more since the last "
        "sample; node-problem-detector"),
)
# fmt: on


def build(_profile: Profile) -> Detector:
    """Return the detector; all profiles agree on it."""
    return state_detector(
        "unit-state", _judge, STATE_REASONS, reads="units", settles={FAMILY}, every=EVERY
    )


def _judge(sample: Sample) -> Judgement:
    if sample.values.get("status") != "0":
        return undecided(sample.text.strip()[:200] or "systemctl failed")
    return whole(_findings(sample))


def _findings(sample: Sample) -> Iterator[Finding]:
    for name, text in sample.values.items():
        unit, _, kind = name.partition("/")
        if kind == "ActiveState" and text == sample.before.get(name) == "failed":
            result = sample.values.get(f"{unit}/Result", "")
            why = f"{unit} has failed ({result}); see journalctl -u {unit}"
            yield host_finding(
                sample, FAMILY, Reason.UNIT_FAILED, why, device=unit, severity=Severity.FATAL
            )
        if kind == "NRestarts" and (by := rise(sample, name)) >= RESTARTS:
            why = f"{unit} restarted {by} times since the last sample"
            yield host_finding(sample, FAMILY, Reason.UNIT_RESTARTS, why, device=unit)
