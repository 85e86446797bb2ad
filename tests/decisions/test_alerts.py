"""Alerts are pending and firing as Prometheus has them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.alert_rules import RULES
from holdfast.decisions.alerts import Alert, AlertState, current_alerts, is_evaluated
from holdfast.decisions.watched_fleets import PastFailure, WatchedFleet, WatchedJob, WatchedNode
from holdfast.model.checkpoint_manifests import SaveSummary
from holdfast.model.health import Remedy, Urgency
from holdfast.model.nodes import Breaker, Phase, Remediation

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FIRING, PENDING = AlertState.FIRING, AlertState.PENDING


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def node(name: str = "n1", phase: Phase = Phase.SCHEDULABLE, **more: object) -> WatchedNode:
    fields: dict = {"name": name, "phase": phase, "phase_since": ago(1), **more}
    return WatchedNode(**fields)


def repair(minutes: float, remedy: Remedy = Remedy.REPLACE) -> Remediation:
    return Remediation(
        incident_id="i1",
        opened_at=ago(minutes),
        condition="NodeFault",
        reason="Xid",
        remedy=remedy,
        urgency=Urgency.IMMEDIATE,
    )


def job(phase: str, minutes: float, **more: object) -> WatchedJob:
    fields: dict = {
        "ref": "llm", "phase": phase, "phase_since": ago(minutes), "reason": "", "nodes": 2, **more,
    }  # fmt: skip
    return WatchedJob(**fields)


def fleet(*nodes: WatchedNode, jobs: Sequence[WatchedJob] = (), **more: object) -> WatchedFleet:
    fields: dict = {"name": "prod", "is_active": True, "nodes": nodes, "jobs": jobs, **more}
    return WatchedFleet(**fields)


def found(one: WatchedFleet) -> dict[str, tuple[AlertState, datetime]]:
    """``short name -> state and time``."""
    return {
        alert.rule.name.removeprefix("Holdfast"): (alert.state, alert.since)
        for alert in current_alerts([one], NOW)
    }


MANY = [node(f"n{number}") for number in range(10)]


def failures(*minutes: float, kind: str = "hardware") -> tuple[PastFailure, ...]:
    return tuple(PastFailure(kind, ago(one)) for one in minutes)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (fleet(), {}),
        (fleet(*MANY, jobs=[job("running", 900)]), {}),
        (
            fleet(breaker=Breaker(tripped_at=ago(3), reason="many")),
            {"BreakerOpen": (FIRING, ago(3))},
        ),
        (
            fleet(*MANY, node("n", Phase.REPLACING, remediation=repair(119))),
            {"RepairSlow": (PENDING, ago(119))},
        ),
        (
            fleet(*MANY, node("n", Phase.QUARANTINED, remediation=repair(120))),
            {"RepairSlow": (FIRING, ago(120))},
        ),
        (fleet(*MANY, node("n", Phase.CHECKING, remediation=repair(300))), {}),
        (fleet(*MANY, node("n", Phase.DRAINING, remediation=repair(300, Remedy.NONE))), {}),
        (fleet(node(silent_since=ago(4))), {"AgentDown": (PENDING, ago(4))}),
        (fleet(node(silent_since=ago(5))), {"AgentDown": (FIRING, ago(5))}),
        (fleet(node(fault_since=ago(14))), {"NodeFaulty": (PENDING, ago(14))}),
        (fleet(node(fault_since=ago(16))), {"NodeFaulty": (FIRING, ago(16))}),
        (fleet(jobs=[job("failed", 9)]), {"JobFailed": (FIRING, ago(9))}),
        (fleet(jobs=[job("failed", 11)]), {}),
        (fleet(jobs=[job("waiting", 29)]), {}),
        (fleet(jobs=[job("waiting", 40)]), {"JobWaits": (FIRING, ago(10))}),
        (fleet(jobs=[job("stopping", 16)]), {"JobDoesNotStop": (FIRING, ago(1))}),
        (fleet(jobs=[job("running", 1, failures=failures(*range(50, 41, -1)))]), {}),
        (
            fleet(
                jobs=[
                    job("running", 1, failures=failures(*range(50, 45, -1))),
                    job("running", 1, failures=failures(*range(30, 20, -2))),
                ]
            ),
            {"JobsFailOften": (FIRING, ago(22))},
        ),
        (fleet(jobs=[job("running", 1, failures=failures(*range(70, 59, -1)))]), {}),
        (fleet(jobs=[job("running", 1, failures=failures(*range(20), kind="requested"))]), {}),
        (
            fleet(
                jobs=[
                    job(
                        "running",
                        200,
                        saves=SaveSummary(at=NOW, interval_s=600, saved_at=ago(31), good=1),
                    )
                ]
            ),
            {"CheckpointOverdue": (FIRING, ago(1))},
        ),
        (
            fleet(
                jobs=[
                    job(
                        "running",
                        200,
                        saves=SaveSummary(at=NOW, interval_s=600, saved_at=ago(29), good=1),
                    )
                ]
            ),
            {},
        ),
    ],
)
def test_a_rule_holds_from_its_threshold_on(
    one: WatchedFleet, expected: dict[str, tuple[AlertState, datetime]]
) -> None:
    assert found(one) == expected


@pytest.mark.parametrize(
    ("out", "expected"),
    [
        ([30, 20], {}),  # 2 of 10 are allowed
        ([30, 20, 10], {"ManyNodesOut": (PENDING, ago(10))}),
        ([30, 20, 15], {"ManyNodesOut": (FIRING, ago(15))}),
        ([30, 20, 15, 1], {"ManyNodesOut": (FIRING, ago(15))}),
    ],
)
def test_many_nodes_out_counts_from_when_too_many_were(out, expected) -> None:
    away = [
        node(f"out{number}", Phase.JOINING, phase_since=ago(minutes))
        for number, minutes in enumerate(out)
    ]

    assert found(fleet(*MANY[len(out) :], *away)) == expected


def test_firing_alerts_come_first_and_name_their_subjects() -> None:
    one = fleet(
        node("new", silent_since=ago(1)),
        node("a", fault_since=ago(16)),
        node("b", fault_since=ago(20)),
        node("c", fault_since=ago(2)),
    )

    faulty, down = current_alerts([one], NOW)
    assert (faulty.rule.name, faulty.nodes) == ("HoldfastNodeFaulty", ("b", "a"))
    assert (down.rule.name, down.nodes, down.state) == ("HoldfastAgentDown", ("new",), PENDING)


def test_of_a_fleet_that_nothing_manages_only_jobs_count() -> None:
    ended = fleet(
        node(fault_since=ago(99), silent_since=ago(99)),
        jobs=[job("failed", 1)],
        is_active=False,
        breaker=Breaker(tripped_at=ago(9), reason="many"),
    )

    assert set(found(ended)) == {"JobFailed"}


def test_rules_that_need_metrics_are_named_as_such() -> None:
    only_prometheus = {rule.name for rule in RULES if not is_evaluated(rule)}

    assert only_prometheus == {
        "HoldfastNoLeader",
        "HoldfastControllerStuck",
        "HoldfastOrdersRefused",
        "HoldfastAgentBlind",
    }
    assert len({rule.name for rule in RULES}) == len(RULES)


@given(
    st.lists(
        st.builds(
            node,
            st.text("ab", max_size=2),
            st.sampled_from(Phase),
            phase_since=st.integers(0, 999).map(ago),
            remediation=st.none() | st.builds(repair, st.integers(0, 999), st.sampled_from(Remedy)),
            silent_since=st.none() | st.integers(0, 99).map(ago),
            fault_since=st.none() | st.integers(0, 99).map(ago),
        ),
        max_size=8,
    )
)
def test_no_alert_fires_before_its_time(nodes: list[WatchedNode]) -> None:
    for alert in current_alerts([fleet(*nodes)], NOW):
        assert isinstance(alert, Alert)
        assert (alert.state is FIRING) == (NOW - alert.since >= alert.rule.lasts)
