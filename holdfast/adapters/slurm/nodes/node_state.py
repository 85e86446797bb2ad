"""A node as a job needs it: its state in Slurm, and its record. Pure."""

from dataclasses import dataclass

from holdfast.adapters.slurm.commands.node_text import NodeFacts
from holdfast.adapters.slurm.commands.reasons import Author
from holdfast.model.names import Condition
from holdfast.model.nodes import NodeRecord, Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """State of one node, as a job needs it."""

    facts: NodeFacts | None
    """None if Slurm does not know it."""

    record: NodeRecord | None
    """None if Holdfast does not manage it."""

    @property
    def is_good(self) -> bool:
        """Whether Slurm may place jobs on it."""
        facts, record = self.facts, self.record
        if facts is None or facts.is_closed:
            return False
        is_in_service = record is None or record.phase is Phase.SCHEDULABLE
        return facts.has_heartbeat or (facts.wakes and is_in_service)

    @property
    def is_closed(self) -> bool:
        """Whether it is closed to jobs in Slurm."""
        return self.facts is not None and self.facts.is_closed

    @property
    def is_requested(self) -> bool:
        """Whether a person requested its repair, or set it to DOWN while its slurmd responds."""
        facts, record = self.facts, self.record
        if record is not None and record.remediation is not None:
            return record.remediation.condition == Condition.REQUESTED
        if facts is None or "DOWN" not in facts.state or not facts.has_heartbeat:
            return False
        return facts.reason.author in (Author.OTHER, Author.REQUEST)

    @property
    def counts(self) -> bool:
        """Whether its state affects jobs: Holdfast manages it, or it is gone."""
        return self.record is not None or self.facts is None
