"""Ports of a requested cluster's node controllers and of alarms."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from holdfast.model.clusters import NodeHealth


class ClusterNodes(Protocol):
    """Controllers of nodes. Every method may raise ``BackendError``."""

    def health(self, cluster: str) -> Mapping[str, NodeHealth]:
        """Return the health of each node of a cluster that a controller watches, by machine id."""
        ...

    def renew(self, cluster: str, machines: Sequence[str]) -> frozenset[str]:
        """Request other machines for nodes once their jobs have left; may be repeated.

        Args:
            cluster: name of the cluster.
            machines: ids of the present machines.

        Returns:
            Those of them whose node a controller watches.

        """
        ...


class Alarms(Protocol):
    """Alarms that people have configured elsewhere."""

    def active_alarms(self, names: Sequence[str]) -> frozenset[str]:
        """Return which of the alarms are in state ALARM; may raise ``BackendError``."""
        ...
