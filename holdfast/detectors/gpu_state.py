"""State of NVIDIA GPUs as reported by ``nvidia-smi``.

The meaning of each field is from the documentation of nvidia-smi and NVIDIA's guide to GPU memory
errors. Lifetime values (aggregate counts) are history and no fault; ``N/A`` and the like are
neither good nor bad.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from holdfast.detectors.contract import Detector, Profile, Sample
from holdfast.detectors.instance_types import UNKNOWN_EQUIPMENT, Equipment
from holdfast.detectors.judgement import (
    LONGEST_MESSAGE,
    Judgement,
    counter,
    disappeared,
    shortage,
    state_detector,
    undecided,
)
from holdfast.detectors.nvidia_smi_forms import Gpu, SmiLog, read_text, read_xml
from holdfast.detectors.state_reasons import deferred, fault, note
from holdfast.model.health import Finding, Remedy, Severity, Urgency
from holdfast.model.names import Condition, Reason

FAMILY: Final = "gpu-state"
SOURCE: Final = "nvidia-smi"
EVERY: Final = timedelta(minutes=1)

_SHOWN: Final = "gpu/"
_APPLIED: Final = "applied/"

FRESH_BOOT_S: Final = 600
"""A row remapping that is pending so soon after a boot was not applied by that boot, unless none
was pending in an earlier reading of the boot."""

_NEUTRAL: Final = re.compile(
    r"N/A|Not Supported|Not Active|Off|Insufficient Permissions"
    r"|Requested functionality has been deprecated|\[(?!Unknown Error|GPU requires reset).*\]"
)
_BROKEN: Final = re.compile(
    r"\[?(?:Unknown Error|ERR!|GPU is lost|GPU requires reset)[\].]?", re.IGNORECASE
)
_HARMLESS_IF_BROKEN: Final = re.compile(r"fan_speed|addressing_mode")
"""A fan's sensor may fail alone; driver 535 reports the addressing mode as an unknown error."""

_NOT_JUDGED: Final = re.compile(r"processes|accounted_processes|product_name|serial|board_part")
"""Process names are chosen by users."""


@dataclass(frozen=True, slots=True)
class _Rule:
    path: re.Pattern[str]
    bad: re.Pattern[str]
    reason: Reason
    severity: Severity
    remedy: Remedy
    urgency: Urgency = Urgency.IMMEDIATE
    is_proof: bool = True
    """Whether a good value here shows that something was measured."""


def _rule(
    path: str,
    bad: str,
    reason: Reason,
    remedy: Remedy,
    *,
    when_idle: bool = False,
    is_proof: bool = True,
) -> _Rule:
    is_mild = when_idle or remedy is Remedy.NONE
    return _Rule(
        re.compile(path),
        re.compile(bad, re.IGNORECASE),
        reason,
        Severity.WARNING if is_mild else Severity.FATAL,
        remedy,
        Urgency.DEFERRED if when_idle else Urgency.IMMEDIATE,
        is_proof,
    )


_COUNT: Final = r"0*[1-9][0-9]{0,20}"
_VOLATILE: Final = r"ecc_errors/volatile/"
_CLOCKS: Final = r"clocks_(?:event|throttle)_reasons/(?:.*/)?(?:clocks_(?:event|throttle)_reason_)?"

RULES: Final = (
    _rule("gpu_recovery_action", "(?:GPU )?Reset", Reason.XID_RECOVERY_ACTION, Remedy.RESET_GPU),
    _rule(
        "gpu_recovery_action", "(?:Node |System )?Reboot|Bus Reset",
        Reason.XID_RECOVERY_ACTION, Remedy.REBOOT,
    ),
    _rule(
        "gpu_recovery_action", "Drain.*",
        Reason.XID_RECOVERY_ACTION, Remedy.RESET_GPU, when_idle=True,
    ),
    _rule("gpu_reset_status/reset_required", "Yes", Reason.XID_RECOVERY_ACTION, Remedy.RESET_GPU),
    _rule(
        "gpu_reset_status/drain_and_reset_recommended", "Yes",
        Reason.XID_RECOVERY_ACTION, Remedy.RESET_GPU, when_idle=True,
    ),
    _rule(
        rf"{_VOLATILE}(?:.*uncorrectable.*|double_bit(?:_ecc)?/total)", _COUNT,
        Reason.GPU_ECC, Remedy.REBOOT, when_idle=True,
    ),
    _rule(
        r"ecc_errors/(?:aggregate/)?sram_threshold_exceeded", "Yes",
        Reason.GPU_UNREPAIRABLE, Remedy.REPLACE,
    ),
    _rule(
        r"remapped_rows/(?:remapped_row_)?pending", "Yes",
        Reason.GPU_ROW_REMAP_PENDING, Remedy.REBOOT, when_idle=True,
    ),
    _rule(
        r"remapped_rows/(?:remapped_row_failure|remapping_failure_occurred)", "Yes",
        Reason.GPU_ROW_REMAP_FAILED, Remedy.REPLACE,
    ),
    _rule(
        r"retired_pages/pending_(?:blacklist|retirement|page_blacklist)", "Yes",
        Reason.GPU_PAGE_RETIREMENT, Remedy.REBOOT, when_idle=True,
    ),
    _rule(
        r"(?:ecc_errors/)?(?:.*/)?(?:channel|tpc)_repair_pending", "Yes",
        Reason.GPU_ECC, Remedy.REBOOT, when_idle=True,
    ),
    _rule(
        r"(?:ecc_errors/)?(?:.*/)?unrepairable_memory", "Yes",
        Reason.GPU_UNREPAIRABLE, Remedy.REPLACE,
    ),
    _rule("fabric/state", "Not Started", Reason.GPU_FABRIC, Remedy.NONE, is_proof=False),
    _rule(
        "fabric/status", r"(?!(?:Success|In Progress|None)$).+",
        Reason.GPU_FABRIC, Remedy.REBOOT, is_proof=False,
    ),
    _rule(
        rf"{_CLOCKS}(?:hw|sw)_thermal_slowdown", "Active",
        Reason.GPU_THERMAL, Remedy.NONE, is_proof=False,
    ),
    _rule(
        rf"{_CLOCKS}(?:hw_slowdown|hw_power_brake(?:_slowdown)?)", "Active",
        Reason.GPU_POWER, Remedy.NONE, is_proof=False,
    ),
)  # fmt: skip
"""A field whose path and value match in full is bad in this way; the first such rule applies."""

_CONDITIONS: Final = {
    Remedy.NONE: Condition.NVIDIA_GPU_UNHEALTHY,
    Remedy.RESTART_APP: Condition.NVIDIA_GPU_UNHEALTHY,
    Remedy.RESET_GPU: Condition.NVIDIA_REBOOT,
    Remedy.REBOOT: Condition.NVIDIA_REBOOT,
    Remedy.REPLACE: Condition.NVIDIA_TERMINATE,
}

_LOST: Final = re.compile(
    r"Unable to determine the device handle for GPU ?[0-9]{0,3}:? ?"
    r"(?P<address>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f.]{2,4}): "
    r"(?:GPU is lost|GPU requires reset|Unknown Error)"
)
_FULL_ADDRESS: Final = re.compile(
    r"(?P<domain>[0-9a-f]{4,8}):(?P<bus>[0-9a-f]{2}):(?P<slot>[0-9a-f]{2})(?:\.[0-9a-f])?", re.I
)

_MEMORY_GUIDE: Final = "NVIDIA's guide to GPU memory errors"

# fmt: off
STATE_REASONS: Final = (
    fault(FAMILY, Reason.GPU_COUNT, Remedy.REBOOT, "`nvidia-smi`: a GPU of this boot, or an "
        "expected one, is missing; gpud, AWS's runbook"),
    fault(FAMILY, Reason.GPU_LOST, Remedy.REBOOT, "`nvidia-smi`: `ERR!`, `Unknown Error`, `GPU "
        "is lost`; gpud"),
    fault(FAMILY, Reason.XID_RECOVERY_ACTION, Remedy.RESET_GPU, "`nvidia-smi`: recovery action "
        "`Reset`, or a reset is required; nvml.h"),
    fault(FAMILY, Reason.XID_RECOVERY_ACTION, Remedy.REBOOT, "`nvidia-smi`: recovery action "
        "`Reboot` or `Bus Reset`; nvml.h"),
    deferred(FAMILY, Reason.XID_RECOVERY_ACTION, Remedy.RESET_GPU, "`nvidia-smi`: recovery action "
        "`Drain ...`; nvml.h"),
    deferred(FAMILY, Reason.GPU_ECC, Remedy.REBOOT, "`nvidia-smi`: uncorrected errors since the "
        f"last reset, or a repair that is pending; {_MEMORY_GUIDE}"),
    deferred(FAMILY, Reason.GPU_ROW_REMAP_PENDING, Remedy.REBOOT, "`nvidia-smi`: remapped rows are "
        f"pending; {_MEMORY_GUIDE}"),
    fault(FAMILY, Reason.GPU_ROW_REMAP_PENDING, Remedy.REPLACE, "`nvidia-smi`: they are still "
        "pending after the node was just rebooted; AWS's runbook"),
    fault(FAMILY, Reason.GPU_ROW_REMAP_FAILED, Remedy.REPLACE, "`nvidia-smi`: remapping rows "
        f"failed; {_MEMORY_GUIDE}, AWS's runbook"),
    deferred(FAMILY, Reason.GPU_PAGE_RETIREMENT, Remedy.REBOOT, "`nvidia-smi`: pages are to be "
        f"retired; {_MEMORY_GUIDE}"),
    fault(FAMILY, Reason.GPU_UNREPAIRABLE, Remedy.REPLACE, "`nvidia-smi`: unrepairable memory, "
        f"or too many errors of SRAM; {_MEMORY_GUIDE}"),
    fault(FAMILY, Reason.GPU_FABRIC, Remedy.REBOOT, "`nvidia-smi`: the GPU failed to join the "
        "fabric; gpud"),
    note(FAMILY, Reason.GPU_FABRIC, "`nvidia-smi`: it has not started to join the fabric"),
    note(FAMILY, Reason.GPU_THERMAL, "`nvidia-smi`: clocks are throttled because of heat"),
    note(FAMILY, Reason.GPU_POWER, "`nvidia-smi`: clocks are throttled for lack of power"),
    note(FAMILY, Reason.GPU_READING, "`nvidia-smi`: a fan or a mode cannot be read"),
)
# fmt: on


def build(_profile: Profile, equipment: Equipment = UNKNOWN_EQUIPMENT) -> Detector:
    """Return the detector of a node with ``equipment``; all profiles agree on it."""
    judge = partial(_judge_sample, equipment)
    return state_detector(
        "gpu-state", judge, STATE_REASONS, reads=SOURCE, settles={FAMILY}, every=EVERY
    )


def judge_xml(text: str, now: datetime, *, expected: int | None = None) -> Judgement:
    """Evaluate the output of ``nvidia-smi -q -x`` of a machine with ``expected`` GPUs."""
    return _judge(text, read_xml(text), now, expected=expected)


def judge_text(text: str, now: datetime, *, expected: int | None = None) -> Judgement:
    """Evaluate the output of ``nvidia-smi -q`` or ``nvidia-smi``."""
    return _judge(text, read_text(text), now, expected=expected)


def _judge_sample(equipment: Equipment, sample: Sample) -> Judgement:
    log = read_xml(sample.text)
    uptime_s = counter(sample.values.get("uptime_s"))
    is_fresh = uptime_s is not None and uptime_s < FRESH_BOOT_S
    fresh = {
        gpu.address for gpu in log.gpus if is_fresh and _APPLIED + gpu.address not in sample.seen
    }
    judgement = _judge(sample.text, log, sample.taken_at, fresh=fresh)
    is_counted = not judgement.undecided or log.attached == 0
    missing = [*_missing(sample, judgement, equipment)] if is_counted else []
    if judgement.undecided:
        status = sample.values.get("status", "0")
        why = judgement.undecided if status == "0" else f"exit status {status}: {_first(sample)}"
        return undecided(why, (*judgement.findings, *missing))
    return Judgement(findings=(*judgement.findings, *missing))


def _missing(sample: Sample, judgement: Judgement, equipment: Equipment) -> Iterator[Finding]:
    """Yield GPUs that the driver has lost: by address in this boot, or by count before."""
    shown = sum(name.startswith(_SHOWN) for name in sample.values)
    lost = disappeared(sample, [name for name in sample.seen if name.startswith(_SHOWN)])
    for name in lost:
        address = name.removeprefix(_SHOWN)
        why = f"nvidia-smi shows {shown} GPUs; {address} disappeared in this boot"
        yield _finding(
            sample.taken_at, Reason.GPU_COUNT, Severity.FATAL, Remedy.REBOOT, why, device(address)
        )
    short = shortage(sample, equipment.gpus, _is_gpu, at_once=equipment.at_once)
    is_reported = any(finding.reason == Reason.GPU_COUNT for finding in judgement.findings)
    if short > len(lost) and not is_reported:
        why = f"nvidia-smi shows {shown} GPUs, expected {equipment.gpus}"
        yield _finding(sample.taken_at, Reason.GPU_COUNT, Severity.FATAL, Remedy.REBOOT, why, "")


def _is_gpu(name: str, _text: str) -> bool:
    return name.startswith(_SHOWN)


def _judge(
    text: str,
    log: SmiLog,
    now: datetime,
    *,
    expected: int | None = None,
    fresh: Collection[str] = (),
) -> Judgement:
    findings = [*_lost(text, log, now)]
    for gpu in log.gpus:
        findings += _findings(gpu, now, is_fresh=gpu.address in fresh)
    if log.defect and not findings and not log.gpus:
        return undecided(_error_text(text) or log.defect)
    if log.defect:
        return undecided(log.defect, findings)
    count, expected_count = len(log.gpus), expected if expected is not None else log.attached
    if expected_count is not None and count < expected_count:
        why = f"nvidia-smi shows {count} GPUs, expected {expected_count}"
        findings.append(_finding(now, Reason.GPU_COUNT, Severity.FATAL, Remedy.REBOOT, why, ""))
    elif not count:
        return undecided(_error_text(text) or "no GPU in the output", findings)
    silent = [gpu.address for gpu in log.gpus if not _has_proof(gpu)]
    if silent:
        return undecided(f"the state of the memory of GPU {silent[0]} is unknown", findings)
    return Judgement(findings=tuple(findings))


def _findings(gpu: Gpu, now: datetime, *, is_fresh: bool) -> Iterator[Finding]:
    worst: dict[str, Finding] = {}
    for path, value in gpu.fields:
        if _NOT_JUDGED.match(path):
            continue
        finding = _judge_field(gpu, path, value, now, is_fresh=is_fresh)
        if finding is None:
            continue
        known = worst.get(finding.reason)
        if known is None or finding.remedy.strength > known.remedy.strength:
            worst[finding.reason] = finding
    yield from worst.values()


def _judge_field(
    gpu: Gpu, path: str, value: str, now: datetime, *, is_fresh: bool
) -> Finding | None:
    evidence, where = f"GPU {gpu.address}: {path} is {value}", device(gpu.address)
    if _BROKEN.fullmatch(value):
        if _HARMLESS_IF_BROKEN.match(path):
            return _finding(now, Reason.GPU_READING, Severity.WARNING, Remedy.NONE, evidence, where)
        return _finding(now, Reason.GPU_LOST, Severity.FATAL, Remedy.REBOOT, evidence, where)
    for rule in RULES:
        if rule.path.fullmatch(path) and rule.bad.fullmatch(value) and not _is_neutral(value):
            if rule.reason is Reason.GPU_ROW_REMAP_PENDING and is_fresh:
                return _finding(
                    now, rule.reason, Severity.FATAL, Remedy.REPLACE,
                    f"{evidence} although the node was just rebooted", where,
                )  # fmt: skip
            return _finding(
                now, rule.reason, rule.severity, rule.remedy, evidence, where, rule.urgency
            )
    return None


def _has_proof(gpu: Gpu) -> bool:
    """Return whether any field that would show a fault of the GPU has a value at all."""
    return any(
        rule.is_proof and rule.path.fullmatch(path) and not _is_neutral(value)
        for path, value in gpu.fields
        for rule in RULES
        if value
    )


def _is_neutral(value: str) -> bool:
    return _NEUTRAL.fullmatch(value) is not None


def _lost(text: str, log: SmiLog, now: datetime) -> Iterator[Finding]:
    """Yield the lost GPU that the tool names before it exits; never within an XML document."""
    if log.gpus:
        return
    for match in _LOST.finditer(text[:LONGEST_MESSAGE]):
        where = device(match["address"])
        yield _finding(now, Reason.GPU_LOST, Severity.FATAL, Remedy.REBOOT, match[0], where)


def _error_text(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return "" if line.startswith("<") else line[:200]


def _first(sample: Sample) -> str:
    return _error_text(sample.text) or "no output"


def device(address: str) -> str:
    """Return the name of a GPU as in the kernel log: ``PCI:0000:b9:00``."""
    match = _FULL_ADDRESS.fullmatch(address)
    if match is None:
        return address
    domain = int(match["domain"], 16)
    return f"PCI:{domain:04x}:{match['bus'].lower()}:{match['slot'].lower()}"


def _finding(
    now: datetime,
    reason: Reason,
    severity: Severity,
    remedy: Remedy,
    message: str,
    where: str,
    urgency: Urgency = Urgency.IMMEDIATE,
) -> Finding:
    return Finding(
        family=FAMILY,
        condition=_CONDITIONS[remedy],
        reason=reason,
        severity=severity,
        remedy=remedy,
        message=message[:LONGEST_MESSAGE],
        observed_at=now,
        device=where,
        urgency=urgency,
    )
