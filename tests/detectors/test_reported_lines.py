"""Lines of the kernel from public reports and from its sources, with their look-alikes."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.detectors.contract import LogLine, Profile, Readings
from holdfast.detectors.kernel_log import KernelLine, KernelLog
from holdfast.detectors.table import detectors, log_keywords
from holdfast.model.health import Finding, Remedy

NOW = datetime(2026, 11, 20, 13, 0, tzinfo=UTC)
FOLDER = Path(__file__).parents[1] / "recordings"
REPORTED = [
    json.loads(line)
    for line in (FOLDER / "kernel-lines" / "reported.jsonl").read_text("utf-8").splitlines()
]
READ = [row for row in REPORTED if row["reason"]]
WATCHERS = tuple(watcher for watcher in detectors(Profile.HYPERPOD) if watcher.keywords)
MARKS = log_keywords(WATCHERS)


def records(text: str) -> list[KernelLine]:
    log = KernelLog(MARKS)
    return [*log.feed(text.encode(), NOW), *log.close(NOW)]


def found(text: str) -> list[Finding]:
    return [finding for record in records(text) for finding in judged(record.message)]


def judged(message: str) -> list[Finding]:
    readings = Readings(kernel_log=(LogLine(message=message, observed_at=NOW),))
    return [finding for watcher in WATCHERS for finding in watcher.detect(readings)]


@pytest.mark.parametrize("row", REPORTED, ids=[row["line"][:80] for row in REPORTED])
def test_a_reported_line_is_read_as_it_is_meant(row: dict[str, str]) -> None:
    findings = [(one.reason, one.device, one.remedy) for one in found(row["line"] + "\n")]

    assert findings == ([(row["reason"], row["device"], row["remedy"])] if row["reason"] else [])


@pytest.mark.parametrize("row", READ, ids=[row["line"][:80] for row in READ])
def test_a_reported_line_that_somebody_quotes_is_not_read(row: dict[str, str]) -> None:
    [record] = records(row["line"] + "\n")
    for quote in (
        f"python[123]: {record.message}",
        f"systemd[1]: user said: {record.message}",
        f"audit: type=1400 audit(1732104000.1:2): msg='{record.message}'",
        f'"{record.message}"',
        f"somebody wrote to the list: {record.message}",
    ):
        assert judged(quote) == [], quote


def test_every_reported_line_names_its_source_and_is_there_once() -> None:
    assert all(row["source"] for row in REPORTED)
    assert len({row["line"] for row in REPORTED}) == len(REPORTED)


@given(st.sampled_from(READ), st.integers(1, 200))
def test_a_line_that_was_cut_off_asks_for_no_more_than_the_whole_line(
    row: dict[str, str], cut: int
) -> None:
    [record] = records(row["line"] + "\n")

    for finding in judged(record.message[:-cut]):
        assert finding.remedy.strength <= Remedy(row["remedy"]).strength
