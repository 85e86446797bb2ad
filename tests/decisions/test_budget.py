from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.decisions.lifecycle import accepted, after
from holdfast.decisions.node_labels import is_out_of_service
from holdfast.decisions.policy import RemediationPolicy
from holdfast.decisions.remediation import decide
from holdfast.kit.quota import Quota
from holdfast.model.actions import Drain, Reboot, Release, Replace
from holdfast.model.health import Remedy, Urgency
from holdfast.model.nodes import CheckResult, Phase
from tests.ports.builders import (
    NOW,
    a_cluster,
    a_fault,
    a_node,
    a_remediation,
    healthy_nodes,
)


def waiting(number, **remediation):
    """A node in quarantine, which would be drained if it may."""
    fault = a_fault(urgency=remediation.get("urgency", Urgency.IMMEDIATE))
    return a_node(
        Phase.QUARANTINED,
        name=f"waiting-{number}",
        faults=(fault,),
        record={
            "remediation": a_remediation(**remediation),
            "phase_since": NOW - timedelta(minutes=10 - number),
        },
    )


def drained(*nodes, quota):
    policy = RemediationPolicy(max_unavailable=quota, breaker_share=100.0)
    plan = decide(a_cluster(*nodes), policy, NOW)
    return [action.node for action in plan.actions if isinstance(action, Drain)], plan.deferred


@pytest.mark.parametrize(
    ("quota", "fleet", "begun"),
    [
        (Quota(count=0), 5, 0),
        (Quota(count=2), 5, 2),
        (Quota(count=9), 5, 3),
        (Quota(percent=0.0), 5, 0),
        (Quota(percent=20.0), 5, 1),
        (Quota(percent=20.0), 6, 2),  # 1.2 is rounded up
        (Quota(percent=1.0), 5, 1),
        (Quota(percent=100.0), 5, 3),
    ],
)
def test_so_many_repairs_begin_as_may_at_once(quota, fleet, begun) -> None:
    nodes = [*(waiting(number) for number in range(3)), *healthy_nodes(fleet - 3)]

    names, deferred = drained(*nodes, quota=quota)

    assert len(names) == begun
    assert len(deferred) == 3 - begun


def test_who_is_held_back_says_why() -> None:
    _, deferred = drained(waiting(1), waiting(2), quota=Quota(count=1))

    assert [(item.node, item.why) for item in deferred] == [
        ("waiting-2", "unavailable-node budget used (1 of 1)")
    ]


def test_the_urgent_go_first_and_then_who_has_waited_longest() -> None:
    nodes = (
        waiting(1, urgency=Urgency.DEFERRED),
        waiting(3),
        waiting(2),
    )

    assert drained(*nodes, quota=Quota(count=2))[0] == ["waiting-2", "waiting-3"]


def test_who_has_been_drained_goes_before_who_has_waited_longest() -> None:
    fresh, rebooted = waiting(1), waiting(9, repairs=1)
    checked = waiting(8)
    check = CheckResult(passed=False, ended_at=checked.record.remediation.opened_at)
    checked = replace(checked, record=replace(checked.record, checks=(check,)))

    assert drained(fresh, rebooted, quota=Quota(count=1))[0] == ["waiting-9"]
    assert drained(fresh, checked, quota=Quota(count=1))[0] == ["waiting-8"]


def test_a_wrong_detector_takes_one_node_after_another_through_all_its_repairs() -> None:
    """Each node is accused again after its reboot, until that is over for good."""
    policy = RemediationPolicy(max_unavailable=Quota(count=1), breaker_share=100.0)
    nodes = {f"node-{n}": a_node(name=f"node-{n}", provider_id=f"i-{n}") for n in range(6)}
    now, drained_since_release = NOW, set[str]()
    for _ in range(60):
        now += timedelta(seconds=30)
        nodes = {
            name: replace(one, faults=(a_fault(since=now),), heartbeat_at=now)
            for name, one in nodes.items()
        }
        for action in decide(a_cluster(*nodes.values()), policy, now).actions:
            node = nodes[action.node]
            record = after(node, action, now)
            if isinstance(action, Drain):
                drained_since_release.add(node.name)
            if isinstance(action, Release):
                drained_since_release.discard(node.name)
            if isinstance(action, Reboot | Replace):
                record = accepted(record, now)
                node = replace(node, boot_id=f"{node.boot_id}+")
            nodes[node.name] = replace(node, record=record)
        assert len(drained_since_release) <= 1, now - NOW
    assert drained_since_release


OUT = [
    (Phase.DRAINING, True),
    (Phase.REBOOTING, True),
    (Phase.REPLACING, True),
    (Phase.QUARANTINED, False),
    (Phase.SCHEDULABLE, False),
]


@pytest.mark.parametrize(("phase", "is_out"), OUT)
def test_a_node_is_out_from_its_drain_on(phase, is_out) -> None:
    assert is_out_of_service(a_node(phase).record) is is_out


@pytest.mark.parametrize("phase", [Phase.JOINING, Phase.CHECKING])
@pytest.mark.parametrize(("remediation", "is_out"), [(None, False), (a_remediation(), True)])
def test_a_node_is_out_until_its_remediation_is_over(phase, remediation, is_out) -> None:
    assert is_out_of_service(a_node(phase, record={"remediation": remediation}).record) is is_out


@pytest.mark.parametrize(("phase", "is_out"), OUT)
def test_nodes_that_are_out_leave_less_room(phase, is_out) -> None:
    other = a_node(
        phase,
        faults=() if phase is Phase.SCHEDULABLE else (a_fault(),),
        running_jobs=("a",),
        record={
            "remediation": None
            if phase is Phase.SCHEDULABLE
            else a_remediation(
                Remedy.REPLACE if phase is Phase.REPLACING else Remedy.REBOOT,
                urgency=Urgency.DEFERRED,
                ordered_at=NOW,
                machine="i-1#boot-1",
            )
        },
    )

    assert len(drained(other, waiting(1), quota=Quota(count=1))[0]) == (0 if is_out else 1)


def test_a_successor_that_has_not_taken_over_makes_the_cluster_no_larger() -> None:
    old = a_node(
        Phase.REPLACING,
        name="old",
        record={
            "remediation": a_remediation(Remedy.REPLACE, machine="i-1#boot-1", ordered_at=NOW),
        },
    )
    new = a_node(Phase.JOINING, name="new", provider_id="i-2", replaces="old")
    others = healthy_nodes(3)

    five = drained(old, waiting(1), *others, quota=Quota(percent=20.0))
    with_successor = drained(old, new, waiting(1), *others, quota=Quota(percent=20.0))

    assert five[0] == with_successor[0] == []
