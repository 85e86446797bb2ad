import json
import socket
from datetime import timedelta
from pathlib import Path
from queue import Queue

import pytest

from holdfast.adapters.telemetry.http_server import HttpResponse
from holdfast.apps.clock import SystemClock
from holdfast.apps.controller.config import LogFormat
from holdfast.apps.controller.dry_run import DryRun
from holdfast.apps.controller.event_log import EventLog
from holdfast.apps.controller.loop import ControllerLoop, Wakeup
from holdfast.apps.controller.metrics import (
    STARTING_PAGES,
    ControllerMetrics,
    WatchedCluster,
    WatchedProvider,
    pages,
    replacement_families,
)
from holdfast.apps.controller.platform import Platform
from holdfast.apps.controller.progress import DEADLINE, Progress, Watchdog
from holdfast.decisions.policy import RemediationPolicy
from holdfast.engine.node_reconciler import NodePorts, NodeReconciler
from holdfast.kit.quota import Quota
from holdfast.model.actions import TripBreaker
from holdfast.model.events import (
    CallFailed,
    NodeQuarantined,
    RepairDeferred,
    RepairOrdered,
    RepairPostponed,
)
from holdfast.model.health import Remedy
from holdfast.model.nodes import Phase
from holdfast.ports.leadership import Alone
from tests.ports.builders import NOW, a_cluster, a_fault, a_node, a_remediation, healthy_nodes
from tests.ports.fakes import (
    Calls,
    FakeClock,
    FakeCluster,
    FakeEvents,
    FakeIncidents,
    FakeLeadership,
    FakeProvider,
)

POLICY = RemediationPolicy(max_unavailable=Quota(count=2))


class World:
    """A controller's loop around fakes; it stops itself after some rounds."""

    def __init__(
        self, *nodes, leadership=None, is_ready=lambda: True, rounds=1, progress=None
    ) -> None:
        self.calls = Calls()
        self.cluster = FakeCluster(nodes, self.calls, SystemClock())
        self.leadership = leadership or Alone()
        self.metrics = ControllerMetrics("prod", self.leadership, [])
        self.progress = progress or Progress()
        self.news = Wakeup()
        self.looks = 0
        self._is_ready = is_ready
        self._rounds = rounds
        ports = NodePorts(
            cluster=WatchedCluster(self.cluster, self.metrics.seen, self.progress),
            provider=FakeProvider(self.calls),
            incidents=FakeIncidents(self.calls),
            events=self.metrics,
            clock=FakeClock(),
            leadership=self.leadership,
        )
        self.loop = ControllerLoop(
            NodeReconciler(ports, POLICY),
            leadership=self.leadership,
            is_ready=self.look,
            metrics=self.metrics,
            progress=self.progress,
            wake=self.news,
            clock=SystemClock(),
        )

    def look(self) -> bool:
        self.looks += 1
        if self.looks == self._rounds:
            self.loop.stop()
        self.news.set()  # so that no test waits
        return self._is_ready()

    @property
    def text(self) -> str:
        return self.metrics.text(())


def test_rounds_are_made_until_the_loop_is_stopped() -> None:
    world = World(a_node(faults=(a_fault(Remedy.REBOOT),)), rounds=3)

    world.loop.run()

    assert world.looks == 3
    assert "reboot node-1" in " ".join(world.calls.made)
    assert "holdfast_controller_rounds_total 3" in world.text


def test_no_round_is_made_before_the_cluster_was_read() -> None:
    world = World(a_node(faults=(a_fault(),)), is_ready=lambda: False, rounds=3)

    world.loop.run()

    assert world.calls.made == []


def test_no_round_is_made_without_the_lead() -> None:
    world = World(a_node(faults=(a_fault(),)), leadership=FakeLeadership(0), rounds=3)

    world.loop.run()

    assert world.calls.made == []
    assert "holdfast_controller_is_leader 0" in world.text


def test_a_loop_that_was_stopped_before_it_began_makes_no_round() -> None:
    world = World(a_node(faults=(a_fault(),)))
    world.loop.stop()

    world.loop.run()

    assert world.looks == 0


@pytest.mark.parametrize(
    ("phase", "remedy", "value"),
    [
        (Phase.SCHEDULABLE, None, "schedulable"),
        (Phase.CHECKING, Remedy.NONE, "unschedulable"),
        (Phase.REBOOTING, Remedy.REBOOT, "unschedulable_pending_reboot"),
        (Phase.REPLACING, Remedy.REPLACE, "unschedulable_pending_replacement"),
    ],
)
def test_nodes_are_counted_by_phase_and_by_hyperpods_names(phase, remedy, value) -> None:
    remediation = a_remediation(remedy) if remedy is not None else None
    node = a_node(
        phase, record={"remediation": remediation}, provider_id="aws:///us-west-2a/i-0abc"
    )
    world = World(node)
    world.metrics.seen(world.cluster.snapshot())

    dimensions = '{ClusterName="prod",InstanceId="i-0abc",NodeName="node-1"}'
    ones = [line for line in world.text.splitlines() if dimensions in line and line.endswith(" 1")]
    assert ones == [f"hyperpod_node_health_status_{value}{dimensions} 1"]
    assert f'holdfast_nodes{{phase="{phase}"}} 1' in world.text


def test_events_and_repairs_are_counted_and_passed_on() -> None:
    sink = FakeEvents()
    metrics = ControllerMetrics("prod", Alone(), [sink])
    second = timedelta(seconds=1)
    events = [
        RepairOrdered(node="a", remedy="reboot", reason="x"),
        RepairPostponed(node="a", remedy="replace", error="no", retry_after=second),
        RepairDeferred(node="a", why="circuit breaker open"),
        RepairDeferred(node="b", why="circuit breaker open"),
    ]
    for event in events:
        metrics.emit(event)

    text = metrics.text(())
    assert sink.reported == events
    assert 'holdfast_events_total{event="repair.deferred"} 2' in text
    assert 'holdfast_repairs_total{outcome="ordered",remedy="reboot"} 1' in text
    assert 'holdfast_repairs_total{outcome="postponed",remedy="replace"} 1' in text
    assert 'holdfast_repairs_total{outcome="deferred",remedy=""} 2' in text


def test_an_open_breaker_shows() -> None:
    world = World(*healthy_nodes(3))
    world.metrics.seen(world.cluster.snapshot())
    assert "holdfast_breaker_open 0" in world.text

    world.cluster.trip_breaker(TripBreaker(reason="too many", nodes=("node-1",)))
    world.metrics.seen(world.cluster.snapshot())

    assert "holdfast_breaker_open 1" in world.text


def test_who_leads_no_more_reports_nothing_of_nodes() -> None:
    cluster = World(*healthy_nodes(3)).cluster
    cluster.trip_breaker(TripBreaker(reason="too many", nodes=("node-1",)))
    metrics = ControllerMetrics("prod", FakeLeadership(requested=2), [])
    metrics.seen(cluster.snapshot())
    before, after = metrics.text(()), metrics.text(())

    assert "holdfast_breaker_open 1" in before
    assert 'holdfast_nodes{phase="schedulable"} 3' in before
    assert "holdfast_breaker_open 0" not in after, "nobody knows whether it is open"
    assert "holdfast_nodes{" not in after
    assert 'NodeName="node-1"' not in after


def test_before_the_cluster_was_read_nothing_is_reported_of_it() -> None:
    text = ControllerMetrics("prod", Alone(), []).text(())

    assert "holdfast_breaker_open 0" not in text
    assert "holdfast_nodes{" not in text


def a_platform(**changes) -> Platform:
    calls = Calls()
    whole = {
        "name": "prod",
        "cluster": FakeCluster((), calls, FakeClock()),
        "provider": FakeProvider(calls),
        "incidents": FakeIncidents(calls),
        "events": FakeEvents(),
        "leadership": Alone(),
        "is_ready": lambda: True,
        "errors": tuple,
        "families": tuple,
        "close": lambda: None,
    }
    return Platform(**{**whole, **changes})


def test_probes_distinguish_a_loop_that_lives_from_one_that_is_ready() -> None:
    metrics = ControllerMetrics("prod", Alone(), [])
    away = a_platform(is_ready=lambda: False, errors=lambda: ["nobody answers"])

    served = pages(metrics, Progress(), away, tuple)

    assert served["/healthz"]().status == 200
    assert served["/readyz"]() == HttpResponse(
        "the cluster has not been read yet: nobody answers\n", 503
    )
    assert pages(metrics, Progress(), a_platform(), tuple)["/readyz"]().status == 200


def test_a_controller_that_starts_is_alive_and_not_ready_on_all_its_pages() -> None:
    metrics = ControllerMetrics("prod", Alone(), [])

    assert STARTING_PAGES.keys() == pages(metrics, Progress(), a_platform(), tuple).keys()
    assert STARTING_PAGES["/healthz"]() == HttpResponse("ok\n")
    assert STARTING_PAGES["/readyz"]() == HttpResponse("the controller is starting\n", 503)
    assert STARTING_PAGES["/metrics"]().status == 503


class Stopwatch:
    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


def late(progress: Progress, clock: Stopwatch) -> dict[str, HttpResponse]:
    """Return the pages once the deadline is over, after a call to the provider has begun."""
    shown: dict[str, HttpResponse] = {}

    class Hangs:
        def replace(self, _node, _token) -> None:
            clock.s += DEADLINE.total_seconds() + 1
            served = pages(ControllerMetrics("x", Alone(), []), progress, a_platform(), tuple)
            shown.update({path: served[path]() for path in ("/healthz", "/readyz")})

        reboot = replace

    WatchedProvider(Hangs(), progress).replace(a_node(), "token")
    return shown


def test_probes_fail_when_no_round_finishes_and_name_the_call_that_hangs() -> None:
    progress = Progress(clock := Stopwatch())

    shown = late(progress, clock)

    waits = "waiting for: the provider's replacement of node-1 (for 3m1s)"
    text = f"no reconciliation round has finished for 3m1s; {waits}\n"
    assert shown == {"/healthz": HttpResponse(text, 503), "/readyz": HttpResponse(text, 503)}
    progress.finished()
    assert progress.stalled() == ""


def test_a_flood_of_requests_does_not_render_the_metrics_each_time() -> None:
    renderings: list[int] = []
    metrics = ControllerMetrics("x", Alone(), [])

    def more() -> list[str]:
        renderings.append(1)
        return ["more 1\n"]

    served = pages(metrics, Progress(), a_platform(), more)
    texts = {served["/metrics"]().text for _ in range(50)}

    assert all("more 1\n" in text for text in texts)
    assert len(renderings) == len(texts) < 50


def test_a_cluster_that_cannot_be_read_for_long_is_not_ready_but_alive() -> None:
    progress = Progress(clock := Stopwatch())
    clock.s += DEADLINE.total_seconds() + 1
    progress.finished()
    served = pages(ControllerMetrics("x", Alone(), []), progress, a_platform(), tuple)

    assert served["/healthz"]().status == 200
    assert served["/readyz"]() == HttpResponse("the cluster was last read 3m1s ago\n", 503)
    progress.was_read()
    assert served["/readyz"]().status == 200


@pytest.mark.parametrize("leadership", [Alone(), FakeLeadership(0)])
def test_a_loop_that_goes_round_is_healthy_whether_or_not_it_leads(leadership) -> None:
    clock = Stopwatch()
    world = World(a_node(), leadership=leadership, rounds=3, progress=Progress(clock))
    clock.s += DEADLINE.total_seconds() + 1
    assert world.progress.stalled()
    assert world.progress.unread()

    world.loop.run()

    assert (world.progress.stalled(), world.progress.unread()) == ("", "")


def test_the_watchdog_reports_what_a_stalled_loop_waits_for() -> None:
    progress = Progress(clock := Stopwatch())
    said: Queue[str] = Queue()
    clock.s += DEADLINE.total_seconds() + 1

    watchdog = Watchdog(progress, said.put)

    assert said.get(timeout=30).startswith("no reconciliation round has finished for")
    watchdog.stop()


def test_systemd_is_notified_until_the_loop_stalls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = Progress(clock := Stopwatch())
    said: Queue[str] = Queue()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(path := str(tmp_path / "notify"))
        systemd.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        watchdog = Watchdog(progress, said.put)
        assert systemd.recv(100) == b"WATCHDOG=1"

        clock.s += DEADLINE.total_seconds() + 1
        assert said.get(timeout=30)
        watchdog.stop()
        systemd.setblocking(False)
        with pytest.raises(BlockingIOError):
            systemd.recv(100)


def test_metrics_of_the_platform_are_served_with_the_others() -> None:
    metrics = ControllerMetrics("prod", Alone(), [])
    platform = a_platform(families=lambda: ["mine 1\n"])
    served = pages(metrics, Progress(), platform, lambda: ["jobs 2\n"])

    text = served["/metrics"]().text
    assert "mine 1\n" in text
    assert "jobs 2\n" in text
    assert "process_resident_memory_bytes" in text


class TestDryRun:
    def test_it_reports_what_would_be_done_once_and_does_nothing(self) -> None:
        world = World(a_node(faults=(a_fault(Remedy.REBOOT),)))
        dry_run = DryRun(world.cluster, POLICY, FakeClock())

        (line,) = dry_run.new_lines()

        assert line.startswith("NodeQuarantined: node-1 quarantined for reboot: ")
        assert list(dry_run.new_lines()) == []
        assert world.calls.made == []

    def test_it_reports_again_what_came_back(self) -> None:
        world = World(a_node(faults=(a_fault(Remedy.REBOOT),)))
        dry_run = DryRun(world.cluster, POLICY, FakeClock())
        reported = list(dry_run.new_lines())

        world.cluster.change("node-1", faults=())
        assert list(dry_run.new_lines()) == []
        world.cluster.change("node-1", faults=(a_fault(Remedy.REBOOT),))

        assert list(dry_run.new_lines()) == reported


class TestEventLog:
    EVENT = NodeQuarantined(node="a", reason="Xid", remedy="reboot", message="line\nbreak")

    def test_text_is_one_sentence_on_one_line(self, capsys) -> None:
        EventLog(LogFormat.TEXT, FakeClock()).emit(self.EVENT)

        (line,) = capsys.readouterr().out.splitlines()
        assert line.endswith("Z NodeQuarantined: a quarantined for reboot: Xid: line break")

    def test_json_holds_every_field(self, capsys) -> None:
        EventLog(LogFormat.JSON, FakeClock()).emit(self.EVENT)

        (line,) = capsys.readouterr().out.splitlines()
        reported = json.loads(line)
        assert reported.pop("at")
        assert reported == {
            "event": "node.quarantined",
            "node": "a",
            "reason": "Xid",
            "remedy": "reboot",
            "message": "line\nbreak",
        }

    def test_a_call_that_fails_again_and_again_is_reported_every_minute(self, capsys) -> None:
        clock = FakeClock()
        log = EventLog(LogFormat.TEXT, clock)
        reported = []
        for _ in range(121):
            log.emit(CallFailed(what="reading", error="nobody answers"))
            log.emit(CallFailed(what="writing", error="nobody answers"))
            reported += capsys.readouterr().out.splitlines()
            clock.time += timedelta(seconds=1)

        assert sum("reading" in line for line in reported) == 3
        assert sum("writing" in line for line in reported) == 3
        clock.time -= timedelta(hours=3)
        log.emit(CallFailed(what="reading", error="nobody answers"))
        assert "reading" in capsys.readouterr().out


def test_replacements_are_shown_with_their_limits_by_the_leader() -> None:
    node = a_node(record={"replaced_at": (NOW - timedelta(hours=2), NOW - timedelta(minutes=2))})
    view = a_cluster(node)

    text = "".join(replacement_families(view, POLICY, NOW))

    assert 'holdfast_replacements{window="1h"} 1\n' in text
    assert 'holdfast_replacements{window="24h"} 2\n' in text
    assert 'holdfast_replacements_limit{window="24h"} 11\n' in text
    assert "window=" not in "".join(replacement_families(None, POLICY, NOW))
