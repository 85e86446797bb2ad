"""Who is told what, by real posts, real files and the real Apprise."""

import contextlib
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from reported import CLOCK, reported

from holdfast.adapters.notices.eventbridge import CLUSTER, HEALTH, Origin, envelope
from holdfast.adapters.notices.settings import NoticeSettings, NoticeWebhook
from holdfast.adapters.notices.sink import Notices
from holdfast.model.errors import ConfigError
from holdfast.model.events import (
    BreakerTripped,
    CallFailed,
    Event,
    JobFinished,
    NodeDraining,
    NodeQuarantined,
    NodeReleased,
)
from holdfast.model.jobs import JobPhase
from tests.ports.builders import NOW

FAULT = NodeQuarantined(node="n1", reason="Xid74", remedy="replace", message="NVLink is broken")
BACK = NodeReleased(node="n1", after="Xid74")
TRIPPED = BreakerTripped(reason="5 of 6 nodes turned faulty")
FAILED = JobFinished(job="train", outcome=JobPhase.FAILED, reason="retries are spent")
DONE = JobFinished(job="train", outcome=JobPhase.SUCCEEDED, reason="all ranks ended")
ORIGIN = Origin(cluster="lab", source="holdfast", region="r", account="a")


def until(condition) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


@contextlib.contextmanager
def collector(settings: NoticeSettings, failures: list[str] | None = None) -> Iterator[Notices]:
    notices = Notices(
        settings,
        "lab",
        CLOCK,
        lambda what, why: None if failures is None else failures.append(f"{what}: {why}"),
    )
    notices.start()
    try:
        yield notices
    finally:
        notices.stop()


# the form


def test_a_faulty_node_is_reported_as_sagemaker_reports_it() -> None:
    event = envelope(FAULT, NOW, ORIGIN)

    assert (event["detail-type"], event["source"]) == (HEALTH, "holdfast")
    assert event["time"] == "2026-01-01T12:00:00Z"
    summary = event["detail"]["HealthSummary"]
    assert (summary["HealthStatus"], summary["RepairAction"]) == ("Unhealthy", "Replace")
    assert summary["HealthStatusReason"] == "Xid74: NVLink is broken"
    assert event["detail"]["ClusterName"] == "lab"
    assert envelope(BACK, NOW, ORIGIN)["detail"]["HealthSummary"]["HealthStatus"] == "Healthy"


def test_anything_else_is_an_event_of_the_cluster() -> None:
    event = envelope(NodeDraining(node="n1"), NOW, ORIGIN)

    assert event["detail-type"] == CLUSTER
    details = event["detail"]["EventDetails"]
    assert (details["ResourceType"], details["EventLevel"]) == ("Instance", "Info")
    assert details["EventTime"] == int(NOW.timestamp() * 1000)
    assert event["detail"]["Holdfast"] == {"event": "node.draining", "node": "n1"}
    job = envelope(FAILED, NOW, ORIGIN)["detail"]["EventDetails"]
    assert (job["ResourceType"], job["EventLevel"]) == ("Cluster", "Error")


def test_no_two_events_have_one_id() -> None:
    assert envelope(FAULT, NOW, ORIGIN)["id"] != envelope(FAULT, NOW, ORIGIN)["id"]


# systems


def test_a_webhook_gets_every_event_in_order_and_signed(tmp_path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("k3y\n", encoding="utf-8")
    with reported() as seen:
        webhook = NoticeWebhook(url=seen.url, secret_file=secret)
        with collector(NoticeSettings(webhook=webhook)) as notices:
            for event in (FAULT, TRIPPED, BACK):
                notices.emit(event)
            until(lambda: len(seen.posts) == 3)

    names = [post["detail"]["Holdfast"]["event"] for _, post in seen.posts]
    assert names == [FAULT.name, TRIPPED.name, BACK.name]
    headers, post = seen.posts[0]
    at, digest = (part.split("=")[1] for part in headers["holdfast-signature"].split(","))
    signed = hmac.new(b"k3y", f"{at}.".encode() + seen.bodies[0], hashlib.sha256).hexdigest()
    assert (digest, headers["idempotency-key"]) == (signed, post["id"])


def test_a_webhook_that_is_busy_or_broken_is_reported_again_in_order() -> None:
    failures: list[str] = []
    with reported() as seen:
        seen.answers = [500, 429]
        with collector(NoticeSettings(webhook=NoticeWebhook(url=seen.url)), failures) as notices:
            notices.emit(FAULT)
            notices.emit(BACK)
            until(lambda: len(seen.posts) == 2)

    assert [post["detail"]["Holdfast"]["event"] for _, post in seen.posts] == [
        FAULT.name,
        BACK.name,
    ]
    assert len(failures) == 2
    assert not any("s3cret" in failure for failure in failures)


def test_what_a_webhook_refuses_is_dropped_and_reported_and_the_rest_goes_on() -> None:
    failures: list[str] = []
    with reported() as seen:
        seen.answers = [400]
        with collector(NoticeSettings(webhook=NoticeWebhook(url=seen.url)), failures) as notices:
            notices.emit(FAULT)
            notices.emit(BACK)
            until(lambda: len(seen.posts) == 1)

    assert "returned HTTP status 400" in failures[0]
    assert seen.posts[0][1]["detail"]["Holdfast"]["event"] == BACK.name


def test_a_webhook_that_is_away_keeps_nobody_waiting_and_is_reported_when_it_is_back() -> None:
    with reported() as seen:
        url = seen.url
    port = int(url.split(":")[2].split("/")[0])
    with collector(NoticeSettings(webhook=NoticeWebhook(url=url))) as notices:
        notices.emit(FAULT)
        with reported(port) as seen:
            until(lambda: len(seen.posts) == 1)


def test_a_file_gets_every_event_also_after_it_was_rotated(tmp_path) -> None:
    path = tmp_path / "events.jsonl"
    with collector(NoticeSettings(file=path)) as notices:
        notices.emit(FAULT)
        until(lambda: path.read_text(encoding="utf-8").count("\n") == 1)
        path.rename(tmp_path / "events.1")
        notices.emit(BACK)
        until(path.exists)
        until(lambda: path.read_text(encoding="utf-8").count("\n") == 1)

    assert json.loads(path.read_text(encoding="utf-8"))["detail-type"] == HEALTH


def test_a_line_that_was_cut_off_takes_no_other_with_it(tmp_path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"version":"0","id', encoding="utf-8")
    with collector(NoticeSettings(file=path)) as notices:
        notices.emit(FAULT)
        notices.emit(BACK)

    cut, *whole = path.read_text(encoding="utf-8").splitlines()
    assert cut == '{"version":"0","id'
    assert [json.loads(line)["detail-type"] for line in whole] == [HEALTH, HEALTH]


def test_what_waits_is_delivered_at_the_end() -> None:
    with reported() as seen:
        with collector(NoticeSettings(webhook=NoticeWebhook(url=seen.url))) as notices:
            for _ in range(50):
                notices.emit(FAULT)
        assert len(seen.posts) == 50


def test_a_call_that_failed_is_not_reported() -> None:
    with reported() as seen:
        with collector(NoticeSettings(webhook=NoticeWebhook(url=seen.url))) as notices:
            notices.emit(CallFailed(what="x", error="y"))
        assert seen.posts == []


# people


def test_people_are_notified_of_what_they_may_have_to_look_at(tmp_path) -> None:
    with reported() as seen:
        addresses = tmp_path / "addresses"
        address = seen.url.replace("http://", "json://")
        addresses.write_text(f"# on call\n\n{address}\n", encoding="utf-8")
        with collector(NoticeSettings(apprise_file=addresses)) as notices:
            for event in (FAULT, TRIPPED, DONE, FAILED, BACK):
                notices.emit(event)
            until(lambda: len(seen.posts) == 2)

    messages = [post["message"] for _, post in seen.posts]
    assert [post["title"] for _, post in seen.posts] == ["Holdfast on lab"] * 2
    assert "5 of 6 nodes turned faulty" in messages[0]
    assert "retries are spent" in messages[1]


def test_people_choose_what_they_are_notified_of() -> None:
    with reported() as seen:
        address = seen.url.replace("http://", "json://")
        with collector(NoticeSettings(apprise=(address,), for_people=(FAULT.name,))) as notices:
            for event in (TRIPPED, FAULT):
                notices.emit(event)
        assert ["NVLink" in post["message"] for _, post in seen.posts] == [True]


def test_people_who_cannot_be_reached_are_notified_later() -> None:
    failures: list[str] = []
    with reported() as seen:
        seen.answers = [500]
        address = seen.url.replace("http://", "json://")
        with collector(NoticeSettings(apprise=(address,)), failures) as notices:
            notices.emit(TRIPPED)
            until(lambda: len(seen.posts) == 1)

    assert len(failures) == 1
    assert "s3cret" not in failures[0]


def test_who_cannot_be_reached_keeps_nobody_else_waiting_and_has_nobody_notified_twice() -> None:
    failures: list[str] = []
    with reported() as seen, reported() as away:
        away.answers = [500] * 100
        urls = tuple(one.url.replace("http://", "json://") for one in (away, seen))
        with collector(NoticeSettings(apprise=urls), failures) as notices:
            notices.emit(TRIPPED)
            notices.emit(FAILED)
            until(lambda: len(failures) == 2)
            until(lambda: len(seen.posts) == 2)

    messages = [post["message"] for _, post in seen.posts]
    assert "turned faulty" in messages[0]
    assert "retries are spent" in messages[1]
    assert f"({CLOCK.now():%Y-%m-%d %H:%M} UTC)" in messages[0]
    assert failures[-1].endswith("by json: 2 notices were not delivered")


# bad input


@pytest.mark.parametrize(
    "url",
    ["http://example.com/", "ftp://example.com", "https://", "example.com", "https://a:0/", ""],
)
def test_an_address_that_is_not_safe_is_refused(url) -> None:
    with pytest.raises(ValueError, match="https address"):
        NoticeWebhook(url=url)


def test_an_address_with_a_password_is_refused_as_it_would_not_be_sent() -> None:
    with pytest.raises(ValueError, match="no user name or password"):
        NoticeWebhook(url="https://user:secret@example.com/")


def test_an_unknown_event_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"got node\.exploded"):
        NoticeSettings(for_people=("node.exploded",))


def test_a_timeout_that_never_ends_is_refused() -> None:
    with pytest.raises(ValueError, match="timeout"):
        NoticeWebhook(url="https://example.com", timeout=timedelta(0))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"apprise": ("nonsense://x:s3cret@y",)}, "address 1, by nonsense"),
        ({"apprise_file": "missing"}, "apprise_file"),
        ({"file": "missing/events"}, "notices.file"),
        ({"secret_file": "missing"}, "notices.webhook"),
        ({"secret_file": "empty"}, "is empty"),
    ],
)
def test_a_setting_that_cannot_be_used_is_reported_without_secrets(tmp_path, change, said) -> None:
    (tmp_path / "empty").touch()
    change = {
        key: value if isinstance(value, tuple) else tmp_path / value
        for key, value in change.items()
    }
    if "secret_file" in change:
        change = {"webhook": NoticeWebhook(url="https://example.com", **change)}

    with pytest.raises(ConfigError, match=said) as refused:
        Notices(NoticeSettings(**change), "lab", CLOCK, lambda *_: None)

    assert "s3cret" not in str(refused.value)


def test_every_kind_of_event_can_be_reported() -> None:
    assert {kind.name for kind in Event.__subclasses__()} >= set(NoticeSettings().for_people)
