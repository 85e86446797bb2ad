"""Parser of log rules of jobs: in annotations, ConfigMaps and files."""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final

from holdfast.decisions.log_rules import Comparison, JobLogRule
from holdfast.kit.rejections import Rejection, excerpt

TEXT_LIMIT: Final = 16 * 1024
"""Maximum length in characters of all rules of a job."""

RULES_LIMIT: Final = 20
PATTERN_LIMIT: Final = 512
"""Maximum length of a pattern in characters; HyperPod's rules for Ray allow half of it."""

NAME_LIMIT: Final = 63
LONGEST: Final = timedelta(days=30)
MOST_DATA_POINTS: Final = 10_000

_WRAPPED: Final = "logMonitoringConfiguration"
"""Key of the list in HyperPod's objects."""

_NAME: Final = "name"
_PATTERN: Final = "logPattern"
_STOP: Final = "stopPattern"
_CUTOFF: Final = "expectedStartCutOffInSeconds"
_FREQUENCY: Final = "expectedRecurringFrequencyInSeconds"
_THRESHOLD: Final = "metricThreshold"
_OPERATOR: Final = "operator"
_DATA_POINTS: Final = "metricEvaluationDataPoints"
_FAULT: Final = "faultOnMatch"

_KNOWN: Final = (
    _NAME, _PATTERN, _CUTOFF, _FREQUENCY, _THRESHOLD, _OPERATOR, _DATA_POINTS, _STOP, _FAULT,
)  # fmt: skip
_SWITCH: Final = {"true": True, "false": False}

_REPORTED_LIMIT: Final = 20
"""Maximum number of reported errors; each becomes an Event."""

ParsedRules = tuple[tuple[JobLogRule, ...], tuple[Rejection, ...]]


@lru_cache(maxsize=256)
def rules_of(text: str, key: str) -> ParsedRules:
    """Return the rules of a text and the rejected parts. Never raises.

    Args:
        text: a list of objects with the fields of HyperPod's ``logMonitoringConfiguration``, as
            JSON or YAML. An invalid rule is left out, the others apply.
        key: name of the text in rejections.

    """
    rejected: list[Rejection] = []
    rules: list[JobLogRule] = []
    for index, given in enumerate(_listed(text, key, rejected)):
        rule = _Fields(f"{key}[{index}]", given, rejected).rule()
        if rule is not None and rule.name in {one.name for one in rules}:
            rejected.append(_rejection(f"{key}[{index}].{_NAME}", rule.name, "a unique name"))
        elif rule is not None:
            rules.append(rule)
    return tuple(rules), tuple(rejected[:_REPORTED_LIMIT])


def _listed(text: str, key: str, rejected: list[Rejection]) -> Sequence[Any]:
    if len(text) > TEXT_LIMIT:
        rejected.append(_rejection(key, text, f"at most {TEXT_LIMIT} characters"))
        return ()
    try:
        found = _loaded(text)
    except (ValueError, RecursionError) as error:
        rejected.append(_rejection(key, text, f"JSON or YAML: {' '.join(str(error).split())}"))
        return ()
    if isinstance(found, dict) and found.keys() == {_WRAPPED}:
        found = found[_WRAPPED]
    if not isinstance(found, list) or not 1 <= len(found) <= RULES_LIMIT:
        rejected.append(_rejection(key, text, f"a list of 1 to {RULES_LIMIT} rules"))
        return ()
    return found


def _loaded(text: str) -> Any:
    """Return the value of a text.

    Raises:
        ValueError: it is neither JSON nor YAML, or YAML that cannot be read here.

    """
    try:
        return json.loads(text)
    except ValueError as error:
        try:
            from holdfast.adapters.host.bounded_yaml import load_yaml  # noqa: PLC0415 - an extra
        except ImportError:
            remedy = "YAML needs PyYAML, which is not installed: pip install pyyaml, or write JSON"
            raise ValueError(f"{remedy} ({error})") from error
        try:
            return load_yaml(text)
        except ValueError as mistake:
            is_json = text.lstrip().startswith(("[", "{"))
            raise (error if is_json else mistake) from mistake


class _Fields:
    """Parser of the fields of one rule; records every error."""

    def __init__(self, where: str, given: Any, rejected: list[Rejection]) -> None:
        self._where = where
        self._rejected = rejected
        self._before = len(rejected)
        self._given: Mapping[str, Any] = {}
        if isinstance(given, dict):
            self._given = {key: value for key, value in given.items() if value not in (None, "")}
        else:
            rejected.append(_rejection(where, given, "an object with the fields of a rule"))

    def rule(self) -> JobLogRule | None:
        """Return the rule; None if it has any error."""
        if len(self._rejected) > self._before:
            return None
        for key in sorted(self._given.keys() - set(_KNOWN)):
            self._reject(key, self._given[key], f"one of the fields {', '.join(_KNOWN)}")
        rule = JobLogRule(
            name=self._text(_NAME, NAME_LIMIT, is_needed=True),
            pattern=self._text(_PATTERN, PATTERN_LIMIT, is_needed=True),
            start_cutoff=self._span(_CUTOFF),
            frequency=self._span(_FREQUENCY),
            threshold=self._number(_THRESHOLD),
            comparison=self._comparison(),
            data_points=self._count(),
            stop_pattern=self._text(_STOP, PATTERN_LIMIT),
            fault_on_match=self._switch(),
        )
        if len(self._rejected) == self._before:
            self._check(rule)
        return rule if len(self._rejected) == self._before else None

    def _check(self, rule: JobLogRule) -> None:
        """Check constraints between fields."""
        limits = [key for key in (_CUTOFF, _FREQUENCY, _THRESHOLD) if key in self._given]
        if rule.fault_on_match:
            for key in limits:
                self._reject(key, self._given[key], f"no value, because {_FAULT} is true")
        elif not limits:
            needed = f"one of {_CUTOFF}, {_FREQUENCY}, {_THRESHOLD} and {_FAULT}"
            self._rejected.append(_rejection(self._where, rule.name, needed))
        if _THRESHOLD in self._given and _OPERATOR not in self._given:
            self._reject(_OPERATOR, "", f"one of {', '.join(Comparison)}")
        for key in (_OPERATOR, _DATA_POINTS):
            if key in self._given and _THRESHOLD not in self._given:
                self._reject(key, self._given[key], f"{_THRESHOLD} as well")

    def _reject(self, key: str, value: Any, expected: str) -> None:
        self._rejected.append(_rejection(f"{self._where}.{excerpt(str(key))}", value, expected))

    def _text(self, key: str, limit: int, *, is_needed: bool = False) -> str:
        value = self._given.get(key, "")
        is_fine = isinstance(value, str) and len(value) <= limit and value.isprintable()
        if not is_fine or (is_needed and not value):
            self._reject(key, value, f"text of 1 to {limit} printable characters")
            return ""
        return str(value)

    def _span(self, key: str) -> timedelta | None:
        value = self._number(key)
        if value is None:
            return None
        if 0 < value <= LONGEST.total_seconds():
            return timedelta(seconds=value)
        self._reject(
            key, self._given[key], f"seconds: more than 0, at most {LONGEST.total_seconds():.0f}"
        )
        return None

    def _number(self, key: str) -> float | None:
        value = self._given.get(key)
        if value is None:
            return None
        number = math.nan
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            try:
                number = float(value)
            except (ValueError, OverflowError):
                number = math.nan
        if math.isfinite(number):
            return number
        self._reject(key, value, "a number")
        return None

    def _count(self) -> int:
        number = self._number(_DATA_POINTS)
        if number is None:
            return JobLogRule(name="", pattern="").data_points
        if 1 <= number <= MOST_DATA_POINTS and number == int(number):
            return int(number)
        expected = f"a whole number from 1 to {MOST_DATA_POINTS}"
        self._reject(_DATA_POINTS, self._given[_DATA_POINTS], expected)
        return 1

    def _comparison(self) -> Comparison:
        value = self._given.get(_OPERATOR, Comparison.GT.value)
        if value in list(Comparison):
            return Comparison(value)
        self._reject(_OPERATOR, value, f"one of {', '.join(Comparison)}")
        return Comparison.GT

    def _switch(self) -> bool:
        value = self._given.get(_FAULT, False)
        found = _SWITCH.get(str(value).lower()) if isinstance(value, str | bool) else None
        if found is None:
            self._reject(_FAULT, value, "true or false")
        return bool(found)


def _rejection(key: str, value: Any, expected: str) -> Rejection:
    """Return a rejection without nested values, which YAML aliases can make endless."""
    if isinstance(value, dict | list):
        return Rejection(key=key, value=f"a {type(value).__name__}", expected=expected)
    return Rejection(key=key, value=excerpt(" ".join(str(value).split())), expected=expected)
