"""Which jobs hang, by the logs of their pods on a real API server."""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from controlled import api_of
from job_objects import a_pod, a_record, a_state, requests
from machines import stays
from real_cluster import Cluster, until

from holdfast.adapters.kubernetes.jobs.attempt_findings import with_findings
from holdfast.adapters.kubernetes.jobs.hang_watch import (
    HangWatch,
    Watched,
    logs_known_until,
    watched,
)
from holdfast.adapters.kubernetes.jobs.objects import PodRank, PodState, pod_state
from holdfast.apps.clock import SystemClock
from holdfast.decisions.log_rules import JobLogRule
from holdfast.engine.job_notices import JobNotices
from holdfast.engine.wording import sentence
from holdfast.model.jobs import JobPhase
from holdfast.model.names import LOG_MONITORING, LOG_MONITORING_CONFIG_MAP
from tests.engines.kubelet import PodServer
from tests.ports.builders import a_job
from tests.ports.fakes import FakeClock, FakeEvents

NAMESPACE = "/api/v1/namespaces/default"
STEPS = JobLogRule(name="Steps", pattern="step", frequency=timedelta(seconds=2))
START = JobLogRule(name="Start", pattern="step", start_cutoff=timedelta(seconds=1))
START_OF_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
RULES = json.dumps([{"name": "r", "logPattern": "x", "expectedStartCutOffInSeconds": 60}])


def seen(phase: JobPhase = JobPhase.RUNNING, **annotations: str | None) -> Watched | None:
    state = a_state(annotations=annotations)
    pods = [a_pod(1), a_pod(0), a_pod(2, phase="Pending"), a_pod(3, deletionTimestamp="x")]
    return watched(state, requests(state), a_record(phase), pods)


def test_a_job_with_rules_is_watched_since_all_of_it_runs():
    found = seen(**{LOG_MONITORING: RULES})

    assert found is not None
    assert [rule.name for rule in found.rules] == ["r"]
    assert [pod.member.rank for pod in found.pods] == [0, 1]
    assert found.started_at == a_record().phase_since


@pytest.mark.parametrize("phase", sorted(set(JobPhase) - {JobPhase.RUNNING}))
def test_no_job_is_watched_that_does_not_run(phase: JobPhase):
    assert seen(phase, **{LOG_MONITORING: RULES}) is None


def test_a_job_without_rules_is_not_watched():
    assert seen() is None
    assert seen(**{LOG_MONITORING: "nonsense"}) is None


def test_rules_can_be_in_a_config_map():
    found = seen(**{LOG_MONITORING_CONFIG_MAP: "my-rules"})

    assert found is not None
    assert (found.rules, found.rules_from) == ((), "my-rules")


@pytest.mark.parametrize("name", ["../secrets/x", "A", "a" * 254, "-a"])
def test_a_name_that_no_config_map_can_have_is_reported(name: str):
    state = a_state(annotations={LOG_MONITORING_CONFIG_MAP: name})

    (rejected,) = requests(state).rejected
    assert rejected.key == LOG_MONITORING_CONFIG_MAP
    assert requests(state).log_rules_from == ""


def test_rules_of_the_job_itself_win_over_a_config_map_and_that_is_reported():
    both = {LOG_MONITORING: RULES, LOG_MONITORING_CONFIG_MAP: "my-rules"}
    found = seen(**both)

    assert found is not None
    assert (len(found.rules), found.rules_from) == (1, "")
    (rejected,) = requests(a_state(annotations=both)).rejected
    assert rejected.expected == f"no value if {LOG_MONITORING} is set"


def test_rules_of_a_job_that_is_left_alone_are_not_read():
    state = a_state(annotations={"sagemaker.amazonaws.com/enable-job-auto-resume": None,
                                 LOG_MONITORING: "nonsense"})  # fmt: skip

    assert requests(state).rejected == ()


@pytest.mark.parametrize(
    ("ranks", "followed"),
    [(16, [*range(16)]), (17, [*range(8), *range(9, 17)]), (1000, [*range(8), *range(992, 1000)])],
)
def test_of_a_large_job_the_first_and_the_last_ranks_are_followed(ranks: int, followed: list[int]):
    job = an_attempt([a_pod(rank) for rank in range(ranks)], STEPS)

    assert [pod.member.rank for pod in job.followed] == followed


def an_attempt(pods: list[PodState], *rules: JobLogRule, attempt: int = 1, rules_from: str = ""):
    return Watched(
        job=a_state(),
        attempt=attempt,
        started_at=datetime.now(UTC),
        rules=rules,
        rules_from=rules_from,
        pods=tuple(pods),
    )


def test_what_was_found_out_holds_for_the_same_attempt_by_the_same_rules():
    job = an_attempt([], STEPS, rules_from="a")
    others = [
        an_attempt([], STEPS, rules_from="a", attempt=2),
        an_attempt([], START, rules_from="a"),
        an_attempt([], STEPS, rules_from="b"),
        None,
    ]

    assert job.is_same(an_attempt([a_pod()], STEPS, rules_from="a"))
    assert not any(job.is_same(other) for other in others)


def test_a_job_is_heard_as_long_as_each_of_its_logs_is():
    early, late = START_OF_YEAR, START_OF_YEAR + timedelta(seconds=1)

    assert logs_known_until([late, early, late], 3) == early
    assert logs_known_until([late, None], 2) is None
    assert logs_known_until([late, late], 3) is None
    assert logs_known_until([], 0) is None


@pytest.fixture
def pods(cluster: Cluster, kubelet: PodServer) -> list[PodState]:
    """Two ranks, ``p0`` and ``p1``."""
    cluster.nodes.join("a")
    kubelet.serve("a")
    api = api_of(cluster)
    spec = {"nodeName": "a", "containers": [{"name": "train", "image": "none"}]}
    paths = [f"{NAMESPACE}/pods/p{rank}" for rank in (0, 1)]
    for rank in (0, 1):
        api.create(f"{NAMESPACE}/pods", {"metadata": {"name": f"p{rank}"}, "spec": spec})
    until(lambda: all(api.get(path)["status"].get("phase") == "Running" for path in paths))
    found = [
        pod_state(api.get(path), PodRank(job="j", rank=rank, container=""))
        for rank, path in enumerate(paths)
    ]
    api.close()
    return found


@pytest.fixture
def woken() -> threading.Event:
    return threading.Event()


@pytest.fixture
def watch(cluster: Cluster, woken: threading.Event) -> Iterator[HangWatch]:
    api = api_of(cluster)
    watch = HangWatch(api, SystemClock(), woken.set, captures_stacks=False, reads_heartbeats=False)
    watch.start()
    yield watch
    watch.stop()
    api.close()


def test_a_rank_that_prints_keeps_the_silent_ones_from_being_taken_for_hung(
    watch: HangWatch, pods: list[PodState], kubelet: PodServer, woken: threading.Event
):
    kubelet.write_lines("p1", "step 1")
    watch.follow([an_attempt(pods, STEPS)])

    def goes_on() -> bool:
        kubelet.write_lines("p1", "step 2")
        return watch.hang("job-uid") is None

    stays(goes_on, 3)
    assert not woken.is_set()

    until(lambda: watch.hang("job-uid"))
    assert watch.hang("job-uid").reason == "LogStateHanging_Steps"
    assert woken.is_set()
    kubelet.write_lines("p0", "step 3")
    until(lambda: watch.hang("job-uid") is None)


def test_silence_that_could_not_be_heard_is_no_hang(
    watch: HangWatch, pods: list[PodState], kubelet: PodServer
):
    kubelet.ignores_requests = True
    watch.follow([an_attempt(pods, START)])
    until(lambda: watch.errors)
    stays(lambda: watch.hang("job-uid") is None, 2)

    kubelet.ignores_requests = False
    until(lambda: watch.hang("job-uid"))
    assert watch.errors == ()


def test_each_attempt_is_judged_by_itself(watch: HangWatch, pods: list[PodState]):
    watch.follow([an_attempt(pods, START)])
    until(lambda: watch.hang("job-uid"))

    later = JobLogRule(name="Start", pattern="step", start_cutoff=timedelta(hours=1))
    watch.follow([an_attempt(pods, later, attempt=1)])
    assert watch.hang("job-uid") is None
    watch.follow([an_attempt(pods, START, attempt=2)])
    until(lambda: watch.hang("job-uid"))

    def logs() -> list[str]:
        names = [one.name for one in threading.enumerate()]
        return [name for name in names if name.startswith("log of")]

    watch.follow([an_attempt(pods[:1], START, attempt=2)])
    until(lambda: logs() == ["log of p0"])
    watch.follow([])
    assert watch.hang("job-uid") is None
    until(lambda: logs() == [])


@pytest.mark.parametrize(
    ("data", "reported"),
    [
        (None, 'configmaps "rules" not found'),
        ({"other": RULES}, "a ConfigMap with the key log-monitoring"),
        ({"log-monitoring": RULES.replace('"x"', '"("')}, "a regular expression of Python"),
    ],
)
def test_a_config_map_that_cannot_be_used_is_reported(
    cluster: Cluster, watch: HangWatch, woken: threading.Event, data, reported: str
):
    if data is not None:
        with_data = {"metadata": {"name": "rules"}, "data": data}
        cluster.plane.request("POST", f"{NAMESPACE}/configmaps", with_data)
    watch.follow([an_attempt([], rules_from="rules")])

    until(woken.is_set)
    (rejected,) = watch.rejected("job-uid")

    assert reported in rejected.expected
    assert watch.hang("job-uid") is None


def test_a_job_that_logs_no_new_step_is_suspected_and_not_hung(
    cluster: Cluster, pods: list[PodState], kubelet: PodServer
):
    api, clock = api_of(cluster), FakeClock(datetime.now(UTC))
    watch = HangWatch(api, clock, lambda: None, captures_stacks=False, reads_heartbeats=False)
    watch.start()
    rule = JobLogRule(name="Other", pattern="none", frequency=timedelta(days=1))
    watch.follow([replace(an_attempt(pods, rule), started_at=clock.time)])
    for step in range(1, 25):
        clock.time += timedelta(seconds=10)
        kubelet.write_lines("p0", f"step: {step:2}  loss:  2.50000  grad_norm:  1.2000")
        until(lambda: watch.findings("job-uid").steps.last == step)  # noqa: B023 - called at once
    assert watch.findings("job-uid").suspected is None

    clock.time += timedelta(minutes=3)
    until(lambda: watch.findings("job-uid").suspected)
    found = watch.findings("job-uid")
    assert found.hang is None
    assert found.suspected.step == 24
    kubelet.write_lines("p0", "step: 25  loss:  2.50000  grad_norm:  1.2000")
    until(lambda: watch.findings("job-uid").suspected is None)
    watch.stop()
    api.close()


def test_what_launchers_report_in_their_pods_is_reported_of_the_job(
    cluster: Cluster, pods: list[PodState], kubelet: PodServer
):
    api, events = api_of(cluster), FakeEvents()
    notices = JobNotices(events)
    woken = threading.Event()
    watch = HangWatch(api, SystemClock(), woken.set, captures_stacks=False, reads_heartbeats=False)
    watch.start()
    rule = JobLogRule(name="Other", pattern="none", frequency=timedelta(days=1))
    watch.follow([an_attempt(pods, rule)])

    def reported(count: int) -> list[str]:
        until(woken.is_set)
        woken.clear()
        notices.report(with_findings(a_job(), watch.findings("job-uid"), pods, {}.get))
        assert len(events.reported) == count
        return [sentence(one) for one in events.reported]

    kubelet.write_lines("p0", "holdfast: StragglerFound: round 1: rank 5 on a is slow")
    slow = "job-1: round 1: rank 5 on a is slow"
    assert reported(1) == [slow]
    kubelet.write_lines("p1", "holdfast: HangSuspected: round 1: rank 3 never entered all_reduce")
    hung = "job-1: the job seems to hang: round 1: rank 3 never entered all_reduce"
    assert reported(2) == [slow, hung]
    kubelet.write_lines("p0", "step: 25  loss:  2.50000  grad_norm:  1.2000")
    until(lambda: not watch.findings("job-uid").notices.hang)
    assert watch.findings("job-uid").notices.straggler, "the step has not ended it"
    watch.stop()
    api.close()
