"""Incident store that uses custom resources."""

import re
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import AlreadyExists, Json, NotFound
from holdfast.adapters.kubernetes.client.values import digest
from holdfast.kit.serial import from_plain, to_plain
from holdfast.kit.units import format_duration
from holdfast.model.errors import BackendError
from holdfast.model.incidents import Incident
from holdfast.model.names import OWN_PREFIX

_VERSION: Final = f"{OWN_PREFIX}/v1"
_FOLDER: Final = f"/apis/{_VERSION}/incidents"
_DNS_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""RFC 1123 subdomain, which Kubernetes requires of object names."""

_LONGEST_NAME: Final = 253
_UNSAFE: Final = re.compile(r"[^a-z0-9]+")
_WORD_END: Final = re.compile(r"_([a-z])")
_CAPITAL: Final = re.compile(r"([A-Z])")
_PHASES: Final = (
    ("vanished_at", "Vanished"),
    ("released_at", "Released"),
    ("checked_at", "Checked"),
    ("repaired_at", "Repaired"),
    ("drained_at", "Drained"),
    ("quarantined_at", "Quarantined"),
)
"""Phases by the timestamp that starts them, the last one first."""


def object_name(incident_id: str) -> str:
    """Return the object name of an incident; unique unless two IDs differ only in case."""
    name = incident_id.lower()
    if len(name) <= _LONGEST_NAME and _DNS_NAME.fullmatch(name):
        return name
    tail = digest(incident_id)
    head = _UNSAFE.sub("-", name)[: _LONGEST_NAME - len(tail) - 1].strip("-")
    return f"{head}-{tail}" if head else tail


def incident_object(incident: Incident) -> Json:
    """Return the object of an incident; unknown fields are null, which a patch removes."""
    return {
        "apiVersion": _VERSION,
        "kind": "Incident",
        "metadata": {"name": object_name(incident.id)},
        "spec": _renamed(to_plain(incident), _camel),
        "status": {"phase": _phase(incident), "took": _took(incident)},
    }


def incident_of(found: Json) -> Incident:
    """Parse an incident object.

    Raises:
        BackendError: the object is damaged.

    """
    try:
        return from_plain(Incident, _renamed(found["spec"], _snake))
    except (ValueError, KeyError) as error:
        name = (found.get("metadata") or {}).get("name", "")
        raise BackendError(
            f"the incident {name} is damaged ({error}): correct or delete it"
        ) from error


class KubernetesIncidents:
    """``IncidentStore`` that does not read again what this process has written."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._open: dict[str, Incident] = {}

    def get(self, incident_id: str) -> Incident | None:
        """See ``IncidentStore.get``."""
        known = self._open.get(incident_id)
        if known is not None:
            return known
        try:
            found = incident_of(self._api.get(f"{_FOLDER}/{object_name(incident_id)}"))
        except NotFound:
            return None
        return found if found.id == incident_id else None

    def put(self, incident: Incident) -> None:
        """See ``IncidentStore.put``."""
        known = self._open.get(incident.id)
        if known != incident:
            self._write(incident_object(incident), is_known=known is not None)
        if incident.ended_at is None:
            self._open[incident.id] = incident
        else:
            self._open.pop(incident.id, None)

    def delete(self, incident_id: str) -> None:
        """See ``IncidentStore.delete``."""
        self._open.pop(incident_id, None)
        with suppress(NotFound):
            self._api.delete(f"{_FOLDER}/{object_name(incident_id)}")

    def list_incidents(self) -> tuple[Incident, ...]:
        """See ``IncidentStore.list_incidents``."""
        try:
            found = [incident_of(one) for one in self._api.list(_FOLDER)]
        except NotFound as error:
            raise _not_installed(error) from error
        return tuple(sorted(found, key=_age))

    def _write(self, content: Json, *, is_known: bool) -> None:
        path = f"{_FOLDER}/{content['metadata']['name']}"
        changed = {key: content[key] for key in ("spec", "status")}
        if is_known:
            try:
                self._api.patch(path, changed)
                return
            except NotFound:
                pass  # deleted by somebody else, which must not end the repair
        try:
            self._api.create(_FOLDER, _without_null(content), repeatable=True)
        except NotFound as error:
            raise _not_installed(error) from error
        except AlreadyExists:
            self._api.patch(path, changed)


def _not_installed(error: NotFound) -> BackendError:
    return BackendError(
        f"{_FOLDER} does not exist ({error}): install the CustomResourceDefinition "
        f"incidents.{OWN_PREFIX} that comes with Holdfast"
    )


def _age(incident: Incident) -> tuple[datetime, str]:
    return (incident.detected_at, incident.id)


def _phase(incident: Incident) -> str:
    return next(phase for name, phase in _PHASES if getattr(incident, name) is not None)


def _took(incident: Incident) -> str | None:
    if incident.ended_at is None or not incident.node:
        return None
    return format_duration(incident.ended_at - incident.detected_at)


def _renamed(value: Any, rename: Any) -> Any:
    if isinstance(value, dict):
        return {rename(key): _renamed(item, rename) for key, item in value.items()}
    if isinstance(value, list):
        return [_renamed(item, rename) for item in value]
    return value


def _camel(name: str) -> str:
    return _WORD_END.sub(lambda found: found[1].upper(), name)


def _snake(name: str) -> str:
    return _CAPITAL.sub(lambda found: f"_{found[1].lower()}", name)


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_null(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_null(item) for item in value]
    return value
