"""Port of the pods that wait for nodes."""

from collections.abc import Mapping
from typing import Protocol

from holdfast.model.pod_demand import NodeShape, PodDemand


class PodScheduling(Protocol):
    """Scheduler of a Kubernetes cluster."""

    def demand(self, shapes: Mapping[str, NodeShape]) -> PodDemand:
        """Return the nodes, and the pods that no node of the cluster can take.

        May raise ``BackendError``.

        Args:
            shapes: nodes that could be added, by any key.

        """
        ...
