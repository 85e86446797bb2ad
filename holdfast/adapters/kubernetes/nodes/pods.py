"""Pods of a node, as far as its repair is concerned: pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.adapters.kubernetes.client.errors import Json

_MIRROR = "kubernetes.io/config.mirror"
"""Annotation of pods that a kubelet starts from files; the API server only has their picture."""

_ALIVE = frozenset(("", "pending", "running", "unknown"))
"""Phases, in lower case, of a pod that still has something to lose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOwner:
    """What a pod belongs to, such as its Job."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod that a drain has to wait for."""

    namespace: str
    name: str
    uid: str
    is_terminating: bool
    owner: PodOwner | None

    @property
    def path(self) -> str:
        """Its address."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def leaving_pods(pods: Iterable[Json]) -> list[Pod]:
    """The pods that leave a node which is drained, as ``kubectl drain`` has it.

    Those of DaemonSets stay, mirror pods cannot leave, and those that have ended are gone already.
    """
    return sorted(
        (_pod(pod) for pod in pods if not _stays(pod)), key=lambda pod: (pod.namespace, pod.name)
    )


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
