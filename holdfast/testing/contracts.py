"""What every adapter of a port must do: test classes to inherit from, with a ``harness`` fixture.

A plug-in proves itself by the same tests as the adapters and fakes of this package::

    class TestMyCluster(ClusterContract):
        @pytest.fixture
        def harness(self): ...
"""

from dataclasses import replace
from datetime import timedelta
from typing import Protocol

from holdfast.model.actions import TripBreaker
from holdfast.model.incidents import Incident
from holdfast.model.nodes import NodeView, Phase
from holdfast.model.requests import Request, Verb
from holdfast.ports.cluster import ClusterBackend
from holdfast.ports.incidents import IncidentStore
from holdfast.ports.provider import NodeProvider
from holdfast.testing.builders import NOW


class ClusterHarness(Protocol):
    """A cluster of one node that has booted."""

    cluster: ClusterBackend
    node: str

    def ask(self, request: Request) -> None:
        """Record a person's request for the node."""
        ...


class ProviderHarness(Protocol):
    """The owner of the machine of a cluster of one node that has booted."""

    cluster: ClusterBackend
    provider: NodeProvider
    node: str

    def settle(self) -> None:
        """Let pass as much time as any order takes."""
        ...


def view(cluster: ClusterBackend, node: str) -> NodeView:
    """The node of that name."""
    return next(one for one in cluster.snapshot().nodes if one.name == node)


class ClusterContract:
    """``ClusterBackend``."""

    def test_a_record_is_read_as_it_was_stored(self, harness: ClusterHarness) -> None:
        record = replace(view(harness.cluster, harness.node).record, phase=Phase.QUARANTINED)

        harness.cluster.put(harness.node, record)
        harness.cluster.put(harness.node, record)

        assert view(harness.cluster, harness.node).record == record

    def test_clearing_a_request_leaves_a_later_one(self, harness: ClusterHarness) -> None:
        later = Request(id="later", verb=Verb.REPLACE, requested_at=NOW)
        harness.ask(later)

        harness.cluster.clear_request(harness.node, "earlier")
        assert view(harness.cluster, harness.node).request == later

        harness.cluster.clear_request(harness.node, "later")
        assert view(harness.cluster, harness.node).request is None

    def test_clearing_a_request_of_an_unknown_node_does_nothing(
        self, harness: ClusterHarness
    ) -> None:
        harness.cluster.clear_request("no-such-node", "r")

    def test_an_open_breaker_stays_as_it_is(self, harness: ClusterHarness) -> None:
        harness.cluster.trip_breaker(TripBreaker(reason="first", nodes=()))
        harness.cluster.trip_breaker(TripBreaker(reason="second", nodes=()))

        breaker = harness.cluster.snapshot().breaker
        assert breaker.reason == "first"
        assert breaker.tripped_at is not None

    def test_offenders_are_remembered(self, harness: ClusterHarness) -> None:
        harness.cluster.remember_offender("i-1")
        harness.cluster.remember_offender("i-1")

        assert harness.cluster.snapshot().offenders == {"i-1"}

    def test_a_retired_node_is_forgotten(self, harness: ClusterHarness) -> None:
        harness.cluster.retire(harness.node)
        harness.cluster.retire(harness.node)

        assert harness.cluster.snapshot().nodes == ()


class ProviderContract:
    """``NodeProvider``."""

    def test_a_reboot_gives_another_boot_of_the_same_machine(
        self, harness: ProviderHarness
    ) -> None:
        before = view(harness.cluster, harness.node)

        harness.provider.reboot(before, "incident/1")
        harness.settle()

        after = view(harness.cluster, harness.node)
        assert after.provider_id == before.provider_id
        assert after.boot_id != before.boot_id

    def test_an_order_acts_once_however_often_it_is_given(self, harness: ProviderHarness) -> None:
        before = view(harness.cluster, harness.node)
        harness.provider.reboot(before, "incident/1")
        harness.settle()
        once = view(harness.cluster, harness.node)

        harness.provider.reboot(before, "incident/1")
        harness.settle()

        assert view(harness.cluster, harness.node).boot_id == once.boot_id

    def test_a_node_has_one_replacement_however_many_are_ordered(
        self, harness: ProviderHarness
    ) -> None:
        before = view(harness.cluster, harness.node)

        for token in ("incident/1", "incident/1", "incident/2"):
            harness.provider.replace(before, token)
            harness.settle()

        (successor,) = [one for one in harness.cluster.snapshot().nodes if one.replaces]
        assert successor.replaces == harness.node
        assert successor.provider_id != before.provider_id


class IncidentContract:
    """``IncidentStore``; here the ``harness`` is the store itself."""

    def test_an_incident_is_read_as_it_was_stored_last(self, harness: IncidentStore) -> None:
        first = _incident("b")
        last = replace(first, released_at=NOW, successor="other")

        harness.put(first)
        harness.put(last)

        assert harness.get("b") == last
        assert harness.get("a") is None
        assert harness.list_incidents() == (last,)

    def test_incidents_are_listed_in_the_order_in_which_they_came(
        self, harness: IncidentStore
    ) -> None:
        for minute, name in enumerate(("b", "a", "c")):
            at = NOW + timedelta(minutes=minute)
            harness.put(replace(_incident(name), detected_at=at, quarantined_at=at))
        harness.put(replace(_incident("b"), released_at=NOW))

        assert [one.id for one in harness.list_incidents()] == ["b", "a", "c"]


def _incident(name: str) -> Incident:
    return Incident(
        id=name,
        node="node",
        provider_id="i-1",
        reason="reason",
        remedy="reboot",
        detected_at=NOW,
        quarantined_at=NOW,
    )
