"""Slow forgery and slow false positives: beyond what hardware does, a person approves."""

from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.decisions.lifecycle import accepted, after, inherited
from holdfast.decisions.policy import RemediationPolicy
from holdfast.decisions.remediation import decide
from holdfast.decisions.replacement_limit import (
    expected_limit,
    replacement_rate,
    within_replacement_limit,
)
from holdfast.kit.quota import Quota
from holdfast.kit.units import DAY, HOUR
from holdfast.model.actions import Drain, Reassign, Rejoin, Release, Replace
from holdfast.model.health import Remedy
from holdfast.model.nodes import ClusterView, Phase
from holdfast.model.requests import Verb
from tests.ports.builders import (
    NOW,
    a_cluster,
    a_fault,
    a_node,
    a_remediation,
    a_request,
    healthy_nodes,
)

POLICY = RemediationPolicy(replacements_per_day=Quota(count=3), max_unavailable=Quota(percent=100))


def broken(name: str, **changes):
    remediation = a_remediation(Remedy.REPLACE, **changes)
    return a_node(
        Phase.QUARANTINED,
        name=name,
        provider_id=f"i-{name}",
        faults=(a_fault(Remedy.REPLACE),),
        record={"remediation": remediation},
    )


def replaced(node, now):
    """The node after a replacement that began at ``now``, as the core records it."""
    for action in (Drain(node=node.name), Replace(node=node.name, reason="x")):
        node = replace(node, record=after(node, action, now))
    node = replace(node, record=accepted(node.record, now), provider_id=f"{node.provider_id}-new")
    for action in (Rejoin(node=node.name), Release(node=node.name)):
        node = replace(node, record=after(node, action, now))
    return replace(node, faults=())


def succeeded(node, now, name):
    """A node of another name that took the place of one replaced at ``now``, as it is recorded."""
    for action in (Drain(node=node.name), Replace(node=node.name, reason="x")):
        node = replace(node, record=after(node, action, now))
    leaving = accepted(node.record, now)
    new = a_node(Phase.JOINING, name=name, provider_id=f"i-{name}")
    new = replace(new, record=inherited(new.record, leaving, now))
    return replace(new, record=after(new, Release(node=name), now))


@pytest.mark.parametrize(
    ("nodes", "hour", "day"), [(1, 11, 11), (8, 11, 12), (1000, 14, 32), (2048, 16, 46)]
)
def test_the_default_is_far_beyond_published_failure_rates(nodes, hour, day) -> None:
    assert (expected_limit(nodes, HOUR), expected_limit(nodes, DAY)) == (hour, day)
    llama_3 = 419 / 54 / 2048  # per node and day
    assert day > 4 * llama_3 * nodes


@pytest.mark.attack
def test_one_node_after_another_is_replaced_until_the_limit_and_again_a_day_later() -> None:
    nodes = list(healthy_nodes(5))
    then = NOW
    for number in range(3):
        nodes[number] = replaced(broken(nodes[number].name), then)
        then += timedelta(hours=2)
    fourth = broken("node-9")

    plan = decide(a_cluster(*nodes, fourth), POLICY, then)

    assert [one for one in plan.actions if one.node == "node-9"] == []
    [deferred] = plan.deferred
    assert deferred.why == (
        "replacement limit reached (3 of 3 in 24h); to approve this replacement, run:"
        " holdfast nodes replace node-9"
    )
    assert plan.wake_at is not None
    later = decide(a_cluster(*nodes, fourth), POLICY, NOW + DAY)
    assert Drain(node="node-9") in later.actions


@pytest.mark.attack
def test_a_replacement_counts_whatever_the_name_of_the_new_node() -> None:
    nodes = [succeeded(broken(f"node-{n}"), NOW, f"new-{n}") for n in range(3)]
    fourth = broken("node-9")

    plan = decide(a_cluster(*nodes, fourth), POLICY, NOW + HOUR)

    assert [one for one in plan.actions if one.node == "node-9"] == []
    assert "replacement limit reached (3 of 3 in 24h)" in plan.deferred[0].why
    assert Drain(node="node-9") in decide(a_cluster(*nodes, fourth), POLICY, NOW + DAY).actions


def test_a_replacement_whose_node_never_comes_counts_as_long_as_it_is_awaited() -> None:
    nodes = []
    for number in range(3):
        node = broken(f"node-{number}")
        for action in (Drain(node=node.name), Replace(node=node.name, reason="x")):
            node = replace(node, record=after(node, action, NOW))
        nodes.append(replace(node, record=accepted(node.record, NOW), heartbeat_at=None))
    deferred = decide(a_cluster(*nodes, broken("node-9")), POLICY, NOW + HOUR).deferred

    assert [one.node for one in deferred] == ["node-9"]
    assert "replacement limit reached (3 of 3 in 24h)" in deferred[0].why


def test_the_limit_ends_an_hour_after_a_replacement_of_this_very_moment() -> None:
    nodes = [replaced(broken(f"node-{n}"), NOW) for n in range(3)]
    order = Replace(node="node-9", reason="x")
    rebooted = a_node(
        Phase.REBOOTING, name="node-9", record={"remediation": a_remediation(Remedy.REBOOT)}
    )

    rated = within_replacement_limit([order], [], [*nodes, rebooted], 4, POLICY, NOW)

    assert [one.node for one in rated.deferred] == ["node-9"]
    assert rated.ends_at == NOW + HOUR


def test_a_request_of_a_person_is_an_approval_and_is_not_counted() -> None:
    nodes = [replaced(broken(f"node-{n}"), NOW) for n in range(3)]
    approved = broken("node-9", request_id="request-1")

    assert Drain(node="node-9") in decide(a_cluster(*nodes, approved), POLICY, NOW).actions

    nodes[0] = replaced(broken("node-0", request_id="request-2"), NOW)
    assert replacement_rate(nodes, 4, POLICY, NOW).last_day == 2


def test_a_reboot_that_becomes_a_replacement_counts_too() -> None:
    nodes = [replaced(broken(f"node-{n}"), NOW) for n in range(3)]
    rebooting = a_node(
        Phase.REBOOTING,
        name="node-9",
        provider_id="i-9",
        record={
            "remediation": a_remediation(
                Remedy.REBOOT, ordered_at=NOW - POLICY.reboot_timeout, machine="i-9#boot-1"
            ),
            "phase_since": NOW - POLICY.reboot_timeout,
        },
        heartbeat_at=None,
    )
    alone = decide(a_cluster(*healthy_nodes(3), rebooting), POLICY, NOW)
    assert [type(one) for one in alone.actions] == [Replace]

    plan = decide(a_cluster(*nodes, rebooting), POLICY, NOW)

    assert [one for one in plan.actions if isinstance(one, Replace)] == []
    assert "replacement limit" in plan.deferred[0].why


def test_a_replacement_that_was_ordered_goes_on_whatever_the_limit() -> None:
    policy = replace(POLICY, replacements_per_day=Quota(count=0))
    remediation = a_remediation(Remedy.REPLACE)
    draining = a_node(
        Phase.DRAINING,
        faults=(a_fault(Remedy.REPLACE),),
        record={"remediation": remediation, "phase_since": NOW - policy.drain_timeout},
    )

    plan = decide(a_cluster(draining, *healthy_nodes(3, first=2)), policy, NOW)

    assert [type(one) for one in plan.actions] == [Replace]


@pytest.mark.attack
def test_a_fault_that_becomes_worse_while_its_node_drains_counts_too() -> None:
    policy = replace(POLICY, replacements_per_day=Quota(count=0))
    draining = a_node(
        Phase.DRAINING,
        faults=(a_fault(Remedy.REPLACE),),
        running_jobs=("a",),
        record={"remediation": a_remediation(Remedy.REBOOT), "phase_since": NOW},
    )
    cluster = a_cluster(draining, *healthy_nodes(3, first=2))
    alone = decide(cluster, POLICY, NOW)
    assert [type(one) for one in alone.actions] == [Reassign]

    plan = decide(cluster, policy, NOW)

    assert plan.actions == ()
    assert "replacement limit" in plan.deferred[0].why


def test_a_person_may_have_a_node_replaced_beyond_the_limit_that_does_not_come_back() -> None:
    policy = replace(POLICY, replacements_per_day=Quota(count=0))
    request = a_request(Verb.REPLACE)
    node = a_node(
        Phase.REBOOTING,
        request=request,
        record={"remediation": a_remediation(machine="i-1#boot-1", ordered_at=NOW)},
    )
    cluster = a_cluster(node, *healthy_nodes(3, first=2))

    [order] = decide(cluster, policy, NOW).actions

    assert isinstance(order, Replace)
    ordered = replace(node, record=after(node, order, NOW))
    assert replacement_rate([ordered], 4, policy, NOW).last_day == 0


@pytest.mark.attack
def test_a_machine_that_two_nodes_claim_is_left_alone_and_both_are_named() -> None:
    one = broken("node-1")
    other = a_node(name="node-2", provider_id=one.provider_id)

    plan = decide(ClusterView(nodes=(one, other, *healthy_nodes(3, first=3))), POLICY, NOW)

    assert [action for action in plan.actions if action.node == "node-1"] == []
    assert plan.deferred[0].why.startswith("node-2 has the same provider ID i-node-1, so a repair")
