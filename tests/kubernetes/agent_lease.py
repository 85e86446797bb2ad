"""The lease of a played agent, as a real one renews it."""

from datetime import UTC, datetime
from typing import Any

from holdfast.adapters.kubernetes.client.api import Api, Patch

NAMESPACE = "holdfast"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


def prepare_attempt(
    api: Api, node: dict[str, Any], boot_id: str, at: datetime | None = None
) -> None:
    """The agent of a node shows that it works in a boot; ``at`` is what its clock says."""
    name, uid = node["metadata"]["name"], node["metadata"]["uid"]
    spec = {
        "holderIdentity": boot_id,
        "leaseDurationSeconds": 40,
        "renewTime": (at or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": NAMESPACE, "ownerReferences": [owner]},
        "spec": spec,
    }
    api.patch(f"{LEASES}/{name}", lease, Patch.APPLY)
