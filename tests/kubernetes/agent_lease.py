"""The lease of a played agent, as a real one renews it."""

from datetime import UTC, datetime
from typing import Any

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import AlreadyExists

NAMESPACE = "holdfast"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


def renew(api: Api, node: dict[str, Any], boot_id: str, at: datetime | None = None) -> None:
    """The agent of a node shows that it works in a boot; ``at`` is what its clock says."""
    name, uid = node["metadata"]["name"], node["metadata"]["uid"]
    spec = {
        "holderIdentity": boot_id,
        "leaseDurationSeconds": 40,
        "renewTime": (at or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
    metadata = {"name": name, "ownerReferences": [owner]}
    try:
        api.create(LEASES, {"metadata": metadata, "spec": spec})
    except AlreadyExists:
        api.patch(f"{LEASES}/{name}", {"spec": spec, "metadata": metadata})
