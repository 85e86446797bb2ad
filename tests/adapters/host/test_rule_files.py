"""Which rule files an agent trusts, and which rules it takes."""

import os
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.adapters.host.rule_files import read_rules
from holdfast.detectors.custom_rules import CustomRule
from holdfast.model.errors import ConfigError
from holdfast.model.health import Remedy, Severity
from holdfast.model.names import Condition

RULE = CustomRule(
    keyword="acme",
    pattern="acme: [0-9]{1,9} lost",
    example="acme: 12 lost",
    condition=Condition.DISK,
    reason="AcmeLost",
)


def file(folder: Path, name: str = "rules.toml", rule: str = "lost", **changes: str) -> Path:
    values = {"keyword": "acme", "pattern": "acme: [0-9]{1,9} lost", "example": "acme: 12 lost",
              "condition": "DiskError", "reason": "AcmeLost", **changes}  # fmt: skip
    path = folder / name
    lines = [f"[rule.{rule}]", *(f"{key} = '{value}'" for key, value in values.items())]
    path.write_text("\n".join(lines), encoding="utf-8")
    path.chmod(0o644)
    return path


def problems(*paths: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read_rules(paths)
    return "\n".join(caught.value.problems)


def test_a_rule_only_reports_unless_it_says_otherwise(tmp_path: Path) -> None:
    rules = read_rules([file(tmp_path)])

    assert rules == {"lost": RULE}
    assert (RULE.severity, RULE.remedy) == (Severity.WARNING, Remedy.NONE)


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666, 0o777])
def test_a_file_that_others_may_write_is_not_trusted(tmp_path: Path, mode: int) -> None:
    path = file(tmp_path)
    path.chmod(mode)

    assert f"{path}: mode {mode:04o} lets other users write it; run: chmod" in problems(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_not_trusted(tmp_path: Path) -> None:
    path = file(tmp_path)
    os.chown(path, 65534, -1)

    assert f"{path}: owned by user 65534; expected root" in problems(path)


def test_a_link_is_judged_by_its_file(tmp_path: Path) -> None:
    path, link = file(tmp_path), tmp_path / "link"
    link.symlink_to(path)
    assert read_rules([link])

    path.chmod(0o666)
    assert f"{link}: mode 0666" in problems(link)


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    assert "not a regular file" in problems(tmp_path)
    assert "cannot be read: No such file" in problems(tmp_path / "none")


def test_two_files_may_not_share_the_name_of_a_rule(tmp_path: Path) -> None:
    first, second = file(tmp_path, "a.toml"), file(tmp_path, "b.toml")

    assert f"{second}: rule.lost: another file" in problems(first, second)


@pytest.mark.parametrize(
    "pattern",
    [
        r"acme: ((a{1,30}){1,30}){1,30}!",
        r"acme: (z|zz|y){1,60}!",
        r"acme: [a:]{0,900}[a-z:]{0,900}[a:]{0,900}[ab:]{0,900}!",
    ],
)
def test_a_pattern_that_backtracks_without_end_is_refused(tmp_path: Path, pattern: str) -> None:
    path = file(tmp_path, pattern=f"{pattern}|acme: [0-9]{{1,9}} lost", keyword="acme: ")

    assert (
        f"{path}: rule.lost.pattern: expected a regular expression that can be matched quickly"
        in (problems(path))
    )


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"pattern": "acme: .* lost"}, "pattern: * repeats without an upper bound"),
        ({"pattern": "acme: [0-9]+"}, "pattern: + repeats without an upper bound"),
        ({"pattern": "acme: a{3,}"}, "pattern: {3,} repeats without an upper bound"),
        ({"pattern": "acme: [*+]{1,9}"}, "example: pattern does not match"),
        ({"pattern": "acme: a{1,1001}"}, "pattern: a repetition of more than 1000"),
        ({"pattern": "acme: ("}, "pattern: not a regular expression of Python: missing )"),
        ({"pattern": "a" * 1001}, "pattern: 1001 characters; at most 1000"),
        (
            {"pattern": "acme: (?P<disk>[0-9])"},
            "pattern: unknown group disk; expected one of device",
        ),
        ({"pattern": "12 lost"}, "example: pattern does not match it from its start"),
        ({"keyword": "other"}, "keyword: 'other' does not occur in example"),
        ({"keyword": " "}, "keyword: must not be empty"),
        ({"reason": "acme-lost"}, "reason: 'acme-lost' is not PascalCase"),
        ({"severity": Severity.FATAL}, 'severity: "fatal" does not fit remedy "none"'),
        ({"remedy": Remedy.REBOOT}, 'severity: "warning" does not fit remedy "reboot"'),
        ({"min_count": 0}, "min_count: must be at least 1, got 0"),
        ({"min_count": 2}, "window: required with min_count = 2"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(change: dict, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        replace(RULE, **change)


def test_a_rule_that_makes_sense_is_taken() -> None:
    minute = timedelta(minutes=1)
    replace(RULE, severity=Severity.FATAL, remedy=Remedy.REBOOT, min_count=2, window=minute)
