"""Metrics of the controller, in Prometheus' text format, and the pages that it serves."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from holdfast import __version__
from holdfast.adapters.telemetry.exposition import (
    CONTENT_TYPE,
    LabelSet,
    Samples,
    family,
    labels,
    process_families,
)
from holdfast.adapters.telemetry.http_server import HttpResponse
from holdfast.apps.controller.platform import Platform
from holdfast.apps.controller.progress import Progress
from holdfast.decisions.node_labels import health_status
from holdfast.decisions.policy import RemediationPolicy
from holdfast.decisions.replacement_limit import replacement_rate
from holdfast.model.events import (
    Event,
    RepairDeferred,
    RepairOrdered,
    RepairOverdue,
    RepairPostponed,
)
from holdfast.model.health import Remedy
from holdfast.model.names import HealthStatus
from holdfast.model.nodes import ClusterView, NodeView, Phase, Pool
from holdfast.ports.cluster import ClusterBackend
from holdfast.ports.events import EventSink
from holdfast.ports.leadership import Leadership
from holdfast.ports.provider import NodeProvider

_HYPERPOD: Final = "hyperpod_node_health_status_"
"""Prefix of CloudWatch Container Insights' metrics for the values of the health label."""

_VALUES: Final = {
    HealthStatus.SCHEDULABLE: "schedulable",
    HealthStatus.UNSCHEDULABLE: "unschedulable",
    HealthStatus.PENDING_REPLACEMENT: "unschedulable_pending_replacement",
    HealthStatus.PENDING_REBOOT: "unschedulable_pending_reboot",
}


class ControllerMetrics:
    """Counts rounds, events and nodes; an ``EventSink`` that forwards every event."""

    def __init__(self, cluster: str, leadership: Leadership, events: Sequence[EventSink]) -> None:
        self._cluster = cluster
        self._leadership = leadership
        self._sinks = events
        self._lock = threading.Lock()
        self._events: Counter[str] = Counter()
        self._repairs = Counter(
            {  # counters start at 0, so that the first event is an increase
                labels(remedy=remedy, outcome=outcome): 0
                for remedy in Remedy
                if remedy is not Remedy.NONE
                for outcome in ("ordered", "postponed", "overdue")
            }
        )
        self._view: ClusterView | None = None
        self._rounds = 0
        self._round_s = 0.0

    def emit(self, event: Event) -> None:
        """See ``EventSink.emit``."""
        with self._lock:
            self._events[event.name] += 1
            match event:
                case RepairOrdered(remedy=remedy):
                    self._repairs[labels(remedy=remedy, outcome="ordered")] += 1
                case RepairPostponed(remedy=remedy):
                    self._repairs[labels(remedy=remedy, outcome="postponed")] += 1
                case RepairOverdue(remedy=remedy):
                    self._repairs[labels(remedy=remedy, outcome="overdue")] += 1
                case RepairDeferred():
                    self._repairs[labels(remedy="", outcome="deferred")] += 1
        for sink in self._sinks:
            sink.emit(event)

    def round_made(self, took: timedelta) -> None:
        """Count a finished round and its duration."""
        with self._lock:
            self._rounds += 1
            self._round_s += took.total_seconds()

    def seen(self, view: ClusterView) -> None:
        """Store the current view of the cluster."""
        self._view = view

    def led_view(self) -> ClusterView | None:
        """Return the last snapshot; None if there is none, or while another process leads."""
        return self._view if self._leadership.is_held() else None

    def is_busy(self) -> bool:
        """Whether a node is out of service, so that the loop should poll sooner."""
        nodes = () if self._view is None else self._view.nodes
        return any(node.record.phase is not Phase.SCHEDULABLE for node in nodes)

    def text(self, more: Sequence[str]) -> str:
        """Return all metrics with their current values, and ``more`` families."""
        with self._lock:
            # The view of a controller that has lost the leadership is stale.
            view = self.led_view()
            own = [*self._counted(view), *_nodes(view, self._cluster)]
        return "".join((*own, *more, *process_families()))

    def _counted(self, view: ClusterView | None) -> Iterator[str]:
        is_open: Samples = {} if view is None else {(): float(view.breaker.tripped_at is not None)}
        # fmt: off
        yield family("holdfast_controller_build_info", "gauge", "Always 1.",
            {labels(version=__version__, cluster=self._cluster): 1})
        yield family("holdfast_controller_is_leader", "gauge", "1 while this is the leader.",
            {(): self._leadership.is_held()})
        yield family("holdfast_controller_rounds_total", "counter", "Reconciliations.",
            {(): self._rounds})
        yield family("holdfast_controller_round_seconds_total", "counter", "Reconciliation time.",
            {(): self._round_s})
        yield family("holdfast_events_total", "counter", "Events by name.",
            {labels(event=name): n for name, n in self._events.items()})
        yield family("holdfast_repairs_total", "counter", "Repair orders by result.",
            self._repairs)
        yield family("holdfast_breaker_open", "gauge", "1 while the circuit breaker is open.",
            is_open)
        # fmt: on


class WatchedCluster:
    """A ``ClusterBackend`` that shows each snapshot to someone, and its calls to ``Progress``."""

    def __init__(
        self, cluster: ClusterBackend, seen: Callable[[ClusterView], None], progress: Progress
    ) -> None:
        self._read = progress.tracked("reading the cluster", cluster.snapshot)
        self._seen = seen
        self._progress = progress
        self.put = progress.tracked("writing the record of", cluster.put)
        self.clear_request = progress.tracked("clearing the request of", cluster.clear_request)
        self.request_check = progress.tracked("requesting a check of", cluster.request_check)
        self.drain = progress.tracked("draining", cluster.drain)
        self.start_check = progress.tracked("starting the check of", cluster.start_check)
        self.start_pair = progress.tracked("starting the pair test of", cluster.start_pair)
        self.retire = progress.tracked("removing", cluster.retire)
        self.trip_breaker = progress.tracked("opening the circuit breaker", cluster.trip_breaker)
        self.close_breaker = progress.tracked("closing the circuit breaker", cluster.close_breaker)
        self.remember_offender = progress.tracked("storing", cluster.remember_offender)

    def snapshot(self, peer_pools: Collection[Pool] = ()) -> ClusterView:
        """See ``ClusterBackend.snapshot``."""
        view = self._read(peer_pools)
        self._progress.was_read()
        self._seen(view)
        return view


class WatchedProvider:
    """A ``NodeProvider`` that shows its calls to ``Progress``."""

    def __init__(self, provider: NodeProvider, progress: Progress) -> None:
        self.reboot = progress.tracked("the provider's reboot of", provider.reboot)
        self.replace = progress.tracked("the provider's replacement of", provider.replace)


def _starting() -> HttpResponse:
    return HttpResponse("the controller is starting\n", 503)


METRICS: Final = "/metrics"

_RENDER_EVERY_S: Final = 1.0
"""Minimum time between two renderings of the metrics, which take 0.1 s for 5,000 nodes: a flood of
requests must not keep the loop from its work. Prometheus reads them every 15 s or less often."""

STARTING_PAGES: Final[Mapping[str, Callable[[], HttpResponse]]] = {
    METRICS: _starting,
    "/healthz": lambda: HttpResponse("ok\n"),
    "/readyz": _starting,
}
"""Pages by path until those of ``pages`` can be served: a controller that starts is alive."""


def pages(
    metrics: ControllerMetrics,
    progress: Progress,
    platform: Platform,
    more: Callable[[], Iterable[str]],
) -> dict[str, Callable[[], HttpResponse]]:
    """Return ``path -> page``; ``more`` yields metrics in addition to nodes and platform."""
    rendered: tuple[float, HttpResponse] | None = None

    def shown() -> HttpResponse:
        nonlocal rendered
        if rendered is None or time.monotonic() - rendered[0] >= _RENDER_EVERY_S:
            others = (*progress.families(), *platform.families(), *more())
            page = HttpResponse(metrics.text(others), content_type=CONTENT_TYPE)
            rendered = (time.monotonic(), page)
        return rendered[1]

    def healthz() -> HttpResponse:
        stalled = progress.stalled()
        return HttpResponse(f"{stalled}\n", 503) if stalled else HttpResponse("ok\n")

    def readyz() -> HttpResponse:
        problem = "" if platform.is_ready() else "the cluster has not been read yet"
        problem = progress.stalled() or problem or progress.unread()
        if not problem:
            return HttpResponse("ok\n")
        why = "; ".join(platform.errors())
        return HttpResponse(f"{problem}{': ' if why else ''}{why}\n", 503)

    return {
        METRICS: shown,
        "/healthz": healthz,
        "/readyz": readyz,
    }


def _nodes(view: ClusterView | None, cluster: str) -> Iterator[str]:
    """Yield the metric families of nodes, without samples while there is no view of them."""
    nodes = () if view is None else view.nodes
    phases = Counter(node.record.phase for node in nodes)
    yield family(
        "holdfast_nodes",
        "gauge",
        "Nodes by phase.",
        {labels(phase=phase): phases[phase] for phase in Phase if view is not None},
    )
    yield family(
        "holdfast_deep_check_measured",
        "gauge",
        "Measurements of a node's last deep health check; the name ends with the unit.",
        _measured(nodes),
    )
    statuses = [
        (_dimensions(node, cluster), health_status(node.record, is_closed=bool(node.closed)))
        for node in nodes
    ]
    for status, value in _VALUES.items():
        samples = {pairs: float(is_now is status) for pairs, is_now in statuses}
        yield family(
            _HYPERPOD + value, "gauge", f"1 while the node's health label is {status}.", samples
        )


def replacement_families(
    view: ClusterView | None, policy: RemediationPolicy, now: datetime
) -> Iterator[str]:
    """Return the metrics of automatic replacements; without samples while nothing is known."""
    counts: dict[LabelSet, float] = {}
    limits: dict[LabelSet, float] = {}
    if view is not None:
        rate = replacement_rate(view.nodes, len(view.nodes), policy, now)
        counts = {labels(window="1h"): rate.last_hour, labels(window="24h"): rate.last_day}
        limits = {labels(window="1h"): rate.per_hour, labels(window="24h"): rate.per_day}
    about = "Automatic replacements within the window, with those about to be ordered."
    yield family("holdfast_replacements", "gauge", about, counts)
    about = "Automatic replacements allowed within the window without approval."
    yield family("holdfast_replacements_limit", "gauge", about, limits)


def _measured(nodes: Sequence[NodeView]) -> Samples:
    """Return the measurements of the last deep health check of each node."""
    return {
        labels(node=node.name, measure=measure): value
        for node in nodes
        if node.record.checks
        for measure, value in sorted(node.record.checks[-1].measured.items())
    }


def _dimensions(node: NodeView, cluster: str) -> LabelSet:
    """Return the dimensions of a node, as in Container Insights."""
    instance = node.provider_id.rpartition("/")[2]
    return labels(ClusterName=cluster, InstanceId=instance, NodeName=node.name)
