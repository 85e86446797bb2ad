"""What one attempt has reported, read while its ranks write."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.adapters.host.job_log_rules import JobLogRules
from holdfast.adapters.host.pattern_matcher import PatternMatcher
from holdfast.adapters.local.attempt_reports import AttemptReports
from holdfast.adapters.local.layout import RunDir
from holdfast.decisions.log_rules import JobLogRule
from holdfast.decisions.loss_faults import LossLimits
from tests.ports.fakes import NOW, FakeClock

LATER = timedelta(minutes=2)
RULE = JobLogRule(name="steps", pattern="ready", start_cutoff=timedelta(minutes=1))
MEBIBYTE = 1 << 20


@pytest.fixture
def reports(tmp_path: Path) -> Iterator[tuple[AttemptReports, Path, FakeClock]]:
    own, matcher = RunDir(tmp_path), PatternMatcher()
    log = own.log(1, 0)
    log.parent.mkdir(parents=True, exist_ok=True)
    clock = FakeClock()
    rules = JobLogRules(matcher, [RULE])
    yield AttemptReports(own, 1, ["node"], LossLimits(), rules, clock), log, clock
    matcher.close()


def test_a_log_that_grows_faster_than_it_is_read_shows_no_silence(
    reports: tuple[AttemptReports, Path, FakeClock],
):
    read, log, clock = reports
    with log.open("w") as file:
        for _ in range(20):
            file.write("x" * MEBIBYTE + "\n")
        file.write("ready\n")
    read.hang()
    clock.time += LATER

    for _ in range(60):
        read.read()
        assert read.hang() is None, "the end of the log is unknown, or it has the line"


def test_a_log_without_the_line_is_a_hang_once_it_was_read(
    reports: tuple[AttemptReports, Path, FakeClock],
):
    read, log, clock = reports

    assert read.hang() is None
    clock.time += LATER
    read.read()

    assert read.hang().since == NOW
    log.write_text("ready\n")
    read.read()
    assert read.hang() is None


def test_a_log_that_cannot_be_read_shows_no_silence_and_is_reported(
    reports: tuple[AttemptReports, Path, FakeClock],
):
    read, log, clock = reports
    log.mkdir()

    read.read()
    assert read.rejected == ""
    assert read.hang() is None
    clock.time += LATER
    read.read()

    assert read.hang() is None
    assert read.rejected.startswith("logs cannot be read, or grow faster than they are read")


def test_a_clock_that_is_set_forward_shows_no_silence_and_dates_a_later_one(
    reports: tuple[AttemptReports, Path, FakeClock],
):
    read, log, clock = reports
    log.touch()
    read.read()
    assert read.hang() is None

    clock.set_forward(timedelta(hours=1))
    read.read()
    assert read.hang() is None
    clock.time += LATER
    read.read()

    assert read.hang().since == NOW + timedelta(hours=1)
