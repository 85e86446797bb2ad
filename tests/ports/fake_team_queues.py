"""A ``TeamQueues`` in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.model.team_queues import FlavorQuota, NodeType, TeamQueue
from tests.ports.fakes import Calls


@dataclass(slots=True)
class FakeTeamQueues:
    """Queues in memory. Those of teams in ``busy`` stay until it is empty."""

    types: dict[str, NodeType] = field(default_factory=dict)
    calls: Calls = field(default_factory=Calls)
    priorities: dict[str, dict[str, int]] = field(default_factory=dict)
    queues: dict[str, TeamQueue] = field(default_factory=dict)
    idle: dict[str, tuple[FlavorQuota, ...]] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)

    def node_types(self) -> Mapping[str, NodeType]:
        """See ``TeamQueues.node_types``."""
        self.calls.note("node_types")
        return dict(self.types)

    def put_priorities(self, owner: str, priorities: Mapping[str, int]) -> None:
        """See ``TeamQueues.put_priorities``."""
        self.calls.note("put_priorities", owner)
        self.priorities[owner] = dict(priorities)

    def put_queue(self, owner: str, queue: TeamQueue) -> None:
        """See ``TeamQueues.put_queue``."""
        self.calls.note("put_queue", owner)
        self.queues[owner] = queue

    def put_idle(self, owner: str, cohort: str, flavors: Sequence[FlavorQuota]) -> None:
        """See ``TeamQueues.put_idle``."""
        self.calls.note("put_idle", f"{owner} {cohort}")
        self.idle[owner] = tuple(flavors)

    def remove(self, owner: str) -> bool:
        """See ``TeamQueues.remove``."""
        self.calls.note("remove", owner)
        queue = self.queues.get(owner)
        if queue is not None and queue.team in self.busy:
            return False
        for owned in (self.priorities, self.queues, self.idle):
            owned.pop(owner, None)
        return True
