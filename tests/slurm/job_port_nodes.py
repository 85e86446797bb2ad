"""What the job backend is told of nodes, on a real Slurm cluster."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from holdfast.adapters.slurm.commands.jobs import JobCommands
from holdfast.adapters.slurm.commands.node_text import NodeFacts
from holdfast.adapters.slurm.nodes.node_state import NodeState
from holdfast.model.nodes import NodeRecord, Phase


class Nodes:
    """All nodes are well, but for those that are out of service."""

    def __init__(self, slurm: JobCommands) -> None:
        self._slurm = slurm
        self._facts: dict[str, NodeFacts] | None = None
        self.out_of_service: set[str] = set()

    @contextmanager
    def read_once(self) -> Iterator[None]:
        """Read the nodes once meanwhile; the controller's are those of its last read, too."""
        self._facts = self._slurm.nodes()
        try:
            yield
        finally:
            self._facts = None

    def _read(self) -> dict[str, NodeFacts]:
        return self._slurm.nodes() if self._facts is None else self._facts

    def node_state(self, node: str) -> NodeState:
        phase = Phase.REPLACING if node in self.out_of_service else Phase.SCHEDULABLE
        record = NodeRecord(phase=phase, phase_since=datetime.now(UTC))
        return NodeState(facts=self._read()[node], record=record)

    def idle_nodes(self) -> frozenset[str]:
        return frozenset(one.name for one in self._read().values() if one.is_free)

    def returning_nodes(self) -> frozenset[str]:
        return frozenset(self.out_of_service)
