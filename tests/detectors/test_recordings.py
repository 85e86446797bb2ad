"""Whole logs, each with what it must come to."""

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.detectors.contract import LogLine, Profile, Readings
from holdfast.detectors.folding import Health, fold
from holdfast.detectors.kernel_log import LONGEST_LINE, KernelLine, KernelLog
from holdfast.detectors.table import detectors, log_keywords
from holdfast.model.health import Finding, Remedy

NOW = datetime(2025, 11, 20, 13, 0, tzinfo=UTC)
FOLDER = Path(__file__).parents[1] / "recordings" / "kernel-log"
FAULTY = sorted(path for path in FOLDER.glob("*.txt") if path.stem != "benign")
REPORTED = [
    json.loads(line)["line"]
    for line in (FOLDER.parent / "kernel-lines" / "reported.jsonl").read_text("utf-8").splitlines()
]
BENIGN = (FOLDER / "benign.txt").read_text(encoding="utf-8").splitlines()
WATCHERS = tuple(watcher for watcher in detectors(Profile.HYPERPOD) if watcher.keywords)
MARKS = log_keywords(WATCHERS)


def records(data: bytes) -> list[KernelLine]:
    log = KernelLog(MARKS)
    return [*log.feed(data, NOW), *log.close(NOW)]


def judged(record: KernelLine) -> list[Finding]:
    line = LogLine(message=record.message, observed_at=record.at or NOW)
    readings = Readings(kernel_log=(line,))
    return [finding for watcher in WATCHERS for finding in watcher.detect(readings)]


def found(data: bytes) -> list[Finding]:
    return [finding for record in records(data) for finding in judged(record)]


def reported(finding: Finding, number: int) -> dict[str, object]:
    return {
        "line_number": number,
        "family": finding.family,
        "code": finding.code,
        "device": finding.device,
        "reason": finding.reason,
        "severity": finding.severity,
        "remedy": finding.remedy,
    }


def summary(data: bytes) -> dict[str, object]:
    findings = [(one, record.line_number) for record in records(data) for one in judged(record)]
    health = fold(Health(), [finding for finding, _ in findings])
    return {
        "findings": [reported(*finding) for finding in findings],
        "faults": [
            {
                "reason": fault.reason,
                "code": fault.code,
                "device": fault.device,
                "remedy": fault.remedy,
                "since": fault.since.isoformat(),
                "count": fault.count,
                "followers": fault.followers,
            }
            for fault in health.faults
        ],
    }


@pytest.mark.parametrize("path", FAULTY, ids=lambda path: path.stem)
def test_a_recorded_log_comes_to_what_is_written_beside_it(path: Path) -> None:
    expected = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))

    assert summary(path.read_bytes()) == expected


@pytest.mark.parametrize("path", FAULTY, ids=lambda path: path.stem)
def test_benign_lines_between_the_others_change_nothing_of_the_faults(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    noise = [f"[ 1.{number:06}] {line}" for number, line in enumerate(BENIGN) if "Xid" not in line]
    mixed = "\n".join(text for line in lines for text in (line, *noise)).encode()

    assert summary(mixed)["faults"] == summary(path.read_bytes())["faults"]


def test_the_benign_lines_are_many_and_each_is_there_once() -> None:
    assert len(BENIGN) >= 150
    assert len(set(BENIGN)) == len(BENIGN)


PREFIXES = (
    "",
    "[ 1234.567890] ",
    "4,1467,131453740743,-;",
    "<3>",
    "Nov 20 12:00:00 host kernel: ",
    "2025-11-20T12:00:00+00:00 host kernel: ",
    "kern  :err   : [Thu Nov 20 12:00:00 2025] ",
)


@given(st.lists(st.tuples(st.sampled_from(BENIGN), st.sampled_from(PREFIXES)), max_size=60))
def test_no_mix_of_benign_lines_calls_for_anything(lines: list[tuple[str, str]]) -> None:
    data = "\n".join(prefix + line for line, prefix in lines).encode()

    findings = found(data)

    assert [finding for finding in findings if finding.remedy is not Remedy.NONE] == []
    assert fold(Health(), findings).faults == ()


FRAGMENTS = [
    *sorted(MARKS),
    *(line for path in FAULTY for line in path.read_text(encoding="utf-8").splitlines()),
    *REPORTED,
]


@given(
    st.lists(
        st.one_of(
            st.sampled_from(FRAGMENTS).map(str.encode),
            st.binary(max_size=40),
            st.sampled_from([b"\n", b"\0", b"\xff\xfe", b" " * 50, b"(" * 50, b"0000:b9:00.0"]),
        ),
        max_size=30,
    )
)
def test_whatever_is_in_a_log_is_judged(pieces: list[bytes]) -> None:
    for finding in found(b"".join(pieces)):
        assert finding.reason
        assert finding.family


@pytest.mark.parametrize("unit", ["a", "0", " ", ":", "a ", "0000:", "[", "x: ", "\0", "a:1:"])
@pytest.mark.parametrize("mark", sorted(MARKS))
def test_the_longest_line_takes_no_longer_than_its_length_allows(mark: str, unit: str) -> None:
    """A pattern that backtracks would take seconds here, and minutes for some."""
    fill = unit * (LONGEST_LINE // len(unit))
    starts = [mark, *{line.partition(mark)[0] + mark for line in EXAMPLES if mark in line}]
    began = time.process_time()

    for start in starts:
        found(f"{start}{fill}\n{fill}{start}\n{start[:-1]}{fill}{mark}\n".encode())

    assert time.process_time() - began < 0.5 * len(starts)


EXAMPLES = [
    line.partition("kernel: ")[2] or line
    for path in FAULTY
    for line in path.read_text(encoding="utf-8").splitlines()
] + [line.partition("kernel: ")[2] or line.rpartition("] ")[2] for line in REPORTED]


def test_a_megabyte_without_an_end_hides_nothing_after_it() -> None:
    fault = b"NVRM: Xid (PCI:0000:b9:00): 74, x\n"
    for garbage in (b"NVRM: Xid (" * 100_000, b"\0" * 1_000_000, b"\xff" * 1_000_000):
        [finding] = found(garbage + b"\n" + fault)

        assert finding.code == 74


def test_a_message_that_users_can_make_long_is_kept_short() -> None:
    [finding] = found(b"Out of memory: Killed process 1 (" + b"a" * 60 + b") total-vm:1kB\n")

    assert len(finding.device) == 60
    assert NOW - finding.observed_at < timedelta(seconds=1)
