"""Agent reports on Kubernetes: Node object, Events about it, and a Lease as heartbeat."""

import math
import re
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import Final

from holdfast import __version__
from holdfast.adapters.kubernetes.client.api import Api, Patch
from holdfast.adapters.kubernetes.client.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Json,
    NotFound,
)
from holdfast.adapters.kubernetes.client.periodic import Log, PeriodicTask
from holdfast.adapters.kubernetes.client.server import Server, TokenFile, in_cluster
from holdfast.adapters.kubernetes.nodes.agent_events import (
    COMPONENT,
    NAMESPACE,
    events,
    fault_events,
)
from holdfast.adapters.kubernetes.nodes.agent_settings import AgentKubernetes
from holdfast.adapters.kubernetes.nodes.report_patch import (
    HEARTBEAT,
    brief,
    conditions_patch,
    node_patch,
    reported,
)
from holdfast.model.errors import ConfigError, HoldfastError
from holdfast.model.names import Labels
from holdfast.model.report import NodeReport
from holdfast.ports.clock import Clock

CALL_TIMEOUT: Final = timedelta(seconds=5)
"""Timeout of one API call; a single thread makes all calls."""

TRIES: Final = 5
"""Attempts of a write that conflicts with concurrent changes of the node."""

LEASE_S: Final = 40
"""Lease duration in seconds, after which an agent is silent; equal to that of a kubelet."""

EVENTS_AT_ONCE: Final = 25
"""Maximum burst of Events of one source about one object in client-go."""

EVENTS_KEPT: Final = 100
"""Maximum number of unsent Events; the oldest are dropped first."""

_PERMANENT: Final = (400, 413, 422)
"""HTTP statuses of an object that the API server will never accept."""

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""DNS subdomain as Kubernetes requires; no other text is put into the path of a call."""

_CLOSING_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportIntervals:
    """Intervals of non-urgent calls, in seconds."""

    check: float = HEARTBEAT.total_seconds()
    """Interval of checks that the Node object still matches the report."""

    evidence: float = 10.0
    """Delay of a report whose only change is that known faults were seen again."""

    lease: float = 10.0
    """Interval of lease renewals; a quarter of the lease duration, as in kubelets."""

    events: float = 10.0
    """Interval of batches of Events."""


class NodeReporter:
    """``ReportObserver`` that writes each report to the API server, in its own thread.

    Only the newest report is queued. The patch is computed from it and from the current Node
    object, so an outage or a killed agent leaves no partial state.
    """

    def __init__(
        self,
        api: Api,
        node: str,
        *,
        settings: AgentKubernetes,
        timeout: timedelta,
        clock: Clock,
        log: Log,
        intervals: ReportIntervals | None = None,
    ) -> None:
        """Report on ``node`` only.

        Args:
            api: client of the API server.
            node: name of the Node object.
            settings: names of labels, and the lease's namespace.
            timeout: without a heartbeat of the agent for this long, the lease is not renewed.
            clock: clock of reports and leases.
            log: receives messages for people, from this object's thread.
            intervals: intervals of the calls; None for the defaults.

        """
        self._api = api
        self._node = f"/api/v1/nodes/{node}"
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{settings.namespace}/leases"
        self._name = node
        self._labels = Labels(settings.label_prefix)
        self._timeout_s = timeout.total_seconds()
        self._clock = clock
        self._intervals = intervals = intervals or ReportIntervals()
        self._lock = threading.Condition()
        self._stopped = False
        self._report: NodeReport | None = None
        self._uid = ""
        self._events: dict[str, Json] = {}
        self._heartbeat_at = -math.inf
        self._state = PeriodicTask(
            f"report to node {node}", self._write_report, every_s=intervals.check, log=log
        )
        lease = f"{settings.namespace}/{node}"
        self._lease = PeriodicTask(
            f"renew the lease {lease}", self._renew, every_s=intervals.lease, log=log
        )
        self._event_task = PeriodicTask(
            "write events", self._send_events, every_s=math.inf, log=log
        )
        self._events_at = -math.inf
        self._is_dropping = False
        self._log = log
        self._thread = threading.Thread(target=self._run, name="kubernetes", daemon=True)
        self._thread.start()

    def changed(self, before: NodeReport | None, report: NodeReport) -> None:
        """See ``ReportObserver.changed``."""
        self.heartbeat_sent()
        is_urgent = (
            before is None or self._report is None or _fingerprint(before) != _fingerprint(report)
        )
        with self._lock:
            self._report = report
            self._state.requeue_now(
                time.monotonic() + (0 if is_urgent else self._intervals.evidence)
            )
            self._keep(events(before, report))
            self._lock.notify()

    def heartbeat_sent(self) -> None:
        """See ``ReportObserver.heartbeat_sent``.

        Raises:
            HoldfastError: a bug has ended the thread; an agent that cannot report must exit, too.

        """
        if not self._thread.is_alive() and not self._stopped:
            raise HoldfastError(f"reports to node {self._name} have stopped; see the error above")
        self._heartbeat_at = time.monotonic()

    def close(self) -> None:
        """Stop reporting; waits only a moment for a call in progress."""
        with self._lock:
            self._stopped = True
            self._lock.notify()
        self._thread.join(_CLOSING_S)
        self._api.close()

    def _run(self) -> None:
        tasks = (self._state, self._lease, self._event_task)
        while True:
            with self._lock:
                while not self._stopped and not any(map(_is_due, tasks)):
                    due_at = min(task.due_at for task in tasks)
                    pause = None if due_at == math.inf else max(due_at - time.monotonic(), 0)
                    self._lock.wait(pause)
                if self._stopped:
                    return
            for task in tasks:
                if _is_due(task) and not self._stopped:
                    task.run()

    def _write_report(self) -> None:
        """Patch the Node object to match the newest report."""
        for left in reversed(range(TRIES)):
            if self._stopped or self._report is None:
                return
            try:
                self._write(self._api.get(self._node), self._report)
            except Conflict:
                if not left:
                    raise
            else:
                return

    def _write(self, node: Json, report: NodeReport) -> None:
        known, last_report = reported(node), brief(report)
        is_first = not self._uid
        self._uid = node["metadata"]["uid"]
        if is_first:  # a report counts only with a lease of the same boot
            self._lease.run()
        patch = node_patch(node, report, self._labels)
        if patch is not None:
            node = self._api.patch(self._node, patch)
        status = conditions_patch(node, report, self._clock.now())
        if status is not None:
            self._api.patch(f"{self._node}/status", status, Patch.STRATEGIC)
        self._uid = node["metadata"]["uid"]
        with self._lock:
            self._keep(events(known, last_report))
            if is_first:  # the previous agent may have been killed before it sent them
                self._keep(fault_events(last_report, last_report.faults))

    def _renew(self) -> None:
        """Renew the lease if the agent's main loop runs, not only this thread."""
        report = self._report
        if report is None or time.monotonic() - self._heartbeat_at > self._timeout_s:
            return
        spec: Json = {
            "holderIdentity": report.boot_id,
            "leaseDurationSeconds": LEASE_S,
            "renewTime": self._clock.now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        try:
            self._api.patch(f"{self._leases}/{self._name}", {"spec": spec})
        except NotFound:
            # The lease is deleted with its node, so this may be a new node that has no report yet.
            self._uid = self._api.get(self._node)["metadata"]["uid"]
            self._state.requeue_now(time.monotonic())
            self._create_lease(spec)

    def _create_lease(self, spec: Json) -> None:
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._name, "uid": self._uid}
        about = {"name": self._name, "ownerReferences": [owner]}
        self._api.create(
            self._leases,
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": about,
                "spec": spec,
            },
        )

    def _keep(self, found: Iterable[Json]) -> None:
        """Queue events; the caller holds the lock."""
        for event in found:
            self._events[event["metadata"]["name"]] = event
            self._event_task.requeue_now(
                max(time.monotonic(), self._events_at + self._intervals.events)
            )
        for name in list(self._events)[:-EVENTS_KEPT]:
            del self._events[name]

    def _send_events(self) -> None:
        self._events_at = time.monotonic()
        with self._lock:
            batch = list(self._events.items())[:EVENTS_AT_ONCE]
        for name, event in batch:
            try:
                self._send(name, event)
                self._is_dropping = False
            except ApiError as error:
                if error.status not in _PERMANENT:
                    raise
                if not self._is_dropping:
                    self._log(f"Event rejected by the API server and dropped: {error}")
                self._is_dropping = True
            self._forget(name, event)
        if self._events:
            self._event_task.requeue_now(self._events_at + self._intervals.events)

    def _send(self, name: str, event: Json) -> None:
        path = f"/api/v1/namespaces/{NAMESPACE}/events"
        try:
            self._api.create(path, event, repeatable=True)
        except AlreadyExists:
            again = {key: event[key] for key in ("count", "message", "lastTimestamp")}
            self._api.patch(f"{path}/{name}", again)

    def _forget(self, name: str, event: Json) -> None:
        with self._lock:
            if self._events.get(name) is event:
                del self._events[name]


def open_reporter(
    settings: AgentKubernetes, node: str, *, timeout: timedelta, clock: Clock, log: Log
) -> NodeReporter:
    """Return a reporter for ``node`` by ``settings``; see ``NodeReporter``.

    Raises:
        ConfigError: no API server is configured, or ``node`` is no valid node name.

    """
    if not _NAME.fullmatch(node):
        raise ConfigError(
            f"node: {node!r} is not a valid name of a Kubernetes node; see: kubectl get nodes"
        )
    api = Api(
        _server(settings),
        user_agent=f"holdfast-agent/{__version__}",
        field_manager=COMPONENT,
        timeout=CALL_TIMEOUT,
    )
    return NodeReporter(api, node, settings=settings, timeout=timeout, clock=clock, log=log)


def _server(settings: AgentKubernetes) -> Server:
    if settings.server is None:
        return in_cluster()
    token = None if settings.token_file is None else TokenFile(settings.token_file)
    return Server(
        url=settings.server,
        ca_file=settings.ca_file,
        token=token,
        token_refused=None if token is None else token.refused,
    )


def _is_due(task: PeriodicTask) -> bool:
    return task.due_at <= time.monotonic()


def _fingerprint(report: NodeReport) -> object:
    """Return the part of a report that readers act upon; the rest is how often it was seen."""
    faults = {(fault.key, fault.remedy, fault.urgency, fault.since) for fault in report.faults}
    suspects = {fault.key for fault in report.suspects}
    return (report.boot_id, faults, suspects, report.drill_until)
