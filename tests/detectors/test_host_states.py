"""Processes, units, and the counters of the kernel."""

from datetime import UTC, datetime, timedelta

import pytest
from listed_findings import detected

from holdfast.detectors.contract import LOGS, Detector, Profile, Readings, Sample
from holdfast.detectors.folding import Health, fold
from holdfast.detectors.table import detectors
from holdfast.model.health import Finding, Remedy, Severity, Urgency
from holdfast.model.names import Reason

NOW = datetime(2025, 11, 20, 12, 0, tzinfo=UTC)
DETECTORS = {one.name: one for one in detectors(Profile.HYPERPOD)}


def judged(name: str, values: dict[str, str], before: dict[str, str]) -> list[Finding]:
    detector = DETECTORS[name]
    [source] = detector.reads
    sample = Sample(
        name=source, taken_at=NOW, values=values, before=before,
        seen=frozenset({*values, *before}),
    )  # fmt: skip
    return detected(detector, Readings(samples={source: sample}))


def processes(blocked: str) -> dict[str, str]:
    return {"threads": "9", "limit": "1000", "zombies": "0", "blocked": blocked}


def test_a_process_that_is_blocked_at_two_looks_and_did_not_run_is_stuck() -> None:
    before = processes("12:22:7+3:python 13:50:9+0:cp")
    now = processes("12:22:7+3:python 13:50:12+0:cp 14:60:1+0:new")

    [finding] = judged("process-state", now, before)

    assert (finding.reason, finding.remedy) == (Reason.PROCESSES_STUCK, Remedy.NONE)
    assert finding.message.endswith(": python (12)")


@pytest.mark.parametrize("before", ["", "12:21:7+3:python", "12:22:7+2:python", "22:7+3:python"])
def test_a_process_that_is_blocked_once_or_has_the_number_of_another_is_not(before: str) -> None:
    assert judged("process-state", processes("12:22:7+3:python"), processes(before)) == []


STUCK = "12:22:7+3:python"


def unkillable(killed: str, before: str, blocked: str = STUCK) -> list[Finding]:
    now = {**processes(blocked), "killed": killed}
    found = judged("process-state", now, {**processes(STUCK), "killed": before})
    return [one for one in found if one.reason == Reason.PROCESSES_UNKILLABLE]


def test_a_process_that_sigkill_does_not_end_makes_the_node_suspect_and_nothing_more() -> None:
    [finding] = unkillable("12:22", "12:22")
    assert finding.message.endswith(": python (12)")

    health = fold(Health(), [finding], settled={finding.family})
    assert health.faults == ()
    assert [one.reason for one in health.suspects] == [Reason.PROCESSES_UNKILLABLE]
    assert fold(health, [], settled={finding.family}).suspects == ()


@pytest.mark.parametrize(
    ("killed", "before", "blocked"),
    [
        ("", "12:22", STUCK),
        ("12:22", "", STUCK),
        ("12:23", "12:23", STUCK),
        ("12:22", "12:22", "12:22:8+3:python"),
        ("12:22", "12:22", ""),
    ],
)
def test_a_process_that_ran_or_got_no_sigkill_before_is_not_unkillable(
    killed: str, before: str, blocked: str
) -> None:
    assert unkillable(killed, before, blocked) == []


@pytest.mark.parametrize("blocked", ["x", ":", "1:2:3", "::: :::"])
def test_what_is_no_process_breaks_nothing(blocked: str) -> None:
    for finding in judged("process-state", processes(blocked), processes(blocked)):
        assert finding.remedy is Remedy.NONE


def test_kills_for_want_of_memory_are_reported_when_there_are_new_ones() -> None:
    values = {"MemAvailable": "9999999", "oom_kill": "5"}

    [finding] = judged("memory-state", values, {"oom_kill": "3"})

    assert (finding.reason, finding.remedy) == (Reason.OOM_KILLING, Remedy.NONE)
    assert "killed 2 processes" in finding.message
    assert judged("memory-state", values, {"oom_kill": "5"}) == []
    assert judged("memory-state", values, {}) == []


HARD = (Remedy.REPLACE, Urgency.IMMEDIATE, Severity.FATAL)
LATER = (Remedy.REPLACE, Urgency.DEFERRED, Severity.WARNING)
NOTICE = (Remedy.NONE, Urgency.IMMEDIATE, Severity.WARNING)


@pytest.mark.parametrize(
    ("more_before", "more", "expected"),
    [
        ({"memory_failures": "0"}, {"memory_failures": "1"}, [HARD]),
        ({"memory_failures": "1"}, {"memory_failures": "1"}, [NOTICE]),
        ({"memory_failures": "1", "edac": ""}, {"memory_failures": "1", "edac": ""}, [NOTICE]),
        ({"edac": ""}, {"edac": ""}, [LATER]),
        ({}, {}, [HARD]),
    ],
)
def test_memory_that_was_retired_after_corrected_errors_replaces_no_node_at_once(
    more_before: dict[str, str], more: dict[str, str], expected: list[tuple]
) -> None:
    before = {"MemAvailable": "9999999", "HardwareCorrupted": "0", **more_before}
    values = {"MemAvailable": "9999999", "HardwareCorrupted": "4", **more}

    hits = judged("memory-state", values, before)

    is_notice = expected == [NOTICE]  # of its own reason, so that it ends no fault
    assert [one.reason for one in hits] == [
        Reason.MEMORY_READ_ERROR if is_notice else Reason.MEMORY_CORRUPTED
    ]
    assert [(one.remedy, one.urgency, one.severity) for one in hits] == expected
    assert judged("memory-state", values, values) == []


def unit(state: str, restarts: int = 0, name: str = "kubelet") -> dict[str, str]:
    return {
        "status": "0", f"{name}/ActiveState": state, f"{name}/Result": "exit-code",
        f"{name}/NRestarts": str(restarts),
    }  # fmt: skip


def test_a_unit_that_has_failed_at_two_looks_is_reported() -> None:
    [finding] = judged("unit-state", unit("failed"), unit("failed"))

    assert (finding.reason, finding.device) == (Reason.UNIT_FAILED, "kubelet")
    assert (finding.severity, finding.remedy) == (Severity.FATAL, Remedy.NONE)
    assert judged("unit-state", unit("failed"), unit("active")) == []
    assert judged("unit-state", unit("failed"), {}) == []
    assert judged("unit-state", unit("inactive"), unit("inactive")) == []


@pytest.mark.parametrize(("by", "is_reported"), [(1, False), (2, True)])
def test_a_unit_that_starts_again_and_again_is_reported(by: int, is_reported: bool) -> None:
    hits = judged("unit-state", unit("active", 7 + by), unit("active", 7))

    assert [(one.reason, one.remedy) for one in hits] == [
        (Reason.UNIT_RESTARTS, Remedy.NONE)
    ] * is_reported


def test_a_systemd_that_does_not_answer_is_reported_and_ends_nothing() -> None:
    [finding] = judged("unit-state", {"status": "1"}, unit("failed"))

    assert finding.reason == Reason.SOURCE_FAILED


def logs(error: str) -> Readings:
    return Readings(samples={LOGS: Sample(name=LOGS, taken_at=NOW, error=error)})


def taken(detector: Detector, health: Health, readings: Readings) -> Health:
    found = detector.detect(readings)
    return fold(health, found, settled=set() if found else detector.settles)


def test_a_log_that_cannot_be_read_is_a_notice_until_it_can() -> None:
    detector = DETECTORS["log-sources"]

    blind = taken(detector, Health(), logs("journalctl ended with 1"))

    assert [(one.reason, one.remedy) for one in blind.notices] == [
        (Reason.SOURCE_FAILED, Remedy.NONE)
    ]
    assert "journalctl ended with 1" in blind.notices[0].message
    assert taken(detector, blind, logs("")).notices == ()


def test_only_the_diagnosis_waits_to_be_asked_for() -> None:
    assert [one.name for one in DETECTORS.values() if one.is_opt_in] == ["gpu-dcgm-diag"]


def test_a_diagnosis_and_a_health_check_end_only_their_own_faults() -> None:
    settled = [DETECTORS[name].settles for name in ("gpu-dcgm", "gpu-dcgm-diag")]

    assert settled[0].isdisjoint(settled[1])
    assert DETECTORS["gpu-dcgm-diag"].every == timedelta(hours=24)
