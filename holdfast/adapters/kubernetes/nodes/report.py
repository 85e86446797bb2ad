"""An agent's report on Kubernetes: its Node object, Events about it, and a Lease as heartbeat."""

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
"""Longest time of one call; there is one thread for all of them."""

TRIES: Final = 5
"""Times that a write is tried anew because the node has changed meanwhile."""

LEASE_S: Final = 40
"""An agent that has not renewed its lease for so long is silent; as long as a kubelet's."""

EVENTS_AT_ONCE: Final = 25
"""As many Events of one source about one object client-go lets pass at once."""

EVENTS_KEPT: Final = 100
"""While they cannot be sent; the oldest go first."""

_HOPELESS: Final = (400, 413, 422)
"""Answers to an object that will never be accepted."""

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""A DNS subdomain, as Kubernetes wants it; nothing else is put into the path of a call."""

_CLOSING_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportIntervals:
    """Seconds between two calls of a kind, where nothing is urgent."""

    look: float = HEARTBEAT.total_seconds()
    """Between two looks whether the node still says what it should."""

    evidence: float = 10.0
    """Until the node is told that what it knows was seen again."""

    lease: float = 10.0
    """A quarter of the lease's time, as kubelets do."""

    events: float = 10.0
    """Between two batches of Events."""


class NodeReporter:
    """A ``ReportObserver`` that brings each report to the API server, from a thread of its own.

    Only the newest report waits to be sent. What the cluster is to say is worked out from it and
    from the Node object as it is, so that an outage or a killed agent leaves nothing half done.
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
        """Report on ``node``, and on no other.

        Args:
            api: the API server.
            node: name of the Node object.
            settings: the names of labels and of the lease's namespace.
            timeout: an agent without a heartbeat for this long does not renew the lease.
            clock: what time it is.
            log: takes messages for a person, from this object's thread.
            intervals: how often to call.

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
        self._beat_at = -math.inf
        self._state = PeriodicTask(
            f"report to node {node}", self._write_report, every_s=intervals.look, log=log
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
        self.beat()
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

    def beat(self) -> None:
        """See ``ReportObserver.beat``.

        Raises:
            HoldfastError: a bug has ended the thread; an agent that nobody hears must end, too.

        """
        if not self._thread.is_alive() and not self._stopped:
            raise HoldfastError(f"nobody reports to node {self._name} any more; see above")
        self._beat_at = time.monotonic()

    def close(self) -> None:
        """Send no more. A call that has been made is not waited for longer than a moment."""
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
        """Make the Node object say what the newest report says."""
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
        if is_first:  # a report counts only beside a lease of the same boot
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
            if is_first:  # an agent before may have been killed before it could tell them
                self._keep(fault_events(last_report, last_report.faults))

    def _renew(self) -> None:
        """Show that the agent lives: that its loop turns, not only this thread."""
        report = self._report
        if report is None or time.monotonic() - self._beat_at > self._timeout_s:
            return
        spec: Json = {
            "holderIdentity": report.boot_id,
            "leaseDurationSeconds": LEASE_S,
            "renewTime": self._clock.now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        try:
            self._api.patch(f"{self._leases}/{self._name}", {"spec": spec})
        except NotFound:
            # The lease goes with its node, so this may be another one, which has no report yet.
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
        """Take events in; the lock is held."""
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
                if error.status not in _HOPELESS:
                    raise
                if not self._is_dropping:
                    self._log(f"an event is not accepted, and dropped: {error}")
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
    """Report on ``node`` as ``settings`` say; see ``NodeReporter``.

    Raises:
        ConfigError: there is no API server to report to, or no node can have that name.

    """
    if not _NAME.fullmatch(node):
        raise ConfigError(f"{node!r} cannot be the name of a Kubernetes node")
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
    """What a reader acts upon; the rest is how often it was seen."""
    faults = {(fault.key, fault.remedy, fault.urgency, fault.since) for fault in report.faults}
    suspects = {fault.key for fault in report.suspects}
    return (report.boot_id, faults, suspects, report.drill_until)
