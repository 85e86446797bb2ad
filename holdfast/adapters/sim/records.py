"""Incidents, events and the time of the simulated platform."""

from datetime import UTC, datetime, timedelta

from holdfast.adapters.sim.call_gate import CallGate
from holdfast.adapters.sim.world import World
from holdfast.model.events import Event
from holdfast.model.incidents import Incident


class SimIncidents:
    """An ``IncidentStore`` in a simulated world."""

    def __init__(self, world: World, gate: CallGate) -> None:
        self._world = world
        self._gate = gate

    def get(self, incident_id: str) -> Incident | None:
        """See ``IncidentStore.get``."""
        with self._gate.reading():
            return self._world.incidents.get(incident_id)

    def put(self, incident: Incident) -> None:
        """See ``IncidentStore.put``."""
        with self._gate.writing():
            self._world.incidents[incident.id] = incident

    def delete(self, incident_id: str) -> None:
        """See ``IncidentStore.delete``."""
        with self._gate.writing():
            self._world.incidents.pop(incident_id, None)

    def list_incidents(self) -> tuple[Incident, ...]:
        """See ``IncidentStore.list_incidents``."""
        with self._gate.reading():
            return tuple(sorted(self._world.incidents.values(), key=_age))


def _age(incident: Incident) -> tuple[datetime, str]:
    return (incident.quarantined_at, incident.id)


class SimEvents:
    """An ``EventSink`` that passes events to the observer of the world."""

    def __init__(self, world: World, gate: CallGate) -> None:
        self._world = world
        self._gate = gate

    def emit(self, event: Event) -> None:
        """See ``EventSink.emit``."""
        with self._gate.safe():
            self._world.observer.reported(event)


class SimClock:
    """A ``Clock`` that shows simulated time."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> datetime:
        """See ``Clock.now``."""
        return self._world.now

    def elapsed(self) -> timedelta:
        """See ``Clock.elapsed``."""
        return self._world.now - datetime.min.replace(tzinfo=UTC)
