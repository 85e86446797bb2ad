"""Removal of Holdfast's objects and fields that remain after its release is uninstalled.

Nothing that a person or another program has set is changed: ownership follows from Holdfast's own
records and, for names that others also use, from ``metadata.managedFields``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from holdfast.adapters.kubernetes.client.api import Api, Patch
from holdfast.adapters.kubernetes.client.errors import Conflict, Json, NotFound
from holdfast.adapters.kubernetes.client.values import parse_time
from holdfast.adapters.kubernetes.jobs.kinds import KINDS
from holdfast.adapters.kubernetes.jobs.queues import Workloads
from holdfast.adapters.kubernetes.jobs.release import awaits_restart, release_job
from holdfast.adapters.kubernetes.jobs.requests import requests_of
from holdfast.adapters.kubernetes.nodes.events import COMPONENT
from holdfast.adapters.kubernetes.nodes.node import Conventions
from holdfast.adapters.kubernetes.nodes.owned_fields import (
    OwnedFields,
    is_written_by_us,
    owned_fields,
)
from holdfast.adapters.kubernetes.nodes.state import STATE
from holdfast.model.errors import BackendError
from holdfast.model.names import OWN_PREFIX

INCIDENTS: Final = f"incidents.{OWN_PREFIX}"

_DEFINITION: Final = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{INCIDENTS}"
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
_MANAGED: Final = {"labelSelector": "app.kubernetes.io/managed-by=holdfast"}
_TRIES: Final = 5
"""Attempts of a patch that conflicts with concurrent changes."""

_DEFAULT_LEASE_S: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Object that Holdfast created or wrote fields of."""

    kind: str
    name: str
    namespace: str = ""
    removes: tuple[str, ...] = ()
    """Parts of the object to remove; the whole object if both this and ``keeps`` are empty."""

    keeps: tuple[str, ...] = ()
    """Parts that Holdfast uses but another writer owns, each with the reason."""

    remove: Callable[[], None] = field(default=lambda: None, compare=False, repr=False)
    """Removes it, also if it no longer exists. Raises ``BackendError``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Namespaces to search, and options of what to keep."""

    namespaces: tuple[str, ...]
    """Namespaces of the controller and of the agents."""

    conventions: Conventions
    now: datetime
    keeps_cordons: bool = False
    keeps_incidents: bool = False


def active(api: Api, scope: Scope) -> list[str]:
    """Return the names of controllers and agents whose Leases have not expired.

    Raises:
        BackendError: the Leases could not be read.

    """
    found = []
    for lease in _leases(api, scope):
        spec = lease.get("spec") or {}
        renewed_at = parse_time(spec.get("renewTime"))
        lasts = timedelta(seconds=spec.get("leaseDurationSeconds") or _DEFAULT_LEASE_S)
        if not spec.get("holderIdentity") or renewed_at is None or renewed_at + lasts <= scope.now:
            continue
        about = lease["metadata"]
        managers = {one.get("manager") for one in about["managedFields"]}
        who = "controller" if COMPONENT in managers else "agent of node"
        found.append(f"{who} {about['name']}")
    return sorted(found)


def leftovers(api: Api, scope: Scope) -> Iterator[Leftover]:
    """Yield all leftovers, in the order of their removal.

    Raises:
        BackendError: an object could not be read.

    """
    yield from _held_jobs(api, scope)
    for namespace in scope.namespaces:
        for kind, folder in (("Job", "/apis/batch/v1"), ("Pod", "/api/v1")):
            collection = f"{folder}/namespaces/{namespace}/{kind.lower()}s"
            for one in api.list(collection, _MANAGED):
                if not (one["metadata"].get("ownerReferences")):
                    yield _object(api, kind, collection, one)
    for node in api.list("/api/v1/nodes"):
        yield from _node(api, scope, node)
    for lease in _leases(api, scope):
        collection = _LEASES.format(lease["metadata"]["namespace"])
        yield _object(api, "Lease", collection, lease)
    yield from _state(api, scope)
    if not scope.keeps_incidents:
        yield from _definition(api)


def _held_jobs(api: Api, scope: Scope) -> Iterator[Leftover]:
    """Yield jobs that have a record; a job that Holdfast suspended would stay suspended forever."""
    for kind in KINDS:
        try:
            for job in api.list(f"/apis/{kind.api_version}/{kind.plural}"):
                state = kind.trimmed(job, scope.conventions.labels)
                if state.record is None and not state.is_marked:
                    continue
                record = requests_of(state, scope.conventions.labels).record
                is_stopped = awaits_restart(state, record) or state.is_orphaned
                removal = partial(release_job, api, Workloads(api), kind, state, record)
                yield Leftover(
                    kind=state.kind,
                    name=state.name,
                    namespace=state.namespace,
                    removes=("record of its attempts", *(["suspension"] if is_stopped else [])),
                    remove=partial(_drop, removal),
                )
        except NotFound:
            continue  # its operator is not installed


def _node(api: Api, scope: Scope, node: Json) -> Iterator[Leftover]:
    marks = _marks(scope, node)
    if marks.removes or marks.keeps:
        name = node["metadata"]["name"]
        yield Leftover(
            kind="Node",
            name=name,
            removes=marks.removes,
            keeps=marks.keeps,
            remove=partial(_clean_node, api, scope, name),
        )


def _marks(scope: Scope, node: Json) -> OwnedFields:
    return owned_fields(node, scope.conventions, scope.now, keeps_cordons=scope.keeps_cordons)


def _clean_node(api: Api, scope: Scope, name: str) -> None:
    path = f"/api/v1/nodes/{name}"
    for left in reversed(range(_TRIES)):
        try:
            marks = _marks(scope, api.get(path))
            if marks.status is not None:
                api.patch(f"{path}/status", marks.status, Patch.STRATEGIC)
                marks = _marks(scope, api.get(path))
            if marks.patch is not None:
                api.patch(path, marks.patch)
            return
        except NotFound:
            return
        except Conflict:
            if not left:
                raise


def _leases(api: Api, scope: Scope) -> Iterator[Json]:
    for namespace in scope.namespaces:
        yield from (one for one in api.list(_LEASES.format(namespace)) if is_written_by_us(one))


def _state(api: Api, scope: Scope) -> Iterator[Leftover]:
    for namespace in scope.namespaces:
        collection = f"/api/v1/namespaces/{namespace}/configmaps"
        try:
            found = api.get(f"{collection}/{STATE}")
        except NotFound:
            continue
        yield _object(api, "ConfigMap", collection, found)


def _definition(api: Api) -> Iterator[Leftover]:
    try:
        api.get(_DEFINITION)
    except NotFound:
        return
    count = sum(1 for _ in api.list(f"/apis/{OWN_PREFIX}/v1/incidents"))
    yield Leftover(
        kind="CustomResourceDefinition",
        name=INCIDENTS,
        removes=(f"{count} incidents",) if count else (),
        remove=partial(_drop, partial(api.delete, _DEFINITION)),
    )


def _object(api: Api, kind: str, collection: str, found: Json) -> Leftover:
    """Return the removal of a whole object; its UID protects another object of its name."""
    about = found["metadata"]
    delete = partial(
        api.delete,
        f"{collection}/{about['name']}",
        uid=about["uid"],
        propagation="Background",
    )
    return Leftover(
        kind=kind,
        name=about["name"],
        namespace=about["namespace"],
        remove=partial(_drop, delete),
    )


def _drop(remove: Callable[[], object]) -> None:
    try:
        remove()
    except NotFound:
        return
    except Conflict as error:
        raise BackendError(f"{error}; it changed meanwhile, run the command again") from error
