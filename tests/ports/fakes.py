"""Ports in memory that record every call and can fail on demand, for tests of the engine."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from holdfast.model.actions import CloseBreaker, TripBreaker
from holdfast.model.events import Event
from holdfast.model.incidents import Incident
from holdfast.model.job_views import JobView
from holdfast.model.jobs import JobRecord
from holdfast.model.names import DeepCheck
from holdfast.model.nodes import Breaker, ClusterView, NodeRecord, NodeView, Pool
from holdfast.model.requests import Request
from holdfast.model.set_aside import SetAside
from tests.ports.builders import NOW


@dataclass(slots=True)
class Calls:
    """Calls in order, and the calls that are to fail."""

    made: list[str] = field(default_factory=list)
    """One line for each call that changes something: its name and its main argument."""

    failing: dict[str, Exception] = field(default_factory=dict)
    """Exception that a call of this name raises, each time, before it has any effect."""

    def note(self, name: str, detail: object = "") -> None:
        """Record a call, or raise its exception."""
        if name in self.failing:
            raise self.failing[name]
        self.made.append(f"{name} {detail}".strip())


class FakeClock:
    """Clock that stands still until it is set."""

    def __init__(self, now: datetime = NOW) -> None:
        self.time = now
        self.set_by = timedelta(0)

    def now(self) -> datetime:
        """See ``Clock.now``."""
        return self.time

    def elapsed(self) -> timedelta:
        """See ``Clock.elapsed``."""
        return self.time - NOW - self.set_by

    def set_forward(self, step: timedelta) -> None:
        """Set it without any time passing."""
        self.time += step
        self.set_by += step


class FakeCluster:
    """Cluster whose nodes only change when their record is put."""

    def __init__(self, nodes: Iterable[NodeView], calls: Calls, clock: FakeClock) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.breaker = Breaker()
        self.offenders: frozenset[str] = frozenset()
        self.unreadable: frozenset[str] = frozenset()
        self.can_check = True
        self.peer_pools: Collection[Pool] = ()
        self._calls = calls
        self._clock = clock

    def change(self, node: str, **changes: object) -> None:
        """Change fields of a node from outside."""
        self.nodes[node] = replace(self.nodes[node], **changes)  # type: ignore[arg-type]

    def snapshot(self, peer_pools: Collection[Pool] = ()) -> ClusterView:
        """See ``ClusterBackend.snapshot``."""
        self.peer_pools = peer_pools
        if "snapshot" in self._calls.failing:
            raise self._calls.failing["snapshot"]
        return ClusterView(
            nodes=tuple(self.nodes.values()),
            breaker=self.breaker,
            offenders=self.offenders,
            unreadable=self.unreadable,
        )

    def put(self, node: str, record: NodeRecord) -> None:
        """See ``ClusterBackend.put``."""
        self._calls.note(f"put {node}", record.phase)
        self.change(node, record=record)

    def clear_request(self, node: str, request_id: str) -> None:
        """See ``ClusterBackend.clear_request``."""
        self._calls.note("clear_request", f"{node} {request_id}")
        found = self.nodes.get(node)
        if found is not None and found.request is not None and found.request.id == request_id:
            self.change(node, request=None)

    def request_check(self, node: str, request: Request) -> bool:
        """See ``ClusterBackend.request_check``."""
        self._calls.note("request_check", f"{node} {request.id}")
        if self.can_check and self.nodes[node].request is None:
            self.change(node, request=request)
        return self.can_check

    def drain(self, node: str) -> None:
        """See ``ClusterBackend.drain``."""
        self._calls.note("drain", node)

    def start_check(self, node: str, check_id: str, kinds: tuple[DeepCheck, ...]) -> None:
        """See ``ClusterBackend.start_check``."""
        self._calls.note("begin_check", " ".join((node, check_id, *kinds)))

    def start_pair(self, node: str, partner: str, test_id: str) -> None:
        """See ``ClusterBackend.start_pair``."""
        self._calls.note("begin_pair", f"{node} {partner} {test_id}")

    def retire(self, node: str) -> None:
        """See ``ClusterBackend.retire``."""
        self._calls.note("retire", node)
        self.nodes.pop(node, None)

    def trip_breaker(self, trip: TripBreaker) -> None:
        """See ``ClusterBackend.trip_breaker``."""
        self._calls.note("trip_breaker")
        if self.breaker.tripped_at is None:
            self.breaker = Breaker(tripped_at=self._clock.now(), reason=trip.reason)

    def close_breaker(self, close: CloseBreaker) -> None:
        """See ``ClusterBackend.close_breaker``."""
        self._calls.note("close_breaker")
        if self.breaker.tripped_at == close.tripped_at:
            self.breaker = Breaker(reset_at=self._clock.now())

    def remember_offender(self, provider_id: str) -> None:
        """See ``ClusterBackend.remember_offender``."""
        self._calls.note("remember_offender", provider_id)
        self.offenders |= {provider_id}


class FakeProvider:
    """A ``NodeProvider`` that takes every order."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def reboot(self, node: NodeView, token: str) -> None:
        """See ``NodeProvider.reboot``."""
        self._calls.note("reboot", f"{node.name} {token}")

    def replace(self, node: NodeView, token: str) -> None:
        """See ``NodeProvider.replace``."""
        self._calls.note("replace", f"{node.name} {token}")


class FakeJobs:
    """A ``JobBackend`` whose jobs only change when their record is put."""

    def __init__(self, jobs: Iterable[JobView], calls: Calls) -> None:
        self.views = {job.spec.name: job for job in jobs}
        self.moved: dict[str, tuple[SetAside, ...]] = {}
        self._calls = calls

    def change(self, job: str, **changes: object) -> None:
        """Let something about a job change by itself."""
        self.views[job] = replace(self.views[job], **changes)  # type: ignore[arg-type]

    def jobs(self) -> tuple[JobView, ...]:
        """See ``JobBackend.jobs``."""
        if "jobs" in self._calls.failing:
            raise self._calls.failing["jobs"]
        return tuple(job for job in self.views.values() if not job.record.phase.is_final)

    def moved_checkpoints(self) -> Mapping[str, tuple[SetAside, ...]]:
        """See ``JobBackend.moved_checkpoints``."""
        if "moved_checkpoints" in self._calls.failing:
            raise self._calls.failing["moved_checkpoints"]
        return self.moved

    def put(self, job: str, record: JobRecord) -> None:
        """See ``JobBackend.put``."""
        self._calls.note(f"put {job}", record.phase)
        self.change(job, record=record)

    def launch(self, job: str) -> None:
        """See ``JobBackend.launch``."""
        self._calls.note("launch", job)

    def stop(self, job: str) -> None:
        """See ``JobBackend.stop``."""
        self._calls.note("stop", job)

    def kill(self, job: str, nodes: Collection[str] = ()) -> None:
        """See ``JobBackend.kill``."""
        self._calls.note("kill", " ".join((job, *nodes)))


class FakeIncidents:
    """An ``IncidentStore`` in memory."""

    def __init__(self, calls: Calls) -> None:
        self.stored: dict[str, Incident] = {}
        self._calls = calls

    def get(self, incident_id: str) -> Incident | None:
        """See ``IncidentStore.get``."""
        return self.stored.get(incident_id)

    def put(self, incident: Incident) -> None:
        """See ``IncidentStore.put``."""
        self._calls.note("incident", incident.id)
        self.stored[incident.id] = incident

    def delete(self, incident_id: str) -> None:
        """See ``IncidentStore.delete``."""
        self.stored.pop(incident_id, None)

    def list_incidents(self) -> tuple[Incident, ...]:
        """See ``IncidentStore.list_incidents``."""
        return tuple(sorted(self.stored.values(), key=lambda one: one.detected_at))


class FakeEvents:
    """Event sink that keeps its events."""

    def __init__(self) -> None:
        self.reported: list[Event] = []

    def emit(self, event: Event) -> None:
        """See ``EventSink.emit``."""
        self.reported.append(event)

    def names(self) -> list[str]:
        """Return the names of the events, oldest first."""
        return [event.name for event in self.reported]


class FakeLeadership:
    """Leadership that is lost after ``requested`` calls."""

    def __init__(self, requested: int) -> None:
        self._left = requested

    def is_held(self) -> bool:
        """See ``Leadership.is_held``."""
        self._left -= 1
        return self._left >= 0
