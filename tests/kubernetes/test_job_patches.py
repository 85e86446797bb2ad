"""What is written on a job."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from job_objects import BEGAN, KIND, a_job_object, a_record, a_state, requests

from holdfast.adapters.kubernetes.jobs.records import (
    RECORD_LIMIT,
    bounded,
    record_patch,
    release_patch,
    summary,
)
from holdfast.kit.serial import parse_value
from holdfast.model.jobs import AttemptRecord, Failure, FailureKind, JobPhase, JobRecord, LossAction
from holdfast.model.names import (
    ATTEMPT,
    BAD_LOSS,
    JOB_RECORD,
    JOB_STATUS,
    RECORD_OF,
    RESTART_REASON,
    SKIP_STEPS,
)

FAILURE = Failure(kind=FailureKind.HARDWARE, reason="Cause", at=BEGAN, node="a")
QUEUED = {"kueue.x-k8s.io/queue-name": "team"}


def second(seconds):
    return BEGAN + timedelta(seconds=seconds)


def an_attempt(number=1, **changes) -> AttemptRecord:
    values = {"started_at": BEGAN, "stopped_at": second(3), "failure": FAILURE, **changes}
    return AttemptRecord(attempt=number, placement=("a", "b"), **values)


def patch(record, **job):
    whole = a_job_object(**job)
    state = a_state(**job)
    return record_patch(whole, state, KIND, record, requests(state))


@pytest.mark.parametrize(
    ("phase", "suspend"),
    [
        (JobPhase.STOPPING, True),
        (JobPhase.WAITING, True),
        (JobPhase.STARTING, False),
        (JobPhase.RUNNING, None),
        (JobPhase.FAILED, None),
        (JobPhase.SUCCEEDED, None),
    ],
)
def test_a_record_and_the_suspension_that_it_means_are_one_write(phase, suspend) -> None:
    record = a_record(phase)
    found = patch(record)

    assert found["metadata"]["resourceVersion"] == "7"
    assert parse_value(JobRecord, found["metadata"]["annotations"][JOB_RECORD]) == record
    assert found["metadata"]["annotations"][RECORD_OF] == "job-uid"
    requested = found.get("spec", {}).get("runPolicy", {}).get("suspend")
    assert requested is suspend


def test_a_restart_informs_its_ranks_of_the_attempt_and_the_reason() -> None:
    env = [{"name": "A", "value": "1"}, {"name": "HOLDFAST_ATTEMPT", "value": "9"}]
    pods = {"containers": [{"name": "pytorch", "image": "i", "env": env}, {"name": "side"}]}
    found = patch(a_record(JobPhase.STARTING, attempt=2, failure=FAILURE), pods=pods)

    ours = [
        {"name": "HOLDFAST_ATTEMPT", "value": "2"},
        {"name": "HOLDFAST_RESTART_REASON", "value": "Cause"},
    ]
    replicas = found["spec"]["pytorchReplicaSpecs"]
    assert set(replicas) == {"Master", "Worker"}
    for replica in replicas.values():
        template = replica["template"]
        assert template["metadata"]["annotations"] == {ATTEMPT: "2", RESTART_REASON: "Cause"}
        assert template["spec"]["containers"] == [
            {"name": "pytorch", "image": "i", "env": [env[0], *ours]},
            {"name": "side", "env": ours},
        ]


def test_a_restart_for_a_loss_names_the_steps_to_skip_and_the_bad_one() -> None:
    loss = Failure(
        kind=FailureKind.APPLICATION,
        reason="LossNotFinite",
        at=BEGAN,
        step=30,
        loss_action=LossAction.SKIP,
    )
    attempts = (an_attempt(1, failure=loss),)
    found = patch(a_record(JobPhase.STARTING, attempt=2, failure=loss, attempts=attempts))
    queued = patch(
        a_record(JobPhase.STARTING, attempt=2, failure=loss, attempts=attempts), labels=QUEUED
    )
    later = patch(a_record(JobPhase.STARTING, attempt=3, failure=FAILURE, attempts=attempts))

    def told(patch, replica="Master") -> dict[str, str]:
        return patch["spec"]["pytorchReplicaSpecs"][replica]["template"]["metadata"]["annotations"]

    (container,) = found["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    variables = {one["name"]: one["value"] for one in container["env"]}
    assert variables["HOLDFAST_SKIP_STEPS"] == told(found)[SKIP_STEPS] == "29,30"
    bad = "30@2026-01-01T12:00:00.000+00:00"
    assert variables["HOLDFAST_BAD_LOSS"] == told(found)[BAD_LOSS] == bad
    assert told(queued) == told(found)
    assert (told(later)[SKIP_STEPS], told(later)[BAD_LOSS]) == ("29,30", "")


def test_the_containers_of_a_job_in_a_queue_stay_as_they_are() -> None:
    found = patch(a_record(JobPhase.STARTING, attempt=2, failure=FAILURE), labels=QUEUED)

    for replica in found["spec"]["pytorchReplicaSpecs"].values():
        assert set(replica["template"]) == {"metadata"}


@pytest.mark.parametrize("phase", [JobPhase.STOPPING, JobPhase.WAITING, JobPhase.STARTING])
def test_a_job_in_a_queue_is_suspended_by_nobody_but_kueue(phase) -> None:
    assert "runPolicy" not in patch(a_record(phase), labels=QUEUED).get("spec", {})


def test_the_first_attempt_is_started_as_it_was_submitted() -> None:
    assert "pytorchReplicaSpecs" not in patch(a_record(JobPhase.STARTING))["spec"]


@pytest.mark.parametrize("resumes", [True, False])
def test_a_job_that_is_let_go_bears_nothing_of_ours(resumes) -> None:
    found = release_patch(a_state(), KIND, resumes=resumes)

    assert found["metadata"]["annotations"] == {JOB_RECORD: None, RECORD_OF: None, JOB_STATUS: None}
    requested = found.get("spec", {}).get("runPolicy", {}).get("suspend")
    assert requested is (False if resumes else None)


def test_a_job_fails_with_the_reason_and_keeps_its_other_conditions() -> None:
    found = KIND.failed(a_job_object(), "Why", "because", second(60))

    conditions = {one["type"]: one for one in found["status"]["conditions"]}
    assert set(conditions) == {"Running", "Failed"}
    failed = conditions["Failed"]
    assert (failed["status"], failed["reason"], failed["message"]) == ("True", "Why", "because")


def test_a_person_reads_what_happened_newest_first() -> None:
    attempts = (an_attempt(1), an_attempt(2, started_at=second(10), stopped_at=second(11)))
    record = a_record(
        since=20, attempt=3, attempts=attempts, started_at=second(19), hardware_retries=2
    )

    assert summary(record, requests(a_state())) == (
        "attempt 3 running since 2026-01-01T12:00:20Z, hardware retries 2 of 1, "
        "application retries 0 of 3; "
        "attempt 2: hardware: Cause on a, stopped in 11s, restarted 9s later; "
        "attempt 1: hardware: Cause on a, stopped in 3s, restarted 7s later"
    )


def test_a_record_without_attempts_has_a_summary() -> None:
    text = summary(replace(a_record(JobPhase.WAITING), reason="Cause"), requests(a_state()))

    assert text.startswith("attempt 1 waiting since 2026-01-01T12:00:10Z (Cause), ")
    assert ";" not in text


def test_a_record_fits_on_its_object_whatever_the_job_has_been_through() -> None:
    nodes = tuple(f"ip-10-0-0-{number}.us-west-2.compute.internal" for number in range(400))
    many = tuple(replace(an_attempt(number), placement=nodes) for number in range(1, 101))
    text = bounded(a_record(placement=nodes, attempts=many))

    assert len(text) <= RECORD_LIMIT
    kept = json.loads(text)
    assert kept["placement"] == list(nodes)
    assert kept["attempts"][-1]["attempt"] == 100
