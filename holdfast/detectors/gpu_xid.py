"""XIDs: what NVIDIA's driver writes to the kernel log when a GPU, its link or its memory fails.

The grammar of a line, from kernel_rc.c of NVIDIA's open-gpu-kernel-modules 595.45.04::

    NVRM: Xid (PCI:0000:b9:00[ GPU-I:05[ GPU-CI:00]]): 79, [pid=.., name=.., ]TEXT
        [ caused by previous Xid N]

Older drivers wrote no ``PCI:``, and the oldest no domain: ``(0001:00)`` is bus 1, slot 0. The name
is the client's own and may hold anything, so that nothing is read before the code and nothing after
it but the driver's own phrases.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Final

from holdfast.detectors.contract import Detector, LogLine, Profile, Readings
from holdfast.detectors.nvlink5 import Advice, LinkError, decode
from holdfast.detectors.xid_codes import XID_CODES, CodeAction
from holdfast.model.health import Finding, Remedy, Severity, Urgency
from holdfast.model.names import Condition, Reason

FAMILY: Final = "xid"
FALLEN_OFF_BUS: Final = 79
RECOVERY_ACTION: Final = 154

_XID: Final = re.compile(
    r"NVRM: Xid \((?P<where>[^()]{1,80})\): (?P<code>[0-9]{1,6})(?![0-9A-Za-z])"
)
_ADDRESS: Final = (
    r"(?:(?P<domain>[0-9a-fA-F]{4,8}):)?(?P<bus>(?:00)?[0-9a-fA-F]{2}):(?P<slot>[0-9a-fA-F]{2})"
)
_PCI: Final = re.compile(rf"(?:PCI:)?{_ADDRESS}(?![0-9a-fA-F:])")
_ECHO: Final = re.compile(r" caused by previous Xid [0-9]{1,6}\.?\Z")
_ACTION_CHANGED: Final = re.compile(
    r".*GPU recovery action changed from 0x[0-9a-fA-F]{1,8} \([^()]{0,80}\)"
    r" to 0x(?P<to>[0-9a-fA-F]{1,8})\b",
    re.DOTALL,  # the last one: a process name may look the same
)
_LINK_CODES: Final = frozenset(
    code for code, row in XID_CODES.items() if row.hyperpod is CodeAction.LINK
)
_LINK_UNITS: Final = "SAW|RLW|TLW|TREX|NVLPW|NETIR|MSE"
_LINK_FATAL: Final = re.compile(rf"[ ,](?:{_LINK_UNITS})[A-Z0-9_]{{0,40}} {{1,20}}Fatal\b")
_OFF_BUS: Final = (
    re.compile(
        rf"NVRM: GPU (?:at )?(?:PCI:)?{_ADDRESS}(?:\.[0-7])?:? (?:GPU )?has fallen off the bus"
    ),
    re.compile(rf"NVRM: The NVIDIA GPU {_ADDRESS}.{{0,80}}fallen off the bus", re.DOTALL),
    re.compile("NVRM: fallen off the bus and is not responding"),  # without its first lines
    re.compile("NVRM: GPU has fallen off the bus"),  # older drivers name no GPU
)
_CUT_RECORD: Final = "\nNVRM: "


@dataclass(frozen=True, slots=True)
class _Response:
    condition: Condition
    reason: Reason
    severity: Severity
    remedy: Remedy
    urgency: Urgency = Urgency.IMMEDIATE


_RESPONSES: Final = {
    CodeAction.REPLACE: _Response(
        Condition.NVIDIA_TERMINATE, Reason.XID_REPLACE, Severity.FATAL, Remedy.REPLACE
    ),
    CodeAction.REBOOT: _Response(
        Condition.NVIDIA_REBOOT, Reason.XID_REBOOT, Severity.FATAL, Remedy.REBOOT
    ),
    CodeAction.RESET: _Response(
        Condition.NVIDIA_REBOOT, Reason.XID_RESET, Severity.FATAL, Remedy.RESET_GPU
    ),
    CodeAction.REBOOT_WHEN_IDLE: _Response(
        Condition.NVIDIA_REBOOT,
        Reason.XID_REBOOT,
        Severity.WARNING,
        Remedy.REBOOT,
        Urgency.DEFERRED,
    ),
    CodeAction.RESTART_APP: _Response(
        Condition.NVIDIA_GPU_UNHEALTHY,
        Reason.XID_RESTART_APP,
        Severity.WARNING,
        Remedy.RESTART_APP,
    ),
    CodeAction.APP: _Response(
        Condition.SOFTWARE, Reason.XID_USER_APP, Severity.WARNING, Remedy.NONE
    ),
    CodeAction.ECHO: _Response(Condition.SOFTWARE, Reason.XID_ECHO, Severity.INFO, Remedy.NONE),
    CodeAction.WARN: _Response(
        Condition.NVIDIA_GPU_UNHEALTHY, Reason.XID_WARNING, Severity.WARNING, Remedy.NONE
    ),
    CodeAction.NOTE: _Response(
        Condition.NVIDIA_GPU_UNHEALTHY, Reason.XID_WARNING, Severity.INFO, Remedy.NONE
    ),
    CodeAction.ALERT: _Response(
        Condition.NVIDIA_GPU_UNHEALTHY, Reason.XID_UNKNOWN, Severity.WARNING, Remedy.NONE
    ),
}


def _action(severity: Severity, remedy: Remedy, urgency: Urgency = Urgency.IMMEDIATE) -> _Response:
    """Return the rule of an action; all share one reason: only the newest action applies."""
    return _Response(Condition.NVIDIA_REBOOT, Reason.XID_RECOVERY_ACTION, severity, remedy, urgency)


_ACTIONS: Final = {
    0: _action(Severity.INFO, Remedy.NONE),  # none: cancels an earlier action
    1: _action(Severity.FATAL, Remedy.RESET_GPU),  # GPU reset
    2: _action(Severity.FATAL, Remedy.REBOOT),  # node reboot
    3: _action(Severity.WARNING, Remedy.RESET_GPU, Urgency.DEFERRED),  # drain P2P: links impaired
    4: _action(Severity.WARNING, Remedy.RESET_GPU, Urgency.DEFERRED),  # drain and reset
    5: _action(Severity.WARNING, Remedy.NONE),  # recover IMEX domain: not by one node's repair
    6: _action(Severity.FATAL, Remedy.REBOOT),  # bus reset, which a reboot does reliably
    7: _action(Severity.FATAL, Remedy.REBOOT),  # system reboot
}
"""``nvmlDeviceGpuRecoveryAction_t`` of nvml.h, as XID 154 prints it. A GPU with a drain action
still runs its job, hence the deferred urgency."""


_OVERRIDES: Final = {
    Remedy.NONE: CodeAction.WARN,
    Remedy.RESTART_APP: CodeAction.RESTART_APP,
    Remedy.RESET_GPU: CodeAction.RESET,
    Remedy.REBOOT: CodeAction.REBOOT,
    Remedy.REPLACE: CodeAction.REPLACE,
}


def build(
    profile: Profile,
    overrides: Mapping[int, Remedy] = MappingProxyType({}),
    driver: int | None = None,
) -> Detector:
    """Return the detector that rates faults as ``profile`` does.

    ``overrides`` gives codes another remedy, also unknown codes. A consequence of an earlier XID
    (``caused by previous Xid``) stays an echo. ``driver`` is the major version of the driver, on
    which the form of NVLink errors depends.
    """
    actions = {
        code: row.hyperpod if profile is Profile.HYPERPOD else row.nvidia
        for code, row in XID_CODES.items()
    } | {code: _OVERRIDES[remedy] for code, remedy in overrides.items()}
    return Detector(
        name="gpu-xid",
        reads=frozenset({"kernel_log"}),
        keywords=("NVRM",),
        reasons=frozenset(one.reason for one in (*_RESPONSES.values(), *_ACTIONS.values())),
        codes={code: row.name for code, row in XID_CODES.items()},
        detect=partial(_detect, actions, driver),
    )


def _detect(
    actions: Mapping[int, CodeAction], driver: int | None, readings: Readings
) -> list[Finding]:
    findings = (_judge(line, actions, driver) for line in readings.kernel_log)
    return [finding for finding in findings if finding is not None]


def _judge(line: LogLine, actions: Mapping[int, CodeAction], driver: int | None) -> Finding | None:
    xid = _XID.match(line.message)
    if xid is not None:
        code, text = int(xid["code"]), line.message[xid.end() :].rstrip()
        action = CodeAction.ECHO if _ECHO.search(text) else actions.get(code, CodeAction.ALERT)
        is_link = code in _LINK_CODES and action is not CodeAction.ECHO
        link = decode(code, text, driver) if is_link else None
        finding = _finding(line, code, _device(xid["where"]), _response(action, text, link))
        return finding if link is None else replace(finding, message=f"{line.message} [{link}]")
    text = line.message.replace(_CUT_RECORD, " ")
    for pattern in _OFF_BUS:
        if (match := pattern.match(text)) is not None:
            device = _pci(match) if match.lastindex else ""
            response = _RESPONSES[actions[FALLEN_OFF_BUS]]
            return _finding(line, FALLEN_OFF_BUS, device, response)
    return None


def _response(action: CodeAction, text: str, link: LinkError | None) -> _Response:
    if action is CodeAction.LINK:
        action = _link_action(text, link)
    if action is CodeAction.ACTION:
        change = _ACTION_CHANGED.match(text)
        named = _ACTIONS.get(int(change["to"], 16)) if change is not None else None
        return named if named is not None else _RESPONSES[CodeAction.ALERT]
    return _RESPONSES[action]


def _link_action(text: str, link: LinkError | None) -> CodeAction:
    """Return the action of NVIDIA's sheet; for other errors, that of the driver's severity."""
    if link is None or link.advice is Advice.NONE:
        return CodeAction.RESET if _LINK_FATAL.search(text) else CodeAction.WARN
    return CodeAction.RESET if link.advice is Advice.RESET else CodeAction.WARN


def _device(where: str) -> str:
    """Return the GPU: the affected MIG instance stays in the message, the repair is the GPU's."""
    address = _PCI.match(where)
    return where if address is None else _pci(address)


def _pci(address: re.Match[str]) -> str:
    domain, bus, slot = (int(address[part] or "0", 16) for part in ("domain", "bus", "slot"))
    return f"PCI:{domain:04x}:{bus:02x}:{slot:02x}"


def _finding(line: LogLine, code: int, device: str, response: _Response) -> Finding:
    return Finding(
        family=FAMILY,
        condition=response.condition,
        reason=response.reason,
        severity=response.severity,
        remedy=response.remedy,
        message=line.message,
        observed_at=line.observed_at,
        code=code,
        device=device,
        urgency=response.urgency,
    )
