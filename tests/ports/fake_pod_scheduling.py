"""A ``PodScheduling`` in memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.model.pod_demand import NodeShape, PodDemand
from tests.ports.fakes import Calls


@dataclass(slots=True)
class FakePodScheduling:
    """Pods and nodes in memory; nothing schedules them."""

    calls: Calls = field(default_factory=Calls)
    found: PodDemand = field(default_factory=PodDemand)

    def demand(self, shapes: Mapping[str, NodeShape]) -> PodDemand:
        """See ``PodScheduling.demand``."""
        self.calls.note("demand", " ".join(sorted(shapes)))
        return self.found
