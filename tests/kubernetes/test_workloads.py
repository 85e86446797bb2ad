"""What is asked of Kueue for a job in one of its queues."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from job_objects import a_state
from scripted_server import Handler, ScriptedServer, reply, status_object

from holdfast.adapters.kubernetes.client.api import Api, Server
from holdfast.adapters.kubernetes.client.errors import NotFound
from holdfast.adapters.kubernetes.jobs.objects import QUEUE
from holdfast.adapters.kubernetes.jobs.queues import Workloads
from holdfast.model.errors import BackendError
from holdfast.model.names import ATTEMPT

GROUP = "/apis/kueue.x-k8s.io"
JOB = a_state(labels={QUEUE: "team"})


@dataclass
class Queue:
    """A queue with one Workload, or none."""

    server: ScriptedServer
    workloads: Workloads
    active: bool | None = True
    version: str = "v1beta1"
    annotations: dict[str, str] = field(default_factory=dict)
    is_there: bool = True

    def answer(self, handler: Handler) -> None:
        requested = self.server.requested[-1]
        if requested.path == GROUP:
            reply({"preferredVersion": {"version": self.version}})(handler)
            return
        if not requested.path.startswith(f"{GROUP}/{self.version}/"):
            reply(status_object(404, "NotFound", "there is no such page"), 404)(handler)
            return
        if requested.verb == "PATCH":
            content = requested.content
            self.active = content["spec"]["active"]
            for key, value in content["metadata"]["annotations"].items():
                self.annotations.pop(key, None)
                self.annotations |= {} if value is None else {key: value}
        about = {"name": "w", "resourceVersion": "3", "annotations": self.annotations}
        spec: dict[str, Any] = {} if self.active is None else {"active": self.active}
        workload = {"metadata": about, "spec": spec}
        found = {"metadata": {"resourceVersion": "3"}, "items": [workload] if self.is_there else []}
        reply(workload if requested.verb == "PATCH" else found)(handler)

    def prepare(self) -> None:
        self.server.answers.extend([self.answer] * 20)

    @property
    def writes(self) -> list[Any]:
        return [json.loads(one.body) for one in self.server.requested if one.verb == "PATCH"]

    def take_out(self) -> None:
        """A person, or Kueue itself, has it admitted no more."""
        self.active = False


@pytest.fixture
def queue() -> Iterator[Queue]:
    server = ScriptedServer()
    with closing(Api(Server(url=server.url), user_agent="test", field_manager="test")) as api:
        queue = Queue(server, Workloads(api))
        queue.prepare()
        yield queue
    server.shutdown()
    server.server_close()


def test_a_workload_is_found_by_its_job_and_is_active_unless_it_says_otherwise(
    queue: Queue,
) -> None:
    for active, is_active in ((None, True), (True, True), (False, False)):
        queue.active = active
        assert queue.workloads.is_active(JOB) is is_active

    address = urlsplit(queue.server.requested[1].path)
    assert address.path == "/apis/kueue.x-k8s.io/v1beta1/namespaces/default/workloads"
    assert parse_qs(address.query)["labelSelector"] == ["kueue.x-k8s.io/job-uid=job-uid"]


def test_the_version_that_is_served_is_asked_for_and_again_once_kueue_was_upgraded(
    queue: Queue,
) -> None:
    assert queue.workloads.is_active(JOB)
    queue.workloads.suspend(JOB)
    queue.version = "v1beta2"
    with pytest.raises(NotFound):
        queue.workloads.is_active(JOB)

    queue.workloads.release(JOB)

    assert queue.active is True
    assert [one.path for one in queue.server.requested].count(GROUP) == 2
    assert (
        queue.server.requested[-1].path
        == f"{GROUP}/v1beta2/namespaces/default/workloads/w?fieldManager=test"
    )


def test_a_job_is_taken_out_and_let_in_by_one_write_each(queue: Queue) -> None:
    for _ in range(2):
        queue.workloads.suspend(JOB)
    assert queue.active is False
    for _ in range(2):
        queue.workloads.admit(JOB, 2)

    assert (queue.active, queue.annotations) == (True, {ATTEMPT: "2"})
    assert len(queue.writes) == 2
    assert {one["metadata"]["resourceVersion"] for one in queue.writes} == {"3"}


def test_who_takes_an_attempt_out_of_the_queue_after_us_is_not_gainsaid(queue: Queue) -> None:
    queue.workloads.suspend(JOB)
    queue.workloads.admit(JOB, 2)
    queue.take_out()

    queue.workloads.admit(JOB, 2)

    assert queue.active is False


@pytest.mark.parametrize("attempt", [2, 3])
def test_another_stop_is_followed_by_another_start_whatever_its_number(
    queue: Queue, attempt: int
) -> None:
    queue.workloads.suspend(JOB)
    queue.workloads.admit(JOB, 2)
    queue.take_out()

    queue.workloads.suspend(JOB)
    queue.workloads.admit(JOB, attempt)

    assert queue.active is True


def test_a_job_that_is_let_go_is_let_in_only_if_it_is_out(queue: Queue) -> None:
    queue.workloads.release(JOB)
    assert queue.writes == []
    queue.workloads.suspend(JOB)

    queue.workloads.release(JOB)

    assert (queue.active, queue.annotations) == (True, {})


def test_a_job_that_kueue_does_not_know_is_reported(queue: Queue) -> None:
    queue.is_there = False

    for ask in (queue.workloads.is_active, queue.workloads.suspend, queue.workloads.release):
        with pytest.raises(BackendError, match="pytorchjob/default/llama has the label of a queue"):
            ask(JOB)
