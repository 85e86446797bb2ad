"""An API server that answers badly, and then well."""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from agent_on_node import HEALTH
from real_cluster import until
from scripted_server import Answer, Handler, ScriptedServer, break_off, hang, refuse, reply

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.server import Server
from holdfast.adapters.kubernetes.nodes.agent_settings import AgentKubernetes
from holdfast.adapters.kubernetes.nodes.report import (
    EVENTS_AT_ONCE,
    EVENTS_KEPT,
    NodeReporter,
    ReportIntervals,
    open_reporter,
)
from holdfast.apps.clock import SystemClock
from holdfast.model.errors import ConfigError, HoldfastError
from holdfast.model.health import Fault
from holdfast.model.report import NodeReport
from tests.ports.builders import a_fault

NODE = "/api/v1/nodes/n1"
EVENTS = "/api/v1/namespaces/default/events"
SLOW = ReportIntervals(check=900, evidence=900, lease=900, events=900)
NOT_FOUND = refuse(404, "NotFound", 'nodes "n1" not found')
TROUBLES = {
    "no right": refuse(403, "Forbidden", "nodes is forbidden"),
    "no node": NOT_FOUND,
    "changed meanwhile": refuse(409, "Conflict", "the object has been modified"),
    "too many": refuse(429, "TooManyRequests", "later", Retry_After="1"),
    "no good": refuse(422, "Invalid", "metadata.labels: Invalid value"),
    "a bug": refuse(500, "InternalError", "etcd"),
    "too busy": refuse(503, "ServiceUnavailable", "later"),
    "silence": hang(),
    "half an answer": break_off(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"),
    "no answer": break_off(),
    "another web server": reply(b"<html>", Content_Type="text/html"),
    "an array": reply([]),
}


class OneNode(deque[Answer]):
    """A server's answers without end: one node, and nothing else that matters."""

    def __init__(self) -> None:
        super().__init__()
        self.trouble: Answer | None = None
        self.applies: Callable[[Handler], bool] = lambda _: True
        metadata = {"name": "n1", "uid": "u1", "resourceVersion": "1"}
        metadata |= {"labels": {}, "annotations": {}}
        self.node = {"metadata": metadata, "spec": {}, "status": {}}
        self.created: list[str] = []

    def __bool__(self) -> bool:
        return True

    def popleft(self) -> Answer:
        return self._answer

    def _answer(self, handler: Handler) -> None:
        requested = handler.server.requested[-1]
        if self.trouble is not None and self.applies(handler):
            self.trouble(handler)
            return
        path = requested.path.partition("?")[0]
        if requested.verb == "PATCH" and path == NODE:
            for part in ("labels", "annotations"):
                self.node["metadata"][part] |= requested.content["metadata"].get(part, {})
        if requested.verb == "POST":
            self.created.append(requested.content["metadata"]["name"])
        reply(self.node if path == NODE else requested.content if requested.body else {})(handler)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    server.answers = OneNode()
    yield server
    server.end()


class Agent:
    def __init__(self, url: str, intervals: ReportIntervals, timeout_s: float = 0.2) -> None:
        self.said: list[str] = []
        self.last: NodeReport | None = None
        api = Api(
            Server(url=url), user_agent="t", field_manager="t", timeout=timedelta(seconds=timeout_s)
        )
        self.reporter = NodeReporter(
            api,
            "n1",
            settings=AgentKubernetes(),
            timeout=timedelta(seconds=10),
            clock=SystemClock(),
            log=self.said.append,
            intervals=intervals,
        )

    def tell(self, *faults: Fault) -> None:
        now = datetime.now(UTC)
        report = NodeReport(node="n1", boot_id="b", sequence=1, reported_at=now, faults=faults)
        self.reporter.changed(self.last, report)
        self.last = report


@pytest.fixture
def agent(server: ScriptedServer) -> Iterator[Agent]:
    agent = Agent(server.url, SLOW)
    yield agent
    server.released.set()
    agent.reporter.close()


def label(server: ScriptedServer) -> str | None:
    return server.answers.node["metadata"]["labels"].get(HEALTH)


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
@pytest.mark.parametrize("verb", ["GET", "PATCH"])
def test_trouble_is_reported_once_and_outlived_without_a_storm_of_calls(
    server: ScriptedServer, agent: Agent, trouble: Answer, verb: str
) -> None:
    server.answers.trouble = trouble
    server.answers.applies = lambda handler: handler.command == verb
    begin = time.monotonic()

    agent.tell(a_fault())
    until(lambda: agent.said)
    for _ in range(20):
        agent.tell(a_fault(), a_fault(code=1))
        agent.tell(a_fault())
    until(lambda: time.monotonic() > begin + 0.4)
    calls = len(server.requested)
    server.answers.trouble = None
    server.released.set()

    until(lambda: label(server) == "UnschedulablePendingReboot")
    until(lambda: "again" in agent.said[-1])
    assert calls <= 40  # some tries, each a few calls; forty reports came meanwhile
    assert len(agent.said) <= 4


def test_a_server_that_is_not_there_is_waited_for(server: ScriptedServer) -> None:
    port = server.server_port
    server.end()
    agent = Agent(f"http://127.0.0.1:{port}", SLOW)
    agent.tell(a_fault())
    until(lambda: agent.said)

    assert f"cannot reach http://127.0.0.1:{port}" in agent.said[0]
    agent.reporter.close()


def test_an_event_that_is_never_accepted_is_dropped_and_reported_once(
    server: ScriptedServer,
) -> None:
    agent = Agent(server.url, ReportIntervals(check=900, evidence=900, lease=900, events=0.01))
    server.answers.trouble = refuse(422, "Invalid", "no good")
    server.answers.applies = lambda handler: handler.path.startswith(EVENTS)
    agent.tell(a_fault(), a_fault(code=1))
    until(lambda: len([one for one in server.requested if one.verb == "POST"]) == 2)

    server.answers.trouble = None
    agent.tell(a_fault(), a_fault(code=1), a_fault(code=2))

    until(lambda: server.answers.created)
    agent.reporter.close()
    assert len(server.answers.created) == 1
    assert [line[:47] for line in agent.said] == ["Event rejected by the API server and dropped: P"]


def test_events_come_in_batches_and_the_oldest_are_dropped(
    server: ScriptedServer,
) -> None:
    server.answers.trouble = refuse(403, "Forbidden", "no")
    agent = Agent(server.url, ReportIntervals(check=900, evidence=900, lease=900, events=0.01))
    agent.tell()
    for number in range(EVENTS_KEPT + 50):
        agent.tell(a_fault(code=number))
    until(lambda: agent.said)
    reported = len(server.requested)
    server.answers.trouble = None

    until(lambda: len(server.answers.created) >= EVENTS_KEPT)
    until(lambda: "again" in agent.said[-1])
    agent.reporter.close()
    assert reported < EVENTS_AT_ONCE
    # A batch that was begun is sent to its end.
    created = len(set(server.answers.created))
    assert EVENTS_KEPT <= created <= EVENTS_KEPT + EVENTS_AT_ONCE


def test_what_is_seen_while_its_event_is_sent_is_sent_next(server: ScriptedServer) -> None:
    agent = Agent(server.url, ReportIntervals(check=900, evidence=900, lease=900, events=0.01))
    again = replace(a_fault(), count=2)

    def meanwhile(handler: Handler) -> None:
        server.answers.trouble = None
        agent.tell(again)
        reply({})(handler)

    server.answers.applies = lambda handler: handler.command == "POST"
    server.answers.trouble = meanwhile
    agent.tell(a_fault())

    until(lambda: 2 in [one.content.get("count") for one in server.requested if one.verb == "POST"])
    agent.reporter.close()


def test_a_report_that_was_refused_as_its_agent_ended_is_not_sent_again(
    server: ScriptedServer,
) -> None:
    agent = Agent(server.url, SLOW, timeout_s=20)

    def ended(handler: Handler) -> None:
        agent.reporter.close()  # which does not wait for this answer
        closed.set()
        TROUBLES["changed meanwhile"](handler)

    closed = threading.Event()

    def is_of_the_node(verb: str, path: str) -> bool:
        return verb == "PATCH" and "/nodes/" in path

    server.answers.applies = lambda handler: is_of_the_node(handler.command, handler.path)
    server.answers.trouble = ended
    agent.tell(a_fault())

    until(closed.is_set)
    agent.reporter.close()  # which waits for the thread
    assert len([one for one in server.requested if is_of_the_node(one.verb, one.path)]) == 1


def test_no_more_than_a_batch_of_events_at_once(server: ScriptedServer, agent: Agent) -> None:
    agent.tell(*[a_fault(code=number) for number in range(EVENTS_AT_ONCE + 9)])

    until(lambda: len(server.answers.created) >= EVENTS_AT_ONCE)
    agent.reporter.close()
    assert len(server.answers.created) == EVENTS_AT_ONCE


def test_only_the_newest_report_waits(server: ScriptedServer, agent: Agent) -> None:
    server.answers.trouble = hang()
    agent.tell()
    until(lambda: server.requested)
    for number in range(50):
        agent.tell(a_fault(code=number))
    server.answers.trouble = None

    until(lambda: label(server) and server.answers.created)
    patches = [
        one.content for one in server.requested if one.verb == "PATCH" and "nodes" in one.path
    ]
    texts = [one["metadata"].get("annotations") for one in patches]
    reports = [json.loads(text["holdfast.dev/report"]) for text in texts if text]
    assert [[fault["code"] for fault in one["faults"]] for one in reports] == [[49]]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_bug_in_the_thread_ends_the_agent(server: ScriptedServer, agent: Agent) -> None:
    server.answers.trouble = reply({"metadata": 7})
    agent.reporter.heartbeat_sent()
    agent.tell()

    def is_over() -> bool:
        try:
            agent.reporter.heartbeat_sent()
        except HoldfastError:
            return True
        return False

    until(is_over)


@pytest.mark.parametrize("name", ["", "a/b", "../pods", "N1", "-a", "a" * 254, "a\n"])
def test_a_name_that_no_node_can_have_reaches_no_path(name: str) -> None:
    settings = AgentKubernetes(server="http://127.0.0.1:1")

    with pytest.raises(ConfigError, match="is not a valid name"):
        open_reporter(settings, name, timeout=timedelta(1), clock=SystemClock(), log=lambda _: None)
