"""Port of the store of incidents."""

from typing import Protocol

from holdfast.model.incidents import Incident


class IncidentStore(Protocol):
    """Stores incidents durably. Methods may raise ``BackendError``."""

    def get(self, incident_id: str) -> Incident | None:
        """Return the incident of that name, or None."""
        ...

    def put(self, incident: Incident) -> None:
        """Store an incident; it replaces the one with the same ``id``."""
        ...

    def delete(self, incident_id: str) -> None:
        """Delete an incident; a missing one is no error."""
        ...

    def list_incidents(self) -> tuple[Incident, ...]:
        """Return all incidents, oldest first."""
        ...
