"""Losses in the logs of jobs: what is requested, and what is found on a real API server."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from controlled import (
    api_of,
    installed,  # noqa: F401 - a fixture
)
from job_objects import a_record, a_state, requests
from real_cluster import Cluster, until

from holdfast.adapters.kubernetes.jobs.hang_watch import HangWatch, Watched, watched
from holdfast.adapters.kubernetes.jobs.objects import PodRank, PodState, pod_state
from holdfast.apps.clock import SystemClock
from holdfast.decisions.loss_faults import LossLimits
from holdfast.model.jobs import JobPhase, LossAction
from holdfast.model.names import (
    LOSS_ACTION,
    LOSS_TOLERANCE,
    LOSS_WINDOW,
    Reason,
)
from tests.engines.kubelet import PodServer

NAMESPACE = "/api/v1/namespaces/default"
ROLLBACK = LossLimits(action=LossAction.ROLLBACK)


def line(step: int, loss: float) -> str:
    return f"step: {step:2}  loss: {loss:8.5f}  grad_norm:  1.2000"


GOOD = [line(step, 2.5) for step in range(1, 4)]
BAD = line(4, float("nan"))


def test_a_job_may_ask_for_its_losses_alone():
    state = a_state(annotations={LOSS_ACTION: "skip", LOSS_WINDOW: "20", LOSS_TOLERANCE: " 3 "})
    found = watched(state, requests(state), a_record(JobPhase.RUNNING), [])

    assert found is not None
    assert found.loss_limits == LossLimits(action=LossAction.SKIP, window=20, tolerance=3)
    assert requests(state).rejected == ()


@pytest.mark.parametrize(
    ("annotations", "keys"),
    [
        ({LOSS_ACTION: "retry"}, [LOSS_ACTION]),
        ({LOSS_WINDOW: "0"}, [LOSS_WINDOW]),
        ({LOSS_ACTION: "stop", LOSS_TOLERANCE: "much"}, [LOSS_TOLERANCE]),
        ({LOSS_ACTION: "retry", "sagemaker.amazonaws.com/enable-job-auto-resume": "no"}, None),
    ],
)
def test_invalid_settings_are_reported_unless_the_job_is_left_alone(annotations, keys):
    found = requests(a_state(annotations=annotations))

    if keys is None:
        assert found.loss_limits is None
    else:
        assert [one.key for one in found.rejected] == keys
        assert found.loss_limits is not None


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
def begin(cluster: Cluster) -> Iterator[Callable[[], HangWatch]]:
    """Start the watch of another controller."""
    api = api_of(cluster)
    begun: list[HangWatch] = []

    def begin() -> HangWatch:
        watch = HangWatch(
            api, SystemClock(), lambda: None, captures_stacks=False, reads_heartbeats=False
        )
        begun.append(watch)
        watch.start()
        return watch

    yield begin
    for one in begun:
        one.stop()
    api.close()


def an_attempt(pods: list[PodState], *, attempt: int = 1, uid: str = "uid-1") -> Watched:
    return Watched(
        job=replace(a_state(), uid=uid),
        attempt=attempt,
        started_at=datetime.now(UTC),
        rules=(),
        rules_from="",
        loss_limits=ROLLBACK,
        pods=tuple(pods),
    )


def test_a_nan_is_found_once_and_again_by_the_next_controller(
    begin: Callable[[], HangWatch], pods: list[PodState], kubelet: PodServer
):
    first = begin()
    first.follow([an_attempt(pods)])
    kubelet.write_lines("p0", *GOOD)
    until(lambda: first.findings("uid-1").steps.last == 3)
    assert first.findings("uid-1").steps.fault is None

    for pod in ("p0", "p1"):  # in two ranks at once
        kubelet.write_lines(pod, BAD, line(5, float("nan")))
    until(lambda: first.findings("uid-1").steps.fault)
    fault = first.findings("uid-1").steps.fault
    assert (fault.reason, fault.step, fault.action) == (
        Reason.LOSS_NOT_FINITE, 4, LossAction.ROLLBACK,
    )  # fmt: skip
    assert re.fullmatch(r"node rank \d on \S+: the loss is nan at step 4", fault.evidence)
    until(lambda: first.findings("uid-1").steps.last == 5)
    assert first.findings("uid-1").steps.fault == fault

    second = begin()
    second.follow([an_attempt(pods)])
    until(lambda: second.findings("uid-1").steps.fault)
    assert second.findings("uid-1").steps.fault.step == 4


def test_another_attempt_and_another_job_of_the_name_begin_without_a_fault(
    begin: Callable[[], HangWatch], pods: list[PodState], kubelet: PodServer
):
    watch = begin()
    kubelet.write_lines("p0", *GOOD, BAD)
    watch.follow([an_attempt(pods)])
    until(lambda: watch.findings("uid-1").steps.fault)

    watch.follow([an_attempt(pods[1:], attempt=2)])
    assert watch.findings("uid-1").steps.fault is None
    watch.follow([an_attempt(pods[1:], uid="uid-2")])
    assert watch.findings("uid-1").steps.fault is watch.findings("uid-2").steps.fault is None
    kubelet.write_lines("p1", line(1, 2.5))
    until(lambda: watch.findings("uid-2").steps.last == 1)
    assert watch.findings("uid-2").steps.fault is None


def test_a_log_that_is_rotated_is_read_on_and_an_outage_loses_no_fault(
    begin: Callable[[], HangWatch], pods: list[PodState], kubelet: PodServer
):
    watch = begin()
    watch.follow([an_attempt(pods)])
    kubelet.write_lines("p0", *GOOD)
    until(lambda: watch.findings("uid-1").steps.last == 3)

    kubelet.ignores_requests = True
    kubelet.rotate("p0")
    kubelet.write_lines("p0", BAD)
    until(lambda: watch.errors)
    kubelet.ignores_requests = False

    until(lambda: watch.findings("uid-1").steps.fault)
    assert watch.findings("uid-1").steps.fault.step == 4
