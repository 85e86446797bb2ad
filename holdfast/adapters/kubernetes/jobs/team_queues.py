"""``TeamQueues`` in Kueue."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from holdfast.adapters.kubernetes.client.api import Api, Json, Patch
from holdfast.adapters.kubernetes.client.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    NotFound,
    Throttled,
)
from holdfast.adapters.kubernetes.jobs.kueue_objects import (
    FLAVORS,
    GROUP,
    OWNER,
    cluster_queue,
    cohort,
    flavors,
    local_queue,
    namespace,
    namespace_of,
    priority_class,
)
from holdfast.adapters.kubernetes.jobs.node_types import node_types, quantity
from holdfast.model.errors import ProviderError
from holdfast.model.team_queues import FlavorQuota, NodeType, TeamQueue

_PLURALS: Final[Mapping[str, str]] = {
    "LocalQueue": "localqueues",
    "ClusterQueue": "clusterqueues",
    "WorkloadPriorityClass": "workloadpriorityclasses",
    "Cohort": "cohorts",
    "ResourceFlavor": "resourceflavors",
}
"""``kind -> part of its path``, in the order of removal."""

_ROOT: Final = f"/apis/{GROUP}/v1beta1"


class KueueQueues:
    """See ``TeamQueues``. Objects without the label of an owner are never changed.

    Kueue 0.11 and newer, for ``Cohort``; all serve ``v1beta1``.
    """

    def __init__(self, api: Api) -> None:
        self._api = api

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def node_types(self) -> Mapping[str, NodeType]:
        """See ``TeamQueues.node_types``."""
        return node_types(self._api.list("/api/v1/nodes"))

    def put_priorities(self, owner: str, priorities: Mapping[str, int]) -> None:
        """See ``TeamQueues.put_priorities``."""
        classes = [priority_class(owner, name, weight) for name, weight in priorities.items()]
        self._replace("WorkloadPriorityClass", owner, classes)

    def put_queue(self, owner: str, queue: TeamQueue) -> None:
        """See ``TeamQueues.put_queue``."""
        with _refusals():
            try:
                self._api.get(f"/api/v1/namespaces/{namespace_of(queue.team)}")
            except NotFound:
                self._create_namespace(queue.team)
        for flavor in flavors(queue):
            self._put(flavor)
        self._put(cluster_queue(owner, queue))
        self._put(local_queue(owner, queue))
        self._remove_unused_flavors()

    def put_idle(self, owner: str, cohort_name: str, flavors: Sequence[FlavorQuota]) -> None:
        """See ``TeamQueues.put_idle``."""
        self._replace("Cohort", owner, [cohort(owner, cohort_name, flavors)] if flavors else [])

    def remove(self, owner: str) -> bool:
        """See ``TeamQueues.remove``."""
        is_gone = True
        for kind in _PLURALS:
            for one in self._owned(kind, owner):
                is_gone = False
                self._delete(one, kind)
        if is_gone:
            self._remove_unused_flavors()
        return is_gone

    def _create_namespace(self, team: str) -> None:
        try:
            self._api.create("/api/v1/namespaces", namespace(team), repeatable=True)
        except AlreadyExists:
            return

    def _replace(self, kind: str, owner: str, objects: Sequence[Json]) -> None:
        """Put the objects of an owner, and remove its others of that kind."""
        names = {one["metadata"]["name"] for one in objects}
        for one in self._owned(kind, owner):
            if one["metadata"]["name"] not in names:
                self._delete(one, kind)
        for one in objects:
            self._put(one)

    def _put(self, thing: Json) -> None:
        """Create an object, or update it if it differs.

        Raises:
            ProviderError: an object of that name belongs to another owner.

        """
        kind, owner = thing["kind"], thing["metadata"]["labels"][OWNER]
        path = _path(thing, kind)
        with _refusals():
            try:
                present = self._api.get(path)
            except NotFound:
                self._api.patch(path, thing, Patch.APPLY)
                return
            if _owner(present) != owner:
                raise ProviderError(
                    f"{kind} {thing['metadata']['name']} exists and is not of this policy; "
                    "remove it, or choose another name"
                )
            if not all(_has(present.get(key), thing[key]) for key in thing if key != "metadata"):
                self._api.patch(path, thing, Patch.APPLY)

    def _owned(self, kind: str, owner: str) -> list[Json]:
        with _refusals():
            selector = {"labelSelector": f"{OWNER}={owner}"}
            return list(self._api.list(f"{_ROOT}/{_PLURALS[kind]}", selector))

    def _delete(self, thing: Json, kind: str) -> None:
        if thing["metadata"].get("deletionTimestamp"):
            return
        with _refusals():
            try:
                self._api.delete(_path(thing, kind), uid=thing["metadata"]["uid"])
            except NotFound:
                return

    def _remove_unused_flavors(self) -> None:
        """Remove the flavors of earlier quotas; Kueue keeps those in use by queues of others."""
        owned = self._owned("ResourceFlavor", FLAVORS)
        if not owned:
            return
        with _refusals():
            groups = [
                group
                for kind in ("ClusterQueue", "Cohort")
                for one in self._api.list(f"{_ROOT}/{_PLURALS[kind]}")
                for group in (one.get("spec") or {}).get("resourceGroups") or ()
            ]
        used = {one["name"] for group in groups for one in group.get("flavors") or ()}
        for one in owned:
            if one["metadata"]["name"] not in used:
                self._delete(one, "ResourceFlavor")


@contextmanager
def _refusals() -> Iterator[None]:
    """Raise ``ProviderError`` for what a retry within seconds would not change."""
    try:
        yield
    except (Conflict, Throttled):
        raise
    except NotFound as error:
        raise ProviderError(f"Kueue is not installed, or too old: {error}") from error
    except ApiError as error:
        if error.is_transient:
            raise
        raise ProviderError(str(error)) from error


def _owner(thing: Json) -> str:
    return str((thing["metadata"].get("labels") or {}).get(OWNER, ""))


def _path(thing: Json, kind: str) -> str:
    about = thing["metadata"]
    home = f"/namespaces/{about['namespace']}" if "namespace" in about else ""
    return f"{_ROOT}{home}/{_PLURALS[kind]}/{about['name']}"


def _has(present: object, requested: object) -> bool:
    """Whether an object has all requested members; Kueue adds defaults."""
    if isinstance(requested, dict):
        return isinstance(present, dict) and all(
            _has(present.get(key), one) for key, one in requested.items()
        )
    if isinstance(requested, list):
        return (
            isinstance(present, list)
            and len(present) == len(requested)
            and all(map(_has, present, requested))
        )
    if present == requested:
        return True
    amount = quantity(str(requested))  # a conversion between versions may write 4000m as 4
    return amount is not None and quantity(str(present)) == amount
