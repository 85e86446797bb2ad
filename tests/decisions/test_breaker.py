from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.decisions.policy import RemediationPolicy
from holdfast.decisions.remediation import decide
from holdfast.model.actions import Drain, Quarantine, Reboot, Rejoin, Release, Replace
from holdfast.model.health import Remedy
from holdfast.model.names import Condition, Reason
from holdfast.model.nodes import Breaker, Phase
from holdfast.model.requests import Verb
from tests.ports.builders import (
    LONG_AGO,
    NOW,
    a_cluster,
    a_fault,
    a_node,
    a_past_fault,
    a_record,
    a_remediation,
    a_request,
    healthy_nodes,
)

POLICY = RemediationPolicy(breaker_min_nodes=3, breaker_share=50.0)
WINDOW = POLICY.breaker_window
TICK = timedelta(microseconds=1)
OPEN = Breaker(tripped_at=NOW - timedelta(hours=1), reason="too many")


def faulty(count: int, total: int, *, since=NOW - TICK):
    nodes = healthy_nodes(total)
    fault = a_fault(since=since)
    return [replace(node, faults=(fault,)) for node in nodes[:count]] + list(nodes[count:])


@pytest.mark.parametrize(
    ("count", "total", "trips"),
    [
        (2, 3, False),  # too few nodes, whatever their share
        (3, 6, False),  # exactly the share
        (3, 5, True),
        (4, 6, True),
        (3, 3, True),
    ],
)
def test_more_than_the_share_of_newly_faulty_nodes_trips_it(count, total, trips) -> None:
    plan = decide(a_cluster(*faulty(count, total)), POLICY, NOW)

    assert (plan.trip is not None) is trips


def test_it_says_which_nodes_turned_faulty() -> None:
    plan = decide(a_cluster(*faulty(4, 6)), POLICY, NOW)

    assert plan.trip is not None
    assert plan.trip.nodes == ("node-1", "node-2", "node-3", "node-4")
    assert plan.trip.reason == "4 of 6 nodes turned faulty in 5 minutes"


@pytest.mark.parametrize(("age", "trips"), [(WINDOW - TICK, True), (WINDOW, False)])
def test_only_faults_within_the_window_count(age, trips) -> None:
    plan = decide(a_cluster(*faulty(4, 4, since=NOW - age)), POLICY, NOW)

    assert (plan.trip is not None) is trips


@pytest.mark.parametrize(
    ("reset_at", "trips"), [(NOW - 2 * TICK, True), (NOW - TICK, False), (NOW, False)]
)
def test_faults_from_before_a_persons_reset_count_no_more(reset_at, trips) -> None:
    cluster = a_cluster(*faulty(4, 4, since=NOW - TICK), breaker=Breaker(reset_at=reset_at))

    assert (decide(cluster, POLICY, NOW).trip is not None) is trips


def test_a_reset_long_ago_does_not_widen_the_window() -> None:
    cluster = a_cluster(*faulty(4, 4, since=NOW - WINDOW), breaker=Breaker(reset_at=LONG_AGO))

    assert decide(cluster, POLICY, NOW).trip is None


def test_nodes_under_repair_and_nodes_that_recovered_count_as_well() -> None:
    opened = NOW - TICK
    rebooting = a_node(
        Phase.REBOOTING, record={"remediation": a_remediation(opened_at=opened, ordered_at=NOW)}
    )
    recovered = a_node(
        name="node-2",
        record={"history": (a_past_fault(Remedy.NONE, ago=TICK),)},
    )
    silent = a_node(name="node-3", heartbeat_at=NOW - POLICY.heartbeat_timeout)

    plan = decide(a_cluster(rebooting, recovered, silent), POLICY, NOW)

    assert plan.trip is not None
    assert plan.trip.nodes == ("node-1", "node-2", "node-3")


def test_what_people_request_never_trips_it() -> None:
    requested = [
        a_node(name=f"node-{number}", request=a_request(Verb.REBOOT)) for number in range(4)
    ]
    remediation = a_remediation(condition=Condition.REQUESTED, opened_at=NOW, ordered_at=NOW)
    under_way = [
        a_node(Phase.REBOOTING, name=f"node-{number}", record={"remediation": remediation})
        for number in range(4, 8)
    ]

    assert decide(a_cluster(*requested, *under_way), POLICY, NOW).trip is None


def test_a_tripped_one_does_not_trip_again() -> None:
    assert decide(a_cluster(*faulty(4, 4), breaker=OPEN), POLICY, NOW).trip is None


def test_the_very_round_that_trips_it_begins_no_repair() -> None:
    draining = a_node(
        Phase.DRAINING, name="node-9", faults=(a_fault(),), record={"remediation": a_remediation()}
    )

    plan = decide(a_cluster(*faulty(4, 4), draining), POLICY, NOW)

    assert plan.trip is not None
    assert {type(action) for action in plan.actions} == {Quarantine}
    assert [(item.node, item.why) for item in plan.deferred] == [("node-9", "circuit breaker open")]


REFUSED = a_remediation(ordered_at=None, machine="i-1#boot-1", repairs=1)
OVERDUE = replace(REFUSED, ordered_at=LONG_AGO)


@pytest.mark.parametrize(
    "node",
    [
        a_node(Phase.QUARANTINED, faults=(a_fault(),)),
        a_node(Phase.DRAINING, faults=(a_fault(),)),
        a_node(Phase.REBOOTING, record={"remediation": REFUSED}),
        a_node(Phase.REBOOTING, record={"remediation": OVERDUE}),
        a_node(Phase.REPLACING, record={"remediation": REFUSED}),
        a_node(Phase.REPLACING, record={"remediation": OVERDUE}),
        a_node(
            Phase.DRAINING, record={"remediation": a_remediation(condition=Condition.REQUESTED)}
        ),
    ],
    ids=lambda node: f"{node.record.phase}-{node.record.remediation.ordered_at}",
)
def test_an_open_one_holds_every_order_and_every_drain(node) -> None:
    closed = decide(a_cluster(node), POLICY, NOW)
    opened = decide(a_cluster(node, breaker=OPEN), POLICY, NOW)

    assert isinstance(closed.actions[0], Drain | Reboot | Replace)
    assert opened.actions == ()
    assert [item.why for item in opened.deferred] == ["circuit breaker open"]


def test_an_open_one_still_marks_and_still_lets_nodes_come_back() -> None:
    nodes = (
        a_node(name="faulty", faults=(a_fault(),)),
        a_node(Phase.QUARANTINED, name="recovered"),
        a_node(Phase.JOINING, name="new"),
        a_node(
            Phase.REBOOTING,
            name="back",
            boot_id="boot-2",
            record={"remediation": a_remediation(machine="i-1#boot-1", ordered_at=NOW)},
        ),
    )

    plan = decide(a_cluster(*nodes, breaker=OPEN), POLICY, NOW)

    assert {action.node: type(action) for action in plan.actions} == {
        "faulty": Quarantine,
        "recovered": Release,
        "new": Release,
        "back": Rejoin,
    }


def test_share_of_a_hundred_percent_never_trips() -> None:
    policy = RemediationPolicy(breaker_share=100.0, breaker_min_nodes=1)

    assert decide(a_cluster(*faulty(4, 4)), policy, NOW).trip is None


def test_a_reset_one_lets_repairs_begin() -> None:
    node = a_node(
        Phase.QUARANTINED,
        faults=(a_fault(reason=Reason.XID_REBOOT),),
        record={"remediation": a_remediation(opened_at=NOW - timedelta(minutes=1))},
    )
    record = a_record(Phase.QUARANTINED)

    plan = decide(a_cluster(node, breaker=Breaker(reset_at=NOW)), POLICY, NOW)

    assert record.remediation is not None
    assert plan.actions == (Drain(node="node-1"),)


QUIET = POLICY.breaker_close_after
LONG_HEALTHY = [
    a_node(name=f"node-{number}", record={"phase_since": LONG_AGO}) for number in (1, 2)
]
SINCE = timedelta(hours=1)
"""How long the breaker of ``OPEN`` is open."""


def closes(*nodes, quiet=QUIET, breaker=OPEN, now=NOW, **cluster):
    policy = replace(POLICY, breaker_close_after=quiet)
    return decide(replace(a_cluster(*nodes, breaker=breaker), **cluster), policy, now)


@pytest.mark.parametrize(("quiet", "closed"), [(SINCE, True), (SINCE + TICK, False)])
def test_an_open_one_closes_when_all_nodes_were_healthy_for_long_enough(quiet, closed) -> None:
    plan = closes(*LONG_HEALTHY, quiet=quiet)

    assert (plan.close is not None) is closed
    if plan.close is not None:
        assert plan.close.tripped_at == OPEN.tripped_at
        assert plan.close.reason == "all 2 nodes were healthy for 60 minutes"
    else:
        assert plan.wake_at == NOW + TICK


@pytest.mark.parametrize(("ago", "closed"), [(QUIET, True), (QUIET - TICK, False)])
def test_a_node_that_was_out_of_service_starts_the_time_anew(ago, closed) -> None:
    back = a_node(name="node-9", record={"phase_since": NOW - ago})

    assert (closes(*LONG_HEALTHY, back).close is not None) is closed


@pytest.mark.parametrize(
    "node",
    [
        *(a_node(phase, name="node-9") for phase in Phase if phase is not Phase.SCHEDULABLE),
        a_node(name="node-9", faults=(a_fault(),)),
        a_node(name="node-9", heartbeat_at=NOW - POLICY.heartbeat_timeout),
        a_node(name="node-9", heartbeat_at=None),
        a_node(name="node-9", powered_on=False),
    ],
    ids=lambda node: f"{node.record.phase}-{len(node.faults)}-{node.heartbeat_at}",
)
def test_it_stays_open_while_one_node_is_not_healthy(node) -> None:
    assert closes(*LONG_HEALTHY, node).close is None


def test_it_stays_open_where_a_person_is_to_close_it_or_nothing_is_known() -> None:
    assert closes(*LONG_HEALTHY, quiet=timedelta(0)).close is None
    assert closes().close is None
    assert closes(*LONG_HEALTHY, unreadable=frozenset({"node-9"})).close is None
    assert closes(*LONG_HEALTHY, breaker=Breaker(reset_at=LONG_AGO)).close is None
