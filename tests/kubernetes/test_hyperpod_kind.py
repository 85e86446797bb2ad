"""``HyperPodPyTorchJob`` with a real controller, which operates it."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from controlled import installed  # noqa: F401 - a fixture
from gangs import exchanges_one_pod, resumes_elsewhere
from hyperpod_jobs import OPERATED, HyperPod, define
from machines import Controller, Fleet, a_fleet, stays
from real_cluster import Cluster, until

from holdfast.adapters.kubernetes.client.errors import ApiError
from holdfast.model.names import KEEP_PODS
from tests.engines.matrix import Matrix


@pytest.fixture
def undefined(installed, cluster: Cluster, tmp_path: Path) -> Iterator[Fleet]:  # noqa: F811
    with a_fleet(cluster, tmp_path) as fleet:
        yield fleet


@pytest.fixture
def fleet(undefined: Fleet) -> Fleet:
    define(undefined.cluster, undefined)
    return undefined


def controlled(fleet: Fleet) -> Controller:
    fleet.start("a", "b", "c")
    controller = fleet.control(settings=OPERATED)
    fleet.until_schedulable("a", "b", "c")
    return controller


def submitted(
    fleet: Fleet, name: str = "llama", annotations: dict[str, str] | None = None, **spec: object
) -> HyperPod:
    job = HyperPod(fleet.cluster, fleet.api, name, annotations=annotations or {})
    job.submit(**spec)
    return job


def finish(fleet: Fleet, job: HyperPod, exit_code: int = 0) -> None:
    for name in list(job.pods):
        fleet.cluster.nodes.finish(name, exit_code=exit_code)


def until_lists(job: HyperPod, *conditions: str) -> None:
    until(lambda: job.conditions == ["Created", *conditions])


def test_a_job_runs_and_succeeds(fleet: Fleet) -> None:
    controlled(fleet)
    job = submitted(fleet)

    job.until_running(1)
    until_lists(job, "PodsRunning", "Running")
    assert sorted(job.pods) == ["llama-pod-0", "llama-pod-1"]
    assert "completionTime" not in job.status
    finish(fleet, job)
    until(lambda: job.phase == "succeeded")
    until_lists(job, "Succeeded")
    assert "completionTime" in job.status
    until(lambda: not job.pods)


def test_a_faulty_node_costs_one_pod_and_a_failed_launcher_restarts_the_job(
    fleet: Fleet, matrix: Matrix
) -> None:
    controlled(fleet)
    job = submitted(fleet, runPolicy={"jobMaxRetryCount": 2})
    job.until_running(1)
    bad = job.nodes[1]

    exchanges_one_pod(fleet, job, matrix)

    until(lambda: job.status.get("restartCount") == 1)
    faulty = job.status["latestFaultyPodInstanceList"]
    assert (faulty["restartType"], faulty["faultyInstanceIdList"]) == ("PLR", [bad])
    assert job.status["restartStatus"]["fullJobRestartCount"] == 0

    before = job.uids
    fleet.cluster.nodes.finish("llama-pod-1", exit_code=3)
    job.until_running(3)
    assert before.isdisjoint(job.uids)
    until(lambda: job.status.get("restartCount") == 2)
    faulty = job.status["latestFaultyPodInstanceList"]
    assert (faulty["restartType"], faulty["faultyPodList"]) == ("JLR", ["llama-pod-1"])
    assert faulty["faultyRankList"] == ["1"]
    assert job.status["restartStatus"]["fullJobRestartCount"] == 1
    assert job.environment("llama-pod-0")["HOLDFAST_ATTEMPT"] == "3"
    until_lists(job, "PodsRunning", "Running")

    fleet.cluster.nodes.finish("llama-pod-1", exit_code=3)
    until_lists(job, "Failed")
    (failed,) = [one for one in job.status["conditions"] if one["type"] == "Failed"]
    assert failed["message"].startswith("hardware and application retries exhausted (2 of 2)")


def test_pods_that_are_not_to_be_kept_restart_together(fleet: Fleet) -> None:
    controlled(fleet)
    job = submitted(fleet, annotations={KEEP_PODS: "false"})
    job.until_running(1)

    resumes_elsewhere(fleet, job)


def test_a_job_whose_restarts_are_spent_has_failed_and_says_why(fleet: Fleet) -> None:
    controlled(fleet)
    limits = {"evalPeriodSeconds": 3600, "maxFullJobRestarts": 1}
    job = submitted(fleet, runPolicy={"restartPolicy": limits, "jobMaxRetryCount": 5})
    for attempt in (1, 2):
        job.until_running(attempt)
        fleet.cluster.nodes.finish("llama-pod-0", exit_code=3)

    until(lambda: job.phase == "failed")
    until_lists(job, "Failed")
    (failed,) = [one for one in job.status["conditions"] if one["type"] == "Failed"]
    assert failed["message"].startswith("application retries exhausted (1 of 1)")
    assert not job.pods


def test_a_job_that_cannot_run_fails_at_once_with_a_condition_and_an_event(fleet: Fleet) -> None:
    controlled(fleet)
    job = submitted(fleet, elasticPolicy={"minReplicas": 1, "maxReplicas": 2})

    until_lists(job, "Failed")
    (failed,) = [one for one in job.status["conditions"] if one["type"] == "Failed"]
    assert failed["reason"] == "InvalidSpec"
    assert failed["message"].startswith("spec.elasticPolicy is an object: expected no value")
    until(lambda: [reason for reason, _ in job.events] == ["InvalidInput"])
    assert "spec.elasticPolicy" in job.events[0][1]
    assert not job.pods


def test_a_person_suspends_and_resumes_a_job(fleet: Fleet) -> None:
    controlled(fleet)
    job = submitted(fleet)
    job.until_running(1)

    job.api.patch(f"{job.collection}/llama", {"spec": {"runPolicy": {"suspend": True}}})
    until(lambda: not job.pods)
    until_lists(job, "Suspended")
    job.api.patch(f"{job.collection}/llama", {"spec": {"runPolicy": {"suspend": False}}})
    until_lists(job, "PodsRunning", "Running")
    finish(fleet, job)
    until_lists(job, "Succeeded")


def test_limits_of_time_fail_and_remove_a_job(fleet: Fleet) -> None:
    controlled(fleet)
    slow = submitted(fleet, runPolicy={"activeDeadlineSeconds": 1})
    until(lambda: "startTime" in slow.status)

    def wake() -> None:
        time.sleep(1.1)  # a change of any job begins a round
        slow.api.patch(
            f"{slow.collection}/llama", {"metadata": {"labels": {"at": str(time.time())}}}
        )

    wake()
    submitted(fleet, "other", runPolicy={"suspend": True})
    until(lambda: "Failed" in slow.conditions)
    (failed,) = [one for one in slow.status["conditions"] if one["type"] == "Failed"]
    assert failed["reason"] == "DeadlineExceeded"
    until(lambda: not slow.pods)
    limited = {"spec": {"runPolicy": {"ttlSecondsAfterFinished": 1}}}
    slow.api.patch(f"{slow.collection}/llama", limited)
    time.sleep(1.1)
    submitted(fleet, "another", runPolicy={"suspend": True})
    slow.until_gone()


def test_a_deleted_job_and_the_next_one_of_its_name_share_nothing(fleet: Fleet) -> None:
    controlled(fleet)
    first = submitted(fleet)
    until(lambda: first.pods)
    uid = first.job["metadata"]["uid"]

    first.api.delete(f"{first.collection}/llama")  # while it starts
    second = submitted(fleet)

    second.until_running(1)
    until_lists(second, "PodsRunning", "Running")
    owners = {pod["metadata"]["ownerReferences"][0]["uid"] for pod in second.pods.values()}
    assert owners == {second.job["metadata"]["uid"]}
    (name,) = {pod["spec"]["subdomain"] for pod in second.pods.values()}
    assert name == f"hp-llama-{owners.pop()[:8]}"
    assert uid[:8] not in name
    for kind in ("services", "secrets"):
        found = second.api.get(f"/api/v1/namespaces/default/{kind}/{name}")
        assert found["metadata"]["ownerReferences"][0]["kind"] == "HyperPodPyTorchJob"


def test_pods_that_a_quota_refuses_are_created_once_it_permits_them(fleet: Fleet) -> None:
    controller = controlled(fleet)
    quotas = "/api/v1/namespaces/default/resourcequotas"
    fleet.api.create(quotas, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}})
    until(lambda: "used" in fleet.api.get(f"{quotas}/q").get("status", {}))
    job = submitted(fleet)

    until(lambda: "exceeded quota" in controller.log)
    assert job.conditions == ["Created"]
    assert list(job.pods) == ["llama-pod-0"]
    fleet.api.delete(f"{quotas}/q")

    until_lists(job, "PodsRunning", "Running")


def test_two_jobs_run_at_once_and_a_pod_of_one_costs_the_other_nothing(fleet: Fleet) -> None:
    fleet.start("d")
    controlled(fleet)
    one, other = submitted(fleet, "one"), submitted(fleet, "other")
    one.until_running(1)
    other.until_running(1)
    before = other.uids

    fleet.cluster.nodes.finish("one-pod-0", exit_code=1)
    one.until_running(2)

    assert other.uids == before
    finish(fleet, other)
    until_lists(other, "Succeeded")


def test_a_controller_that_is_killed_leaves_what_the_next_one_completes(fleet: Fleet) -> None:
    controller = controlled(fleet)
    job = submitted(fleet)
    until(lambda: job.pods)
    controller.kill()  # between its first pod and its status, as far as chance permits

    second = fleet.control(settings=OPERATED)
    job.until_running(1)
    before = job.uids
    second.kill()
    fleet.cluster.nodes.finish("llama-pod-0", exit_code=3)
    third = fleet.control(settings=OPERATED)
    job.until_running(2)

    assert before.isdisjoint(job.uids)
    assert (job.record["hardware_retries"], job.record["app_retries"]) == (0, 1)
    assert third.errors.count("Traceback") == 0


def test_the_size_of_a_job_cannot_be_changed_and_its_template_applies_later(fleet: Fleet) -> None:
    controlled(fleet)
    job = submitted(fleet)
    job.until_running(1)
    before = job.uids

    spec = job.job["spec"]
    for wrong in ({"replicas": 3}, {"spares": 1}, {"name": "other"}):
        changed = [{**spec["replicaSpecs"][0], **wrong}]
        with pytest.raises(ApiError, match="cannot be"):
            job.api.patch(f"{job.collection}/llama", {"spec": {"replicaSpecs": changed}})
    with pytest.raises(ApiError, match="cannot be changed"):
        job.api.patch(f"{job.collection}/llama", {"spec": {"nprocPerNode": "4"}})
    (replica,) = json.loads(json.dumps(spec["replicaSpecs"]))
    replica["template"]["spec"]["containers"][0]["image"] = "newer"
    job.api.patch(f"{job.collection}/llama", {"spec": {"replicaSpecs": [replica]}})

    stays(lambda: job.uids == before, 1)
    fleet.cluster.nodes.finish("llama-pod-0", exit_code=3)
    job.until_running(2)
    images = {pod["spec"]["containers"][0]["image"] for pod in job.pods.values()}
    assert images == {"newer"}


def test_a_kind_that_is_defined_later_is_operated_from_then_on(undefined: Fleet) -> None:
    controller = controlled(undefined)
    define(undefined.cluster, undefined)

    job = submitted(undefined)

    job.until_running(1)
    assert "Traceback" not in controller.errors


def test_another_controller_leaves_the_kind_alone_unless_it_is_listed(fleet: Fleet) -> None:
    fleet.start("a", "b")
    fleet.control()
    fleet.until_schedulable("a", "b")

    job = submitted(fleet)

    stays(lambda: not job.pods and not job.status, 1)
