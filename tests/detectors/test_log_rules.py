import pkgutil
import re
from datetime import UTC, datetime, timedelta
from importlib import import_module
from types import ModuleType

import pytest

import holdfast.detectors
from holdfast.detectors.contract import Detector, LogLine, Profile, Readings
from holdfast.detectors.kernel_log import kernel_line
from holdfast.detectors.log_rules import LONGEST_DEVICE, LogRule, log_detector
from holdfast.detectors.table import detectors
from holdfast.model.health import Finding, Remedy, Severity, Urgency
from holdfast.model.names import Condition, Reason

NOW = datetime(2025, 11, 20, 12, 0, tzinfo=UTC)
MODULES = [
    module
    for found in pkgutil.iter_modules(holdfast.detectors.__path__)
    if hasattr(module := import_module(f"holdfast.detectors.{found.name}"), "build")
]


def tables(module: ModuleType) -> list[tuple[Detector, tuple[LogRule, ...]]]:
    """Its detector with its rules, once for each profile if they differ by profile."""
    if hasattr(module, "rules"):
        return [(module.build(profile), module.rules(profile)) for profile in Profile]
    rules = tuple(rule for rule in getattr(module, "RULES", ()) if isinstance(rule, LogRule))
    return [(module.build(Profile.HYPERPOD), rules)] if rules else []


TABLES = [table for module in MODULES for table in tables(module)]
ROWS = [(detector, rule) for detector, rules in TABLES for rule in rules]
ALL = detectors(Profile.HYPERPOD)

each_row = pytest.mark.parametrize(
    ("detector", "rule"), ROWS, ids=[f"{one.name}-{rule.example[:40]}" for one, rule in ROWS]
)


def found(detector: Detector, *messages: str) -> list[Finding]:
    lines = tuple(LogLine(message=message, observed_at=NOW) for message in messages)
    return detector.detect(Readings(kernel_log=lines))


@each_row
def test_a_row_says_where_it_comes_from(detector: Detector, rule: LogRule) -> None:
    assert rule.source.strip()
    assert rule.keyword.strip()


@each_row
def test_the_example_of_a_row_is_judged_by_that_row(detector: Detector, rule: LogRule) -> None:
    [finding] = found(detector, rule.example)

    for name in ("condition", "reason", "severity", "remedy", "urgency", "min_count", "window"):
        assert getattr(finding, name) == getattr(rule, name), name
    assert finding.message == rule.example
    assert finding.observed_at == NOW
    assert re.match(rule.pattern, rule.example)


@each_row
def test_no_other_detector_knows_the_example(detector: Detector, rule: LogRule) -> None:
    names = [watcher.name for watcher in ALL if found(watcher, rule.example)]

    assert names == [detector.name]


@each_row
def test_a_keyword_lets_every_match_pass(detector: Detector, rule: LogRule) -> None:
    assert rule.keyword in rule.example
    assert rule.keyword in detector.keywords


@each_row
def test_a_prefix_of_any_log_does_not_matter(detector: Detector, rule: LogRule) -> None:
    for prefix in (
        "3,1467,131453740743,-;",
        "[131453.740743] ",
        "<3>[  131.740743] ",
        "kern  :warn  : 2025-01-21T04:41:44,285060+00:00 ",
        "Jul 09 10:42:47 ip-10-0-0-1 kernel: [12.5] ",
        "2025-07-09T10:42:47.123456+00:00 ip-10-0-0-1 kernel: ",
    ):
        line = kernel_line(prefix + rule.example, NOW)
        assert line is not None
        assert [one.reason for one in found(detector, line.message)] == [rule.reason], prefix


@each_row
def test_what_quotes_a_message_is_not_the_message(detector: Detector, rule: LogRule) -> None:
    """A process may write to the log what it likes, but not as the kernel."""
    for quote in (
        f"python[123]: {rule.example}",
        f"audit: type=1400 audit(1732104000.1:2): msg='{rule.example}'",
        f"systemd[1]: user said: {rule.example}",
        f'"{rule.example}"',
    ):
        assert found(detector, quote) == [], quote


@each_row
def test_what_repairs_a_node_is_fatal_and_a_fault_only_if_it_repairs(
    detector: Detector, rule: LogRule
) -> None:
    assert (rule.severity is Severity.FATAL) == rule.remedy.touches_node
    assert rule.min_count >= 1
    assert rule.min_count == 1 or rule.window > timedelta(0)


def test_rows_of_one_table_differ() -> None:
    for _, rules in TABLES:
        assert len({rule.pattern for rule in rules}) == len(rules)


def test_every_detector_of_the_kernel_log_has_a_table_save_that_of_xids() -> None:
    assert {one.name for one in ALL if one.keywords} - {one.name for one, _ in TABLES} == {
        "gpu-xid"
    }


WITH_ACTIONS = {"neuron-log"}
"""Its lines say what they ask for, and a later line may take back what an earlier one asked for."""


def test_a_notice_never_has_the_reason_of_a_fault_which_it_would_end() -> None:
    for detector, rules in TABLES:
        faults = {rule.reason for rule in rules if rule.remedy is not Remedy.NONE}
        notices = {rule.reason for rule in rules if rule.remedy is Remedy.NONE}

        assert detector.name in WITH_ACTIONS or not faults & notices, detector.name


@each_row
def test_every_repetition_in_a_pattern_is_bounded(detector: Detector, rule: LogRule) -> None:
    bare = re.sub(r"\\.|\[(?:\\.|[^\]\\])*\]", "", rule.pattern)

    assert not re.search(r"[*+]|\{[0-9]*,\}", bare), bare


def rule(**changes: object) -> LogRule:
    values = {
        "keyword": "broken",
        "pattern": "(?P<device>[a-z ]{1,200})[0-9]? is broken",
        "example": "disk is broken",
        "condition": Condition.DISK,
        "reason": Reason.IO_ERROR,
        "severity": Severity.FATAL,
        "remedy": Remedy.REPLACE,
        "source": "tests",
    }
    return LogRule(**{**values, **changes})


def test_the_first_row_that_fits_counts() -> None:
    detector = log_detector(
        "d", "f", (rule(reason=Reason.EXT4_ERROR), rule(pattern=".*", keyword="broken"))
    )

    assert [one.reason for one in found(detector, "disk is broken", "broken")] == [
        Reason.EXT4_ERROR,
        Reason.IO_ERROR,
    ]


def test_a_pattern_without_its_keyword_is_not_tried() -> None:
    detector = log_detector("d", "f", (rule(pattern=".*"),))

    assert found(detector, "disk is fine") == []


def test_groups_of_a_pattern_name_the_device_and_the_code() -> None:
    detector = log_detector(
        "d",
        "f",
        (
            rule(pattern=r"nd(?P<neuron>[0-9]+) is broken"),
            rule(pattern=r"GPU (?P<pci>[0-9A-F]+:[0-9A-F]+:[0-9A-F]+) is broken"),
            rule(pattern=r"(?P<device>[a-z]+) is broken: (?P<code>[0-9]+)"),
            rule(pattern=r"broken"),
        ),
    )

    findings = found(
        detector, "nd07 is broken", "GPU 00000018:B9:00 is broken", "x is broken: 042", "broken"
    )

    assert [(one.device, one.code) for one in findings] == [
        ("nd7", None),
        ("PCI:0018:b9:00", None),
        ("x", 42),
        ("", None),
    ]


def test_names_of_devices_are_bounded() -> None:
    [finding] = found(log_detector("d", "f", (rule(),)), "x" * 150 + " is broken")

    assert finding.device == "x" * LONGEST_DEVICE


def test_a_finding_has_everything_of_its_row() -> None:
    row = rule(urgency=Urgency.DEFERRED, min_count=3, window=timedelta(minutes=1))

    [finding] = found(log_detector("d", "f", (row,)), "disk is broken")

    assert finding == Finding(
        family="f",
        condition=Condition.DISK,
        reason=Reason.IO_ERROR,
        severity=Severity.FATAL,
        remedy=Remedy.REPLACE,
        message="disk is broken",
        observed_at=NOW,
        device="disk",
        urgency=Urgency.DEFERRED,
        min_count=3,
        window=timedelta(minutes=1),
    )
