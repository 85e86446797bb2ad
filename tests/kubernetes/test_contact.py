"""Outages of the API server: what could not be reported meanwhile is not late."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from controlled import controlled, installed
from hypothesis import given
from hypothesis import strategies as st
from node_objects import CONVENTIONS, a_node_object, a_report, state_of
from real_cluster import until

from holdfast.adapters.kubernetes.nodes.contact import Contact
from holdfast.adapters.kubernetes.nodes.encoding import parse_annotations
from holdfast.adapters.kubernetes.nodes.heartbeats import NodeLease
from holdfast.adapters.kubernetes.nodes.views import (
    LastHeartbeats,
    agent_heartbeat_at,
    followed_since,
    node_view,
)
from holdfast.decisions.faults import agent_fault
from holdfast.decisions.policy import RemediationPolicy
from holdfast.decisions.remediation import decide_node
from holdfast.model.actions import Release
from holdfast.model.errors import BackendError
from holdfast.model.names import REPORT, Condition
from holdfast.model.nodes import Phase
from tests.engines.outages import killed_api_server
from tests.ports.builders import NOW, a_record, a_remediation

__all__ = ["installed"]

START = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = RemediationPolicy(heartbeat_timeout=timedelta(seconds=10))


class Reads:
    """Reads of a process at given seconds."""

    def __init__(self) -> None:
        self.at = 0.0
        self.elected = 0
        self.contact = Contact(lambda: self.elected, lambda: self.at)

    def read(self, at: float, *, fails: bool = False) -> float:
        """Read; returns since which second there was no outage."""
        self.at = at
        since = self.contact.begin(START + timedelta(seconds=at))
        if not fails:
            self.contact.succeeded()
        return (since - START).total_seconds()


def test_the_first_read_is_the_beginning() -> None:
    reads = Reads()

    assert [reads.read(at) for at in (5.0, 65.0, 200.0)] == [5.0, 5.0, 5.0]


@pytest.mark.parametrize(("until_s", "since"), [(9.9, 0.0), (10.0, 10.0), (3600.0, 3600.0)])
def test_an_outage_of_ten_seconds_is_one(until_s: float, since: float) -> None:
    reads = Reads()
    reads.read(0.0)
    reads.read(1.0, fails=True)
    reads.read(2.0, fails=True)

    assert reads.read(until_s) == since
    assert reads.read(until_s + 60.0) == since


def test_one_lost_call_is_no_outage() -> None:
    reads = Reads()
    for at in range(0, 600, 60):
        reads.read(at)
        reads.read(at + 58.0, fails=True)

        assert reads.read(at + 59.0) == 0.0


def test_a_process_that_leads_again_begins_anew() -> None:
    reads = Reads()
    reads.read(0.0)
    reads.elected += 1

    assert reads.read(1000.0) == 1000.0
    assert reads.read(1001.0) == 1000.0


def test_an_outage_makes_only_agents_heard_that_were_not_silent_before() -> None:
    record, later = a_record(), START + timedelta(hours=1)

    assert followed_since(record, START, later) == later
    assert followed_since(record, later, START) == later
    assert followed_since(record, START, None) == START
    repaired = a_record(Phase.QUARANTINED, remediation=a_remediation())
    assert followed_since(repaired, START, later) == START


@pytest.mark.parametrize("condition", [Condition.NODE_LOST, Condition.AGENT_SILENT])
@given(minutes=st.integers(2, 1000), has_lease=st.booleans())
def test_a_new_process_releases_no_node_whose_agent_is_silent(
    condition: Condition, minutes: int, *, has_lease: bool
) -> None:
    lost, now = a_remediation(condition=condition), NOW + timedelta(minutes=minutes)
    record = a_record(Phase.QUARANTINED, remediation=lost, phase_since=lost.opened_at)
    renewed = lost.opened_at - timedelta(seconds=40)
    lease = NodeLease(renewed_at=renewed, holder="boot-1", observed_at=renewed, is_live=False)
    state = state_of(a_node_object(annotations={REPORT: a_report()}))
    parsed = parse_annotations(state, CONVENTIONS, now)
    assert parsed.report is not None
    since = followed_since(record, now, now)
    heartbeats = LastHeartbeats(
        agent_at=agent_heartbeat_at(state, parsed, record, lease if has_lease else None, since),
        kubelet_at=now,
        observed_since=now,
    )
    view = node_view(state, parsed, record, heartbeats=heartbeats)

    assert not isinstance(decide_node(view, POLICY, now), Release)
    condition_only = replace(a_record(), agent_silent_since=START)
    assert followed_since(condition_only, now, now) is None


def test_no_agent_is_silent_because_of_an_outage_of_the_api_server(installed, cluster) -> None:
    with controlled(cluster, timeout=timedelta(seconds=2)) as one:
        one.join("node-1")
        one.cluster.put("node-1", a_record())
        one.seen("node-1", lambda view: view.heartbeat_at)

        def is_read() -> bool:
            try:
                return one.view("node-1") is not None
            except BackendError:
                return False

        with killed_api_server(cluster.plane):
            ends_at = datetime.now(UTC) + timedelta(seconds=18)
            until(lambda: not is_read() and datetime.now(UTC) > ends_at)
        until(is_read)
        view = one.view("node-1")

        assert view.observed_since > ends_at
        assert agent_fault(view, POLICY, datetime.now(UTC)) is None
