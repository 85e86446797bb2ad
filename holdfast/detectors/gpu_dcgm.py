"""DCGM's results: ``dcgmi health -c -j`` and ``dcgmi diag -r N -j``, in all their versions.

The JSON has no published schema. This parser follows DCGM's sources: 3.1 names a GPU ``gpu_ids``
and gives one warning as a text; 3.3 has a list of objects, in which its deployment tests misname
the text ``warnings``; 4 names entities. Fields differ by version, entries may be null.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from holdfast.detectors.contract import Detector, Profile, Sample
from holdfast.detectors.judgement import (
    LONGEST_MESSAGE,
    Judgement,
    state_detector,
    undecided,
)
from holdfast.detectors.state_reasons import fault, note
from holdfast.model.health import Finding, Remedy, Severity, Urgency
from holdfast.model.names import Condition, Reason

FAMILY: Final = "dcgm"
DIAGNOSIS: Final = "dcgm-diag"
SOURCE: Final = "dcgm-health"
EVERY: Final = timedelta(minutes=5)
"""Interval of the EKS node monitoring agent."""

LONGEST: Final = 16 * 1024 * 1024

_ROOTS: Final = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
_MILD_SYSTEMS: Final = ("Thermal system", "Power system")
"""Systems whose failures slow a GPU down, often for a reason outside of the node."""

_DRIVER: Final = "Driver Version Detected"
_MONITOR, _TRIAGE, _CONFIG, _RESET = 1, 4, 5, 6  # dcgmErrorSeverity_t
_ROW_REMAP_FAILURE: Final = 80
"""DCGM's table has reset, NVIDIA's guide to memory errors has replace."""

_NOT_RUN: Final = (73, 89, 90, 91, 124)
"""Errors of a test that the host did not let run: MEMORY_ALLOC_HOST, EUD_BINARY_PERMISSIONS,
EUD_NON_ROOT_USER, EUD_SPAWN_FAILURE and BINARY_PERMISSIONS. DCGM's table has triage."""

# fmt: off
STATE_REASONS: Final = (
    fault(FAMILY, Reason.DCGM_HEALTH, Remedy.REBOOT, "`dcgmi health`: `Failure`"),
    note(FAMILY, Reason.DCGM_WARNING, "`dcgmi health`: `Warning`, or a failure of heat or power"),
)
# fmt: on


def build(_profile: Profile) -> Detector:
    """Return the detector; all profiles agree on it."""
    return state_detector(
        "gpu-dcgm", _judge_sample, STATE_REASONS, reads=SOURCE, settles={FAMILY}, every=EVERY
    )


def _judge_sample(sample: Sample) -> Judgement:
    return judge_health(sample.text, sample.taken_at)


def judge_health(text: str, now: datetime) -> Judgement:
    """Evaluate the output of ``dcgmi health -c -j``; its exit status is 0 also for a failure."""
    document = _document(text)
    body = document.get("body") if isinstance(document, dict) else None
    overall = body.get("Overall Health") if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(overall, dict):
        return undecided(_first_line(text) or "not a health report of DCGM")
    findings = [
        _health_finding(path, entry, now)
        for path, entry in _walk(body, ())
        if len(path) > 2 and "overflow" in entry
    ]
    match overall.get("value"):
        case "Healthy":
            return Judgement(findings=tuple(findings))
        case "Warning" | "Failure" if findings:
            return Judgement(findings=tuple(findings))
        case value:
            return undecided(f"the overall health is {value} without details", findings)


def _walk(tree: dict[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield all entries of nested ``children``, with the names that lead to them."""
    front = [(path, tree)]
    while front:
        above, entries = front.pop()
        for name, entry in entries.items():
            if isinstance(entry, dict):
                yield (*above, name), entry
                children = entry.get("children")
                if isinstance(children, dict):
                    front.append(((*above, name), children))


def _health_finding(path: tuple[str, ...], entry: dict[str, Any], now: datetime) -> Finding:
    lines = entry.get("overflow")
    text = " ".join(map(str, lines)) if isinstance(lines, list) else str(lines)
    system = path[-1]
    is_failure = entry.get("value") == "Failure"
    is_fatal = is_failure and system not in _MILD_SYSTEMS
    return dcgm_finding(
        Reason.DCGM_HEALTH if is_fatal else Reason.DCGM_WARNING,
        f"{system}: {text}",
        now,
        device=f"{path[0]} {path[1]} {system}",
        severity=Severity.FATAL if is_fatal else Severity.WARNING,
        remedy=Remedy.REBOOT if is_fatal else Remedy.NONE,
    )


def judge_diag(text: str, now: datetime) -> Judgement:
    """Evaluate the output of ``dcgmi diag -r N -j``; its exit status is not needed for that."""
    document = _document(text)
    roots = list(_roots(document))
    if not roots:
        return undecided(_first_line(text) or "not a DCGM diagnostic")
    findings: list[Finding] = []
    doubts: list[str] = []
    passed = 0
    for root in roots:
        if root.get("runtime_error"):
            doubts.append(f"the diagnostic did not run: {root['runtime_error']}")
        for test, result in _results(root):
            status = str(result.get("status", "")).lower()
            passed += status == "pass"
            if status in ("fail", "warn"):
                found = [*_diag_findings(test, result, now, is_failure=status == "fail")]
                doubts += [one.message for one in found if one.code in _NOT_RUN]
                findings += found
            elif status not in ("pass", "skip", "not run"):
                doubts.append(f"the test {test} has the status {result.get('status')!r}")
    if not passed and not findings:
        doubts.append("no test passed or failed")
    return Judgement(findings=tuple(findings), undecided="; ".join(doubts)[:LONGEST_MESSAGE])


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagFacts:
    """Facts that a diagnostic reports about itself and the machine; empty if it does not."""

    version: str = ""
    """Version of DCGM."""

    driver: str = ""
    device_ids: tuple[str, ...] = ()
    """PCI device numbers of the GPUs, such as ``2330`` of an H100, each once."""


def diag_facts(text: str) -> DiagFacts:
    """Return the facts in the output of ``dcgmi diag -r N -j``."""
    document = _document(text)
    if not isinstance(document, dict):
        return DiagFacts()
    metadata = document.get("metadata")
    places = [metadata] if isinstance(metadata, dict) else []
    places += list(_roots(document))
    groups = [
        entity.get("device_id")
        for group in _objects(document.get("entity_groups"))
        for entity in _objects(group.get("entities"))
    ]
    older = [one for place in places for one in place.get("GPU Device IDs") or ()]
    return DiagFacts(
        version=next((str(one["version"]) for one in places if "version" in one), ""),
        driver=next((str(one[_DRIVER]) for one in places if _DRIVER in one), ""),
        device_ids=tuple(dict.fromkeys(str(one) for one in (*groups, *older) if one)),
    )


def _roots(document: object) -> Iterator[dict[str, Any]]:
    if not isinstance(document, dict):
        return
    for name in _ROOTS:
        if isinstance(root := document.get(name), dict):
            yield root
    for iteration in _objects(document.get("iterations")):
        for name in _ROOTS:
            if isinstance(root := iteration.get(name), dict):
                yield root


def _results(root: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for category in _objects(root.get("test_categories")):
        for test in _objects(category.get("tests")):
            name, results = str(test.get("name", "")), list(_objects(test.get("results")))
            for result in results:
                yield name, result
            summary = test.get("test_summary")
            if isinstance(summary, dict) and not any(_has_failed(result) for result in results):
                yield name, summary


def _has_failed(result: dict[str, Any]) -> bool:
    return str(result.get("status", "")).lower() in ("fail", "warn")


def _objects(value: object) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        yield from (entry for entry in value if isinstance(entry, dict))


def _diag_findings(
    test: str, result: dict[str, Any], now: datetime, *, is_failure: bool
) -> Iterator[Finding]:
    warnings = result.get("warnings")
    entries = warnings if isinstance(warnings, list) else [warnings]
    known = [entry for entry in entries if entry] or [{}]
    for entry in known:
        details = entry if isinstance(entry, dict) else {"warning": entry}
        text = details.get("warning") or details.get("warnings") or "failed without a message"
        severity, remedy, urgency = _weight(details, is_failure=is_failure)
        error = details.get("error_id")
        finding = dcgm_finding(
            Reason.DCGM_WARNING if remedy is Remedy.NONE else Reason.DCGM_DIAG,
            f"{test}: {text}",
            now,
            device=_device(result),
            severity=severity,
            remedy=remedy,
            urgency=urgency,
            code=error if isinstance(error, int) and 0 <= error < 10_000 else None,
        )
        yield replace(finding, family=DIAGNOSIS)


def _weight(details: dict[str, Any], *, is_failure: bool) -> tuple[Severity, Remedy, Urgency]:
    """Return the remedy of an error by DCGM's severity, as of hardware where it has none."""
    if details.get("error_id") == _ROW_REMAP_FAILURE:
        return Severity.FATAL, Remedy.REPLACE, Urgency.IMMEDIATE
    is_not_run = details.get("error_id") in _NOT_RUN
    match details.get("error_severity"):
        case severity if severity in (_CONFIG, _MONITOR) or is_not_run or not is_failure:
            return Severity.WARNING, Remedy.NONE, Urgency.IMMEDIATE
        case severity if severity == _RESET:
            return Severity.FATAL, Remedy.RESET_GPU, Urgency.IMMEDIATE
        case severity if severity == _TRIAGE:
            return Severity.FATAL, Remedy.REBOOT, Urgency.IMMEDIATE
        case _:
            return Severity.FATAL, Remedy.REPLACE, Urgency.IMMEDIATE


def _device(result: dict[str, Any]) -> str:
    for name in ("entity_id", "gpu_id", "gpu_ids"):
        value = result.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool):
            return f"{result.get('entity_group', 'GPU')} {value}"[:100]
    return ""


def _document(text: str) -> object:
    """Return the first JSON object of a text; other text may precede it."""
    text = text[:LONGEST]
    start = text.find("{")
    if start < 0:
        return None
    try:
        return json.JSONDecoder().raw_decode(text, start)[0]
    except (ValueError, RecursionError):
        return None


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return "" if line.startswith("{") else line[:200]


def dcgm_finding(
    reason: Reason,
    message: str,
    now: datetime,
    *,
    device: str,
    severity: Severity,
    remedy: Remedy,
    urgency: Urgency = Urgency.IMMEDIATE,
    code: int | None = None,
) -> Finding:
    """A finding of DCGM, under the condition that goes with its remedy."""
    conditions = {
        Remedy.NONE: Condition.NVIDIA_GPU_UNHEALTHY,
        Remedy.REPLACE: Condition.NVIDIA_TERMINATE,
    }
    return Finding(
        family=FAMILY,
        condition=conditions.get(remedy, Condition.NVIDIA_REBOOT),
        reason=reason,
        severity=severity,
        remedy=remedy,
        message=message[:LONGEST_MESSAGE],
        observed_at=now,
        code=code,
        device=device,
        urgency=urgency,
    )
