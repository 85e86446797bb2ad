"""Those who look after the nodes of a cluster that somebody asked for."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from holdfast.model.clusters import NodeHealth


class ClusterNodes(Protocol):
    """The controllers of nodes. Every method may raise ``BackendError``."""

    def health(self, cluster: str) -> Mapping[str, NodeHealth]:
        """By the id of its machine, for each node of a cluster that somebody looks after."""
        ...

    def renew(self, cluster: str, node: str) -> bool:
        """Ask for another machine in place of a node's, once its jobs have left; may be repeated.

        Returns:
            Whether somebody looks after that node.

        """
        ...


class Alarms(Protocol):
    """Alarms that people have set up elsewhere."""

    def ringing(self, names: Sequence[str]) -> frozenset[str]:
        """Which of them have gone off; may raise ``BackendError``."""
        ...
