"""Logs of pods, followed through a real API server."""

import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta

import pytest
from controlled import api_of
from machines import stays
from real_cluster import Cluster, until

from holdfast.adapters.kubernetes.jobs.objects import PodRank, PodState, pod_state
from holdfast.adapters.kubernetes.jobs.pod_logs import PodLog
from holdfast.apps.clock import SystemClock
from holdfast.apps.kubernetes.pod_log_part import read_pod_log
from holdfast.apps.views.rank_logs import BEGINNING, LogRequest
from holdfast.model.errors import BackendError
from tests.engines.kubelet import PodServer
from tests.ports.fakes import FakeClock

POD = "/api/v1/namespaces/default/pods"


@pytest.fixture
def pod(cluster: Cluster, kubelet: PodServer) -> PodState:
    """One that runs."""
    cluster.nodes.join("a")
    kubelet.serve("a")
    api = api_of(cluster)
    containers = [{"name": name, "image": "none"} for name in ("sidecar", "train")]
    named = {"kubectl.kubernetes.io/default-container": "train"}
    spec = {"nodeName": "a", "containers": containers, "terminationGracePeriodSeconds": 0}
    api.create(POD, {"metadata": {"name": "p", "annotations": named}, "spec": spec})
    until(lambda: api.get(f"{POD}/p")["status"].get("phase") == "Running")
    found = pod_state(api.get(f"{POD}/p"), PodRank(job="j", rank=3, container=""))
    api.close()
    return found


class Reader:
    """Takes lines, or does not."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.refusals = 0

    def take(self, lines) -> None:
        if self.refusals:
            self.refusals -= 1
            raise BackendError("not now")
        self.lines += lines


@pytest.fixture
def reader() -> Reader:
    return Reader()


@pytest.fixture
def log(cluster: Cluster, pod: PodState, reader: Reader) -> Iterator[PodLog]:
    api = api_of(cluster)
    log = PodLog(api, SystemClock(), pod, reader.take)
    yield log
    log.stop()
    if log.is_alive:
        log.join()
    api.close()


def test_a_log_is_read_from_its_beginning_and_as_it_grows(
    kubelet: PodServer, log: PodLog, reader: Reader
):
    kubelet.write_lines("p", "one", "two")
    log.start()
    until(lambda: reader.lines == ["one", "two"])

    kubelet.write_lines("p", "three")
    kubelet.write_lines("p", "four")

    until(lambda: reader.lines == ["one", "two", "three", "four"])


def test_streams_that_break_cost_no_line_and_repeat_none(
    kubelet: PodServer, log: PodLog, reader: Reader
):
    log.start()
    for n in range(20):
        kubelet.write_lines("p", f"{n}")
        if n % 5 == 0:
            until(lambda n=n: f"{n}" in reader.lines)
            kubelet.break_streams()

    until(lambda: "19" in reader.lines)
    assert reader.lines == [f"{n}" for n in range(20)]


def test_an_api_server_that_dies_costs_no_line_and_repeats_none(
    cluster: Cluster, kubelet: PodServer, log: PodLog, reader: Reader
):
    kubelet.write_lines("p", "before")
    log.start()
    until(lambda: reader.lines == ["before"])
    until(lambda: log.known_until is not None)

    cluster.plane.restart_api_server()
    kubelet.write_lines("p", "after")

    until(lambda: reader.lines == ["before", "after"])


def test_lines_that_could_not_be_taken_come_again(kubelet: PodServer, log: PodLog, reader: Reader):
    reader.refusals = 1
    kubelet.write_lines("p", "one")
    log.start()

    until(lambda: reader.lines == ["one"])


def test_what_comes_while_an_answer_is_read_is_not_known(
    cluster: Cluster, kubelet: PodServer, pod: PodState
):
    clock = FakeClock()
    requested_at = clock.now()

    def take(lines) -> None:
        clock.time += timedelta(seconds=5)

    with closing(api_of(cluster)) as api:
        log = PodLog(api, clock, pod, take)
        kubelet.write_lines("p", "one")
        log.start()
        until(lambda: log.known_until is not None)
        log.stop()
        log.join()

    assert log.known_until == requested_at


def test_a_log_is_known_until_it_was_last_asked_for_its_end(
    kubelet: PodServer, log: PodLog, reader: Reader
):
    log.start()
    until(lambda: log.known_until is not None)
    first = log.known_until

    kubelet.write_lines("p", "one")
    until(lambda: reader.lines)
    assert log.known_until == first

    def is_known() -> bool:
        log.check()
        return log.known_until > first

    until(is_known)
    assert reader.lines == ["one"]


class SlowPodServer(PodServer):
    """Takes its time to say what is there already."""

    is_slow = True

    def answer(self, uid: str, *, since: datetime | None, follow: bool) -> Iterator[str]:
        while self.is_slow and not follow:
            time.sleep(0.02)
            yield ""
        yield from super().answer(uid, since=since, follow=follow)


def test_a_log_that_is_being_read_to_its_end_is_not_known_before(
    cluster: Cluster, pod: PodState, log: PodLog, reader: Reader
):
    with SlowPodServer(cluster.plane) as kubelet:
        kubelet.serve("a")
        kubelet.write_lines("p", "one")
        log.start()

        def is_unknown() -> bool:
            log.check()
            return log.known_until is None

        stays(is_unknown, 1)
        kubelet.is_slow = False
        until(lambda: log.known_until is not None)
        assert reader.lines == ["one"]


def test_a_kubelet_that_cannot_read_the_log_does_not_say_that_it_is_silent(
    kubelet: PodServer, log: PodLog, reader: Reader
):
    kubelet.ignores_requests = True
    log.start()
    until(lambda: "the kubelet cannot read it" in log.error)
    assert log.known_until is None

    kubelet.ignores_requests = False
    until(lambda: log.known_until is not None)
    assert log.error == ""


def test_a_kubelet_that_is_gone_is_reported(kubelet: PodServer, log: PodLog, reader: Reader):
    kubelet.__exit__(None, None, None)
    log.start()

    until(lambda: log.error)
    assert log.known_until is None


def test_a_log_that_is_silent_can_be_left(kubelet: PodServer, log: PodLog, reader: Reader):
    log.start()
    until(lambda: log.known_until is not None)

    log.stop()

    until(lambda: not log.is_alive)


def test_parts_of_a_log_continue_where_the_one_before_ended(
    cluster: Cluster, kubelet: PodServer, pod: PodState
):
    kubelet.write_lines("p", *(f"line {n}" for n in range(50)))
    with closing(api_of(cluster)) as api:
        first = read_pod_log(api, pod, LogRequest(rank=3, limit=10_000), 1)
        assert first.text == "".join(f"line {n}\n" for n in range(50))
        assert not first.has_more

        kubelet.write_lines("p", *(f"later {n}" for n in range(50)))
        read, after, has_more = "", first.cursor, True
        while has_more:
            part = read_pod_log(api, pod, LogRequest(rank=3, after=after, limit=64), 1)
            read, after, has_more = read + part.text, part.cursor, part.has_more
        assert read == "".join(f"later {n}\n" for n in range(50))

        whole, after, has_more = "", BEGINNING, True
        while has_more:
            part = read_pod_log(api, pod, LogRequest(rank=3, after=after, limit=500), 1)
            whole, after, has_more = whole + part.text, part.cursor, part.has_more
        assert whole == first.text + read
