"""Tests between nodes: what the engine begins, keeps up and tells."""

from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.decisions.policy import RemediationPolicy
from holdfast.engine.node_reconciler import NodePorts, NodeReconciler
from holdfast.engine.wording import sentence
from holdfast.model.events import NodeCheckPassed, NodePairTested
from holdfast.model.names import DeepCheck
from holdfast.model.nodes import CheckResult, NodeView, Pairing, PairOutcome, Phase
from tests.ports.builders import NOW, a_node
from tests.ports.fakes import (
    Calls,
    FakeClock,
    FakeCluster,
    FakeEvents,
    FakeIncidents,
    FakeProvider,
)


class World:
    """Two nodes under test and a reconciler."""

    def __init__(self, *nodes: NodeView) -> None:
        self.clock, self.calls, self.events = FakeClock(), Calls(), FakeEvents()
        self.cluster = FakeCluster(nodes, self.calls, self.clock)
        ports = NodePorts(
            cluster=self.cluster,
            provider=FakeProvider(self.calls),
            incidents=FakeIncidents(self.calls),
            events=self.events,
            clock=self.clock,
        )
        self.reconciler = NodeReconciler(ports, RemediationPolicy(deep_check_pairs=True))

    def step(self) -> list[str]:
        """What was called in one round."""
        self.calls.made.clear()
        self.reconciler.step()
        return list(self.calls.made)


def under_test(name: str, **pairing) -> NodeView:
    own = CheckResult(passed=True, ended_at=NOW)
    record = {"pairing": Pairing(since=NOW, own=own, **pairing)}
    return a_node(Phase.CHECKING, name=name, provider_id=f"i-{name}", record=record)


def test_a_test_is_stored_begun_in_every_round_and_noted_when_it_is_over() -> None:
    world = World(under_test("a"), under_test("b"))

    assert world.step() == ["put a checking"]
    began = f"begin_pair a b {NOW.isoformat()}"
    assert [world.step(), world.step()] == [[began], [began]]
    said = PairOutcome(partner="b", passed=False, ended_at=NOW, detail="slow")
    world.cluster.change("a", pair=said)
    assert world.step() == ["put a checking"]

    assert world.cluster.nodes["a"].record.pairing.tests == (said,)
    (reported,) = (one for one in world.events.reported if isinstance(one, NodePairTested))
    assert sentence(reported) == "a: network test with b failed: slow"


def test_the_check_of_a_node_alone_is_not_begun_again_while_it_is_tested_with_others() -> None:
    world = World(under_test("a"), a_node(Phase.CHECKING, name="b", provider_id="i-b"))
    world.clock.time = NOW + timedelta(seconds=1)

    assert not any(call.startswith("begin_check a") for call in world.step())


def test_a_check_is_begun_with_the_kinds_that_were_asked_for() -> None:
    node = a_node(Phase.CHECKING, name="a", record={"kinds": (DeepCheck.STRESS,)})

    (call,) = World(node).step()

    assert call == f"begin_check a {node.record.phase_since.isoformat()} InstanceStress"


@pytest.mark.parametrize(
    ("passed", "word"), [(True, "passed"), (False, "failed"), (None, "inconclusive")]
)
def test_how_a_test_ended_is_reported_in_words(passed, word) -> None:
    event = NodePairTested(node="a", partner="b", passed=passed, detail="", measured={})

    assert sentence(event) == f"a: network test with b {word}"


def test_what_is_to_be_reported_of_a_node_that_passed_is_reported() -> None:
    event = NodeCheckPassed(node="a", detail="", measured={}, took=timedelta(seconds=90))

    assert sentence(event) == "a: deep health check passed in 1m30s"
    assert sentence(replace(event, detail="alone")).endswith("passed in 1m30s: alone")


def test_the_next_snapshot_looks_for_idle_nodes_in_the_pools_that_are_short_of_peers() -> None:
    world = World(under_test("a"))

    world.step()
    world.step()

    assert set(world.cluster.peer_pools) == {("", "")}
