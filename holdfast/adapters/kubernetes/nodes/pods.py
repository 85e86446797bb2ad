"""Pods of a node that its drain evicts: pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.model.names import CONFIG

_MIRROR = "kubernetes.io/config.mirror"
"""Annotation of static pods, which a kubelet starts from files; the API object is a mirror."""

_ALIVE = frozenset(("", "pending", "running", "unknown"))
"""Phases, in lower case, of a pod that has not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOwner:
    """Owner of a pod, such as its Job."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """Pod that a drain waits for."""

    namespace: str
    name: str
    uid: str
    is_terminating: bool
    owner: PodOwner | None

    @property
    def path(self) -> str:
        """API path of the pod."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def leaving_pods(pods: Iterable[Json]) -> list[Pod]:
    """Return the pods that leave a drained node, by the rules of ``kubectl drain``.

    Pods of DaemonSets stay, mirror pods cannot be evicted, and ended pods need no eviction.
    """
    return sorted(
        (_pod(pod) for pod in pods if not _stays(pod)), key=lambda pod: (pod.namespace, pod.name)
    )


def is_holdfast(pod: Json, namespace: str) -> bool:
    """Return whether a pod is one of Holdfast itself; ``namespace`` is that of Holdfast.

    The annotation alone is not enough: in their own namespaces, users set it as they like.
    """
    about = pod["metadata"]
    return about["namespace"] == namespace and CONFIG in (about.get("annotations") or {})


def _stays(pod: Json) -> bool:
    owner = _controller(pod)
    return (
        (owner is not None and owner.get("kind") == "DaemonSet")
        or _MIRROR in (pod["metadata"].get("annotations") or {})
        or (pod.get("status") or {}).get("phase", "").lower() not in _ALIVE
    )


def _pod(pod: Json) -> Pod:
    metadata, owner = pod["metadata"], _controller(pod)
    return Pod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        is_terminating=bool(metadata.get("deletionTimestamp")),
        owner=None
        if owner is None
        else PodOwner(
            api_version=owner["apiVersion"],
            kind=owner["kind"],
            namespace=metadata["namespace"],
            name=owner["name"],
            uid=owner["uid"],
        ),
    )


def _controller(pod: Json) -> Json | None:
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)
