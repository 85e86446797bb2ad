"""Clusters created through the API, as API responses show them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Protocol

from holdfast.api.clusters import Node
from holdfast.model.clusters import ClusterEvent, DesiredCluster, Member
from holdfast.model.incidents import Incident
from holdfast.model.names import DeepCheck
from holdfast.model.requests import Verb
from holdfast.ports.cluster_records import ClusterRecords, StoredCluster


class CreatedClusterNodes(Protocol):
    """Access to the controllers of created clusters. May raise ``BackendError``."""

    def incidents(self, cluster: str) -> Sequence[Incident]:
        """All stored incidents of a cluster."""
        ...

    def submit(
        self, cluster: str, machine: str, verb: Verb, person: str, checks: Sequence[DeepCheck] = ()
    ) -> str:
        """See ``Cluster.submit``; ``machine`` is the id of the machine of the node."""
        ...


@dataclass(frozen=True)
class CreatedCluster:
    """A ``Cluster`` that was created through the API."""

    stored: StoredCluster
    records: ClusterRecords
    supervisor: CreatedClusterNodes

    @property
    def name(self) -> str:
        """See ``Cluster.name``."""
        return self.stored.cluster.name

    @property
    def id(self) -> str:
        """See ``Cluster.id``."""
        return self.stored.cluster.uid

    @property
    def is_listed(self) -> bool:
        """See ``Cluster.is_listed``."""
        return True

    @property
    def created_at(self) -> datetime:
        """See ``Cluster.created_at``."""
        return self.stored.cluster.created_at

    def desired(self) -> DesiredCluster | None:
        """See ``Cluster.desired``."""
        return self.stored.cluster

    def cluster_events(self) -> Sequence[ClusterEvent]:
        """See ``Cluster.cluster_events``."""
        return self.records.cluster_events(self.name)

    def nodes(self) -> Sequence[Node]:
        """See ``Cluster.nodes``: as of the last reconciliation of the cluster."""
        return self._nodes

    @cached_property
    def _nodes(self) -> Sequence[Node]:
        types = {one.name: one.made_of.instance_type for one in self.stored.cluster.groups}
        return tuple(_node(one, types.get(one.group, "")) for one in self.stored.members)

    def incidents(self) -> Sequence[Incident]:
        """See ``Cluster.incidents``: excludes those of an earlier cluster of the same name."""
        found = self.supervisor.incidents(self.name)
        return [one for one in found if one.detected_at >= self.created_at]

    def submit(self, node: str, verb: Verb, person: str, checks: Sequence[DeepCheck] = ()) -> str:
        """See ``Cluster.submit``."""
        machine = next((one.instance_id for one in self._nodes if node and one.name == node), "")
        if not machine:
            return "the node has no machine yet"
        return self.supervisor.submit(self.name, machine, verb, person, checks)


class CreatedClusters:
    """All created clusters; unchanged ones are reused. Thread-safe."""

    def __init__(self, records: ClusterRecords, supervisor: CreatedClusterNodes) -> None:
        self._records = records
        self._supervisor = supervisor
        self._shown: dict[str, CreatedCluster] = {}

    def all(self) -> Sequence[CreatedCluster]:
        """Clusters, sorted by name."""
        shown = [self._of(one) for one in self._records.all()]
        self._shown = {one.name: one for one in shown}
        return shown

    def _of(self, stored: StoredCluster) -> CreatedCluster:
        known = self._shown.get(stored.cluster.name)
        if known is not None and known.stored is stored:
            return known
        return CreatedCluster(stored, self._records, self._supervisor)


def _node(member: Member, instance_type: str) -> Node:
    machine = member.machine
    return Node(
        name=machine.name if machine is not None else "",
        instance_id=machine.id if machine is not None else "",
        group=member.group,
        instance_type=instance_type or "unknown",
        launched_at=machine.launched_at if machine is not None else member.added_at,
        status=member.status,
        message=" ".join(filter(None, (member.message, member.settings.conflict))),
        logical_id=member.logical_id,
        image=machine.image if machine is not None else "",
        addresses=machine.addresses if machine is not None else (),
        has_machine=machine is not None,
        settings=member.settings.current,
    )
