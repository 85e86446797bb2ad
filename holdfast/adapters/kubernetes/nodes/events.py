"""Events of the engine as Kubernetes Events, for ``kubectl describe``."""

import queue
import threading
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import (
    AlreadyExists,
    ApiError,
    Forbidden,
    Json,
    NotFound,
    Unreachable,
)
from holdfast.adapters.kubernetes.client.values import digest, format_time
from holdfast.adapters.kubernetes.nodes.pods import PodOwner
from holdfast.decisions.planned_work import level_of
from holdfast.engine.wording import sentence
from holdfast.model.events import (
    BreakerClosed,
    BreakerTripped,
    Event,
    FaultUncorroborated,
    InputRejected,
    NodeAgentReports,
    NodeAgentSilent,
    NodeCheckBegun,
    NodeCheckFailed,
    NodeCheckPassed,
    NodeCheckSkipped,
    NodeCheckWaits,
    NodeDraining,
    NodePairTested,
    NodeQuarantined,
    NodeReassigned,
    NodeRejoined,
    NodeReleased,
    NodeReplaced,
    NodeSuspected,
    NodeVanished,
    RepairDeferred,
    RepairOrdered,
    RepairOverdue,
    RepairPostponed,
    StragglerSuspected,
)
from holdfast.model.names import Reason
from holdfast.model.sagemaker import EventLevel
from holdfast.ports.clock import Clock

NAMESPACE: Final = "default"
"""Namespace of Events about objects without a namespace."""

COMPONENT: Final = "holdfast-controller"
"""``source.component`` of the Events, and the field manager of the controller's writes."""

QUEUE: Final = 2000
"""Size of the queue; when it is full because the API server is down, the newest are dropped."""

SERIES: Final = timedelta(minutes=10)
"""Time within which a repeated Event is counted instead of created, as in client-go."""

_SERIES_KEPT: Final = 4096  # client-go's lruCacheEntries
_MAX_MESSAGE: Final = 1024  # bytes of a message that the API accepts
_NAME_CHARS: Final = 253 - 1 - 16
"""Characters left for the name of the object, beside a dot and a digest."""

_PAUSE_S: Final = 1.0
"""Pause before a retry while the API server is down."""


@dataclass(frozen=True, slots=True)
class EventKind:
    """Reason, type and message of an event of the engine."""

    reason: str
    type: str
    next: str = ""
    """Next step, automatic or required of the user."""


KINDS: Final[Mapping[type[Event], EventKind]] = {
    NodeQuarantined: EventKind(
        "NodeQuarantined", "Warning", "no new pods are placed; it is drained when the budget allows"
    ),
    NodeReassigned: EventKind(
        "RemedyChanged", "Warning", "the repair continues with the new remedy"
    ),
    NodeDraining: EventKind(
        "NodeDraining",
        "Normal",
        "its pods are being evicted; the repair starts then, or at the deadline",
    ),
    RepairOrdered: EventKind(
        "RepairOrdered", "Normal", "the node goes down and is expected to rejoin"
    ),
    RepairOverdue: EventKind("RepairOverdue", "Warning"),
    RepairPostponed: EventKind("RepairPostponed", "Warning"),
    RepairDeferred: EventKind(
        "RepairDeferred", "Normal", "it starts when this reason no longer applies"
    ),
    NodeRejoined: EventKind("NodeRejoined", "Normal", "it is released if it is healthy"),
    NodeReplaced: EventKind("NodeReplaced", "Normal", "its Node object is deleted"),
    NodeVanished: EventKind("NodeVanished", "Warning", "no replacement is ordered"),
    NodeSuspected: EventKind(Reason.JOBS_KEEP_FAILING.value, "Warning"),
    FaultUncorroborated: EventKind(Reason.FAULT_UNCORROBORATED.value, "Warning"),
    StragglerSuspected: EventKind(Reason.STRAGGLER_FOUND.value, "Warning"),
    NodeCheckWaits: EventKind(
        "DeepHealthCheckWaits", "Normal", "it starts when this reason no longer applies"
    ),
    NodeCheckBegun: EventKind("DeepHealthCheckStarted", "Normal", "it is released if it passes"),
    NodePairTested: EventKind("DeepHealthCheckPairTested", "Normal"),
    NodeCheckPassed: EventKind("DeepHealthCheckPassed", "Normal"),
    NodeCheckSkipped: EventKind("DeepHealthCheckSkipped", "Warning", "install the missing tools"),
    NodeCheckFailed: EventKind(Reason.CHECK_FAILED, "Warning", "it is repaired and checked again"),
    NodeReleased: EventKind("NodeReleased", "Normal", "pods can be placed on it"),
    NodeAgentSilent: EventKind(Reason.AGENT_SILENT.value, "Warning"),
    NodeAgentReports: EventKind("AgentReports", "Normal"),
    InputRejected: EventKind("InvalidInput", "Warning", "correct or remove it"),
}
"""Kinds of node events; other events are not about an object of the cluster, and only logged."""

_BREAKER_KINDS: Final[Mapping[type[Event], EventKind]] = {
    BreakerTripped: EventKind("BreakerTripped", "Warning"),
    BreakerClosed: EventKind("BreakerClosed", "Normal"),
}

NODE_FAULT: Final = "NodeFault"
"""Reason of the Event on a job that loses pods, as in HyperPod's training operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Kubernetes Event to send."""

    about: PodOwner
    """Object of the Event; one without a namespace is a node."""

    kind: EventKind
    message: str
    at: datetime

    @property
    def key(self) -> str:
        """Key of the Event; notices with equal keys are repetitions of one Event."""
        about = self.about
        return digest(about.kind, about.namespace, about.name, self.kind.reason, self.message)


def node_notice(event: Event, at: datetime) -> Notice | None:
    """Return the notice of an event of the engine; None if it is not about a node."""
    kind = KINDS.get(type(event))
    node = getattr(event, "node", None)
    if kind is None or not node:
        return None
    if isinstance(event, NodeQuarantined | NodeReassigned):
        kind = kind if level_of(event.reason) is EventLevel.ERROR else replace(kind, type="Normal")
    # The uid is the name, as the kubelet and node-problem-detector have it.
    about = PodOwner(api_version="v1", kind="Node", namespace="", name=node, uid=node)
    message = f"{sentence(event)}; {kind.next}" if kind.next else sentence(event)
    return Notice(about=about, kind=kind, message=message, at=at)


def eviction_notice(node: str, owner: PodOwner, at: datetime) -> Notice:
    """Return the notice for the owner of a pod that is evicted from a node."""
    message = f"found unhealthy node {node}: evicting a pod from it, so that it can be repaired"
    return Notice(about=owner, kind=EventKind(NODE_FAULT, "Warning"), message=message, at=at)


def event_object(notice: Notice, first: datetime, count: int) -> Json:
    """Return the object of an Event that was sent ``count`` times since ``first``."""
    about = notice.about
    namespace = about.namespace or NAMESPACE
    involved = {
        "apiVersion": about.api_version,
        "kind": about.kind,
        "name": about.name,
        "uid": about.uid,
        **({"namespace": about.namespace} if about.namespace else {}),
    }
    tail = digest(notice.key, first.isoformat())
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{about.name[:_NAME_CHARS]}.{tail}", "namespace": namespace},
        "involvedObject": involved,
        "type": notice.kind.type,
        "reason": notice.kind.reason,
        "message": _cut(notice.message),
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": format_time(first),
        "lastTimestamp": format_time(notice.at),
        "count": count,
    }


class KubernetesEvents:
    """``EventSink`` that sends from its own thread, from ``start`` to ``stop``."""

    def __init__(self, api: Api, clock: Clock, *, namespace: str, memory: str) -> None:
        """Create the sink; nothing is sent yet.

        Args:
            api: the client.
            clock: source of the times of Events.
            namespace: namespace of the controller's state.
            memory: name of the ConfigMap with the breaker's state, which its Events refer to.

        """
        self._api = api
        self._clock = clock
        self._breaker = PodOwner(
            api_version="v1", kind="ConfigMap", namespace=namespace, name=memory, uid=""
        )
        self._queue: queue.Queue[Notice | None] = queue.Queue(QUEUE)
        self._series: OrderedDict[str, _Series] = OrderedDict()
        self._error = ""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Start the thread; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Send the queued Events, unless the API server is down, and stop."""
        self._stopped.set()
        with suppress(queue.Full):
            self._queue.put_nowait(None)
        self._thread.join()

    @property
    def error(self) -> str:
        """Error of the last Event; empty if it was sent."""
        return self._error

    def emit(self, event: Event) -> None:
        """See ``EventSink.emit``."""
        now = self._clock.now()
        kind = _BREAKER_KINDS.get(type(event))
        if kind is not None:
            self.put(Notice(about=self._breaker, kind=kind, message=sentence(event), at=now))
            return
        notice = node_notice(event, now)
        if notice is not None:
            self.put(notice)

    def evicted(self, node: str, owner: PodOwner) -> None:
        """Notify the owner of a pod that the pod is evicted from a node."""
        self.put(eviction_notice(node, owner, self._clock.now()))

    def put(self, notice: Notice) -> None:
        """Queue a notice; it is dropped if the queue is full."""
        with suppress(queue.Full):
            self._queue.put_nowait(notice)

    def _run(self) -> None:
        while not (self._stopped.is_set() and self._queue.empty()):
            notice = self._queue.get()
            if notice is not None and not self._sent(notice):
                return

    def _sent(self, notice: Notice) -> bool:
        """Send a notice, with retries; False if the API server is down and ``stop`` was called."""
        while True:
            try:
                self._send(notice)
                self._error = ""
            except Unreachable:
                if self._stopped.wait(_PAUSE_S):
                    return False
                continue
            except Forbidden as error:
                self._error = str(error)
            except ApiError:  # its namespace was deleted, for example
                pass
            return True

    def _send(self, notice: Notice) -> None:
        series = self._series.pop(notice.key, None)
        if series is None or notice.at - series.last > SERIES:
            series = _Series(first=notice.at, last=notice.at, count=0)
        content = event_object(notice, series.first, series.count + 1)
        folder = f"/api/v1/namespaces/{content['metadata']['namespace']}/events"
        try:
            self._write(folder, content)
        except NotFound:  # the API server deletes Events after an hour
            series = _Series(first=notice.at, last=notice.at, count=0)
            self._write(folder, event_object(notice, series.first, 1))
        self._series[notice.key] = _Series(
            first=series.first, last=notice.at, count=series.count + 1
        )
        if len(self._series) > _SERIES_KEPT:
            self._series.popitem(last=False)

    def _write(self, folder: str, content: Json) -> None:
        if content["count"] > 1:
            changed = {key: content[key] for key in ("count", "lastTimestamp")}
            self._api.patch(f"{folder}/{content['metadata']['name']}", changed)
            return
        with suppress(AlreadyExists):
            self._api.create(folder, content, repeatable=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Series:
    first: datetime
    last: datetime
    count: int


def _cut(message: str) -> str:
    raw = message.encode()
    return (
        message
        if len(raw) <= _MAX_MESSAGE
        else f"{raw[: _MAX_MESSAGE - 3].decode(errors='ignore')}..."
    )
