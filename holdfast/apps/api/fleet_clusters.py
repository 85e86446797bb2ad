"""Created clusters that consist of existing Kubernetes or Slurm nodes."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from holdfast.api.clusters import instance_id
from holdfast.apps.api.adopted import (
    health_of,
    proper_name,
    renew_nodes,
    request_of,
    submit_for,
)
from holdfast.apps.api.shared_fleet import RepairableFleet
from holdfast.apps.clock import SystemClock
from holdfast.apps.views.nodes import NodeStatus
from holdfast.model.clusters import (
    DesiredCluster,
    GroupMachine,
    MachineGroup,
    MachineState,
    NodeHealth,
)
from holdfast.model.errors import ProviderError
from holdfast.model.incidents import Incident
from holdfast.model.names import DeepCheck
from holdfast.model.requests import Verb


class FleetClusters:
    """The ``MachineGroups``, the ``ClusterNodes`` and the ``CreatedClusterNodes`` of such clusters.

    A group consists of the nodes whose instance group has its name; nodes are never created or
    terminated, and deleting a group only releases them.
    """

    def __init__(self, fleet: RepairableFleet) -> None:
        self._fleet = fleet
        self._joined_at: dict[str, datetime] = {}  # machines that joined after the start
        self._known: set[str] = set()
        self._since = SystemClock().now()
        self._let_go: set[str] = set()

    def rejections(self, cluster: DesiredCluster) -> Sequence[str]:
        """Unsupported parts of a cluster."""
        nodes = self._fleet.nodes()
        return [
            f"InstanceGroups: {group.name}: the API does not create nodes of this platform; "
            f"InstanceCount is {group.target}, and the instance group {group.name} has {count}"
            for group in cluster.groups
            if not group.is_going
            and group.target != (count := sum(_group(one) == group.name for one in nodes))
        ]

    def ensure(self, group: MachineGroup) -> None:
        """See ``MachineGroups.ensure``."""
        self._let_go.discard(group.key)

    def machines(self, group: str) -> Sequence[GroupMachine]:
        """See ``MachineGroups.machines``."""
        if group in self._let_go:
            return ()
        nodes = self._fleet.nodes()
        self._note(nodes)
        return [
            GroupMachine(
                id=instance_id(one.provider_id),
                name=one.name,
                state=MachineState.RUNNING,
                launched_at=self._joined_at.get(one.provider_id) or one.created_at or self._since,
                addresses=one.addresses,
            )
            for one in nodes
            if _group(one) == group.partition("/")[2]
        ]

    def scale(self, group: str, count: int) -> None:
        """See ``MachineGroups.scale``: only existing nodes are available."""
        there = len(self.machines(group))
        if there < count:
            raise ProviderError(
                f"{count} nodes are requested, but the platform has {there}; add nodes to it"
            )

    def remove(self, group: str, ids: Sequence[str]) -> None:
        """See ``MachineGroups.remove``: refused, the nodes are not managed by the API."""
        raise ProviderError(
            f"{group}: {', '.join(ids)} cannot be removed by the API; remove the nodes from "
            "their platform"
        )

    def delete(self, group: str) -> None:
        """See ``MachineGroups.delete``."""
        self._let_go.add(group)

    def health(self, cluster: str) -> Mapping[str, NodeHealth]:  # noqa: ARG002 - one fleet has all
        """See ``ClusterNodes.health``."""
        return {instance_id(one.provider_id): health_of(one) for one in self._fleet.nodes()}

    def renew(self, cluster: str, machines: Sequence[str]) -> frozenset[str]:  # noqa: ARG002
        """See ``ClusterNodes.renew``."""
        return renew_nodes(self._fleet, machines)

    def incidents(self, cluster: str) -> Sequence[Incident]:  # noqa: ARG002 - one fleet has all
        """See ``CreatedClusterNodes.incidents``."""
        return self._fleet.incidents()

    def submit(
        self,
        cluster: str,  # noqa: ARG002 - as above
        machine: str,
        verb: Verb,
        person: str,
        checks: Sequence[DeepCheck] = (),
    ) -> str:
        """See ``CreatedClusterNodes.submit``."""
        return submit_for(self._fleet, machine, request_of(verb, person, checks))

    def _note(self, nodes: Sequence[NodeStatus]) -> None:
        """Time when a machine joined that replaced another under the same name.

        The age of its node may be unchanged, so a software update would replace it forever.
        """
        now = SystemClock().now()
        ids = {one.provider_id for one in nodes}
        if self._known:
            self._joined_at |= dict.fromkeys(ids - self._known, now)
        self._known |= ids


def _group(status: NodeStatus) -> str:
    return proper_name(status.group)
