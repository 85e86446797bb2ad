"""Cluster API: requests remediation of a node's Machine by its MachineHealthCheck."""

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

_GROUP: Final = "cluster.x-k8s.io"
_MACHINE: Final = f"{_GROUP}/machine"
_NAMESPACE: Final = f"{_GROUP}/cluster-namespace"
_REMEDIATE: Final = f"{_GROUP}/remediate-machine"
_SKIP: Final = f"{_GROUP}/skip-remediation"
_PAUSED: Final = f"{_GROUP}/paused"
_NOT_SERVED: Final = (
    "the management cluster does not serve them in this version; see provider.cluster_api"
)


class ClusterApi:
    """Provider for nodes that Cluster API created."""

    def __init__(self, workload: KubernetesApi, management: KubernetesApi, version: str) -> None:
        """Create a provider for the nodes of ``workload`` with Machines in ``management``.

        Args:
            workload: cluster of the nodes.
            management: cluster of the Machines.
            version: version of ``cluster.x-k8s.io`` there.

        """
        self._workload = workload
        self._management = management
        self._machines, self._checks = (
            ObjectKind(plural=plural, group=_GROUP, version=version, unserved=_NOT_SERVED)
            for plural in ("machines", "machinehealthchecks")
        )

    def replace(self, node: NodeView, token: str) -> None:  # noqa: ARG002
        """Annotate the node's Machine, unless it is already annotated or being deleted."""
        found = self._workload.find(NODES, node.name)
        if found is None:
            return
        namespace, name = _machine_of(found)
        machine = self._management.find(self._machines, name, namespace)
        if machine is None or is_deleting(machine) or _is_another(machine, node):
            return
        annotations = machine["metadata"].get("annotations", {})
        shown = f"Machine {namespace}/{name}"
        require_machine_of(node, shown, _names_of(machine))
        for annotation in (_SKIP, _PAUSED):
            if annotation in annotations:
                raise ProviderError(
                    f"{shown} of {node.name} is not remediated while it has the annotation"
                    f" {annotation}: remove it"
                )
        if not self._management.list(self._checks, namespace):
            raise ProviderError(
                f"there is no MachineHealthCheck in {namespace} to remediate {shown} of"
                f" {node.name}: create one that selects it"
            )
        if _REMEDIATE not in annotations:
            patch = {"metadata": {"annotations": {_REMEDIATE: ""}}}
            self._management.patch(self._machines, name, namespace, patch)


def _machine_of(node: Json) -> tuple[str, str]:
    """Namespace and name of a node's Machine."""
    annotations = node["metadata"].get("annotations", {})
    namespace, name = annotations.get(_NAMESPACE), annotations.get(_MACHINE)
    if not name or not namespace:
        raise ProviderError(
            f"{node['metadata']['name']} was not created by Cluster API: it lacks the annotation"
            f" {_NAMESPACE if name else _MACHINE}"
        )
    return namespace, name


def _names_of(machine: Json) -> list[str]:
    """Name of the Machine's node, and the Machine's addresses."""
    status = machine.get("status", {})
    addresses = status.get("addresses") or ()
    return [status.get("nodeRef", {}).get("name", ""), *(one["address"] for one in addresses)]


def _is_another(machine: Json, node: NodeView) -> bool:
    """Whether the node's name belongs to another machine by now."""
    provider_id = machine.get("spec", {}).get("providerID", "")
    known = provider_id and node.provider_id
    return bool(known) and provider_id != node.provider_id


def build(config: ProviderConfig, open_cluster: OpenCluster) -> ClusterApi:
    """Build the provider."""
    settings = config.cluster_api
    management = open_cluster(settings.kubeconfig, settings.context or "")
    return ClusterApi(open_cluster(None, ""), management, settings.version)
