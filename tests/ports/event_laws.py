"""Limit on repeated events: a log with one more line in each round helps nobody."""

import re
from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

from holdfast.decisions.policy import RemediationPolicy
from holdfast.engine.node_reconciler import NodePorts, NodeReconciler
from holdfast.kit.quota import Quota
from holdfast.model.events import (
    Event,
    NodePairTested,
    NodeReleased,
    NodeReplaced,
    NodeVanished,
    RepairOrdered,
    RepairOverdue,
    RepairPostponed,
)
from holdfast.model.requests import Request, Verb
from holdfast.ports.cluster import ClusterBackend
from tests.ports.builders import NOW
from tests.ports.fakes import Calls, FakeClock, FakeEvents, FakeIncidents, FakeProvider

MOST: Final = 10
"""Maximum number of equal events about one node in one repair: each phase may wait anew."""

_ENDS: Final = (NodeReleased, NodeReplaced, NodeVanished)
_PACED: Final = (NodePairTested, RepairOrdered, RepairOverdue, RepairPostponed)
"""Events of repeated orders, which have doubling delays while a provider refuses them, and of tests
between nodes, of which there are as many as rounds."""

_NUMBER: Final = re.compile(r"\d+")
_ROUNDS: Final = 10


class EventLaw:
    """Counts equal events about each node until its repair ends."""

    def __init__(self, check: Callable[[bool, str], None]) -> None:
        self._check = check
        self._reports: dict[str, Counter[str]] = {}

    def reported(self, event: Event) -> None:
        """Count an event; a node that repeats itself violates the law."""
        node = getattr(event, "node", "")
        is_reminder = getattr(event, "times", 1) > 1  # after a long delay
        if not node or is_reminder or isinstance(event, _PACED):
            return
        if isinstance(event, _ENDS):
            self._reports.pop(node, None)
            return
        counts = self._reports.setdefault(node, Counter())
        text = _NUMBER.sub("", str(event))
        counts[text] += 1
        self._check(counts[text] <= MOST, f"{node}: {text} was reported {counts[text]} times")


class _Harness(Protocol):
    cluster: ClusterBackend
    node: str

    def put_request(self, request: Request) -> None: ...


class ReportedOnce:
    """Law for every platform that its events are few; part of ``ClusterContract``."""

    def test_a_repair_that_is_requested_again_and_again_is_reported_once(
        self, harness: _Harness
    ) -> None:
        events, calls = FakeEvents(), Calls()
        ports = NodePorts(
            cluster=harness.cluster,
            provider=FakeProvider(calls),
            incidents=FakeIncidents(calls),
            events=events,
            clock=FakeClock(),
        )
        loop = NodeReconciler(ports, RemediationPolicy(max_unavailable=Quota(count=0)))

        for number in range(_ROUNDS):
            harness.put_request(Request(id=f"r-{number}", verb=Verb.REPLACE, requested_at=NOW))
            loop.step()
            loop.step()

        assert Counter(events.names()) == {"node.quarantined": 1, "repair.deferred": 1}
