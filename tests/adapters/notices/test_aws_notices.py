"""Events on a bus of EventBridge and in CloudWatch Logs, as moto plays them."""

import contextlib
import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer
from reported import CLOCK

from holdfast.adapters.notices.eventbridge import HEALTH
from holdfast.adapters.notices.settings import (
    NoticeCloudWatch,
    NoticeEventBridge,
    NoticeSettings,
)
from holdfast.adapters.notices.sink import Notices
from holdfast.apps.clock import SystemClock
from holdfast.model.errors import ConfigError
from holdfast.model.events import NodeQuarantined, NodeReleased
from holdfast.ports.clock import Clock

REGION = "us-west-2"
GROUP = "/aws/events/holdfast"
BACK = NodeReleased(node="n1", after="Xid74")


def fault(number: int) -> NodeQuarantined:
    return NodeQuarantined(node=f"n{number}", reason="Xid74", remedy="replace", message="NVLink")


def until(condition) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def aws(moto: str) -> str:
    request = urllib.request.Request(f"{moto}/moto-api/reset", method="POST")  # noqa: S310
    urllib.request.urlopen(request).close()  # noqa: S310
    return moto


@contextlib.contextmanager
def collector(
    settings: NoticeSettings, failures: list[str] | None = None, clock: Clock = CLOCK
) -> Iterator[Notices]:
    def failed(what: str, why: str) -> None:
        if failures is not None:
            failures.append(f"{what}: {why}")

    notices = Notices(settings, "lab", clock, failed)
    notices.start()
    try:
        yield notices
    finally:
        notices.stop()


def logged(url: str, group: str) -> list[dict[str, Any]]:
    logs = boto3.client("logs", region_name=REGION, endpoint_url=url)
    try:
        streams = logs.describe_log_streams(logGroupName=group)["logStreams"]
    except logs.exceptions.ResourceNotFoundException:
        return []
    found = []
    for stream in streams:
        answer = logs.get_log_events(
            logGroupName=group, logStreamName=stream["logStreamName"], startFromHead=True
        )
        found += [json.loads(one["message"]) for one in answer["events"]]
    return found


def test_a_bus_gets_every_event_so_that_rules_for_hyperpod_match(aws: str) -> None:
    events = boto3.client("events", region_name=REGION, endpoint_url=aws)
    logs = boto3.client("logs", region_name=REGION, endpoint_url=aws)
    logs.create_log_group(logGroupName=GROUP)
    events.create_event_bus(Name="ml")
    pattern = {"source": ["custom.ml"], "detail-type": [HEALTH]}
    events.put_rule(Name="r", EventBusName="ml", EventPattern=json.dumps(pattern))
    target = f"arn:aws:logs:{REGION}:123456789012:log-group:{GROUP}"
    events.put_targets(Rule="r", EventBusName="ml", Targets=[{"Id": "1", "Arn": target}])
    bus = NoticeEventBridge(bus="ml", region=REGION, endpoint_url=aws)

    with collector(NoticeSettings(eventbridge=bus, source="custom.ml")) as notices:
        for number in range(25):
            notices.emit(fault(number))
        notices.emit(BACK)
        until(lambda: len(logged(aws, GROUP)) == 26)

    found = logged(aws, GROUP)
    nodes = [one["detail"]["NodeLogicalId"] for one in found]
    assert sorted(nodes) == sorted([*(f"n{number}" for number in range(25)), "n1"])
    assert {one["detail"]["ClusterName"] for one in found} == {"lab"}
    assert found[0]["time"] == "2026-01-01T12:00:00Z"


def test_a_log_stream_gets_every_event_and_is_made_if_need_be(aws: str) -> None:
    """By the real clock: what is too old for a log, CloudWatch leaves out."""
    log = NoticeCloudWatch(log_group="/holdfast", region=REGION, endpoint_url=aws)

    for _ in range(2):
        with collector(NoticeSettings(cloudwatch=log), clock=SystemClock()) as notices:
            notices.emit(fault(1))
            notices.emit(BACK)

    found = logged(aws, "/holdfast")
    assert [one["detail"]["Holdfast"]["event"] for one in found] == [fault(1).name, BACK.name] * 2
    assert {one["detail-type"] for one in found} == {HEALTH}


class Bus:
    """A bus that takes what a test lets it take."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: list[tuple[int, list[str]]] = []
        """Status, and the error codes of the first entries; all is well after that."""

        self.calls: list[list[str]] = []
        self.gate = threading.Event()
        self.gate.set()


@pytest.fixture
def bus() -> Iterator[Bus]:
    seen = Bus()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            entries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["Entries"]
            nodes = [json.loads(one["Detail"])["NodeLogicalId"] for one in entries]
            seen.calls.append(nodes)
            seen.gate.wait(30)
            status, codes = seen.answers.pop(0) if seen.answers else (200, [])
            reported: dict[str, Any] = {"__type": codes[0]} if status != 200 else {}
            if status == 200:
                padded = [*codes, *[""] * (len(entries) - len(codes))]
                reported["Entries"] = [{"ErrorCode": code} if code else {} for code in padded]
                reported["FailedEntryCount"] = len([code for code in codes if code])
            body = json.dumps(reported).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        seen.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield seen
        server.shutdown()
        thread.join()


def on(bus: Bus) -> NoticeSettings:
    return NoticeSettings(eventbridge=NoticeEventBridge(region=REGION, endpoint_url=bus.url))


def test_only_what_the_bus_did_not_take_is_put_again(bus: Bus) -> None:
    bus.answers = [(200, []), (200, ["", "ThrottlingException", "InternalFailure"])]
    failures: list[str] = []
    bus.gate.clear()
    with collector(on(bus), failures) as notices:
        notices.emit(fault(0))
        until(lambda: bus.calls)
        for number in range(1, 5):
            notices.emit(fault(number))
        bus.gate.set()
        until(lambda: len(bus.calls) == 3)

    assert bus.calls == [["n0"], ["n1", "n2", "n3", "n4"], ["n2", "n3"]]
    assert len(failures) == 1
    assert "ThrottlingException" in failures[0]


def test_what_the_bus_will_never_take_is_dropped_and_reported(bus: Bus) -> None:
    bus.answers = [(200, ["NotAuthorizedForSourceException"])]
    failures: list[str] = []
    with collector(on(bus), failures) as notices:
        notices.emit(fault(0))
        until(lambda: failures)
        notices.emit(fault(1))
        until(lambda: len(bus.calls) == 2)

    assert failures == [
        "notifying EventBridge: 1 of 1 events: NotAuthorizedForSourceException: ; "
        "this notice is dropped"
    ]


@pytest.mark.parametrize(
    ("code", "calls"), [("AccessDeniedException", 2), ("ValidationException", 1)]
)
def test_a_refused_call_is_made_again_unless_it_is_wrong_itself(
    bus: Bus, code: str, calls: int
) -> None:
    bus.answers = [(400, [code])]
    failures: list[str] = []
    with collector(on(bus), failures) as notices:
        notices.emit(fault(0))
        until(lambda: failures and len(bus.calls) == calls)

    assert code in failures[0]


def test_a_source_of_aws_itself_is_refused() -> None:
    with pytest.raises(ValueError, match=r"source must not begin with aws\."):
        NoticeSettings(eventbridge=NoticeEventBridge(), source="aws.sagemaker")


def test_without_a_region_the_message_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", "/missing")

    with pytest.raises(ConfigError, match=r"notices\.eventbridge: You must specify a region"):
        Notices(NoticeSettings(eventbridge=NoticeEventBridge()), "lab", CLOCK, lambda *_: None)
