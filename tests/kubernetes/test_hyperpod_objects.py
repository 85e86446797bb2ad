"""What Holdfast reads of a ``HyperPodPyTorchJob``, creates for it, and reports in its status."""

import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.kubernetes.jobs.hyperpod_job import HyperPodJob, HyperPodJobs
from holdfast.adapters.kubernetes.jobs.hyperpod_pods import pod_of, secret_of, service_of
from holdfast.adapters.kubernetes.jobs.hyperpod_status import pod_group, status_of
from holdfast.adapters.kubernetes.jobs.objects import PodState, pod_state
from holdfast.adapters.kubernetes.jobs.requests import requests_of
from holdfast.adapters.kubernetes.jobs.views import job_view
from holdfast.decisions.pod_group import CleanPods, GroupPlan, GroupState, plan_pods
from holdfast.model.jobs import (
    AttemptRecord,
    ExchangedNode,
    Failure,
    FailureKind,
    JobPhase,
    JobRecord,
)
from holdfast.model.names import KEEP_PODS, Labels

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
KIND = HyperPodJobs()
LABELS = Labels()
RECORD = JobRecord(phase=JobPhase.RUNNING, phase_since=NOW, attempt=1)


def a_job(
    *replicas: dict[str, Any], status: Any = None, about: Any = None, **spec: Any
) -> HyperPodJob:
    container = {"name": "c", "image": "i", "env": [{"name": "PET_NPROC_PER_NODE", "value": "3"}]}
    sidecar = {"name": "s", "image": "i"}
    template = {
        "metadata": {"name": "x", "labels": {"team": "a"}, "annotations": {"mine": "1"}},
        "spec": {"restartPolicy": "Always", "containers": [container, sidecar]},
    }
    found = [{"name": "pod", "template": template, **one} for one in replicas or ({"replicas": 2},)]
    whole = {
        "metadata": {
            "name": "llama",
            "namespace": "team",
            "uid": "01234567-89ab",
            "resourceVersion": "7",
            **(about or {}),
        },
        "spec": {"replicaSpecs": found, **spec},
        "status": status or {},
    }
    return KIND.trimmed(whole, LABELS)


def states(job: HyperPodJob, phase: str = "Running", node: str = "n") -> list[PodState]:
    """The pods of a job as the API server has them, each on a node of its own."""
    found = []
    for rank in range(job.ranks):
        pod = copy.deepcopy(pod_of(job, rank, None))
        pod["metadata"] |= {"uid": f"u-{rank}", "creationTimestamp": "2026-01-01T11:00:00Z"}
        pod["spec"]["nodeName"] = f"{node}{rank}"
        pod["status"] = {"phase": phase}
        member = KIND.member(pod)
        assert member is not None
        found.append(pod_state(pod, member))
    return found


def variables(pod: dict[str, Any], container: int = 1) -> dict[str, Any]:
    env = pod["spec"]["containers"][container]["env"]
    assert len({one["name"] for one in env}) == len(env)
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in env}


def test_ranks_are_counted_through_all_groups_and_their_pods_are_named_after_them() -> None:
    job = a_job({"name": "a", "replicas": 2, "spares": 1}, {"name": "b", "replicas": 1})

    assert job.ranks == 4
    names = [pod_of(job, rank, None)["metadata"]["name"] for rank in range(4)]
    assert names == ["llama-a-0", "llama-a-1", "llama-a-2", "llama-b-0"]
    assert [state.member.rank for state in states(job)] == [0, 1, 2, 3]
    assert all(job.owns(state) for state in states(job))
    assert not any(replace(job, uid="other").owns(state) for state in states(job))


def test_a_pod_is_made_from_its_template_and_knows_how_its_launcher_meets_the_others() -> None:
    job = a_job({"replicas": 2, "spares": 1}, nprocPerNode="8")

    pod = pod_of(job, 1, None)

    assert pod["metadata"]["labels"] == {
        "team": "a",
        "HPJob": "llama",
        "holdfast.dev/node-rank": "1",
    }
    assert pod["metadata"]["annotations"] == {"mine": "1"}
    assert (pod["spec"]["restartPolicy"], pod["spec"]["hostname"]) == ("Never", "llama-pod-1")
    shared = "hp-llama-01234567"
    assert pod["spec"]["subdomain"] == shared == service_of(job)["metadata"]["name"]
    assert variables(pod) == {
        "HOLDFAST_LAUNCH_KEY": {"secretKeyRef": {"name": shared, "key": "launch-key"}},
        "PET_NPROC_PER_NODE": "8",
        "PET_NNODES": "2:3",
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": f"llama-pod-0.{shared}",
        "PET_MASTER_PORT": "29400",
    }
    assert variables(pod, 0)["PET_NPROC_PER_NODE"] == "3"  # the job's own value
    assert service_of(job)["spec"]["selector"] == {"HPJob": "llama"}
    assert secret_of(job, "k")["stringData"] == {"launch-key": "k"}
    for one in (pod, service_of(job), secret_of(job, "k")):
        (owner,) = one["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("HyperPodPyTorchJob", job.uid)
        assert one["metadata"]["namespace"] == "team"


def test_a_job_of_one_pod_needs_no_meeting_point() -> None:
    pod = pod_of(a_job({"replicas": 1}), 0, None)

    assert variables(pod) == {"PET_NPROC_PER_NODE": "auto"}
    assert "subdomain" not in pod["spec"]


def test_the_budgets_of_the_run_policy_reach_the_launchers_and_the_controller() -> None:
    limits = {
        "evalPeriodSeconds": 60,
        "numRestartBeforeFullJobRestart": 4,
        "maxFullJobRestarts": 2,
        "maxNumRepeatOffendersToAvoid": 5,
    }
    job = a_job(runPolicy={"jobMaxRetryCount": 9, "restartPolicy": limits})

    found = variables(pod_of(job, 0, None))
    assert {name: found[name] for name in found if "RESTART" in name or "OFFENDER" in name} == {
        "PET_MAX_RESTARTS": "4",
        "PET_RESTART_PERIOD": "60",
        "PET_MAX_TOTAL_RESTARTS": "9",
        "PET_MAX_JOB_RESTARTS": "2",
        "PET_OFFENDER_FAILURES": "5",
    }
    requests = requests_of(job, LABELS)
    assert (requests.max_retries, requests.max_app_retries) == (9, 2)
    assert job_view(job, requests, RECORD, [], lost={}, counts={}).spec.max_all_retries == 9
    assert requests_of(a_job(runPolicy={"jobMaxRetryCount": 9}), LABELS).max_app_retries == 9
    assert requests_of(a_job(), LABELS).max_app_retries == 3


def test_log_rules_come_from_the_run_policy_and_pods_are_kept_unless_the_job_objects() -> None:
    rule = {"name": "Steps", "logPattern": ".*step", "expectedRecurringFrequencyInSeconds": 60}
    job = a_job(runPolicy={"logMonitoringConfiguration": [rule]})

    requests = requests_of(job, LABELS)

    assert [one.name for one in requests.log_rules] == ["Steps"]
    assert (requests.auto_resume, requests.keeps_pods, requests.rejected) == (True, True, ())
    other = a_job(about={"annotations": {KEEP_PODS: "false"}})
    assert not requests_of(other, LABELS).keeps_pods


def test_a_restarted_pod_knows_its_attempt() -> None:
    failure = Failure(kind=FailureKind.HARDWARE, reason="Lost", at=NOW)
    record = replace(RECORD, attempt=2, failure=failure)

    pod = pod_of(a_job(), 0, record)

    assert pod["metadata"]["annotations"]["holdfast.dev/attempt"] == "2"
    assert variables(pod)["HOLDFAST_ATTEMPT"] == "2"
    assert variables(pod)["HOLDFAST_RESTART_REASON"] == "Lost"


@pytest.mark.parametrize(
    ("job", "key"),
    [
        ({"elasticPolicy": {"minReplicas": 1}}, "spec.elasticPolicy"),
        ({"runPolicy": {"workloadMode": "Deployment"}}, "spec.runPolicy.workloadMode"),
        ({"replicas": 2, "maxReplicas": 4}, "spec.replicaSpecs[0].maxReplicas"),
        ({"replicas": 0}, "spec.replicaSpecs"),
        ({"name": "p" * 60}, "spec.replicaSpecs[0].name"),
        ({"about": {"name": "a.b"}}, "spec.replicaSpecs[0].name"),
        ({"about": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}}, "kueue.x-k8s.io/queue-name"),
    ],
)
def test_what_cannot_run_is_refused_with_its_key(job: dict[str, Any], key: str) -> None:
    replica = {name: job.pop(name) for name in ("replicas", "maxReplicas", "name") if name in job}
    found = a_job({"replicas": 2, **replica}, **job)

    assert found.rejection is not None
    assert key in found.rejection.key
    plan = plan_pods(pod_group(found, [], None), NOW)
    assert (plan.state, plan.create) == (GroupState.FAILED, ())
    assert key in plan.why
    status = status_of(found, plan, [], None, NOW)
    assert [one["type"] for one in status["conditions"]] == ["Created", "Failed"]
    assert "masterAddr" not in status


def test_what_hyp_writes_by_itself_is_accepted() -> None:
    policy = {"cleanPodPolicy": "None", "jobMaxRetryCount": 1, "ttlSecondsAfterFinished": 0}
    job = a_job({"replicas": 1, "spares": 0}, runPolicy=policy, nprocPerNode="auto")

    assert job.rejection is None
    group = pod_group(job, [], None)
    assert (group.clean, group.limits.keep) == (CleanPods.NONE, None)


def applied(job: HyperPodJob, status: dict[str, Any]) -> HyperPodJob:
    return KIND.trimmed({**job.whole, "status": {**job.shown, **status}}, LABELS)


def step(
    job: HyperPodJob, pods: list[PodState], record: JobRecord | None, now: datetime
) -> HyperPodJob:
    plan = plan_pods(pod_group(job, pods, record), now)
    return applied(job, status_of(job, plan, pods, record, now))


def true(job: HyperPodJob) -> list[str]:
    return [one["type"] for one in job.shown["conditions"] if one["status"] == "True"]


def suspended(job: HyperPodJob, *, is_suspended: bool) -> HyperPodJob:
    policy = {**job.run_policy, "suspend": is_suspended}
    return KIND.trimmed({**job.whole, "spec": {**job.spec, "runPolicy": policy}}, LABELS)


def test_the_status_follows_a_job_through_a_restart() -> None:
    job = step(a_job(), [], None, NOW)
    assert true(job) == ["Created"]
    assert job.shown["masterAddr"] == "llama-pod-0.hp-llama-01234567"
    job = step(job, states(job), RECORD, NOW + timedelta(seconds=1))
    assert true(job) == ["Created", "PodsRunning", "Running"]
    assert job.started_at == NOW

    failure = Failure(kind=FailureKind.APPLICATION, reason="Exit", at=NOW, node="n1")
    stopping = replace(RECORD, phase=JobPhase.STOPPING, failure=failure)
    job = step(suspended(job, is_suspended=True), states(job), stopping, NOW + timedelta(seconds=2))
    assert true(job) == ["Created", "Suspended", "Restarting"]
    assert job.is_stop_seen
    assert job.shown["restartStatus"]["fullJobRestartCount"] == 1
    again = step(job, [], stopping, NOW + timedelta(seconds=3))
    assert again.shown == job.shown  # counted once
    assert job.shown["latestFaultyPodInstanceList"] == {
        "restartType": "JLR",
        "faultyInstanceIdList": ["n1"],
        "faultyPodList": ["llama-pod-1"],
        "faultyRankList": ["1"],
    }

    starting = replace(RECORD, phase=JobPhase.STARTING, attempt=2, failure=failure)
    job = step(suspended(job, is_suspended=False), [], starting, NOW + timedelta(seconds=4))
    assert true(job) == ["Created"]
    assert job.started_at == NOW + timedelta(seconds=4)
    assert not pod_group(job, [], starting).has_run
    job = step(job, states(job), starting, NOW + timedelta(seconds=5))
    assert pod_group(job, [], starting).has_run
    assert job.shown["restartCount"] == 1
    job = step(job, states(job, "Succeeded"), starting, NOW + timedelta(seconds=6))
    assert true(job) == ["Created", "Succeeded"]
    assert job.shown["completionTime"] == "2026-01-01T12:00:06Z"
    assert job.shown["startTime"] == "2026-01-01T12:00:00Z"


def test_a_run_that_ended_in_the_second_of_the_next_start_is_not_that_of_the_next() -> None:
    job = step(a_job(), [], None, NOW)
    job = step(job, states(job), RECORD, NOW)
    job = step(suspended(job, is_suspended=True), states(job), RECORD, NOW)
    job = step(suspended(job, is_suspended=False), [], RECORD, NOW)

    assert not pod_group(job, [], RECORD).has_run


def test_a_person_who_suspends_a_job_restarts_nothing() -> None:
    job = step(suspended(a_job(), is_suspended=True), [], RECORD, NOW)

    assert true(job) == ["Created", "Suspended"]
    assert job.shown["restartStatus"]["fullJobRestartCount"] == 0


def test_an_exchanged_node_is_a_restart_that_keeps_the_other_pods() -> None:
    job = a_job()
    failure = Failure(kind=FailureKind.HARDWARE, reason="Xid", at=NOW, node="n0")
    exchanged = (ExchangedNode(node="n0", at=NOW),)
    record = replace(RECORD, attempt=2, failure=failure, exchanged=exchanged)

    job = step(job, states(job), record, NOW)

    faulty = job.shown["latestFaultyPodInstanceList"]
    assert (faulty["restartType"], faulty["faultyPodList"]) == ("PLR", ["llama-pod-0"])
    assert (job.shown["restartCount"], job.shown["restartStatus"]["restartCount"]) == (1, 1)
    later = step(job, states(job)[1:], record, NOW)
    assert later.shown["latestFaultyPodInstanceList"] == faulty  # its pod is gone


@pytest.mark.parametrize("is_ended", [False, True])
def test_a_failed_pod_that_is_deleted_before_the_status_is_written_is_named(
    *, is_ended: bool
) -> None:
    failure = Failure(kind=FailureKind.APPLICATION, reason="Exit", at=NOW, node="n1")
    attempt = AttemptRecord(
        attempt=1, placement=("n0", "n1"), started_at=NOW, stopped_at=NOW, failure=failure
    )
    stopping = replace(
        RECORD,
        failure=failure,
        placement=("n2", "n3") if is_ended else ("n0", "n1"),
        attempts=(attempt,) if is_ended else (),
    )

    faulty = step(a_job(), [], stopping, NOW).shown["latestFaultyPodInstanceList"]

    assert (faulty["faultyPodList"], faulty["faultyRankList"]) == (["llama-pod-1"], ["1"])
    shared = replace(stopping, placement=("n1",), attempts=())
    unknown = step(a_job(), [], shared, NOW).shown["latestFaultyPodInstanceList"]
    assert unknown["faultyPodList"] == []


def test_a_pod_of_the_next_attempt_on_the_node_of_the_failure_is_not_faulty() -> None:
    failed_at = NOW - timedelta(milliseconds=1)
    failure = Failure(kind=FailureKind.APPLICATION, reason="Exit", at=failed_at, node="n0")
    attempt = AttemptRecord(
        attempt=1, placement=("n1", "n0"), started_at=NOW, stopped_at=NOW, failure=failure
    )
    record = replace(RECORD, attempt=2, failure=failure, attempts=(attempt,))

    faulty = step(a_job(), states(a_job()), record, NOW).shown["latestFaultyPodInstanceList"]

    assert (faulty["faultyPodList"], faulty["faultyRankList"]) == (["llama-pod-1"], ["1"])


def test_periods_of_the_restart_budget_are_numbered() -> None:
    job = step(a_job(runPolicy={"restartPolicy": {"evalPeriodSeconds": 60}}), [], None, NOW)
    for seconds, number in ((59, 0), (60, 1), (119, 1), (120, 2)):
        shown = step(job, [], None, NOW + timedelta(seconds=seconds)).shown
        assert shown["restartStatus"]["currentEvalPeriod"] == number


def test_conditions_of_others_and_of_the_controller_stay() -> None:
    other = {"type": "Mine", "status": "True"}
    job = a_job(status={"conditions": [other]})
    spent = KIND.failed(job.whole, "HoldfastRestartsSpent", "3 of 3", NOW)["status"]
    failed = applied(job, spent)

    shown = step(failed, [], None, NOW + timedelta(hours=1)).shown

    assert other in shown["conditions"]
    (condition,) = [one for one in shown["conditions"] if one["type"] == "Failed"]
    assert (condition["reason"], condition["message"]) == ("HoldfastRestartsSpent", "3 of 3")
    assert shown["completionTime"] == "2026-01-01T12:00:00Z"


@given(
    st.sampled_from(GroupState),
    st.lists(st.sampled_from(GroupState), max_size=3),
    st.none() | st.builds(JobRecord, phase=st.sampled_from(JobPhase), phase_since=st.just(NOW),
                          attempt=st.integers(0, 3)),
)  # fmt: skip
def test_a_status_that_was_written_needs_no_second_write(
    last: GroupState, before: list[GroupState], record: JobRecord | None
) -> None:
    job = a_job()
    for state in (*before, last):
        job = applied(job, status_of(job, GroupPlan(state=state, why="w"), [], record, NOW))

    status = status_of(job, GroupPlan(state=last, why="w"), [], record, NOW + timedelta(hours=1))

    assert {**job.shown, **status} == job.shown
    kinds = [one["type"] for one in job.shown["conditions"]]
    assert len(set(kinds)) == len(kinds)
