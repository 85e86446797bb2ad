"""Steps in the list of the jobs of a cluster, from the logs of their pods."""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from job_objects import a_job_object, a_record, at
from real_cluster import until
from scripted_server import Answer, Handler, ScriptedServer, hang, refuse, reply
from test_job_list import a_pod_object

from holdfast.adapters.kubernetes.client.api import Api, Server
from holdfast.apps.kubernetes.jobs import KubernetesJobList
from holdfast.apps.views.jobs import JobStatus
from holdfast.model.jobs import JobPhase

LIMIT = timedelta(seconds=30)
LLAMA, GEMMA = "pytorchjob/default/llama", "pytorchjob/default/gemma"


class JobServer(ScriptedServer):
    """Answers by the path of a request."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs = [running("llama"), running("gemma")]
        self.pods: Answer | None = None
        self.logs: dict[str, Answer] = {}
        self.answers.extend([self.answer] * 200)

    def answer(self, handler: Handler) -> None:
        path = handler.path.partition("?")[0]
        if path.endswith("/log"):
            self.logs[path.split("/")[-2]](handler)
        elif path.endswith("/pods"):
            pods = [a_pod_object(name, rank, f"{name}-uid") for name, rank in PODS]
            (self.pods or reply({"items": pods}))(handler)
        else:
            is_known = path.endswith("/pytorchjobs")
            (reply({"items": self.jobs}) if is_known else refuse(404))(handler)

    def paths(self, end: str) -> list[str]:
        found = [one.path.partition("?")[0] for one in self.requested]
        return [path for path in found if path.endswith(end)]


PODS = [("llama", 0), ("llama", 1), ("llama", 2), ("gemma", 0), ("gemma", 1)]


def running(name: str, **record: Any) -> dict[str, Any]:
    return a_job_object(name=name, uid=f"{name}-uid", record=a_record(JobPhase.RUNNING, **record))


def log_of(*steps: int) -> Answer:
    lines = [f"{at(10 * one)} step: {one:2}  loss:  2.5  grad_norm:  1.2\n" for one in steps]
    return reply("".join(lines).encode())


@pytest.fixture
def server() -> Iterator[JobServer]:
    server = JobServer()
    yield server
    server.end()


@pytest.fixture
def jobs(server: JobServer) -> Iterator[KubernetesJobList]:
    api = Api(Server(url=server.url), user_agent="test", field_manager="test")
    with closing(KubernetesJobList(api, "default")) as jobs:
        yield jobs


def listed(jobs: KubernetesJobList, within: timedelta = LIMIT) -> dict[str, JobStatus]:
    return {one.name: one for one in jobs.with_steps(jobs.jobs(), within)}


def test_each_running_job_has_the_step_and_the_rate_that_its_logs_show(server, jobs) -> None:
    server.jobs.append(
        a_job_object(name="waits", uid="w", record=a_record(JobPhase.WAITING), suspend=True)
    )
    server.logs |= {"llama-0": log_of(1, 2, 3), "gemma-0": log_of(), "gemma-1": log_of(7)}

    found = listed(jobs)

    assert (found[LLAMA].step, found[LLAMA].steps_per_second) == (3, 0.1)
    assert (found[GEMMA].step, found[GEMMA].steps_per_second) == (7, None)
    assert found["pytorchjob/default/waits"].step is None
    assert len(server.paths("/pods")) == 1, "of all jobs at once"
    assert len(server.paths("/log")) == 3


def test_a_refreshed_list_does_not_read_the_logs_of_an_attempt_again_at_once(server, jobs) -> None:
    server.logs |= {"llama-0": log_of(3), "gemma-0": log_of(4)}
    assert listed(jobs)[LLAMA].step == 3
    server.logs["llama-0"] = log_of(9)

    assert listed(jobs)[LLAMA].step == 3
    assert len(server.paths("/log")) == 2
    server.jobs[0] = running("llama", attempt=2)
    assert listed(jobs)[LLAMA].step == 9
    assert len(server.paths("/log")) == 3


def test_a_list_that_does_not_wait_has_the_steps_later(server, jobs) -> None:
    server.logs |= {"llama-0": log_of(3), "gemma-0": hang(), "gemma-1": hang()}

    listed(jobs, timedelta(0))
    until(lambda: listed(jobs, timedelta(0))[LLAMA].step == 3)

    assert listed(jobs, timedelta(0))[GEMMA].step is None, "its node does not respond"


@pytest.mark.parametrize("refused", ["pods", "logs"])
def test_who_may_not_read_pods_or_logs_sees_the_jobs_without_steps(server, jobs, refused) -> None:
    if refused == "pods":
        server.pods = refuse(403)
    server.logs |= {f"{name}-{rank}": refuse(403) for name, rank in PODS}

    assert [one.step for one in listed(jobs).values()] == [None, None]


def test_a_pod_of_an_earlier_job_of_the_name_is_left_out(server, jobs) -> None:
    server.pods = reply({"items": [a_pod_object("llama", 0, "an-older-llama")]})

    assert listed(jobs)[LLAMA].step is None
    assert server.paths("/log") == []
