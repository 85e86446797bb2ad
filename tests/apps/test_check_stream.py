"""Results as HyperPod streams them."""

import json
from datetime import UTC, datetime

import pytest

from holdfast.apps.checks.stream import append_results, line
from holdfast.model.deep_checks import Outcome
from holdfast.model.health import Finding, Remedy, Severity
from holdfast.model.node_checks import Level, NodeCheck, PartResult

NOW = datetime(2024, 6, 18, 21, 15, 22, tzinfo=UTC)


def a_finding(remedy: Remedy) -> Finding:
    return Finding(
        family="gpu",
        condition="c",
        reason="r",
        severity=Severity.FATAL,
        remedy=remedy,
        message="m",
        observed_at=NOW,
    )


def a_check(outcome: Outcome, **part) -> NodeCheck:
    return NodeCheck(
        node="gpu-1",
        instance_type="p4d.24xlarge",
        level=Level.LONG,
        started_at=NOW,
        parts=(PartResult(name="nccl", outcome=outcome, **part),),
    )


def test_a_failure_has_hyperpods_words(monkeypatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    reported = json.loads(line(a_check(Outcome.FAILED, detail="30 GB/s, expected 80"), NOW))

    assert reported == {
        "level": "error",
        "ts": "2024-06-18T21:15:22Z",
        "msg": "Encountered FaultyInstance. Replace the Instance. Region: us-west-2, "
        "InstanceType: p4d.24xlarge. ERROR:nccl: 30 GB/s, expected 80",
        "node": "gpu-1",
    }


@pytest.mark.parametrize(
    ("remedies", "act"),
    [((), "Replace"), ((Remedy.REBOOT,), "Reboot"), ((Remedy.REBOOT, Remedy.REPLACE), "Replace")],
)
def test_a_failure_says_what_is_to_be_done(remedies, act) -> None:
    findings = tuple(a_finding(remedy) for remedy in remedies)
    reported = json.loads(line(a_check(Outcome.FAILED, findings=findings), NOW))

    assert f"{act} the Instance." in reported["msg"]


@pytest.mark.parametrize("outcome", [Outcome.PASSED, Outcome.SKIPPED, Outcome.UNKNOWN])
def test_what_did_not_fail_is_no_error(outcome) -> None:
    reported = json.loads(line(a_check(outcome, detail="x"), NOW))

    assert (reported["level"], f"check {outcome}." in reported["msg"]) == ("info", True)


def test_results_are_added_to_those_before(tmp_path) -> None:
    path = tmp_path / "stream"
    for _ in range(2):
        append_results(path, [a_check(Outcome.PASSED), a_check(Outcome.FAILED)], NOW)

    lines = path.read_text(encoding="utf-8").splitlines()
    assert [json.loads(one)["level"] for one in lines] == ["info", "error"] * 2
