"""Kubernetes API calls that the Karpenter and Cluster API providers need."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

Json = Mapping[str, Any]
"""Object of the Kubernetes API."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectKind:
    """Resource type; its text form is that of RBAC, ``machines.cluster.x-k8s.io``."""

    plural: str
    group: str = ""
    version: str = "v1"
    unserved: str = ""
    """Message for an API server that does not serve it."""

    def path(self, name: str = "", namespace: str = "") -> str:
        """Path of an object, or of all objects of a namespace or of the cluster."""
        root = f"/apis/{self.group}" if self.group else "/api"
        inside = f"/namespaces/{namespace}" if namespace else ""
        return f"{root}/{self.version}{inside}/{self.plural}" + (f"/{name}" if name else "")

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


NODES: Final = ObjectKind(plural="nodes")


class KubernetesApi(Protocol):
    """Client of one API server. All methods raise the errors of ``NodeProvider``."""

    def find(self, kind: ObjectKind, name: str, namespace: str = "") -> Json | None:
        """Read an object; None if it is gone."""
        ...

    def list(self, kind: ObjectKind, namespace: str = "") -> Sequence[Json]:
        """Read all objects of a namespace, or of the cluster."""
        ...

    def patch(self, kind: ObjectKind, name: str, namespace: str, body: Json) -> None:
        """Merge ``body`` into an object; a missing object is no error."""
        ...

    def delete(self, kind: ObjectKind, name: str) -> None:
        """Delete an object; a missing object is no error."""
        ...


OpenCluster = Callable[[Path | None, str], KubernetesApi]
"""Opens the API server of a kubeconfig and context; without a file, that of the nodes.

Raises ``ConfigError`` if none is found.
"""


def is_deleting(one: Json) -> bool:
    """Whether an object is being deleted."""
    return "deletionTimestamp" in one["metadata"]
