"""Administrators' rules for the kernel log: one table each in a TOML file.

They add to the built-in detectors and replace none of them: each rule that matches a message
reports a finding of its own.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from holdfast.detectors.contract import Detector, Readings
from holdfast.detectors.log_rules import LogRule, log_detector
from holdfast.model.health import Finding, Remedy, Severity, Urgency
from holdfast.model.names import Condition

NAME: Final = "custom-rules"
"""Name of the detector, for ``[detectors.custom-rules]``."""

LONGEST_PATTERN: Final = 1000
"""Maximum length of a pattern, in characters; the longest built-in one has a third of that."""

LONGEST_REPEAT: Final = 1000
"""Maximum upper bound of one repetition; a kernel message has at most 2048 bytes."""

_FILL: Final = LONGEST_REPEAT + 100
"""Number of characters after the start of a message in ``adversarial_messages``."""

_STARTS: Final = 100
_OWN_UNITS: Final = 16
_REASON: Final = re.compile(r"[A-Z][A-Za-z0-9]{2,99}")
_LITERALS: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]")
_UNBOUNDED: Final = re.compile(r"[*+]|\{[0-9]*,\}")
_BOUND: Final = re.compile(r"\{(?:[0-9]*,)?([0-9]+)\}")
_GROUPS: Final = ("device", "pci", "code")


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomRule:
    """One ``[rule.NAME]`` of a rule file."""

    pattern: str
    """Python regular expression that matches from the start of a kernel message, without its
    timestamp. Every repetition has an upper bound, such as ``[a-z]{1,20}``. The groups
    ``device``, ``pci`` (an address) and ``code`` (digits) name what is affected."""

    keyword: str
    """Text that every matching message contains; messages without it are not matched."""

    example: str
    """A message that the rule matches; it is checked when the file is read."""

    condition: Condition
    """Condition of the node that the rule sets, such as ``"HostHardwareError"``."""

    reason: str
    """Cause in PascalCase, such as ``"FanStalled"``."""

    severity: Severity = Severity.WARNING
    """``"fatal"`` if and only if ``remedy`` repairs the node."""

    remedy: Remedy = Remedy.NONE
    """What repairs the node; ``"none"`` only reports."""

    urgency: Urgency = Urgency.DEFERRED
    """When the remedy may start: ``"deferred"`` waits until the jobs of the node have ended."""

    min_count: int = 1
    """Number of such messages within ``window`` that make a fault."""

    window: timedelta = timedelta(0)
    """Required if ``min_count`` is greater than 1."""

    def __post_init__(self) -> None:
        problems = [*_pattern_problems(self.pattern), *self._setting_problems()]
        if not problems:
            problems += self._example_problems()
        if problems:
            raise ValueError("; ".join(problems))

    def _setting_problems(self) -> list[str]:
        checks = (
            (not self.keyword.strip(), "keyword: must not be empty"),
            (
                _REASON.fullmatch(self.reason) is None,
                f"reason: {self.reason!r} is not PascalCase; expected 3 to 100 letters and digits,"
                " such as FanStalled",
            ),
            (
                (self.severity is Severity.FATAL) != self.remedy.touches_node,
                f'severity: "{self.severity}" does not fit remedy "{self.remedy}"; use "fatal" for'
                ' "reset-gpu", "reboot" and "replace", and "info" or "warning" for the others',
            ),
            (self.min_count < 1, f"min_count: must be at least 1, got {self.min_count}"),
            (
                self.min_count > 1 and self.window <= timedelta(0),
                f"window: required with min_count = {self.min_count}, such as 10m",
            ),
        )
        return [problem for is_wrong, problem in checks if is_wrong]

    def _example_problems(self) -> list[str]:
        if self.keyword not in self.example:
            return [f"keyword: {self.keyword!r} does not occur in example"]
        if re.match(self.pattern, self.example) is None:
            return ["example: pattern does not match it from its start"]
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFile:
    """A rule file."""

    rule: dict[str, CustomRule] = field(default_factory=dict)
    """A table for each rule, by its name."""


def custom_detector(rules: Mapping[str, CustomRule]) -> Detector:
    """Return the detector of all rules, by name."""
    detectors = [
        log_detector(NAME, f"{NAME}:{name}", (_log_rule(name, rule),))
        for name, rule in rules.items()
    ]

    def detect(readings: Readings) -> list[Finding]:
        return [finding for one in detectors for finding in one.detect(readings)]

    return Detector(
        name=NAME,
        reads=frozenset({"kernel_log"}),
        keywords=tuple(sorted({rule.keyword for rule in rules.values()})),
        reasons=frozenset(rule.reason for rule in rules.values()),
        detect=detect,
    )


def adversarial_messages(rule: CustomRule) -> list[str]:
    """Return messages on which a pattern that backtracks takes long.

    Each starts like the example, up to any character, and continues with repetitions of a short
    text; among those texts are the characters of the pattern.
    """
    own = sorted(set(re.findall(r"\w", rule.pattern)))[:_OWN_UNITS]
    units = ["a", "0", " ", ":", "a ", "0000:", "[", "x: ", "\0", "a:1:", *own]
    starts = [rule.example[:end] for end in range(min(len(rule.example), _STARTS) + 1)]
    fills = [(unit * _FILL)[:_FILL] for unit in dict.fromkeys(units)]
    return [start + fill for start in starts for fill in fills]


def _log_rule(name: str, rule: CustomRule) -> LogRule:
    return LogRule(
        keyword=rule.keyword,
        pattern=rule.pattern,
        example=rule.example,
        condition=rule.condition,
        reason=rule.reason,
        severity=rule.severity,
        remedy=rule.remedy,
        urgency=rule.urgency,
        min_count=rule.min_count,
        window=rule.window,
        source=f"rule {name}",
    )


def _pattern_problems(pattern: str) -> list[str]:
    if len(pattern) > LONGEST_PATTERN:
        return [f"pattern: {len(pattern)} characters; at most {LONGEST_PATTERN} are allowed"]
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return [f"pattern: not a regular expression of Python: {error}"]
    bare = _LITERALS.sub("", pattern)
    if (repeat := _UNBOUNDED.search(bare)) is not None:
        return [
            f"pattern: {repeat[0]} repeats without an upper bound; write it with one, such as"
            " {1,20}"
        ]
    if any(int(bound) > LONGEST_REPEAT for bound in _BOUND.findall(bare)):
        return [f"pattern: a repetition of more than {LONGEST_REPEAT}; lower its upper bound"]
    unknown = sorted(compiled.groupindex.keys() - set(_GROUPS))
    known = ", ".join(_GROUPS)
    return [f"pattern: unknown group {name}; expected one of {known}" for name in unknown]
