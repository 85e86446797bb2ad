"""What is read of the kinds of jobs, and what is written to them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from job_objects import BEGAN, a_record

from holdfast.adapters.kubernetes.jobs.indexed_job import INDEX, IndexedJobs
from holdfast.adapters.kubernetes.jobs.job_kind import JobKind
from holdfast.adapters.kubernetes.jobs.job_set import JobSets
from holdfast.adapters.kubernetes.jobs.kinds import KINDS
from holdfast.adapters.kubernetes.jobs.mpi_job import MPIJobs
from holdfast.adapters.kubernetes.jobs.objects import BY_NAME, JobState, pod_state
from holdfast.adapters.kubernetes.jobs.requests import requests_of
from holdfast.adapters.kubernetes.jobs.train_job import TrainJobs
from holdfast.model.jobs import AttemptRecord, JobPhase, JobRecord
from holdfast.model.names import Labels

AT = "2026-01-01T11:00:00Z"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LABELS = Labels()
NAMES = [kind.plural for kind in KINDS]


def metadata(**more: Any) -> dict[str, Any]:
    return {
        "name": "llama",
        "namespace": "team",
        "uid": "u-1",
        "annotations": {LABELS.enable_job_auto_resume: "true"},
        **more,
    }


def true(*kinds: str) -> list[dict[str, str]]:
    return [{"type": kind, "status": "True", "message": f"it is {kind}"} for kind in kinds]


def an_indexed_job(status: Any = None, owner: str = "", **spec: Any) -> dict[str, Any]:
    owners = [{"kind": owner, "name": "up", "uid": "u-0", "controller": True}] if owner else []
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}}
    indexed = {"completionMode": "Indexed", "completions": 4, "parallelism": 4}
    return {
        "metadata": metadata(ownerReferences=owners),
        "spec": {**indexed, "template": template, **spec},
        "status": status or {},
    }


def indexed(**changes: Any) -> JobState:
    return IndexedJobs().trimmed(an_indexed_job(**changes), LABELS)


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_an_object_with_nothing_in_it_is_borne(kind: JobKind) -> None:
    bare = {"metadata": {"name": "llama", "namespace": "team", "uid": "u-1"}}

    state = kind.trimmed(bare, LABELS)

    assert (state.key, state.ending) == (f"{state.kind.lower()}/team/llama", None)
    assert not state.is_suspended
    assert not state.is_stop_seen
    assert kind.member(bare) is None
    assert kind.attempt_patch(bare, {}, {}) is not None


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_a_suspension_is_read_as_it_is_written(kind: JobKind) -> None:
    for is_suspended in (True, False):
        job = {"metadata": metadata(), **kind.suspension(is_suspended=is_suspended)}

        assert kind.trimmed(job, LABELS).is_suspended is is_suspended


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_a_failure_is_read_as_it_is_written_and_keeps_what_else_is_reported(kind: JobKind) -> None:
    before = {"conditions": true("Suspended")}
    job = {"metadata": metadata(), "status": before, **kind.suspension(is_suspended=True)}

    status = kind.failed(job, "Spent", "all retries are spent", NOW)["status"]

    failed = {**job, "status": {**before, **status}}
    ending = kind.trimmed(failed, LABELS).ending
    assert ending is not None
    assert (ending.outcome, ending.reason) == (JobPhase.FAILED, "all retries are spent")
    assert failed["status"]["conditions"][0] == before["conditions"][0]
    assert kind.failed(failed, "Spent", "all retries are spent", NOW)["status"] == status


def test_an_indexed_job_has_as_many_ranks_as_pods_at_once() -> None:
    state = indexed(status={"startTime": AT})

    assert (state.ranks, state.groups[0].restart_policy) == (4, "Never")
    assert state.started_at == datetime(2026, 1, 1, 11, tzinfo=UTC)
    assert requests_of(state, LABELS).auto_resume


def test_the_index_of_a_pod_is_its_rank() -> None:
    labels = {"batch.kubernetes.io/job-name": "llama", INDEX: "3"}

    member = IndexedJobs().member({"metadata": {"labels": labels}})

    assert member is not None
    assert (member.job, member.rank, member.container) == ("llama", 3, "")


@pytest.mark.parametrize(
    ("status", "is_over"),
    [
        ({}, False),
        ({"conditions": true("Suspended")}, True),
        ({"conditions": true("Suspended"), "terminating": 0}, True),
        ({"conditions": true("Suspended"), "terminating": 1}, False),
        ({"conditions": true("Suspended"), "uncountedTerminatedPods": {"failed": ["u"]}}, False),
        ({"conditions": true("Suspended"), "uncountedTerminatedPods": {}}, True),
    ],
)
def test_a_stop_is_over_when_all_pods_are_counted(status: Any, is_over: bool) -> None:
    assert indexed(status=status).is_stop_seen is is_over


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"completionMode": "NonIndexed"}, "completionMode Indexed"),
        ({"completions": 8}, "as many completions as parallelism"),
        ({"owner": "JobSet"}, "on JobSet up"),
    ],
)
def test_a_job_that_cannot_be_restarted_as_a_whole_is_left_alone(
    changes: dict[str, Any], expected: str
) -> None:
    requests = requests_of(indexed(**changes), LABELS)

    assert not requests.auto_resume
    (rejection,) = requests.rejected
    assert rejection.key == LABELS.enable_job_auto_resume
    assert expected in rejection.expected


@pytest.mark.parametrize("owner", ["CronJob", "Workflow"])
def test_a_job_whose_owner_only_made_it_is_restarted(owner: str) -> None:
    assert requests_of(indexed(owner=owner), LABELS).auto_resume


@pytest.mark.parametrize(
    ("indexes", "expected"),
    [(None, set()), ("", set()), ("0", {0}), ("0,2-4,7", {0, 2, 3, 4, 7}), ("9-10", {9, 10})],
)
def test_the_indexes_that_have_ended_are_read(indexes: str | None, expected: set[int]) -> None:
    assert indexed(status={"completedIndexes": indexes}).completed == expected


@pytest.mark.parametrize(
    ("kind", "outcome"), [("Complete", JobPhase.SUCCEEDED), ("Failed", JobPhase.FAILED)]
)
def test_an_indexed_job_ends_with_its_condition(kind: str, outcome: JobPhase) -> None:
    ending = indexed(status={"conditions": true("FailureTarget", kind)}).ending

    assert ending is not None
    assert (ending.outcome, ending.reason) == (outcome, f"it is {kind}")


def test_pods_are_marked_where_the_template_may_be_changed_and_never_their_containers() -> None:
    patch = IndexedJobs().attempt_patch(an_indexed_job(), {"attempt": "2"}, {"ATTEMPT": "2"})

    assert patch == {"spec": {"template": {"metadata": {"annotations": {"attempt": "2"}}}}}
    started = an_indexed_job(status={"startTime": AT})
    assert IndexedJobs().attempt_patch(started, {"attempt": "2"}, {"ATTEMPT": "2"}) == {}


def test_a_job_that_never_started_fails_as_the_api_server_wants_it() -> None:
    status = IndexedJobs().failed(an_indexed_job(), "Spent", "why", NOW)["status"]

    assert [one["type"] for one in status["conditions"]] == ["FailureTarget", "Failed"]
    assert status["startTime"] == "2026-01-01T12:00:00Z"
    before = an_indexed_job(status={"startTime": AT})
    assert IndexedJobs().failed(before, "Spent", "why", NOW)["status"]["startTime"] == AT


def a_job_set(*jobs: dict[str, Any], status: Any = None, owner: str = "") -> dict[str, Any]:
    owners = [{"kind": owner, "name": "up", "uid": "u-0", "controller": True}] if owner else []
    return {
        "metadata": metadata(ownerReferences=owners),
        "spec": {"replicatedJobs": list(jobs)},
        "status": status or {},
    }


def replicated(name: str, replicas: int, pods: int, **more: Any) -> dict[str, Any]:
    template = {"metadata": {"annotations": {"mine": "1"}}, "spec": {"containers": [{}]}}
    spec = {"completions": pods, "parallelism": pods, "template": template, **more.pop("job", {})}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, **more}


def a_pod_of_a_set(index: int, job: int, jobs: int) -> dict[str, Any]:
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "llama",
        "jobset.sigs.k8s.io/jobset-uid": "u-1",
        "jobset.sigs.k8s.io/global-replicas": str(jobs),
        "jobset.sigs.k8s.io/job-global-index": str(job),
        INDEX: str(index),
    }
    return {"metadata": {**metadata(labels=labels), "uid": "p-1"}}


def test_a_job_set_has_the_ranks_of_all_its_jobs() -> None:
    job = a_job_set(replicated("leader", 1, 1), replicated("node", 3, 4))

    assert JobSets().trimmed(job, LABELS).ranks == 13


def test_every_pod_of_a_job_set_has_a_rank_of_its_own() -> None:
    pods = [a_pod_of_a_set(index, job, 3) for index in range(4) for job in range(3)]

    members = [JobSets().member(pod) for pod in pods]

    assert sorted(one.rank for one in members if one is not None) == list(range(12))
    assert members[0] is not None
    assert pod_state(pods[0], members[0]).owner == "u-1"


@pytest.mark.parametrize(
    ("job", "owner", "expected"),
    [
        (replicated("node", 2, 2, job={"completions": 4}), "", "as many completions"),
        (replicated("node", 2, 2, job={"completionMode": "NonIndexed"}), "", "Indexed"),
        (replicated("node", 2, 2), "TrainJob", "on TrainJob up"),
    ],
)
def test_a_job_set_that_cannot_be_restarted_as_a_whole_is_left_alone(
    job: dict[str, Any], owner: str, expected: str
) -> None:
    requests = requests_of(JobSets().trimmed(a_job_set(job, owner=owner), LABELS), LABELS)

    assert not requests.auto_resume
    assert expected in requests.rejected[0].expected


def test_marks_are_added_to_the_pods_of_a_job_set_and_nothing_else_changes() -> None:
    job = a_job_set(replicated("leader", 1, 1), replicated("node", 3, 4))

    patch = JobSets().attempt_patch(job, {"attempt": "2"}, {"ATTEMPT": "2"})

    jobs = patch["spec"]["replicatedJobs"]
    for one in jobs:
        pods = one["template"]["spec"]["template"]
        assert pods["metadata"].pop("annotations") == {"mine": "1", "attempt": "2"}
        pods["metadata"]["annotations"] = {"mine": "1"}
    assert jobs == job["spec"]["replicatedJobs"]


def test_all_jobs_of_a_set_are_made_anew_by_one_more_restart() -> None:
    for restarts, status in ((1, {}), (1, {"restarts": 0}), (4, {"restarts": 3})):
        patch = JobSets().renewed(a_job_set(status=status), restarted(2))

        assert patch["status"]["restarts"] == restarts


def restarted(attempt: int, stopped_after: float = 5) -> JobRecord:
    over = AttemptRecord(
        attempt=attempt - 1,
        placement=(),
        started_at=BEGAN,
        stopped_at=BEGAN + timedelta(seconds=stopped_after),
    )
    return a_record(JobPhase.STARTING, attempt=attempt, attempts=(over,))


def test_a_restart_of_a_set_is_counted_once_whoever_takes_it_over() -> None:
    suspended = {"type": "Suspended", "status": "True"}
    job = a_job_set(status={"restarts": 3, "conditions": [suspended]})
    record = restarted(2)

    done = {**job, **JobSets().renewed(job, record)}

    assert suspended in done["status"]["conditions"]
    later = replace(record, phase_since=record.phase_since + timedelta(minutes=1))
    assert JobSets().renewed(done, later) == {}
    for other in (restarted(3), restarted(2, stopped_after=9)):  # the record may begin anew
        again = {**done, **JobSets().renewed(done, other)}
        assert again["status"]["restarts"] == 5
        assert len(again["status"]["conditions"]) == 2


def a_train_job(**spec: Any) -> JobState:
    return TrainJobs().trimmed({"metadata": metadata(), "spec": spec}, LABELS)


def test_a_train_job_is_what_its_job_set_says() -> None:
    resumed = {"type": "Suspended", "status": "False", "lastTransitionTime": AT}
    jobs = (replicated("init", 1, 1), replicated("node", 1, 4, job={"completions": 4}))
    whole = a_job_set(*jobs, owner="TrainJob", status={"conditions": [resumed]})
    body = JobSets().trimmed({**whole, "metadata": {**whole["metadata"], "uid": "u-2"}}, LABELS)

    state = a_train_job().with_body(body)

    assert (state.key, state.uid, state.ranks) == ("trainjob/team/llama", "u-1", 5)
    assert (state.started_at, state.is_stop_seen) == (body.started_at, False)
    assert requests_of(state, LABELS).auto_resume
    pod = a_pod_of_a_set(3, 1, 2)
    pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-uid"] = "u-2"
    member = TrainJobs().member(pod)
    assert member is not None
    assert state.owns(pod_state(pod, member))
    assert not a_train_job().owns(pod_state(pod, member))


def test_a_train_job_whose_job_set_cannot_restart_as_a_whole_is_left_alone() -> None:
    body = JobSets().trimmed(a_job_set(replicated("node", 1, 2, job={"completions": 4})), LABELS)

    requests = requests_of(a_train_job().with_body(body), LABELS)

    assert not requests.auto_resume
    assert "as many completions" in requests.rejected[0].expected


def test_a_job_set_runs_since_it_was_let_go() -> None:
    resumed = {"type": "Suspended", "status": "False", "lastTransitionTime": AT}
    state = JobSets().trimmed(a_job_set(status={"conditions": [resumed]}), LABELS)

    assert (state.is_stop_seen, state.started_at) == (False, datetime(2026, 1, 1, 11, tzinfo=UTC))
    assert JobSets().trimmed(a_job_set(), LABELS).started_at is None
    stopped = a_job_set(status={"conditions": true("Suspended")})
    assert JobSets().trimmed(stopped, LABELS).is_stop_seen


def an_mpi_job(status: Any = None) -> dict[str, Any]:
    replicas = {
        "Worker": {"replicas": 3, "template": {"spec": {"containers": [{"name": "c"}]}}},
        "Launcher": {"template": {"spec": {"containers": [{"name": "mpirun"}]}}},
    }
    return {
        "metadata": metadata(creationTimestamp=AT),
        "spec": {"mpiReplicaSpecs": replicas, "runPolicy": {}},
        "status": status or {},
    }


def a_pod_of_mpi(role: str, index: str | None, created: str = AT) -> dict[str, Any]:
    labels = {"training.kubeflow.org/job-name": "llama", "training.kubeflow.org/job-role": role}
    if index is not None:
        labels["training.kubeflow.org/replica-index"] = index
    owner = {"uid": "u-9" if role == "launcher" else "u-1", "controller": True}
    about = metadata(labels=labels, creationTimestamp=created, ownerReferences=[owner])
    return {"metadata": {**about, "uid": "p-1"}}


def test_the_launcher_of_an_mpi_job_is_its_first_rank() -> None:
    assert MPIJobs().trimmed(an_mpi_job(), LABELS).ranks == 4
    pods = [("worker", "0"), ("worker", "2"), ("launcher", None)]

    members = [MPIJobs().member(a_pod_of_mpi(*pod)) for pod in pods]

    assert [one and one.rank for one in members] == [1, 3, 0]


@pytest.mark.parametrize(
    ("role", "created", "is_owned"),
    [
        ("launcher", AT, True),
        ("launcher", "2026-01-01T10:59:59Z", False),
        ("worker", AT, True),
    ],
)
def test_a_launcher_is_of_the_job_of_its_name_unless_it_is_older(
    role: str, created: str, is_owned: bool
) -> None:
    pod = a_pod_of_mpi(role, "0", created)
    member = MPIJobs().member(pod)
    assert member is not None

    found = pod_state(pod, member)

    assert (found.owner == BY_NAME) == (role == "launcher")
    assert MPIJobs().trimmed(an_mpi_job(), LABELS).owns(found) is is_owned


def test_a_pod_made_by_another_job_of_that_name_is_not_of_it() -> None:
    pod = a_pod_of_mpi("worker", "0")
    pod["metadata"]["ownerReferences"][0]["uid"] = "u-2"
    member = MPIJobs().member(pod)
    assert member is not None

    assert not MPIJobs().trimmed(an_mpi_job(), LABELS).owns(pod_state(pod, member))


def test_an_mpi_job_with_an_evicted_worker_has_not_ended() -> None:
    failed = {"conditions": true("Failed")}

    assert MPIJobs().trimmed(an_mpi_job(failed), LABELS).ending is None
    ending = MPIJobs().trimmed(an_mpi_job({**failed, "completionTime": AT}), LABELS).ending
    assert ending is not None
    assert ending.outcome is JobPhase.FAILED


def test_the_workers_of_an_mpi_job_learn_of_the_attempt_and_the_launcher_does_not() -> None:
    patch = MPIJobs().attempt_patch(an_mpi_job(), {"attempt": "2"}, {"ATTEMPT": "2"})

    (name, replica), *others = patch["spec"]["mpiReplicaSpecs"].items()
    assert (name, others) == ("Worker", [])
    assert replica["template"]["metadata"]["annotations"] == {"attempt": "2"}
    env = [{"name": "ATTEMPT", "value": "2"}]
    assert replica["template"]["spec"]["containers"] == [{"name": "c", "env": env}]
