"""The memory of incidents."""

from typing import Protocol

from holdfast.model.incidents import Incident


class IncidentStore(Protocol):
    """Keeps incidents durably. Methods may raise ``BackendError``."""

    def get(self, incident_id: str) -> Incident | None:
        """The incident of that name, or None."""
        ...

    def put(self, incident: Incident) -> None:
        """Store an incident in place of the one of the same ``id``."""
        ...

    def delete(self, incident_id: str) -> None:
        """Delete an incident; one that is not there is no error."""
        ...

    def list_incidents(self) -> tuple[Incident, ...]:
        """All incidents, oldest first."""
        ...
