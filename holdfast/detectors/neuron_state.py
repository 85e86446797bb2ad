"""State of AWS Neuron devices by the driver's sysfs, ``neuron-ls`` and ``neuron-monitor``.

Counters of sysfs are rated by their change: those of the memory outlive a reboot. A 0 is no proof
of health, for the driver shows 0 where it cannot read the firmware.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from holdfast.detectors.contract import Detector, Profile, Sample
from holdfast.detectors.instance_types import UNKNOWN_EQUIPMENT, Equipment
from holdfast.detectors.judgement import (
    LONGEST_MESSAGE,
    Judgement,
    disappeared,
    rise,
    shortage,
    state_detector,
    undecided,
    whole,
)
from holdfast.detectors.state_reasons import fault, note
from holdfast.model.health import Finding, Remedy, Severity, Urgency
from holdfast.model.names import Condition, Reason

STATE: Final = "neuron-state"
LISTED: Final = "neuron-ls"
EVENTS: Final = "neuron-event"
SOURCE: Final = "neuron"
EVERY: Final = timedelta(minutes=1)

_READY: Final = ("1", "")  # of the file ``reset``: 0 is being reset, 2 is invalid


Listing = Mapping[int, int | None]
"""Cores of each device that ``neuron-ls`` shows, by its number; None if it does not show them."""

_MOST: Final = 1000
"""Device numbers from this one on are none."""


@dataclass(frozen=True, slots=True)
class _Counter:
    """Meaning of an increased counter (nrt-troubleshoot, "Hardware Errors")."""

    reason: Reason
    remedy: Remedy
    severity: Severity = Severity.FATAL


_COUNTERS: Final = {
    "sram_ecc_uncorrected": _Counter(Reason.NEURON_SRAM, Remedy.REPLACE),
    "mem_ecc_uncorrected": _Counter(Reason.NEURON_HBM, Remedy.REPLACE),
    "mem_ecc_repairable_uncorrected": _Counter(Reason.NEURON_HBM_REPAIRABLE, Remedy.REBOOT),
    "hw_hbm_ue_error": _Counter(Reason.NEURON_HBM, Remedy.REPLACE),
    "hw_nc_ue_error": _Counter(Reason.NEURON_NC, Remedy.REPLACE),
    "hw_dma_abort_error": _Counter(Reason.NEURON_DMA, Remedy.REPLACE),
    "hw_repairable_hbm_ue_error": _Counter(Reason.NEURON_HBM_REPAIRABLE, Remedy.REBOOT),
    "reset_fail_count": _Counter(Reason.NEURON_RESET, Remedy.REBOOT),
    "hw_error": _Counter(Reason.NEURON_HARDWARE, Remedy.NONE, Severity.WARNING),
    "hw_collectives_error": _Counter(Reason.NEURON_COLLECTIVES, Remedy.NONE, Severity.WARNING),
}
"""``hw_error`` is not specific; of collectives the other end may be the cause."""

NEURON_GUIDE: Final = "Neuron's guide nrt-troubleshoot"

# fmt: off
STATE_REASONS: Final = (
    fault(STATE, Reason.NEURON_COUNT, Remedy.REBOOT, "sysfs: a device or a core of this boot, or "
        "an expected one, is missing; AWS's runbook"),
    fault(EVENTS, Reason.NEURON_SRAM, Remedy.REPLACE, "sysfs: `sram_ecc_uncorrected` rose; "
        f"{NEURON_GUIDE}"),
    fault(EVENTS, Reason.NEURON_HBM, Remedy.REPLACE, "sysfs: `mem_ecc_uncorrected` or "
        f"`hw_hbm_ue_error` rose; {NEURON_GUIDE}"),
    fault(EVENTS, Reason.NEURON_NC, Remedy.REPLACE, "sysfs: `hw_nc_ue_error` rose; "
        f"{NEURON_GUIDE}"),
    fault(EVENTS, Reason.NEURON_DMA, Remedy.REPLACE, "sysfs: `hw_dma_abort_error` rose; "
        f"{NEURON_GUIDE}"),
    fault(EVENTS, Reason.NEURON_HBM_REPAIRABLE, Remedy.REBOOT, "sysfs: "
        f"`mem_ecc_repairable_uncorrected` or `hw_repairable_hbm_ue_error` rose; {NEURON_GUIDE}"),
    fault(EVENTS, Reason.NEURON_RESET, Remedy.REBOOT, "sysfs: `reset_fail_count` rose"),
    note(EVENTS, Reason.NEURON_HARDWARE, "sysfs: `hw_error` rose, which is not specific"),
    note(EVENTS, Reason.NEURON_COLLECTIVES, "sysfs: `hw_collectives_error` rose; the cause may "
        f"be on any node; {NEURON_GUIDE}"),
)
# fmt: on


def build(_profile: Profile, equipment: Equipment = UNKNOWN_EQUIPMENT) -> Detector:
    """Return the detector of a node with ``equipment``; all profiles agree on it."""
    judge = partial(_judge, equipment)
    return state_detector(
        "neuron-state", judge, STATE_REASONS, reads=SOURCE, settles={STATE}, every=EVERY
    )


def _judge(equipment: Equipment, sample: Sample) -> Judgement:
    findings = [*_missing(sample, equipment), *_risen(sample)]
    doubts = []
    for name, text in sample.values.items():
        device, _, file = name.partition("/")
        if file == "reset" and text not in _READY:
            doubts.append(f"{device} is not ready")
        if file == "info/serial_number" and not text:
            doubts.append(f"the firmware of {device} cannot be read")
    return Judgement(findings=tuple(findings), undecided="; ".join(doubts)[:LONGEST_MESSAGE])


def _missing(sample: Sample, equipment: Equipment) -> Iterator[Finding]:
    devices = sorted({name.split("/")[0] for name in sample.seen})
    lost = disappeared(sample, devices)
    for device in lost:
        why = f"{device} was present in this boot and is missing"
        yield _finding(STATE, Reason.NEURON_COUNT, Remedy.REBOOT, why, sample.taken_at, device)
    short = shortage(sample, equipment.neuron_devices, _is_device, at_once=equipment.at_once)
    if short > len(lost):
        why = f"{short} of {equipment.neuron_devices} Neuron devices are missing"
        yield _finding(STATE, Reason.NEURON_COUNT, Remedy.REBOOT, why, sample.taken_at, "")
    cores = [name for name in sample.seen if name.count("/") == 1 and "/neuron_core" in name]
    for core in disappeared(sample, cores):
        device = core.split("/")[0]
        if device not in lost:
            why = f"{core} was present in this boot and is missing"
            yield _finding(STATE, Reason.NEURON_COUNT, Remedy.REBOOT, why, sample.taken_at, core)


def _is_device(name: str, _text: str) -> bool:
    return "/" not in name


def _risen(sample: Sample) -> Iterator[Finding]:
    for name in sample.values:
        counter = _COUNTERS.get(name.removesuffix("/total").rpartition("/")[2])
        device = name.split("/")[0]
        if "/stats/hardware/" in name and not _is_firmware_readable(sample, device):
            continue
        if counter is not None and (by := rise(sample, name)):
            yield _finding(
                EVENTS, counter.reason, counter.remedy, f"{name} rose by {by}",
                sample.taken_at, device, counter.severity,
            )  # fmt: skip


def _is_firmware_readable(sample: Sample, device: str) -> bool:
    """Return whether it is and was readable; else a firmware counter may be a false 0."""
    file = f"{device}/info/serial_number"
    return bool(sample.values.get(file) and sample.before.get(file))


def judge_ls(
    text: str, now: datetime, *, expected: int | None = None, before: Listing | None = None
) -> Judgement:
    """Evaluate the output of ``neuron-ls -j``, of a machine with ``expected`` devices.

    ``before`` is the listing before, which must lack the same; without it, one is enough.
    """
    listing = read_ls(text)
    if isinstance(listing, str):
        return undecided(listing)
    lacking = _lacking(listing, expected)
    if not listing and not lacking:
        return undecided("no device in the output")
    earlier = lacking if before is None else _lacking(before, expected)
    found: dict[str, str] = {}
    for name, (device, why) in lacking.items():
        if name in earlier:
            found.setdefault(device, why)
    return whole(
        _finding(LISTED, Reason.NEURON_COUNT, Remedy.REBOOT, why, now, device)
        for device, why in found.items()
    )


def read_ls(text: str) -> Listing | str:
    """Return the devices in the output of ``neuron-ls -j``; a text if it is none of all."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return _first_line(text) or "not an output of neuron-ls -j"
    devices = _objects(document)
    if not isinstance(document, list) or len(devices) != len(document):
        return "not a list of devices"
    listing = {
        device["neuron_device"]: cores if isinstance(cores := device.get("nc_count"), int) else None
        for device in devices
        if isinstance(device.get("neuron_device"), int)
    }
    return listing if len(listing) == len(devices) else "a device has no unique number"


def _lacking(listing: Listing, expected: int | None) -> dict[str, tuple[str, str]]:
    """Return what a listing lacks, by name, with the device of its finding and the evidence.

    A device lacks cores if others of the same machine have more.
    """
    if expected is not None and len(listing) < expected:
        return {"count": ("", f"neuron-ls shows {len(listing)} devices, expected {expected}")}
    last = max(listing, default=-1)
    gaps = sorted(set(range(last + 1)) - listing.keys()) if last < _MOST else []
    if gaps:
        return {str(gap): ("", f"neuron-ls lacks device {gap} of 0 to {last}") for gap in gaps}
    most = max((cores for cores in listing.values() if cores is not None), default=0)
    return {
        f"{number}/cores": (
            f"neuron{number}", f"neuron{number} has {cores} cores, others have {most}",
        )
        for number, cores in listing.items()
        if cores is not None and cores < most
    }  # fmt: skip


_ECC: Final = {
    "mem_ecc_uncorrected": Reason.NEURON_HBM,
    "sram_ecc_uncorrected": Reason.NEURON_SRAM,
}


def judge_monitor(text: str, now: datetime) -> Judgement:
    """Evaluate the output of ``neuron-monitor``: JSON objects, one for each of its periods.

    Its counts are those of the period, so that any count above 0 is new.
    """
    findings: list[Finding] = []
    doubts: list[str] = []
    judged = 0
    for line in _reports(text):
        report = _report(line)
        if report is None:
            doubts.append("a report is cut off or not one of neuron-monitor")
            continue
        hardware = _inner(report, "system_data", "neuron_hw_counters")
        if hardware.get("error"):
            doubts.append(f"neuron_hw_counters: {hardware['error']}")
        devices = _objects(hardware.get("neuron_devices"))
        judged += len(devices)
        for device in devices:
            findings += _uncorrected(device, now)
        for runtime in _objects(report.get("neuron_runtime_data")):
            findings += _execution(runtime, now)
    if not judged:
        doubts.append("no hardware counters in the output")
    return Judgement(
        findings=tuple(findings), undecided="; ".join(dict.fromkeys(doubts))[:LONGEST_MESSAGE]
    )


def _reports(text: str) -> list[str]:
    """Yield reports: one on each line, or one on all of them."""
    return [text] if _report(text) is not None else [line for line in text.splitlines() if line]


def _report(text: str) -> dict[str, Any] | None:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(document, dict) and len(document) == 1:  # some versions wrap it: {"1": {...}}
        [document] = document.values()
    return document if isinstance(document, dict) and "system_data" in document else None


def _uncorrected(device: dict[str, Any], now: datetime) -> Iterator[Finding]:
    for name, reason in _ECC.items():
        count = device.get(name)
        if isinstance(count, int) and count > 0:
            where = f"neuron{device.get('neuron_device_index')}"[:50]
            why = f"{where}: {name} rose by {count}"
            yield _finding(EVENTS, reason, Remedy.REPLACE, why, now, where)


def _execution(runtime: dict[str, Any], now: datetime) -> Iterator[Finding]:
    errors = _inner(runtime, "report", "execution_stats", "error_summary")
    count = errors.get("hardware")
    if isinstance(count, int) and count > 0:
        why = f"{count} executions failed with hardware errors"
        yield _finding(EVENTS, Reason.NEURON_HARDWARE, Remedy.NONE, why, now, "", Severity.WARNING)


def _inner(tree: dict[str, Any], *names: str) -> dict[str, Any]:
    for name in names:
        inner = tree.get(name)
        if not isinstance(inner, dict):
            return {}
        tree = inner
    return tree


def _objects(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return "" if line[:1] in "[{" else line[:200]


def _finding(
    family: str,
    reason: Reason,
    remedy: Remedy,
    message: str,
    now: datetime,
    device: str,
    severity: Severity = Severity.FATAL,
) -> Finding:
    return Finding(
        family=family,
        condition=Condition.NEURON,
        reason=reason,
        severity=severity,
        remedy=remedy,
        message=message[:LONGEST_MESSAGE],
        observed_at=now,
        device=device,
        urgency=Urgency.IMMEDIATE,
    )
