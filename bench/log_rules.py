"""Kernel logs: what it costs to judge them with all detectors on."""

import time
from datetime import UTC, datetime
from pathlib import Path

from bench.figure import Figure
from holdfast.detectors.contract import LogLine, Profile, Readings
from holdfast.detectors.folding import Health, fold
from holdfast.detectors.kernel_log import KernelLog
from holdfast.detectors.table import detectors, log_keywords

NOW = datetime(2025, 11, 20, tzinfo=UTC)
LINES = 100_000
FAULTY_LINES = 10_000
_RECORDINGS = Path(__file__).parents[1] / "tests" / "recordings" / "kernel-log"
_MS = 1000


def run() -> list[Figure]:
    """Judge benign lines, which are nearly all there is, and a storm of one fault."""
    benign = [
        line
        for line in (_RECORDINGS / "benign.txt").read_bytes().splitlines()
        if not _judge(line + b"\n")[1]
    ]
    noise = b"".join(
        b"[%5d.%06d] %s\n" % (number, number, benign[number % len(benign)])
        for number in range(LINES)
    )
    fault = b"4,%d,%d,-;NVRM: Xid (PCI:0000:b9:00): 79, GPU has fallen off the bus.\n"
    storm = b"".join(fault % (number, number) for number in range(FAULTY_LINES))
    noise_s, found = _judge(noise)
    storm_s, counted = _judge(storm)
    assert (found, counted) == (0, FAULTY_LINES)
    # A storm of 5,000 lines a second may then take half a core if all of them are faults.
    return [
        Figure(
            name="CPU per 1,000 benign kernel lines",
            value=noise_s * _MS / (LINES / 1000), unit="ms", goal=10,
        ),
        Figure(
            name="CPU per 1,000 kernel lines of one fault",
            value=storm_s * _MS / (FAULTY_LINES / 1000), unit="ms", goal=100,
        ),
    ]  # fmt: skip


def _judge(data: bytes) -> tuple[float, int]:
    """CPU seconds, and how often the faults and notices were seen."""
    watchers = detectors(Profile.HYPERPOD)
    log, health, seen = KernelLog(log_keywords(watchers)), Health(), 0
    began = time.process_time()
    for start in range(0, len(data), 1 << 16):
        records = log.feed(data[start : start + (1 << 16)], NOW)
        lines = tuple(
            LogLine(message=record.message, observed_at=record.at or NOW) for record in records
        )
        readings = Readings(kernel_log=lines)
        findings = [one for watcher in watchers for one in watcher.detect(readings)]
        seen += len(findings)
        health = fold(health, findings)
    return time.process_time() - began, seen
