"""Karpenter: deletes a node's NodeClaim; Karpenter then provisions nodes for pending pods."""

from typing import Final

from holdfast.adapters.providers.identity import require_machine_of
from holdfast.adapters.providers.kubernetes_api import (
    NODES,
    Json,
    KubernetesApi,
    ObjectKind,
    OpenCluster,
    is_deleting,
)
from holdfast.adapters.providers.settings import ProviderConfig
from holdfast.model.errors import ProviderError
from holdfast.model.nodes import NodeView

_CLAIMS: Final = ObjectKind(
    plural="nodeclaims",
    group="karpenter.sh",
    unserved="the cluster does not serve karpenter.sh/v1; install Karpenter 1.0 or newer",
)
_POOL_LABEL: Final = "karpenter.sh/nodepool"


class Karpenter:
    """Provider for nodes that Karpenter created."""

    def __init__(self, cluster: KubernetesApi) -> None:
        self._cluster = cluster

    def replace(self, node: NodeView, token: str) -> None:  # noqa: ARG002
        """Delete the node's NodeClaim, unless it is already deleted."""
        claim = next((one for one in self._cluster.list(_CLAIMS) if _is_of(one, node)), None)
        if claim is None and self._is_foreign(node.name):
            raise ProviderError(
                f"{node.name} was not created by Karpenter: it has no NodeClaim and no label"
                f' {_POOL_LABEL}; set provider.replace, for example to "ec2-autoscaling"'
            )
        if claim is not None and not is_deleting(claim):
            shown = f"NodeClaim {claim['metadata']['name']}"
            require_machine_of(node, shown, [claim.get("status", {}).get("nodeName", "")])
            self._cluster.delete(_CLAIMS, claim["metadata"]["name"])

    def _is_foreign(self, name: str) -> bool:
        """Whether the node exists and Karpenter did not create it."""
        node = self._cluster.find(NODES, name)
        return node is not None and _POOL_LABEL not in node["metadata"].get("labels", {})


def _is_of(claim: Json, node: NodeView) -> bool:
    """Whether the object is of the same machine: names are reused, provider IDs are not."""
    status = claim.get("status", {})
    provider_id = status.get("providerID", "")
    if provider_id and node.provider_id:
        return bool(provider_id == node.provider_id)
    return bool(status.get("nodeName", "") == node.name)


def build(_: ProviderConfig, open_cluster: OpenCluster) -> Karpenter:
    """Build the provider."""
    return Karpenter(open_cluster(None, ""))
