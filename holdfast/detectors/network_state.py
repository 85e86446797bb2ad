"""EFA, InfiniBand and RoCE devices: missing devices, links that are down, increased counters."""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Final

from holdfast.detectors.contract import Detector, Profile, Sample
from holdfast.detectors.instance_types import UNKNOWN_EQUIPMENT, Equipment
from holdfast.detectors.judgement import (
    Judgement,
    counter,
    disappeared,
    rise,
    shortage,
    state_detector,
    whole,
)
from holdfast.detectors.state_reasons import fault, note
from holdfast.model.health import Finding, Remedy, Severity
from holdfast.model.names import Condition, Reason

STATE: Final = "network-state"
EVENTS: Final = "network-event"
SOURCE: Final = "infiniband"
EVERY: Final = timedelta(seconds=30)

_PCI: Final = "/pci/"
_BOUND: Final = "bound/"
_HIDDEN: Final = "hidden/"

DOWN_S: Final = 240
"""Time for which a link may be down, as while a switch restarts. The same as in gpud."""

FLAPS: Final = 3
"""Number of flaps within an hour that is reported. The same as in gpud."""

_EFA_RISES: Final = {
    "impaired_remote_conn_events": 100,
    "rdma_read_wr_err": 100,
    "rdma_write_wr_err": 100,
    "retrans_bytes": 1_000_000,
    "retrans_pkts": 1000,
    "retrans_timeout_events": 100,
    "rx_drops": 100,
    "unresponsive_remote_events": 100,
}
"""Increases that the EKS node monitoring agent tolerates. The other end may be the cause."""

_INFINIBAND_RISES: Final = {
    "excessive_buffer_overrun_errors": 0,
    "link_downed": 0,
    "local_link_integrity_errors": 0,
    "rnr_nak_retry_err": 0,
    "symbol_error": 1,
}
"""Fatal counters of NVSentinel; it tolerates 120 symbol errors in an hour."""

# fmt: off
STATE_REASONS: Final = (
    fault(STATE, Reason.EFA_COUNT, Remedy.REBOOT, "sysfs: a network device of this boot, or an "
        "expected EFA device is missing"),
    note(STATE, Reason.EFA_COUNT, "sysfs: fewer EFA devices than the instance type can have"),
    fault(STATE, Reason.LINK_DOWN, Remedy.REBOOT, "sysfs: a link that was up is down for more "
        "than four minutes; gpud"),
    note(STATE, Reason.LINK_FLAPS, "sysfs: a link went down three times within an hour; gpud"),
    note(EVENTS, Reason.EFA_COUNTER, "sysfs: counters rose by more than the EKS node monitoring "
        "agent tolerates"),
    note(EVENTS, Reason.LINK_COUNTER, "sysfs: counters rose that are fatal in NVSentinel"),
)
# fmt: on


def build(_profile: Profile, equipment: Equipment = UNKNOWN_EQUIPMENT) -> Detector:
    """Return the detector of a node with ``equipment``; all profiles agree on it."""
    judge = partial(_judge, equipment)
    return state_detector(
        "network-state", judge, STATE_REASONS, reads=SOURCE, settles={STATE}, every=EVERY
    )


def _judge(equipment: Equipment, sample: Sample) -> Judgement:
    return whole((*_missing(sample, equipment), *_links(sample), *_risen(sample)))


def _missing(sample: Sample, equipment: Equipment) -> Iterator[Finding]:
    lost = _lost(sample)
    for device in lost:
        yield _finding(
            sample, STATE, Reason.EFA_COUNT, f"{device} was present in this boot and is missing",
            device, Severity.FATAL, Remedy.REBOOT,
        )  # fmt: skip
    yield from _too_few(sample, equipment, len(lost))


def _lost(sample: Sample) -> list[str]:
    """Return the devices of this boot that are missing.

    A device whose PCI function is known is missing if that is gone or has no driver: udev may give
    it another name, and a device in the network namespace of a pod is not visible.
    """
    at: dict[str, str] = {}
    located = set()
    for name in sorted(sample.seen):
        device, is_address, address = name.partition(_PCI)
        if is_address and f"{_BOUND}{address}" in sample.seen:
            at[f"{_BOUND}{address}"] = device
            located.add(device)
    others = [name for name in sample.seen if "/" not in name and name not in located]
    return sorted({*(at[name] for name in disappeared(sample, at)), *disappeared(sample, others)})


def _too_few(sample: Sample, equipment: Equipment, lost: int) -> Iterator[Finding]:
    """Return the finding of EFA devices lost before this agent started, or never attached."""
    at_once = equipment.at_once
    if equipment.efa is not None:
        if shortage(sample, equipment.efa, _is_efa, at_once=at_once) > lost:
            why = f"{_efas(sample)} EFA devices present, expected {equipment.efa}"
            yield _finding(sample, STATE, Reason.EFA_COUNT, why, "", Severity.FATAL, Remedy.REBOOT)
    elif _efas(sample) and shortage(sample, equipment.possible_efa, _is_efa, at_once=at_once):
        why = f"{_efas(sample)} EFA devices present; this type has {equipment.possible_efa}"
        yield _finding(sample, STATE, Reason.EFA_COUNT, why, "")


def _is_efa(name: str, text: str) -> bool:
    return text == "efa" and ("/" not in name or name.startswith(_HIDDEN))


def _efas(sample: Sample) -> int:
    return sum(_is_efa(*value) for value in sample.values.items())


def _links(sample: Sample) -> Iterator[Finding]:
    for name, text in sample.values.items():
        port, _, file = name.rpartition("/")
        number = counter(text) or 0
        if file == "down_s" and number >= DOWN_S:
            state = sample.values.get(f"{port}/state", "")
            why = f"{port} was up in this boot and has been {state} for {number} s"
            yield _finding(
                sample, STATE, Reason.LINK_DOWN, why, port, Severity.FATAL, Remedy.REBOOT
            )
        if file == "flaps" and number >= FLAPS:
            why = f"{port} went down and came back {number} times within an hour"
            yield _finding(sample, STATE, Reason.LINK_FLAPS, why, port)


def _risen(sample: Sample) -> Iterator[Finding]:
    for name in sample.values:
        port, _, file = name.rpartition("/")
        is_efa = sample.values.get(port.partition("/")[0]) == "efa"
        allowed = (_EFA_RISES if is_efa else _INFINIBAND_RISES).get(file)
        if allowed is not None and (by := rise(sample, name)) > allowed:
            reason = Reason.EFA_COUNTER if is_efa else Reason.LINK_COUNTER
            yield _finding(sample, EVENTS, reason, f"{name} rose by {by}", port)


def _finding(
    sample: Sample,
    family: str,
    reason: Reason,
    message: str,
    device: str,
    severity: Severity = Severity.WARNING,
    remedy: Remedy = Remedy.NONE,
) -> Finding:
    return Finding(
        family=family,
        condition=Condition.NETWORK,
        reason=reason,
        severity=severity,
        remedy=remedy,
        message=message,
        observed_at=sample.taken_at,
        device=device,
    )
