"""What is read of jobs and clusters of Ray, and what is written to them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.adapters.kubernetes.jobs.objects import JobState, PodRank, PodState, pod_state
from holdfast.adapters.kubernetes.jobs.pods import RankAssigner
from holdfast.adapters.kubernetes.jobs.ray_cluster import RayClusters
from holdfast.adapters.kubernetes.jobs.ray_job import RayJobs
from holdfast.adapters.kubernetes.jobs.requests import requests_of
from holdfast.model.jobs import JobPhase
from holdfast.model.names import JOB_RECORD, Labels

AT = "2026-01-01T11:00:00Z"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LABELS = Labels()
ON = {LABELS.enable_job_auto_resume: "true"}


def metadata(**more: Any) -> dict[str, Any]:
    about = {"name": "llama", "namespace": "team", "uid": "u-1", "creationTimestamp": AT}
    return {**about, "annotations": ON, **more}


def workers(replicas: int | None = 2, **more: Any) -> dict[str, Any]:
    containers = [{"name": "ray-worker"}, {"name": "sidecar"}]
    template = {"metadata": {"annotations": {"mine": "1"}}, "spec": {"containers": containers}}
    return {"groupName": "gpu", "replicas": replicas, "template": template, **more}


def cluster_spec(*groups: dict[str, Any], **more: Any) -> dict[str, Any]:
    head = {"template": {"spec": {"containers": [{"name": "ray-head"}]}}}
    return {"headGroupSpec": head, "workerGroupSpecs": list(groups or [workers()]), **more}


def a_cluster(status: Any = None, owner: str = "", **spec: Any) -> JobState:
    owners = [{"kind": owner, "name": "up", "uid": "u-0", "controller": True}] if owner else []
    body = {**cluster_spec(), **spec}
    job = {"metadata": metadata(ownerReferences=owners), "spec": body, "status": status or {}}
    return RayClusters().trimmed(job, LABELS)


def a_job(status: Any = None, **spec: Any) -> JobState:
    body = {"rayClusterSpec": cluster_spec(), "shutdownAfterJobFinishes": True, **spec}
    job = {"metadata": metadata(), "spec": body, "status": status or {}}
    return RayJobs().trimmed(job, LABELS)


def a_pod(
    cluster: str = "llama", role: str = "worker", name: str = "w", created: str = AT
) -> dict[str, Any]:
    labels = {"ray.io/cluster": cluster, "ray.io/node-type": role, "ray.io/is-ray-node": "yes"}
    about = metadata(labels=labels, creationTimestamp=created)
    spec = {"nodeName": "a", "containers": [{"name": f"ray-{role}"}, {"name": "sidecar"}]}
    return {"metadata": {**about, "name": name, "uid": f"uid-{name}"}, "spec": spec}


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (workers(3), 3),
        (workers(0), 0),
        (workers(None), 0),
        (workers(None, minReplicas=2), 2),
        (workers(1, minReplicas=2), 2),
        (workers(5, maxReplicas=4), 4),
        (workers(3, minReplicas=4, maxReplicas=2), 2),
        (workers(3, numOfHosts=4), 12),
        (workers(3, numOfHosts=0), 3),
        (workers(3, suspend=True), 0),
    ],
)
def test_a_cluster_has_its_head_and_as_many_workers_as_its_operator_makes(
    group: dict[str, Any], expected: int
) -> None:
    state = a_cluster(workerGroupSpecs=[group, workers(1)])

    assert state.ranks == 1 + expected + 1
    assert len(state.groups) == (3 if expected else 2)


def test_an_autoscaled_cluster_is_left_alone_and_reported() -> None:
    spec = cluster_spec(enableInTreeAutoscaling=True)

    for state in (a_cluster(enableInTreeAutoscaling=True), a_job(rayClusterSpec=spec)):
        requests = requests_of(state, LABELS)
        assert not requests.auto_resume
        assert "without enableInTreeAutoscaling" in requests.rejected[0].expected


@pytest.mark.parametrize("owner", ["RayJob", "RayService"])
def test_the_cluster_of_a_job_is_left_alone_without_a_word(owner: str) -> None:
    requests = requests_of(a_cluster(owner=owner), LABELS)

    assert (requests.auto_resume, requests.rejected) == (False, ())


def test_the_record_that_a_cluster_has_copied_from_its_job_is_none() -> None:
    owner = [{"kind": "RayJob", "name": "up", "uid": "u-0", "controller": True}]
    about = metadata(ownerReferences=owner, annotations={**ON, JOB_RECORD: "{}"})

    assert RayClusters().trimmed({"metadata": about}, LABELS).record is None


def test_a_cluster_has_failed_only_while_it_is_down() -> None:
    status = RayClusters().failed({}, "Spent", "all are spent", NOW)["status"]

    assert a_cluster(status, suspend=True).ending is not None
    assert a_cluster(status).ending is None


def test_the_head_is_rank_0_and_trains_in_its_first_container() -> None:
    head = RayClusters().member(a_pod(role="head"))

    assert head == PodRank(job="llama", rank=0, container="ray-head")
    assert RayClusters().member(a_pod(role="redis-cleanup")) is None


@pytest.mark.parametrize(
    ("cluster", "job"),
    [
        ("llama-x7k2d", "llama"),
        ("llama-2-x7k2d", "llama-2"),
        ("llama", None),
        ("llama-small", None),
        ("llama-x7k2dd", None),
        ("-x7k2d", None),
    ],
)
def test_a_pod_of_a_ray_job_is_reported_by_the_name_of_its_cluster(
    cluster: str, job: str | None
) -> None:
    member = RayJobs().member(a_pod(cluster))

    assert (member.job if member is not None else None) == job


def test_pods_of_the_clusters_of_a_ray_job_are_of_it_unless_they_are_older() -> None:
    state = a_job({"rayClusterName": "llama-x7k2d", "jobDeploymentStatus": "Running"})

    def owned(created: str, cluster: str) -> PodState | None:
        pod = a_pod(cluster, created=created)
        member = RayJobs().member(pod)
        assert member is not None
        found = pod_state(pod, member)
        return found if state.owns(found) else None

    assert owned("2026-01-01T10:59:59Z", "llama-x7k2d") is None
    present, before = owned(AT, "llama-x7k2d"), owned(AT, "llama-bbbbb")
    assert present is not None
    assert before is not None
    assert (present.member.part == state.part, before.member.part == state.part) == (True, False)


@pytest.mark.parametrize(
    ("deployment", "job", "outcome"),
    [
        ("Running", "SUCCEEDED", None),
        ("Complete", "SUCCEEDED", JobPhase.SUCCEEDED),
        ("Complete", "STOPPED", JobPhase.CANCELLED),
        ("Failed", "FAILED", JobPhase.FAILED),
        ("Failed", "RUNNING", JobPhase.FAILED),
        ("Retrying", "FAILED", None),
    ],
)
def test_a_ray_job_ends_with_its_deployment(
    deployment: str, job: str, outcome: JobPhase | None
) -> None:
    ending = a_job({"jobDeploymentStatus": deployment, "jobStatus": job, "message": "why"}).ending

    assert (ending.outcome if ending is not None else None) == outcome
    assert ending is None or ending.reason == "why"


LOG = """\
  File "/app/train.py", line 7, in <module>
    ray.get([one.train.remote() for one in ranks])
ray.exceptions.RayTaskError(RuntimeError): ray::Rank.train() (pid=71, ip=10.9.0.4)
  File "/app/train.py", line 3, in train
    raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB
"""
"""Of a driver; its first lines are cut off."""


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (
            f"Job entrypoint command failed with exit code 1, last available logs (truncated to"
            f" 20,000 chars):\n{LOG}",
            "Job entrypoint command failed with exit code 1 (CudaOutOfMemory): RuntimeError: CUDA"
            " out of memory. Tried to allocate 2.00 GiB",
        ),
        (
            "Job entrypoint command failed with exit code 127. Last available logs (truncated to"
            " 20,000 chars):\n/bin/sh: 1: sleep1: not found\n",
            "Job entrypoint command failed with exit code 127 (CommandMissing): /bin/sh: 1: sleep1:"
            " not found",
        ),
        (
            "Job entrypoint command failed with exit code 3, last available logs:\nit is over\n",
            "Job entrypoint command failed with exit code 3: it is over",
        ),
        ("no logs available", "no logs available"),
    ],
)
def test_the_reason_of_a_failed_ray_job_is_the_exception_of_its_driver(
    message: str, reason: str
) -> None:
    status = {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "message": message}
    ending = a_job(status).ending

    assert ending is not None
    assert ending.reason == reason


@pytest.mark.parametrize(
    ("deployment", "is_stopped", "is_restarting"),
    [
        ("", False, True),
        ("Initializing", False, False),
        ("Running", False, False),
        ("Retrying", False, True),
        ("Suspending", False, False),
        ("Suspended", True, False),
    ],
)
def test_what_a_ray_job_is_about_to_do(
    deployment: str, is_stopped: bool, is_restarting: bool
) -> None:
    state = a_job({"jobDeploymentStatus": deployment})

    assert (state.is_stop_seen, state.is_restarting) == (is_stopped, is_restarting)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"shutdownAfterJobFinishes": False}, "shutdownAfterJobFinishes: true"),
        ({"rayClusterSpec": None}, "a rayClusterSpec of its own"),
        ({"submissionMode": "InteractiveMode"}, "K8sJobMode or HTTPMode"),
    ],
)
def test_a_ray_job_that_its_operator_does_not_suspend_is_left_alone(
    spec: dict[str, Any], expected: str
) -> None:
    requests = requests_of(a_job(**spec), LABELS)

    assert not requests.auto_resume
    assert expected in requests.rejected[0].expected


def test_the_attempt_reaches_the_pods_of_all_groups_and_nothing_else_changes() -> None:
    job = {"spec": {"rayClusterSpec": cluster_spec(workers(2), workers(1, numOfHosts=2))}}

    found = RayJobs().attempt_patch(job, {"attempt": "2"}, {"ATTEMPT": "2"})["spec"][
        "rayClusterSpec"
    ]

    env = [{"name": "ATTEMPT", "value": "2"}]
    head = found["headGroupSpec"]["template"]
    assert head["metadata"] == {"annotations": {"attempt": "2"}}
    assert head["spec"]["containers"] == [{"name": "ray-head", "env": env}]
    for group, before in zip(
        found["workerGroupSpecs"], job["spec"]["rayClusterSpec"]["workerGroupSpecs"], strict=True
    ):
        template = group["template"]
        assert template["metadata"] == {"annotations": {"mine": "1", "attempt": "2"}}
        assert [one.pop("env") for one in template["spec"]["containers"]] == [env, env]
        template["metadata"]["annotations"].pop("attempt")
        assert group == before


def numbered(numbers: RankAssigner, *names: str) -> dict[str, int]:
    """Ranks by name; later names are of younger pods."""
    found = []
    for name in names:
        pod = a_pod(name=name, role="head" if name == "head" else "worker")
        member = RayClusters().member(pod)
        assert member is not None
        found.append(pod_state(pod, member))
    given = numbers.given({"team/llama": found})["team/llama"]
    return {pod.name: pod.member.rank for pod in given}


def test_workers_keep_their_ranks_and_one_that_is_new_takes_the_lowest_that_is_free() -> None:
    numbers = RankAssigner()

    assert numbered(numbers, "head") == {"head": 0}
    assert numbered(numbers, "b") == {"b": 1}
    assert numbered(numbers, "a", "head", "b", "c") == {"a": 2, "head": 0, "b": 1, "c": 3}
    assert numbered(numbers, "head", "b", "c") == {"head": 0, "b": 1, "c": 3}
    assert numbered(numbers, "head", "d", "b", "c") == {"head": 0, "b": 1, "c": 3, "d": 2}
