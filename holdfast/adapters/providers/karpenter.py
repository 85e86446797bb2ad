"""Karpenter: deletes a node's NodeClaim, whereupon Karpenter provisions what pods then lack."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from httpx2 import HTTPStatusError
from lightkube.generic_resource import create_global_resource
from lightkube.resources.core_v1 import Node

from holdfast.adapters.providers.kubernetes_calls import ApiServer, is_missing, told
from holdfast.adapters.providers.settings import KubernetesAccess, ProviderConfig
from holdfast.model.errors import ProviderError
from holdfast.model.nodes import NodeView

_NODE_CLAIM: Final = create_global_resource("karpenter.sh", "v1", "NodeClaim", "nodeclaims")
_POOL_LABEL: Final = "karpenter.sh/nodepool"
_NOT_INSTALLED: Final = "the cluster knows no karpenter.sh/v1; Karpenter 1.0 or newer is needed"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClaim:
    """A machine that Karpenter has launched."""

    name: str
    node: str
    """Empty until it has joined."""

    provider_id: str
    is_deleting: bool


class NodeClaims(Protocol):
    """Karpenter's machines in one cluster. The methods raise as those of ``NodeProvider``."""

    def list_claims(self) -> Iterable[NodeClaim]:
        """All of them."""
        ...

    def delete(self, name: str) -> None:
        """Order the end of one; one that is gone is no error."""
        ...

    def is_foreign(self, node: str) -> bool:
        """Whether there is such a node, and Karpenter did not make it."""
        ...


class Karpenter:
    """The nodes that Karpenter has made."""

    def __init__(self, claims: NodeClaims) -> None:
        self._claims = claims

    def replace(self, node: NodeView, token: str) -> None:  # noqa: ARG002
        """Delete the node's NodeClaim, unless that has been done."""
        claim = next((one for one in self._claims.list_claims() if _is_of(one, node)), None)
        if claim is None and self._claims.is_foreign(node.name):
            raise ProviderError(
                f"{node.name} was not made by Karpenter: it has no NodeClaim and no label"
                f' {_POOL_LABEL}; set provider.replace, for example to "ec2-autoscaling"'
            )
        if claim is not None and not claim.is_deleting:
            self._claims.delete(claim.name)


def _is_of(claim: NodeClaim, node: NodeView) -> bool:
    """A name may belong to another machine by now; a provider id never does."""
    if claim.provider_id and node.provider_id:
        return claim.provider_id == node.provider_id
    return claim.node == node.name


class ClusterNodeClaims:
    """``NodeClaims`` of a cluster."""

    def __init__(self, cluster: ApiServer) -> None:
        self._cluster = cluster

    def list_claims(self) -> list[NodeClaim]:
        """See ``NodeClaims.list_claims``."""
        listing = told("list nodeclaims.karpenter.sh", missing=_NOT_INSTALLED)
        with listing, self._cluster.connected() as client:
            return [_claim(one) for one in client.list(_NODE_CLAIM, chunk_size=500)]

    def delete(self, name: str) -> None:
        """See ``NodeClaims.delete``."""
        with told("delete nodeclaims.karpenter.sh"), self._cluster.connected() as client:
            try:
                client.delete(_NODE_CLAIM, name)
            except HTTPStatusError as error:
                if not is_missing(error):
                    raise

    def is_foreign(self, node: str) -> bool:
        """See ``NodeClaims.is_foreign``."""
        with told("get nodes"), self._cluster.connected() as client:
            try:
                found = client.get(Node, node)
            except HTTPStatusError as error:
                if is_missing(error):
                    return False
                raise
        labels = found.metadata.labels if found.metadata is not None else None
        return _POOL_LABEL not in (labels or {})


def _claim(told_of: Mapping[str, Any]) -> NodeClaim:
    metadata, status = told_of["metadata"], told_of.get("status", {})
    return NodeClaim(
        name=metadata["name"],
        node=status.get("nodeName", ""),
        provider_id=status.get("providerID", ""),
        is_deleting="deletionTimestamp" in metadata,
    )


def build(_: ProviderConfig, cluster: KubernetesAccess) -> Karpenter:
    """The provider of the table's row."""
    return Karpenter(ClusterNodeClaims(ApiServer(cluster)))
