"""Faults that only a log line reports, through the node loop."""

from dataclasses import replace
from datetime import timedelta

from holdfast.decisions.policy import RemediationPolicy
from holdfast.engine.node_reconciler import NodePorts, NodeReconciler
from holdfast.engine.wording import sentence
from holdfast.model.events import FaultUncorroborated
from holdfast.model.nodes import CheckResult, Phase
from tests.ports.builders import NOW, a_fault, a_node
from tests.ports.fakes import (
    Calls,
    FakeClock,
    FakeCluster,
    FakeEvents,
    FakeIncidents,
    FakeProvider,
)

SUSPECT = replace(a_fault(since=NOW), seen_at=NOW, corroborated_within=timedelta(minutes=5))


class World:
    """The node loop over fakes."""

    def __init__(self) -> None:
        self.calls, self.clock, self.events = Calls(), FakeClock(), FakeEvents()
        node = a_node(suspects=(SUSPECT,), record={"phase_since": NOW - timedelta(days=9)})
        self.cluster = FakeCluster([node], self.calls, self.clock)
        self.restart()

    def restart(self) -> None:
        ports = NodePorts(
            cluster=self.cluster,
            provider=FakeProvider(self.calls),
            incidents=FakeIncidents(self.calls),
            events=self.events,
            clock=self.clock,
        )
        self.loop = NodeReconciler(ports, RemediationPolicy())

    @property
    def phase(self) -> Phase:
        [node] = self.cluster.snapshot().nodes
        return node.record.phase

    def rounds(self, number: int) -> None:
        for _ in range(number):
            self.loop.step()

    def ordered(self) -> list[str]:
        return [call for call in self.calls.made if call.startswith(("reboot", "replace"))]


def test_the_node_is_checked_and_released_and_nothing_is_ordered() -> None:
    world = World()

    world.rounds(6)
    assert world.phase is Phase.CHECKING
    [node] = world.cluster.snapshot().nodes
    world.cluster.nodes[node.name] = replace(
        node, check=CheckResult(passed=True, ended_at=world.clock.now())
    )
    world.rounds(6)
    world.restart()
    world.rounds(6)

    assert world.phase is Phase.SCHEDULABLE
    assert world.ordered() == []
    told = [one for one in world.events.reported if isinstance(one, FaultUncorroborated)]
    assert [sentence(one) for one in told] == [
        f"{node.name} is suspect: a log line that may be forged reports {SUSPECT.reason}, and no "
        f"other reading does: {SUSPECT.message}; running deep health check"
    ]
