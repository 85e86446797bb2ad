"""Parsers of the output of load tests, NCCL's tests and stress-ng, from captured files."""

import re
from datetime import datetime
from typing import Final

from holdfast.detectors.judgement import LONGEST_MESSAGE, Judgement, undecided, whole
from holdfast.model.health import Finding, Remedy, Severity
from holdfast.model.names import Condition, Reason

FAMILY: Final = "load-test"

LARGE_BYTES: Final = 1024**3
"""Minimum message size for a bandwidth: small messages measure the latency."""

PART_OF_TIME: Final = 0.9
"""A test that ran for less than this share of the requested time was interrupted."""

_RANK_PREFIX: Final = re.compile(r"^(?:\[[0-9]+,[0-9]+\]<std\w{3}>:|[0-9]+: )", re.M)
_NUMBER: Final = r"[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?"
_WRONG: Final = r"(?:[0-9]+|N/A)"
_ROW: Final = re.compile(
    rf"^\s*(?P<size>[0-9]{{1,20}})\s+[0-9]+\s+[a-z0-9_]+(?:\s+\S+){{2}}\s+"
    rf"{_NUMBER}\s+{_NUMBER}\s+(?P<out>{_NUMBER})\s+(?P<wrong_out>{_WRONG})"
    rf"(?:\s+{_NUMBER}\s+{_NUMBER}\s+(?P<in>{_NUMBER})\s+(?P<wrong_in>{_WRONG}))?\s*$"
)
_DEVICE: Final = re.compile(r"^# +Rank +[0-9]{1,6} [^\n]{0,100}?\bon +(\S{1,255}) +device ", re.M)
_BOUNDS: Final = re.compile(r"^# Out of bounds values : ([0-9]{1,20}) (OK|FAILED)\s*$", re.M)
_AVERAGE: Final = re.compile(r"^# Avg bus bandwidth\s*:", re.M)
_NCCL_FAILURE: Final = re.compile(
    r"Test (?:NCCL|CUDA) failure [^\n]{1,200}|Test failure [^\n]{1,200}"
)


def judge_nccl(text: str, now: datetime, *, least_gbps: float | None = None) -> Judgement:
    """Evaluate the output of ``all_reduce_perf`` and similar tests.

    Args:
        text: its output, also with the prefixes of mpirun and srun.
        now: time of the evaluation.
        least_gbps: minimum bus bandwidth in GB/s at the largest size, in place and out of place;
            not checked if None. HyperPod requires 80 for two p5 instances.

    """
    text = _RANK_PREFIX.sub("", text)
    rows = _rows(text)
    wrong = [row for row in rows if _is_wrong(row["wrong_out"]) or _is_wrong(row["wrong_in"])]
    bounds = _BOUNDS.search(text)
    if wrong or (bounds is not None and bounds[2] == "FAILED"):
        where = f"with messages of {wrong[-1]['size']} bytes" if wrong else bounds and bounds[0]
        why = f"the result of a collective was wrong: {where}"
        return whole([_finding(Reason.NCCL_FAILED, why, now)])
    failure = _NCCL_FAILURE.search(text)
    if failure is not None:  # of software or hardware, here or elsewhere
        return undecided(f"the test failed: {failure[0]}"[:LONGEST_MESSAGE])
    if not rows or bounds is None or _AVERAGE.search(text) is None:
        return undecided(
            "the output of the test is cut off" if rows else "no results in the output"
        )
    if any(row["wrong_out"] == "N/A" for row in rows):
        return undecided("the results were not checked; run the test with -c 1")
    largest = max(rows, key=lambda row: int(row["size"]))
    if least_gbps is None:
        return whole([])
    if int(largest["size"]) < LARGE_BYTES:
        return undecided(f"no message had {LARGE_BYTES} bytes, so the bandwidth is not significant")
    bandwidth = _bandwidth(largest)
    if bandwidth >= least_gbps:
        return whole([])
    why = f"the bus bandwidth is {bandwidth:g} GB/s, expected at least {least_gbps:g}"
    return whole([_finding(Reason.NCCL_SLOW, why, now)])


def hosts_of(text: str) -> set[str]:
    """Return the hosts whose GPUs took part, as the head of the output lists them."""
    return set(_DEVICE.findall(_RANK_PREFIX.sub("", text)))


def largest_bandwidth(text: str) -> float | None:
    """Return the bus bandwidth at the largest size in GB/s; None below ``LARGE_BYTES``."""
    rows = _rows(_RANK_PREFIX.sub("", text))
    largest = max(rows, key=lambda row: int(row["size"]), default=None)
    if largest is None or int(largest["size"]) < LARGE_BYTES:
        return None
    return _bandwidth(largest)


def _rows(text: str) -> list[re.Match[str]]:
    return [row for line in text.splitlines() if (row := _ROW.match(line[:400])) is not None]


def _bandwidth(row: re.Match[str]) -> float:
    """Return the lower of both bandwidths: in place and out of place."""
    return min(float(row[name]) for name in ("out", "in") if row[name])


def _is_wrong(count: str | None) -> bool:
    return count is not None and count.isdigit() and int(count) > 0


_HOGS: Final = re.compile(r"dispatching hogs: [^\n]*?\b[1-9][0-9]* [a-z]")
_REQUESTED: Final = re.compile(
    r"setting to a (?:[^\n]*?\()?([0-9.]+) secs?\b|setting to a ([0-9.]+) seconds? run|"
    r"(?:defaulting|setting) to a ([0-9.]+) second"
)
_DONE: Final = re.compile(
    r"^stress(?:-ng)?: info: +\[[0-9]+\] (?P<un>un)?successful run completed in "
    r"(?P<seconds>[0-9.]+)s",
    re.M,
)
_CORRUPT: Final = re.compile(
    r"^stress-ng: fail: +\[[0-9]+\] (?!metrics-check)[^\n]{0,200}?"  # fails for killed workers too
    r"(?:mismatch|incorrect|corrupt|bit errors?|unexpected value)[^\n]{0,200}",
    re.M,
)
_NO_WORK: Final = "No stress workers invoked"


def judge_stress(text: str, now: datetime, *, seconds: float | None = None) -> Judgement:
    """Evaluate the output of ``stress-ng`` or ``stress``: both standard output and standard error.

    Args:
        text: its output.
        now: time of the evaluation.
        seconds: requested duration; as in the output if None.

    """
    corrupt = _CORRUPT.search(text)
    if corrupt is not None:
        return whole([_finding(Reason.STRESS_FAILED, corrupt[0], now)])
    done = _DONE.search(text)
    if done is None or done["un"]:  # a memory limit or a broken processor
        line = next((line for line in text.splitlines() if ": fail:" in line.lower()), "")
        return undecided(f"the run did not succeed: {line.strip() or 'output cut off'}"[:500])
    if _NO_WORK in text or _HOGS.search(text) is None:
        return undecided("no worker was started")
    requested = seconds if seconds is not None else _requested_seconds(text)
    if requested is not None and _float(done["seconds"]) < PART_OF_TIME * requested:
        return undecided(f"it ran for {done['seconds']} s instead of {requested:g} s")
    return whole([])


def _requested_seconds(text: str) -> float | None:
    requested = _REQUESTED.search(text)
    return (
        _float(next(group for group in requested.groups() if group))
        if requested is not None
        else None
    )


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # such as 1.2.3
        return 0.0


def _finding(reason: Reason, message: str, now: datetime) -> Finding:
    """Return a finding without a remedy: a test does not show which part of which node is bad."""
    is_gpu = reason is not Reason.STRESS_FAILED
    return Finding(
        family=FAMILY,
        condition=Condition.NVIDIA_GPU_UNHEALTHY if is_gpu else Condition.HOST_HARDWARE,
        reason=reason,
        severity=Severity.FATAL,
        remedy=Remedy.NONE,
        message=message[:LONGEST_MESSAGE],
        observed_at=now,
    )
