"""What is done to jobs and their pods, whoever gets in between."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from job_objects import (
    BEGAN,
    KIND,
    LABELS,
    NO_SPACE,
    a_job_object,
    a_pod_object,
    a_record,
    at,
    container,
    ended,
)
from node_objects import a_node_object
from real_cluster import until
from small_server import SmallServer, small_server

from holdfast.adapters.kubernetes.client.api import Api, Server
from holdfast.adapters.kubernetes.client.values import compact_json
from holdfast.adapters.kubernetes.jobs.backend import KubernetesJobs
from holdfast.adapters.kubernetes.jobs.indexed_job import IndexedJobs
from holdfast.adapters.kubernetes.jobs.job_set import JobSets
from holdfast.adapters.kubernetes.jobs.objects import QUEUE
from holdfast.adapters.kubernetes.jobs.ray_job import RayJobs
from holdfast.adapters.kubernetes.jobs.train_job import TrainJobs
from holdfast.adapters.kubernetes.nodes.cluster import KubernetesCluster
from holdfast.adapters.kubernetes.nodes.dependencies import Dependencies
from holdfast.adapters.kubernetes.settings import KubernetesSettings
from holdfast.decisions.termination_message import termination_message
from holdfast.kit.serial import parse_value
from holdfast.model.errors import BackendError
from holdfast.model.events import CallFailed, CheckpointChosen
from holdfast.model.job_views import JobView, RankView
from holdfast.model.jobs import Failure, FailureKind, JobPhase, JobRecord
from holdfast.model.names import ATTEMPT, JOB_RECORD, RECORD_OF, REPORT
from holdfast.model.report import NodeReport
from holdfast.model.set_aside import SetAside
from tests.ports.fakes import FakeClock, FakeEvents

JOB = "pytorchjob/default/llama"
FOLDER = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
PATH = f"{FOLDER}/llama"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
KINDS = (KIND, IndexedJobs(), RayJobs(), JobSets(), TrainJobs())
MONOTONIC = time.monotonic
PODS = "/api/v1/namespaces/default/pods"
KUEUE = "/apis/kueue.x-k8s.io"
WORKLOAD = f"{KUEUE}/v1beta1/namespaces/default/workloads/w"
QUEUED = {QUEUE: "team"}
STOPPED: dict[str, Any] = {"suspend": True, "conditions": ("Suspended",)}


@dataclass
class Backend:
    server: SmallServer
    cluster: KubernetesCluster
    jobs: KubernetesJobs
    events: FakeEvents
    clock: FakeClock
    acts: bool = True

    def job(self, **changes: Any) -> JobRecord:
        """A job is there; returns its record as the core sees it."""
        self.server.put(PATH, a_job_object(**changes))
        return self.seen(lambda: True)

    def pod(self, rank: int, **changes: Any) -> str:
        pod = a_pod_object(rank, **changes)
        path = f"{PODS}/{pod['metadata']['name']}"
        self.server.put(path, pod)
        return path

    def node(self, name: str, **changes: Any) -> None:
        self.server.put(f"/api/v1/nodes/{name}", a_node_object(name=name, **changes))

    def seen(self, condition: Callable[[], object]) -> JobRecord:
        until(lambda: [one for one in self.jobs.jobs() if one.spec.name == JOB] and condition())
        (view,) = self.jobs.jobs()
        return view.record

    @property
    def errorless(self) -> tuple[JobView, ...]:
        """What is seen; nothing while nothing can be."""
        try:
            return self.jobs.jobs()
        except BackendError:
            return ()

    @property
    def object(self) -> dict[str, Any]:
        return self.server.objects[PATH]

    @property
    def record(self) -> JobRecord:
        return parse_value(JobRecord, self.object["metadata"]["annotations"][JOB_RECORD])

    @property
    def is_suspended(self) -> bool:
        return bool(self.object["spec"]["runPolicy"]["suspend"])

    @property
    def writes(self) -> list[tuple[str, str]]:
        return [(verb, path) for verb, path, _ in self.server.writes]


@pytest.fixture
def backend() -> Iterator[Backend]:
    clock = FakeClock(BEGAN + timedelta(minutes=1))
    with (
        small_server() as server,
        closing(Api(Server(url=server.url), user_agent="test", field_manager="test")) as api,
    ):
        events = FakeEvents()
        dependencies = Dependencies(
            clock=clock,
            events=events,
            changed=lambda: None,
            may_act=lambda: backend.acts,
            evicted=lambda node, owner: None,
        )
        cluster = KubernetesCluster(api, KubernetesSettings(), dependencies)
        jobs = KubernetesJobs(api, KubernetesSettings(), dependencies, cluster, KINDS)
        backend = Backend(server, cluster, jobs, events, clock)
        cluster.start()
        backend.jobs.open()
        until(lambda: cluster.synced)
        yield backend
        backend.jobs.close()
        cluster.stop()


def once(server: SmallServer, verb: str, path: str, act: Callable[[], object]) -> None:
    """Somebody acts right before the first such write."""

    def before(requested: str, where: str) -> None:
        if (requested, where) == (verb, path):
            server.before = lambda *_: None
            act()

    server.before = before


# Records


def test_a_job_fails_although_its_operator_writes_at_the_same_time(backend: Backend) -> None:
    record = backend.job(record=a_record(JobPhase.STOPPING), **STOPPED)
    reported = {"type": "Suspended", "status": "True", "message": "told again"}
    once(
        backend.server,
        "PATCH",
        f"{PATH}/status",
        lambda: backend.server.merge(PATH, {"status": {"conditions": [reported]}}),
    )

    backend.jobs.put(JOB, replace(record, phase=JobPhase.FAILED, reason="spent"))

    conditions = {one["type"]: one["message"] for one in backend.object["status"]["conditions"]}
    assert conditions == {"Suspended": "told again", "Failed": "spent"}
    assert backend.record.phase is JobPhase.FAILED
    assert backend.is_suspended


def test_what_nobody_cares_for_may_change_while_a_record_is_written(backend: Backend) -> None:
    record = backend.job()
    labels = {"metadata": {"labels": {"mine": "1"}}}
    once(backend.server, "PATCH", PATH, lambda: backend.server.merge(PATH, labels))

    backend.jobs.put(JOB, replace(record, phase=JobPhase.STOPPING))

    assert (backend.record.phase, backend.is_suspended) == (JobPhase.STOPPING, True)
    assert backend.object["metadata"]["labels"] == {"mine": "1"}
    assert backend.object["metadata"]["annotations"][RECORD_OF] == "job-uid"


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"annotations": {LABELS.enable_job_auto_resume: None}}},
        {"metadata": {"annotations": {JOB_RECORD: "{}", RECORD_OF: "job-uid"}}},
        {"metadata": {"uid": "another"}},
        {"metadata": {"deletionTimestamp": at(9)}},
        {"spec": {"runPolicy": {"suspend": True}}},
        {"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}},
    ],
    ids=str,
)
@pytest.mark.parametrize("is_early", [True, False], ids=["before", "between"])
def test_a_job_that_somebody_has_changed_meanwhile_is_looked_at_again_first(
    backend: Backend, change: dict[str, Any], *, is_early: bool
) -> None:
    record = backend.job()
    if is_early:
        backend.server.merge(PATH, change)
    else:
        once(backend.server, "PATCH", PATH, lambda: backend.server.merge(PATH, change))

    with pytest.raises(BackendError, match="llama was changed concurrently"):
        backend.jobs.put(JOB, replace(record, phase=JobPhase.STOPPING))

    assert backend.writes == []


def test_a_job_that_never_rests_is_left_for_later(backend: Backend) -> None:
    record = backend.job()
    numbers = iter(range(100))

    def before(*_: str) -> None:
        backend.server.merge(PATH, {"metadata": {"labels": {"turn": str(next(numbers))}}})

    backend.server.before = before

    with pytest.raises(BackendError, match="llama changes too often, its record was not written"):
        backend.jobs.put(JOB, replace(record, phase=JobPhase.STOPPING))


def test_what_somebody_changes_in_the_body_of_a_job_is_not_lost_by_a_restart(
    backend: Backend,
) -> None:
    about = a_job_object()["metadata"]
    train = {"metadata": {**about, "annotations": {LABELS.enable_job_auto_resume: "true"}}}
    path = f"/apis/{TrainJobs.api_version}/namespaces/default/trainjobs/llama"
    backend.server.put(path, {**train, "spec": {"suspend": False}})
    body = f"/apis/{JobSets.api_version}/namespaces/default/jobsets/llama"
    owner = {"kind": "TrainJob", "name": "llama", "uid": "job-uid", "controller": True}
    made = {**about, "uid": "made", "annotations": {}, "ownerReferences": [owner]}
    jobs = [{"name": "node", "template": {"spec": {"parallelism": 2, "completions": 2}}}]
    backend.server.put(body, {"metadata": made, "spec": {"replicatedJobs": jobs}})
    until(backend.jobs.jobs)
    (view,) = backend.jobs.jobs()
    more = {"spec": {"replicatedJobs": [*jobs, {**jobs[0], "name": "another"}]}}
    once(backend.server, "PATCH", body, lambda: backend.server.merge(body, more))

    attempt = a_record(JobPhase.STARTING, attempt=2)
    backend.jobs.put(view.spec.name, attempt)

    found = backend.server.objects[body]
    pods = [one["template"]["spec"]["template"] for one in found["spec"]["replicatedJobs"]]
    assert [one["metadata"]["annotations"][ATTEMPT] for one in pods] == ["2", "2"]
    assert found["status"]["restarts"] == 1
    backend.jobs.jobs()
    backend.jobs.put(view.spec.name, replace(attempt, phase=JobPhase.RUNNING))
    assert backend.server.objects[body]["status"]["restarts"] == 1


# Pods


@pytest.mark.parametrize(
    ("node", "grace"),
    [
        ({}, None),
        ({"created": at(-60)}, None),
        ({"taints": [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]}, 0),
        ({"created": at(1)}, 0),
        (None, 0),
    ],
    ids=["runs", "is older", "is off", "is another", "is gone"],
)
def test_a_pod_that_has_to_go_is_removed_by_force_only_where_nothing_of_it_can_run(
    backend: Backend, node: dict[str, Any] | None, grace: int | None
) -> None:
    if node is not None:
        backend.node("a", **{"created": at(-60), **node})
    path = backend.pod(0, deletionTimestamp=at(40))
    backend.job(record=a_record(JobPhase.STOPPING), **STOPPED)
    backend.seen(lambda: any(one.ranks for one in backend.jobs.jobs()))
    if node is not None:
        until(lambda: backend.jobs.jobs()[0].ranks[0].is_fenced is (grace == 0))

    backend.jobs.kill(JOB)

    requested = [body for verb, where, body in backend.server.writes if where == path]
    assert [one["gracePeriodSeconds"] for one in requested] == ([] if grace is None else [grace])
    assert [one["preconditions"] for one in requested] == (
        [] if grace is None else [{"uid": "pod-0"}]
    )


def test_pods_that_stay_are_asked_to_go_and_those_that_have_ended_are_taken_away(
    backend: Backend,
) -> None:
    backend.node("a", created=at(-60))
    running, over = backend.pod(0), backend.pod(1, phase="Failed")
    backend.job(record=a_record(JobPhase.STOPPING), **STOPPED)
    backend.seen(lambda: len(backend.jobs.jobs()[0].ranks) == 2)
    assert [backend.jobs.stops_itself(f"default/llama-{one}") for one in ("master-0", "x")] == [
        True,
        False,
    ]

    backend.jobs.stop(JOB)
    assert backend.writes == [("DELETE", over)]
    backend.jobs.kill(JOB)

    assert set(backend.writes) == {("DELETE", over), ("DELETE", running)}
    assert "gracePeriodSeconds" not in backend.server.writes[-1][2]


FAULT = Failure(
    kind=FailureKind.HARDWARE, reason="XidReplace", at=BEGAN + timedelta(minutes=1), node="a"
)


def test_a_rank_that_ignores_sigterm_is_killed_by_its_kubelet_not_removed(
    backend: Backend,
) -> None:
    backend.node("a", created=at(-60))
    deleted = {"deletionTimestamp": at(40), "node": "a"}
    running = backend.pod(0, deletionGracePeriodSeconds=30, **deleted)
    killed = backend.pod(1, deletionGracePeriodSeconds=1, **deleted)
    undeleted = backend.pod(2)
    backend.job(record=replace(a_record(JobPhase.STOPPING), failure=FAULT), **STOPPED)
    backend.seen(lambda: len(backend.jobs.jobs()[0].ranks) == 3)
    until(lambda: backend.cluster.find("a") is not None)

    backend.jobs.kill(JOB)

    [(verb, path, body)] = backend.server.writes
    assert (verb, path, body["gracePeriodSeconds"]) == ("DELETE", running, 1)
    assert body["preconditions"] == {"uid": "pod-0"}
    assert {killed, undeleted} <= backend.server.objects.keys()

    backend.clock.time += timedelta(seconds=30)  # no operator has deleted the last pod
    backend.jobs.kill(JOB)

    assert ("DELETE", undeleted) in backend.writes
    assert ("DELETE", killed) not in backend.writes


def running(backend: Backend) -> list[RankView]:
    """Ranks that may run, and so hold up the end of a stop."""
    return [one for one in backend.jobs.jobs()[0].ranks if one.exit_code is None]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Running"])
@pytest.mark.parametrize("is_cordoned", [False, True])
@pytest.mark.parametrize("acts", [False, True])
def test_a_rank_that_has_ended_on_a_node_under_repair_does_not_wait_for_its_kubelet(
    backend: Backend, phase: str, *, is_cordoned: bool, acts: bool
) -> None:
    backend.acts = acts
    backend.node("a", created=at(-60), unschedulable=is_cordoned)
    path = backend.pod(0, phase=phase, deletionTimestamp=at(40))
    backend.job(record=a_record(JobPhase.STOPPING), **STOPPED)
    is_removed = is_cordoned and acts and phase != "Running"
    if is_removed:
        backend.seen(lambda: ("DELETE", path) in backend.writes)
        backend.seen(lambda: not running(backend))
    else:
        backend.seen(lambda: running(backend))
        until(lambda: backend.cluster.find("a") is not None)
        backend.jobs.jobs()

    requested = [body for verb, where, body in backend.server.writes if where == path]
    assert {one["gracePeriodSeconds"] for one in requested} == ({0} if is_removed else set())


def test_how_ranks_ended_is_known_after_their_stop_until_the_job_waits(backend: Backend) -> None:
    backend.node("a", created=at(-60))
    paths = [backend.pod(rank, node="a", status={"phase": "Running"}) for rank in (0, 1)]
    backend.job(record=a_record(JobPhase.RUNNING))
    backend.seen(lambda: len(running(backend)) == 2)

    backend.job(record=a_record(JobPhase.STOPPING), **STOPPED)
    backend.server.merge(
        paths[1], {"status": {"phase": "Failed", **container(state=ended(143, reason="OOMKilled"))}}
    )
    backend.server.remove(paths[1])
    backend.seen(lambda: len(running(backend)) == 1)

    [view] = backend.jobs.jobs()
    assert [(one.rank, one.exit_code, one.reason) for one in view.ranks] == [
        (0, None, ""),
        (1, -15, "OOMKilled"),
    ]
    backend.server.remove(paths[0])
    backend.job(record=a_record(JobPhase.WAITING), **STOPPED)
    backend.seen(lambda: not backend.jobs.jobs()[0].ranks)


def test_pods_of_a_job_that_runs_are_left_to_their_kubelet(backend: Backend) -> None:
    backend.node("a", created=at(-60), unschedulable=True)
    backend.pod(0, phase="Failed", deletionTimestamp=at(40))
    backend.job(record=a_record(JobPhase.RUNNING))
    backend.seen(lambda: backend.cluster.find("a") is not None)
    backend.jobs.jobs()

    assert backend.writes == []


def test_a_rank_that_has_ended_is_removed_by_force_when_its_grace_period_is_over(
    backend: Backend,
) -> None:
    backend.node("a", created=at(-60))
    path = backend.pod(0, phase="Failed", deletionTimestamp=at(40))
    backend.job(record=a_record(JobPhase.STOPPING), **STOPPED)
    backend.seen(lambda: backend.jobs.jobs()[0].ranks)

    backend.jobs.kill(JOB)

    [(_, _, body)] = [one for one in backend.server.writes if one[1] == path]
    assert body["gracePeriodSeconds"] == 0


def test_a_pod_that_has_the_name_of_another_is_left_alone(backend: Backend) -> None:
    backend.node("a", created=at(-60))
    path = backend.pod(0)
    backend.job(record=a_record(JobPhase.STOPPING), **STOPPED)
    backend.seen(lambda: any(one.ranks for one in backend.jobs.jobs()))
    once(
        backend.server,
        "DELETE",
        path,
        lambda: backend.server.merge(path, {"metadata": {"uid": "of the next"}}),
    )

    backend.jobs.kill(JOB)

    assert path in backend.server.objects


def test_a_job_is_informed_of_nodes_that_are_looked_after_or_gone(backend: Backend) -> None:
    backend.node("a", created=at(-60))  # of no snapshot: somebody else's
    backend.pod(0, node="a")
    backend.pod(1, node="gone")
    backend.job()

    record = backend.seen(lambda: len(backend.jobs.jobs()[0].ranks) == 2)

    assert record.placement == ("gone",)


def test_room_that_a_job_was_given_which_has_no_pods_yet_is_no_other_ones(
    backend: Backend,
) -> None:
    for name in ("a", "b", "c"):
        backend.node(name)
        path = f"/api/v1/nodes/{name}"
        backend.server.merge(path, {"status": {"allocatable": {"nvidia.com/gpu": "8"}}})
    backend.pod(0, node="a", phase="Pending")
    backend.server.put(PATH, a_job_object(record=a_record(JobPhase.STARTING), suspend=False))
    late = {"name": "late", "uid": "late"}
    waiting = a_job_object(record=a_record(JobPhase.WAITING), **late, **STOPPED)
    backend.server.put(f"{FOLDER}/late", waiting)

    def capacity() -> dict[str, int]:
        views = {one.spec.name: one for one in backend.jobs.jobs()}
        return dict(views["pytorchjob/default/late"].capacity or {}) if len(views) == 2 else {}

    until(lambda: capacity() == {"b": 0, "c": 1})


def test_a_node_that_is_being_replaced_counts_as_room_to_come(backend: Backend) -> None:
    backend.acts = False  # the nodes are only looked at
    for name in ("a", "b"):
        backend.node(name, annotations={REPORT: compact_json(a_report(name))})
        allocatable = {"status": {"allocatable": {"nvidia.com/gpu": "8"}}}
        backend.server.merge(f"/api/v1/nodes/{name}", allocatable)
    until(lambda: {one.name for one in backend.cluster.snapshot().nodes} == {"a", "b"})
    backend.server.remove("/api/v1/nodes/b")
    until(lambda: set(backend.cluster.node_states()) == {"a"})

    placed = a_record(JobPhase.WAITING, placement=("a", "b", "of others"))
    backend.job(record=placed, **STOPPED)

    assert backend.jobs.jobs()[0].capacity == {"a": 1, "b": 1}


def a_report(node: str) -> NodeReport:
    return NodeReport(node=node, boot_id="boot-1", sequence=1, reported_at=BEGAN, faults=())


def test_what_is_left_of_the_run_before_is_no_rank_of_the_present_one(backend: Backend) -> None:
    plain = a_job_object()
    cluster = {"headGroupSpec": {"template": {}}}
    job = {
        "metadata": plain["metadata"],
        "spec": {"rayClusterSpec": cluster, "shutdownAfterJobFinishes": True},
        "status": {"jobDeploymentStatus": "Running", "rayClusterName": "llama-nnnnn"},
    }
    backend.server.put("/apis/ray.io/v1/namespaces/default/rayjobs/llama", job)
    runs = ("llama-bbbbb", "llama-nnnnn")
    for run in runs:
        pod = a_pod_object(0, node=f"of-{run}", uid=run)
        pod["metadata"] |= {
            "name": run,
            "labels": {"ray.io/cluster": run, "ray.io/node-type": "head"},
        }
        backend.server.put(f"{PODS}/{run}", pod)

    def are_known() -> bool:
        backend.jobs.jobs()
        return all(backend.jobs.stops_itself(f"default/{run}") for run in runs)

    until(are_known)
    (view,) = backend.jobs.jobs()
    assert [rank.node for rank in view.ranks] == ["of-llama-nnnnn"]


def test_a_train_job_is_not_taken_for_what_was_made_for_another_of_its_name(
    backend: Backend,
) -> None:
    about = {**a_job_object()["metadata"], "uid": "new"}
    train = {"metadata": about, "spec": {}}
    backend.server.put(f"/apis/{TrainJobs.api_version}/namespaces/default/trainjobs/llama", train)
    body = f"/apis/{JobSets.api_version}/namespaces/default/jobsets/llama"

    def made_for(uid: str) -> None:
        owner = {"kind": "TrainJob", "name": "llama", "uid": uid, "controller": True}
        metadata = {**about, "uid": f"of-{uid}", "annotations": {}, "ownerReferences": [owner]}
        jobs = [{"name": "node", "template": {"spec": {"parallelism": 2, "completions": 2}}}]
        backend.server.put(body, {"metadata": metadata, "spec": {"replicatedJobs": jobs}})

    made_for("old")
    backend.server.put(PATH, a_job_object())
    until(lambda: backend.jobs.jobs() and backend.jobs.owner("jobset/default/llama"))
    assert [one.spec.name for one in backend.jobs.jobs()] == [JOB]

    made_for("new")
    until(lambda: len(backend.jobs.jobs()) == 2)
    assert {one.spec.name for one in backend.jobs.jobs()} == {JOB, "trainjob/default/llama"}


# Queues


def queued(backend: Backend, *, active: bool, **changes: Any) -> None:
    about = {"name": "w", "namespace": "default", "uid": "w"}
    backend.server.put(KUEUE, {"metadata": {}, "preferredVersion": {"version": "v1beta1"}})
    backend.server.put(WORKLOAD, {"metadata": about, "spec": {"active": active}})
    backend.server.put(PATH, a_job_object(labels=QUEUED, **changes))


def test_a_job_in_a_queue_is_let_in_for_each_of_our_starts_and_no_other(backend: Backend) -> None:
    queued(backend, active=True)
    backend.seen(lambda: True)
    backend.jobs.launch(JOB)  # others have begun it
    assert backend.writes == []
    queued(backend, active=False, record=a_record(JobPhase.WAITING, attempt=1), **STOPPED)
    record = backend.seen(lambda: backend.jobs.jobs()[0].record.phase is JobPhase.WAITING)
    backend.jobs.put(JOB, replace(record, phase=JobPhase.STARTING, attempt=2))

    backend.jobs.launch(JOB)
    assert backend.server.objects[WORKLOAD]["spec"]["active"] is True
    backend.server.merge(WORKLOAD, {"spec": {"active": False}})
    backend.jobs.launch(JOB)

    assert backend.server.objects[WORKLOAD]["spec"]["active"] is False


@pytest.mark.parametrize(
    ("record", "is_let_in"),
    [
        (a_record(JobPhase.RUNNING), False),
        (a_record(JobPhase.STARTING), False),
        (a_record(JobPhase.STARTING, attempt=2), True),
        (a_record(JobPhase.STOPPING), True),
        (a_record(JobPhase.WAITING), True),
    ],
)
def test_a_job_that_is_let_go_goes_back_to_its_queue_if_we_took_it_out(
    backend: Backend, record: JobRecord, *, is_let_in: bool
) -> None:
    off = {LABELS.enable_job_auto_resume: None}
    queued(backend, active=False, record=record, annotations=off, **STOPPED)

    def is_let_go() -> bool:
        backend.jobs.jobs()
        return JOB_RECORD not in backend.object["metadata"]["annotations"]

    until(is_let_go)
    workload = backend.server.objects[WORKLOAD]
    assert workload["spec"]["active"] is is_let_in
    assert backend.is_suspended  # it is for Kueue to change that
    assert (ATTEMPT in workload["metadata"].get("annotations", {})) is (record.attempt == 2)


@dataclass
class Clock:
    """The time of processes, that a test can let pass."""

    ahead_s: float = 0.0

    def monotonic(self) -> float:
        return MONOTONIC() + self.ahead_s


def test_a_kind_that_cannot_be_read_any_more_keeps_no_other_from_being_looked_after(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    backend.job(record=a_record(JobPhase.WAITING), **STOPPED)
    plain = {"metadata": {**a_job_object()["metadata"], "name": "plain", "uid": "plain"}}
    indexed = {"completionMode": "Indexed", "completions": 1, "parallelism": 1}
    backend.server.put(f"{JOBS}/plain", {**plain, "spec": indexed})
    both = {JOB, "job/default/plain"}
    until(lambda: {one.spec.name for one in backend.jobs.jobs()} == both)

    backend.server.refused = frozenset({"pytorchjobs"})
    until(lambda: backend.jobs.errors)
    assert {one.spec.name for one in backend.jobs.jobs()} == both
    clock.ahead_s = 200
    until(lambda: [one.spec.name for one in backend.jobs.jobs()] == ["job/default/plain"])
    reported = backend.events.reported[-1]
    assert isinstance(reported, CallFailed)
    assert reported.what == "reading pytorchjobs"
    assert "no update of pytorchjobs was received for 3m" in reported.error

    backend.server.refused = frozenset()
    until(lambda: len(backend.errorless) == 2)


def test_who_may_not_act_lets_nobody_go(backend: Backend) -> None:
    backend.acts = False
    off = {LABELS.enable_job_auto_resume: "perhaps"}
    backend.server.put(
        PATH, a_job_object(record=a_record(JobPhase.WAITING), annotations=off, **STOPPED)
    )

    until(lambda: backend.jobs.jobs() == () and backend.jobs.owner(JOB))
    assert (backend.writes, backend.events.reported) == ([], [])

    backend.acts = True
    until(lambda: backend.jobs.jobs() == () and backend.writes)
    assert not backend.is_suspended
    assert backend.events.names() == ["job.input_rejected"]


def test_what_an_init_container_found_about_checkpoints_is_reported_once(backend: Backend) -> None:
    message = "/ckpt: iter_0000300 is damaged\n/ckpt: iter_0000200 is complete\n"
    guard = {"name": "checkpoint-guard", "state": {"terminated": {"message": message}}}
    other = {"name": "download", "state": {"terminated": {"message": "done"}}}
    backend.acts = False
    backend.job()
    backend.pod(0, status={"initContainerStatuses": [other, guard]})
    backend.pod(1, status={"initContainerStatuses": [other]})

    def found() -> list[CheckpointChosen]:
        return [one for one in backend.events.reported if isinstance(one, CheckpointChosen)]

    backend.seen(lambda: [job for job in backend.jobs.jobs() if len(job.ranks) == 2])
    assert found() == []  # the leader reports it
    backend.acts = True
    for _ in range(3):
        backend.jobs.jobs()

    assert not any(backend.jobs.moved_checkpoints().values())
    record = backend.seen(lambda: True)
    assert [(one.job, one.attempt, one.why) for one in found()] == [
        (JOB, record.attempt, line) for line in message.splitlines()
    ]


def test_the_checkpoints_that_an_init_container_has_moved_are_known(backend: Backend) -> None:
    now = datetime.now(UTC)
    moved = SetAside(name="step_3", path="/ckpt.set-aside/step_3", why="damaged: x", at=now)
    message = termination_message(["/ckpt: step_3 is damaged"], [moved]).decode()
    guard = {"name": "checkpoint-guard", "state": {"terminated": {"message": message}}}
    other = {"name": "other", "state": {"terminated": {"message": message}}}
    backend.job()
    backend.pod(0, status={"initContainerStatuses": [guard]})
    backend.pod(1, status={"initContainerStatuses": [other]})

    backend.seen(lambda: [job for job in backend.jobs.jobs() if len(job.ranks) == 2])

    assert backend.jobs.moved_checkpoints() == {JOB: (moved,)}
    chosen = [one.why for one in backend.events.reported if isinstance(one, CheckpointChosen)]
    assert chosen == ["/ckpt: step_3 is damaged"]


def test_a_rank_without_a_termination_message_has_the_exception_of_its_log(
    backend: Backend,
) -> None:
    backend.job(record=a_record(JobPhase.RUNNING))
    path = backend.pod(1, phase="Failed", status=container(state=ended(1)))
    backend.server.logs[path, False] = f"step 5\n{NO_SPACE}"

    def reasons() -> list[str]:
        return [rank.reason for job in backend.jobs.jobs() for rank in job.ranks]

    until(lambda: reasons() == ["OSError: [Errno 28] No space left on device"])
    backend.server.remove(path)  # by its operator

    until(lambda: not backend.server.of(PODS))
    backend.pod(0)
    until(lambda: len(reasons()) == 2)
    assert reasons()[1] == "OSError: [Errno 28] No space left on device"
