"""Cluster API: asks the MachineHealthCheck of a node's Machine to remediate it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from httpx2 import HTTPStatusError
from lightkube.generic_resource import create_namespaced_resource
from lightkube.resources.core_v1 import Node
from lightkube.types import PatchType

from holdfast.adapters.providers.kubernetes_calls import ApiServer, is_missing, told
from holdfast.adapters.providers.settings import KubernetesAccess, ProviderConfig
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine of Cluster API."""

    namespace: str
    name: str
    provider_id: str
    is_deleting: bool
    annotations: Mapping[str, str]


class Machines(Protocol):
    """The machines of one cluster. The methods raise as those of ``NodeProvider``."""

    def of_node(self, node: str) -> Machine | None:
        """That of a node; None if node or machine is gone.

        Raises:
            ProviderError: the node was not made by Cluster API.

        """
        ...

    def has_health_check(self, namespace: str) -> bool:
        """Whether there is anyone to remediate machines there."""
        ...

    def remediate(self, machine: Machine) -> None:
        """Annotate a machine for remediation; one that is gone is no error."""
        ...


class ClusterApi:
    """The nodes that Cluster API has made."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines

    def replace(self, node: NodeView, token: str) -> None:  # noqa: ARG002
        """Annotate the node's Machine, unless that has been done or it is on its way out."""
        machine = self._machines.of_node(node.name)
        if machine is None or machine.is_deleting or _is_another(machine, node):
            return
        shown = f"Machine {machine.namespace}/{machine.name}"
        for annotation in (_SKIP, _PAUSED):
            if annotation in machine.annotations:
                raise ProviderError(
                    f"{shown} of {node.name} is not remediated while it has the annotation"
                    f" {annotation}: remove it"
                )
        if not self._machines.has_health_check(machine.namespace):
            raise ProviderError(
                f"there is no MachineHealthCheck in {machine.namespace} to remediate {shown} of"
                f" {node.name}: create one that selects it"
            )
        if _REMEDIATE not in machine.annotations:
            self._machines.remediate(machine)


def _is_another(machine: Machine, node: NodeView) -> bool:
    """Whether the name of the node has passed on to another machine."""
    known = machine.provider_id and node.provider_id
    return bool(known) and machine.provider_id != node.provider_id


class ManagedMachines:
    """``Machines`` of a management cluster."""

    def __init__(self, workload: ApiServer, management: ApiServer, version: str) -> None:
        self._workload = workload
        self._management = management
        self._machine = create_namespaced_resource(_GROUP, version, "Machine", "machines")
        self._check = create_namespaced_resource(
            _GROUP, version, "MachineHealthCheck", "machinehealthchecks"
        )

    def of_node(self, node: str) -> Machine | None:
        """See ``Machines.of_node``."""
        with told("get nodes"), self._workload.connected() as client:
            try:
                found = client.get(Node, node)
            except HTTPStatusError as error:
                if is_missing(error):
                    return None
                raise
        metadata = found.metadata
        annotations = (metadata.annotations if metadata is not None else None) or {}
        name, namespace = annotations.get(_MACHINE), annotations.get(_NAMESPACE)
        if not name or not namespace:
            raise ProviderError(
                f"{node} was not made by Cluster API: it lacks the annotation"
                f" {_NAMESPACE if name else _MACHINE}"
            )
        return self._found(name, namespace)

    def has_health_check(self, namespace: str) -> bool:
        """See ``Machines.has_health_check``."""
        listing = told(f"list machinehealthchecks.{_GROUP}")
        with listing, self._management.connected() as client:
            return any(True for _ in client.list(self._check, namespace=namespace))

    def remediate(self, machine: Machine) -> None:
        """See ``Machines.remediate``."""
        patch = {"metadata": {"annotations": {_REMEDIATE: ""}}}
        with told(f"patch machines.{_GROUP}"), self._management.connected() as client:
            try:
                client.patch(
                    self._machine,
                    machine.name,
                    patch,
                    namespace=machine.namespace,
                    patch_type=PatchType.MERGE,
                )
            except HTTPStatusError as error:
                if not is_missing(error):
                    raise

    def _found(self, name: str, namespace: str) -> Machine | None:
        getting = told(f"get machines.{_GROUP}", missing=_NOT_SERVED)
        with getting, self._management.connected() as client:
            try:
                found = client.get(self._machine, name, namespace=namespace)
            except HTTPStatusError as error:
                if is_missing(error):
                    return None
                raise
        metadata = found["metadata"]
        return Machine(
            namespace=namespace,
            name=name,
            provider_id=found.get("spec", {}).get("providerID", ""),
            is_deleting="deletionTimestamp" in metadata,
            annotations=metadata.get("annotations", {}),
        )


def build(config: ProviderConfig, cluster: KubernetesAccess) -> ClusterApi:
    """The provider of the table's row."""
    settings = config.cluster_api
    workload = management = ApiServer(cluster)
    if settings.kubeconfig is not None:
        elsewhere = KubernetesAccess(kubeconfig=settings.kubeconfig, context=settings.context or "")
        management = ApiServer(elsewhere)
    return ClusterApi(ManagedMachines(workload, management, settings.version))
