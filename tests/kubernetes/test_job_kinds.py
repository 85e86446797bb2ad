"""What is read of the kinds of jobs, and what is written to them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.adapters.kubernetes.jobs.indexed_job import INDEX, IndexedJobs
from holdfast.adapters.kubernetes.jobs.kinds import KINDS, JobKind
from holdfast.adapters.kubernetes.jobs.objects import JobState
from holdfast.adapters.kubernetes.jobs.wishes import wishes_of
from holdfast.model.jobs import JobPhase
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
    assert kind.stamped(bare, {}, {}) is not None


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_a_suspension_is_read_as_it_is_written(kind: JobKind) -> None:
    for is_suspended in (True, False):
        job = {"metadata": metadata(), **kind.suspension(is_suspended=is_suspended)}

        assert kind.trimmed(job, LABELS).is_suspended is is_suspended


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_a_failure_is_read_as_it_is_written_and_keeps_what_else_is_said(kind: JobKind) -> None:
    job = {"metadata": metadata(), "status": {"conditions": true("Suspended")}}

    failed = {**job, **kind.failed(job, "Spent", "all retries are spent", NOW)}

    ending = kind.trimmed(failed, LABELS).ending
    assert ending is not None
    assert (ending.outcome, ending.reason) == (JobPhase.FAILED, "all retries are spent")
    assert failed["status"]["conditions"][0] == true("Suspended")[0]
    again = kind.failed(failed, "Spent", "all retries are spent", NOW)
    assert again["status"]["conditions"] == failed["status"]["conditions"]


def test_an_indexed_job_has_as_many_ranks_as_pods_at_once() -> None:
    state = indexed(status={"startTime": AT})

    assert (state.ranks, state.groups[0].restart_policy) == (4, "Never")
    assert state.started_at == datetime(2026, 1, 1, 11, tzinfo=UTC)
    assert wishes_of(state, LABELS).auto_resume


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
    wishes = wishes_of(indexed(**changes), LABELS)

    assert not wishes.auto_resume
    (rejection,) = wishes.rejected
    assert rejection.key == LABELS.enable_job_auto_resume
    assert expected in rejection.expected


def test_a_job_that_a_schedule_made_is_restarted() -> None:
    assert wishes_of(indexed(owner="CronJob"), LABELS).auto_resume


@pytest.mark.parametrize(
    ("kind", "outcome"), [("Complete", JobPhase.SUCCEEDED), ("Failed", JobPhase.FAILED)]
)
def test_an_indexed_job_ends_with_its_condition(kind: str, outcome: JobPhase) -> None:
    ending = indexed(status={"conditions": true("FailureTarget", kind)}).ending

    assert ending is not None
    assert (ending.outcome, ending.reason) == (outcome, f"it is {kind}")


def test_pods_are_marked_where_the_template_may_be_changed_and_never_their_containers() -> None:
    patch = IndexedJobs().stamped(an_indexed_job(), {"attempt": "2"}, {"ATTEMPT": "2"})

    assert patch == {"spec": {"template": {"metadata": {"annotations": {"attempt": "2"}}}}}
    started = an_indexed_job(status={"startTime": AT})
    assert IndexedJobs().stamped(started, {"attempt": "2"}, {"ATTEMPT": "2"}) == {}


def test_a_job_that_never_started_fails_as_the_api_server_wants_it() -> None:
    status = IndexedJobs().failed(an_indexed_job(), "Spent", "why", NOW)["status"]

    assert [one["type"] for one in status["conditions"]] == ["FailureTarget", "Failed"]
    assert status["startTime"] == "2026-01-01T12:00:00Z"
    before = an_indexed_job(status={"startTime": AT})
    assert IndexedJobs().failed(before, "Spent", "why", NOW)["status"]["startTime"] == AT
