"""Parsers of the output of ``fi_info`` and ``ibstat``."""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from holdfast.detectors.judgement import LONGEST_MESSAGE, Judgement, undecided, whole
from holdfast.model.health import Finding, Remedy, Severity
from holdfast.model.names import Condition, Reason

FI_INFO: Final = "fi-info"
IBSTAT: Final = "ibstat"
"""Families of their findings."""

_FI_FIELD: Final = re.compile(r"^ {0,8}(provider|domain|type|protocol): {1,8}(\S{1,200})\s*$", re.M)
_FI_LAST: Final = "protocol"
_SUFFIX: Final = re.compile(r"-(?:rdm|dgrm)$")
_NO_DATA: Final = re.compile(r"fi_getinfo(?:\(\))?:? .{0,80}?-61\b")

_CA: Final = re.compile(r"^CA '([^'\n]{1,100})'\s*$", re.M)
_PORTS: Final = re.compile(r"^\s{1,8}Number of ports: ([0-9]{1,3})\s*$", re.M)
_PORT: Final = re.compile(r"^\s{1,8}Port ([0-9]{1,3}):\s*$", re.M)
_STATE: Final = re.compile(r"^\s{1,16}State: (\S[^\n]{0,40}?)\s*$", re.M)
_PHYSICAL: Final = re.compile(r"^\s{1,16}Physical state: (\S[^\n]{0,40}?)\s*$", re.M)
_LAYER: Final = re.compile(r"^\s{1,16}Link layer: (\S+)\s*$", re.M)

_UNPLUGGED: Final = ("Polling", "Disabled", "Sleep")
_NO_CABLE: Final = "has no cable"


def judge_fi_info(text: str, now: datetime, *, expected: int | None = None) -> Judgement:
    """Evaluate the output of ``fi_info -p efa``, of a machine with ``expected`` EFA devices.

    A device has up to three blocks: only the domain without its suffix counts.
    """
    fields = _FI_FIELD.findall(text)
    domains = {
        _SUFFIX.sub("", domain)
        for provider, domain in _pairs(fields)
        if provider.partition(";")[0] == "efa"
    }
    is_whole = bool(fields) and fields[-1][0] == _FI_LAST and text.endswith("\n")
    if _NO_DATA.search(text[:LONGEST_MESSAGE]) and not fields:
        domains, is_whole = set(), True
    if not is_whole:
        return undecided("the last block is cut off" if fields else _why_not(text))
    if expected is None:
        return whole([]) if domains else undecided("no EFA device in the output")
    if len(domains) >= expected:
        return whole([])
    why = f"fi_info shows {len(domains)} EFA devices, expected {expected}"
    return whole([_finding(FI_INFO, Reason.EFA_COUNT, why, now, "")])


def missing_efa(device: str, now: datetime) -> Finding:
    """Return the finding of a device that ``fi_info`` listed earlier in this boot."""
    why = f"fi_info showed {device} earlier in this boot, but not now"
    return _finding(FI_INFO, Reason.EFA_COUNT, why, now, device)


def _pairs(fields: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    provider = ""
    for name, value in fields:
        if name == "provider":
            provider = value
        elif name == "domain":
            yield provider, value


def judge_ibstat(text: str, now: datetime, *, is_unplugged_by_will: bool = False) -> Judgement:
    """Evaluate the output of ``ibstat``.

    A port without a cable (``Polling`` or ``Disabled``) stays undecided, unless it is known to be
    unused on purpose.
    """
    headers = list(_CA.finditer(text))
    if not headers:
        return undecided(_why_not(text))
    ends = _ends(headers, len(text))
    findings: list[Finding] = []
    doubts: list[str] = []
    active = 0
    for header, end in zip(headers, ends, strict=True):
        adapter, part = header[1], text[header.end() : end]
        ports = list(_PORT.finditer(part))
        promised = _PORTS.search(part)
        if promised is None or len(ports) < int(promised[1]):
            doubts.append(f"the ports of {adapter} are incomplete")
        for port, port_end in zip(ports, _ends(ports, len(part)), strict=True):
            name = f"{adapter}/{port[1]}"
            problem = _judge_port(part[port.end() : port_end])
            active += problem == ""
            if problem == _NO_CABLE and is_unplugged_by_will:
                continue
            if problem in (None, _NO_CABLE):
                doubts.append(f"{name} has no link, or is incomplete")
            elif problem:
                why = f"{name} {problem}"
                findings.append(_finding(IBSTAT, Reason.LINK_DOWN, why, now, name))
    if not active:
        doubts.append("no port is active")
    return Judgement(findings=tuple(findings), undecided="; ".join(doubts)[:LONGEST_MESSAGE])


def _ends(headers: list[re.Match[str]], length: int) -> list[int]:
    """Yield the end of the part under each header: the next header."""
    return [*(header.start() for header in headers[1:]), length] if headers else []


def _judge_port(part: str) -> str | None:
    """Return the defect of a port; empty if there is none, None if unknown."""
    state, physical, layer = (found.search(part) for found in (_STATE, _PHYSICAL, _LAYER))
    if state is None or physical is None or layer is None:
        return None
    if state[1] == "Active" and physical[1] == "LinkUp":
        return ""
    if physical[1] in _UNPLUGGED:
        return _NO_CABLE
    return f"is {state[1]}, its link is {physical[1]}"


def _why_not(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return f"its output is: {line[:200]}" if line else "its output is empty"


def _finding(family: str, reason: Reason, message: str, now: datetime, device: str) -> Finding:
    return Finding(
        family=family,
        condition=Condition.NETWORK,
        reason=reason,
        severity=Severity.FATAL,
        remedy=Remedy.REBOOT,
        message=message[:LONGEST_MESSAGE],
        observed_at=now,
        device=device,
    )
