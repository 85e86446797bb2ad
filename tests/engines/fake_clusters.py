"""A cluster in memory, as the API sees clusters."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.api.clusters import Node, cluster_id, instance_id
from holdfast.model.clusters import ClusterEvent, DesiredCluster
from holdfast.model.errors import BackendError
from holdfast.model.incidents import Incident
from holdfast.model.names import DeepCheck
from holdfast.model.requests import Verb
from holdfast.model.sagemaker import InstanceStatus


@dataclass
class ShownCluster:
    """A ``Cluster``; what it is asked for is kept in ``requested``."""

    name: str
    created_at: datetime
    members: list[Node] = field(default_factory=list)
    past: list[Incident] = field(default_factory=list)
    requested: list[tuple[str, Verb, str]] = field(default_factory=list)
    checks: dict[str, tuple[DeepCheck, ...]] = field(default_factory=dict)
    """By node, the kinds of checks that were asked for last."""

    rejection: dict[str, str] = field(default_factory=dict)
    """Why asking for something for a node is in vain."""

    is_away: bool = False
    """Whether nothing can be read or written."""

    is_listed: bool = True
    """See ``Cluster.is_listed``."""

    @property
    def id(self) -> str:
        """See ``Cluster.id``."""
        return cluster_id(self.name)

    def add(
        self,
        name: str,
        launched_at: datetime,
        group: str = "workers",
        addresses: tuple[str, ...] = (),
    ) -> Node:
        """A node that works."""
        node = Node(
            name=name,
            instance_id=instance_id(f"fake/{name}"),
            group=group,
            instance_type="ml.p5.48xlarge",
            launched_at=launched_at,
            status=InstanceStatus.RUNNING,
            addresses=addresses,
        )
        self.members.append(node)
        return node

    def nodes(self) -> Sequence[Node]:
        """See ``Cluster.nodes``."""
        self._answer()
        return tuple(self.members)

    def incidents(self) -> Sequence[Incident]:
        """See ``Cluster.incidents``."""
        self._answer()
        return tuple(self.past)

    def desired(self) -> DesiredCluster | None:
        """See ``Cluster.desired``."""
        self._answer()
        return None

    def cluster_events(self) -> Sequence[ClusterEvent]:
        """See ``Cluster.cluster_events``."""
        self._answer()
        return ()

    def submit(self, node: str, verb: Verb, person: str, checks: Sequence[DeepCheck] = ()) -> str:
        """See ``Cluster.submit``."""
        self._answer()
        if node not in self.rejection:
            self.checks[node] = tuple(checks)
            self.requested.append((node, verb, person))
        return self.rejection.get(node, "")

    def _answer(self) -> None:
        if self.is_away:
            raise BackendError("the cluster is away")
