"""Violations of DCGM's policies, as ``dcgmi policy --reg`` prints them when they occur.

It reports the conditions for which a policy was set (``dcgmi policy --set 0,0 -e -p -x -n -M 60 -T
100 -P 300``) and names no GPU. The texts are those of Policy.cpp of DCGM: a line ``Timestamp: ...``
and then one or two with the violation.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Final

from holdfast.detectors import gpu_xid
from holdfast.detectors.contract import Detector, LogLine, Profile, Readings, Sample
from holdfast.detectors.gpu_dcgm import dcgm_finding
from holdfast.detectors.judgement import Judgement, state_detector, whole
from holdfast.detectors.state_reasons import deferred, fault, note
from holdfast.model.health import Finding, Remedy, Severity, Urgency
from holdfast.model.names import Reason

FAMILY: Final = "dcgm-policy"
EVERY: Final = timedelta(seconds=5)

MOST_PAGES: Final = 60
"""Maximum number of retired pages; with more, NVIDIA accepts the return of a GPU."""

_LONGEST: Final = 10_000
"""Maximum length of one violation, in characters."""

_XID: Final = re.compile(r"^XID error ([0-9]{1,6}) detected", re.M)
_PAGES: Final = re.compile(r"^[SD]BE page retirement count: ([0-9]{1,9})", re.M)
_MILD: Final = {
    "A PCIe replay event": Reason.DCGM_WARNING,
    "NVLink Counter": Reason.DCGM_WARNING,
    "The maximum number of retired pages": Reason.GPU_PAGE_RETIREMENT,
    "The maximum power limit": Reason.GPU_POWER,
    "The maximum thermal limit": Reason.GPU_THERMAL,
}
"""Limits that an operator chose: exceeding one proves no defect."""

# fmt: off
STATE_REASONS: Final = (
    deferred(FAMILY, Reason.GPU_ECC, Remedy.REBOOT, "`dcgmi policy`: a double-bit error"),
    fault(FAMILY, Reason.GPU_PAGE_RETIREMENT, Remedy.REPLACE, "`dcgmi policy`: more than 60 "
        "pages are retired; NVIDIA's guide to GPU memory errors"),
    note(FAMILY, Reason.GPU_PAGE_RETIREMENT, "`dcgmi policy`: more pages than an operator allows"),
    note(FAMILY, Reason.GPU_THERMAL, "`dcgmi policy`: hotter than an operator allows"),
    note(FAMILY, Reason.GPU_POWER, "`dcgmi policy`: more power than an operator allows"),
    note(FAMILY, Reason.DCGM_WARNING, "`dcgmi policy`: PCIe replays, errors of an NVLink"),
)
# fmt: on


def build(profile: Profile, overrides: Mapping[int, Remedy] = MappingProxyType({})) -> Detector:
    """Return the detector; it rates XIDs like the detector of the kernel log."""
    xids = gpu_xid.build(profile, overrides)
    judge = partial(_judge, xids)
    detector = state_detector(
        "gpu-dcgm-policy", judge, STATE_REASONS, reads="dcgm-policy", settles=(), every=EVERY
    )
    return replace(detector, reasons=detector.reasons | xids.reasons)


def _judge(xids: Detector, sample: Sample) -> Judgement:
    return whole(judge_policy(sample.text, sample.taken_at, xids))


def judge_policy(text: str, now: datetime, xids: Detector) -> list[Finding]:
    """Return the findings of the violations; ``xids`` rates XIDs."""
    return [
        finding
        for part in re.split(r"^Timestamp:", text, flags=re.M)
        for finding in _violation(part[:_LONGEST], now, xids)
    ]


def _violation(part: str, now: datetime, xids: Detector) -> Iterator[Finding]:
    message = "DCGM policy: " + "; ".join(
        line.strip() for line in part.splitlines() if line.strip()
    )
    if (xid := _XID.search(part)) is not None:
        line = LogLine(message=f"NVRM: Xid (DCGM): {xid[1]}, reported by DCGM", observed_at=now)
        for finding in xids.detect(Readings(kernel_log=(line,))):
            yield replace(finding, family=FAMILY, message=message, device="")
    elif "A double-bit ECC error" in part:
        yield _finding(Reason.GPU_ECC, message, now, Severity.WARNING, Remedy.REBOOT)
    elif sum(map(int, _PAGES.findall(part))) > MOST_PAGES:
        yield _finding(Reason.GPU_PAGE_RETIREMENT, message, now, Severity.FATAL, Remedy.REPLACE)
    else:
        for text_part, reason in _MILD.items():
            if text_part in part:
                yield _finding(reason, message, now, Severity.WARNING, Remedy.NONE)


def _finding(
    reason: Reason, message: str, now: datetime, severity: Severity, remedy: Remedy
) -> Finding:
    """Return a finding; memory errors need a reboot once the node is idle, as in ``gpu_state``."""
    is_deferred = remedy is Remedy.REBOOT
    finding = dcgm_finding(
        reason, message, now, device="", severity=severity, remedy=remedy,
        urgency=Urgency.DEFERRED if is_deferred else Urgency.IMMEDIATE,
    )  # fmt: skip
    return replace(finding, family=FAMILY)
