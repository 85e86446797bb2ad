"""Table-driven detectors of the kernel log: one rule for each kind of message.

Such a detector is a tuple of rules and a ``build``. To detect another message, add a rule.
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
"""PCI address in a pattern, for ``LogRule.pattern``."""

LONGEST_DEVICE: Final = 64
"""Maximum length of a stored device name; names of the kernel have 15 to 31 characters."""

SOON: Final = timedelta(minutes=10)
"""Window within which a message that proves nothing by itself must repeat."""

_ONCE: Final = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRule:
    """One kind of kernel message, and the finding that it leads to."""

    keyword: str
    """Text that every such message contains; other messages are not matched."""

    pattern: str
    """Regular expression that matches from the start of the message.

    Its group ``pci``, ``neuron`` (a number) or ``device`` (any name) is the affected device, and
    ``code`` is the number in the family.
    """

    example: str
    """A matching message, as the kernel writes it."""

    condition: Condition
    """Node condition that the finding sets to True."""

    reason: str
    """One of ``Reason``, or a reason of a rule file."""

    severity: Severity
    """Severity of the finding."""

    remedy: Remedy = Remedy.NONE
    """Remedy of the fault; ``none`` reports it only."""

    urgency: Urgency = Urgency.IMMEDIATE
    """Whether the remedy starts at once or after the jobs of the node."""

    min_count: int = 1
    """Number of messages within ``window`` that make a fault."""

    window: timedelta = _ONCE
    """Time in which ``min_count`` messages must occur; 0 if one message is enough."""

    source: str
    """Source of the message and of the remedy."""


def notice(
    condition: Condition, reason: Reason, keyword: str, pattern: str, example: str, source: str
) -> LogRule:
    """Return a rule that only warns."""
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
    """Return a rule whose remedy is a reboot, after ``min_count`` messages within ``SOON``."""
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
    """Return the detector of ``rules``; of several that match a message the first applies."""
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
    """Yield groups of neighboring rules with equal keywords: each is searched once."""
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
        # re caches compiled patterns: rules whose keyword never occurs cost nothing.
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
