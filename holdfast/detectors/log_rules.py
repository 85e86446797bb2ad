"""Detectors of the kernel log that are tables: one row for each thing that the kernel may say.

A detector of this kind is a tuple of rows and a ``build``. For another message, add a row.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import groupby
from types import MappingProxyType
from typing import Final

from holdfast.detectors.contract import Detector, LogLine, Readings
from holdfast.model.health import Finding, Remedy, Severity, Urgency
from holdfast.model.names import Condition, Reason

PCI: Final = r"(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-7])?"
"""A PCI address in a pattern, for ``LogRule.pattern``."""

LONGEST_DEVICE: Final = 64
"""Characters of a device's name that are kept; names of the kernel have 15 to 31."""

SOON: Final = timedelta(minutes=10)
"""Within which a message that proves nothing by itself must come again."""

_ONCE: Final = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRule:
    """What a message of the kernel means for the node."""

    keyword: str
    """A word that every such message holds; it spares the others the ``pattern``."""

    pattern: str
    """Regular expression for the beginning of the message.

    Its group ``pci``, ``neuron`` (a number) or ``device`` (any name) says what is affected, and
    ``code`` is the number in the family.
    """

    example: str
    """Such a message, as the kernel writes it."""

    condition: Condition
    reason: str
    """One of ``Reason``, or a reason of a rule file."""

    severity: Severity
    remedy: Remedy = Remedy.NONE
    urgency: Urgency = Urgency.IMMEDIATE
    min_count: int = 1
    window: timedelta = _ONCE
    source: str
    """Who says so: of the message and of what to do."""


def notice(
    condition: Condition, reason: Reason, keyword: str, pattern: str, example: str, source: str
) -> LogRule:
    """A warning that repairs nothing."""
    return LogRule(
        keyword=keyword,
        pattern=pattern,
        example=example,
        condition=condition,
        reason=reason,
        severity=Severity.WARNING,
        source=source,
    )


def reboot(
    condition: Condition,
    reason: Reason,
    keyword: str,
    pattern: str,
    example: str,
    source: str,
    *,
    urgency: Urgency = Urgency.DEFERRED,
    min_count: int = 1,
) -> LogRule:
    """A fault that needs a reboot, if seen ``min_count`` times within ``SOON``."""
    return LogRule(
        keyword=keyword,
        pattern=pattern,
        example=example,
        condition=condition,
        reason=reason,
        severity=Severity.FATAL,
        remedy=Remedy.REBOOT,
        urgency=urgency,
        min_count=min_count,
        window=SOON if min_count > 1 else _ONCE,
        source=source,
    )


def log_detector(
    name: str,
    family: str,
    rules: tuple[LogRule, ...],
    codes: Mapping[int, str] = MappingProxyType({}),
) -> Detector:
    """A detector that judges by ``rules``; of several that fit a message the first counts."""
    return Detector(
        name=name,
        reads=frozenset({"kernel_log"}),
        keywords=tuple(sorted({rule.keyword for rule in rules})),
        reasons=frozenset(rule.reason for rule in rules),
        codes=codes,
        detect=partial(_detect, family, _runs(rules)),
    )


_Runs = tuple[tuple[str, tuple[LogRule, ...]], ...]


def _runs(rules: tuple[LogRule, ...]) -> _Runs:
    """Neighbors of one mark together, so that their mark is searched for once."""
    return tuple(
        (keyword, tuple(run)) for keyword, run in groupby(rules, key=lambda rule: rule.keyword)
    )


def _detect(family: str, runs: _Runs, readings: Readings) -> list[Finding]:
    findings = []
    for line in readings.kernel_log:
        message = line.message
        for keyword, rules in runs:
            if keyword in message and (finding := _first(family, rules, line)) is not None:
                findings.append(finding)
                break
    return findings


def _first(family: str, rules: tuple[LogRule, ...], line: LogLine) -> Finding | None:
    for rule in rules:
        # re keeps what it compiled: rules that never come near a match cost nothing.
        if (match := re.match(rule.pattern, line.message)) is not None:
            return _finding(family, rule, line, match)
    return None


def _finding(family: str, rule: LogRule, line: LogLine, match: re.Match[str]) -> Finding:
    groups = match.groupdict()
    code = groups.get("code")
    return Finding(
        family=family,
        condition=rule.condition,
        reason=rule.reason,
        severity=rule.severity,
        remedy=rule.remedy,
        message=line.message,
        observed_at=line.observed_at,
        code=int(code) if code is not None else None,
        device=_device(groups),
        urgency=rule.urgency,
        min_count=rule.min_count,
        window=rule.window,
    )


def _device(groups: Mapping[str, str | None]) -> str:
    if (address := groups.get("pci")) is not None:
        domain, bus, slot = address.lower().split(":")
        return f"PCI:{int(domain, 16):04x}:{bus}:{slot}"
    if (number := groups.get("neuron")) is not None:
        return f"nd{int(number)}"
    return (groups.get("device") or "")[:LONGEST_DEVICE]
