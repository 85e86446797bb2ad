"""What Karpenter and Cluster API need of a Kubernetes API server."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

Json = Mapping[str, Any]
"""An object of the API."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectKind:
    """A kind of objects; as text it is what RBAC calls it, ``machines.cluster.x-k8s.io``."""

    plural: str
    group: str = ""
    version: str = "v1"
    unserved: str = ""
    """What it means that an API server does not know it."""

    def path(self, name: str = "", namespace: str = "") -> str:
        """Of an object, or of all of a namespace or of the cluster."""
        root = f"/apis/{self.group}" if self.group else "/api"
        inside = f"/namespaces/{namespace}" if namespace else ""
        return f"{root}/{self.version}{inside}/{self.plural}" + (f"/{name}" if name else "")

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


NODES: Final = ObjectKind(plural="nodes")


class KubernetesApi(Protocol):
    """Calls of one API server. All raise as the methods of ``NodeProvider`` do."""

    def find(self, kind: ObjectKind, name: str, namespace: str = "") -> Json | None:
        """Read an object; None if it is gone."""
        ...

    def list(self, kind: ObjectKind, namespace: str = "") -> Sequence[Json]:
        """Read all objects of a namespace, or of the cluster."""
        ...

    def patch(self, kind: ObjectKind, name: str, namespace: str, body: Json) -> None:
        """Merge ``body`` into an object; one that is gone is no error."""
        ...

    def delete(self, kind: ObjectKind, name: str) -> None:
        """Delete an object; one that is gone is no error."""
        ...


OpenCluster = Callable[[Path | None, str], KubernetesApi]
"""Finds the API server of a kubeconfig and its context, without a file that of the nodes.

Raises ``ConfigError`` where there is none to be found.
"""


def is_deleting(one: Json) -> bool:
    """Whether an object is on its way out."""
    return "deletionTimestamp" in one["metadata"]
