"""Deep health checks that people request: the budget holds, idle nodes first, jobs run on."""

from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.lifecycle import after
from holdfast.decisions.node_labels import is_out_of_service
from holdfast.decisions.placement import usable
from holdfast.decisions.policy import RecoveryMode, RemediationPolicy
from holdfast.decisions.remediation import decide
from holdfast.kit.quota import Quota
from holdfast.model.actions import Drain, Quarantine
from holdfast.model.health import Remedy, Urgency
from holdfast.model.names import Condition, Reason
from holdfast.model.nodes import Breaker, ClusterView, Phase
from holdfast.model.requests import Verb
from tests.ports.builders import (
    NOW,
    a_fault,
    a_node,
    a_remediation,
    a_request,
    healthy_nodes,
    on_own_machines,
)

ONE = RemediationPolicy(max_unavailable=Quota(count=1))
WAITS = a_request(Verb.DEEP_CHECK, urgency=Urgency.DEFERRED)
AT_ONCE = a_request(Verb.DEEP_CHECK, urgency=Urgency.IMMEDIATE)


def busy(name: str, request=WAITS, *, job: str = "train", **changes):
    return a_node(name=name, request=request, running_jobs=(job,), **changes)


def idle(name: str, request=WAITS, **changes):
    return a_node(name=name, request=request, is_idle=True, **changes)


def planned(*nodes, policy=ONE, **cluster):
    return decide(ClusterView(nodes=on_own_machines(nodes), **cluster), policy, NOW)


def taken(plan) -> list[str]:
    return [one.node for one in plan.actions if isinstance(one, Quarantine)]


def waits(plan) -> dict[str, str]:
    return {one.node: one.why for one in plan.deferred if one.is_check}


# what is taken


def test_a_check_of_a_whole_busy_cluster_takes_no_node_and_names_the_job_that_it_waits_for() -> (
    None
):
    plan = planned(busy("n-1"), busy("n-2"), busy("n-3"))

    assert taken(plan) == []
    assert waits(plan) == dict.fromkeys(("n-1", "n-2", "n-3"), "job train")


def test_idle_nodes_are_taken_first_and_no_more_than_the_budget_allows() -> None:
    plan = planned(busy("n-1"), idle("n-2"), idle("n-3"))

    assert taken(plan) == ["n-2"]
    assert waits(plan)["n-1"] == "job train"
    assert waits(plan)["n-3"].endswith("the unavailable-node budget: 1 of 1 nodes out of service")


def test_who_asked_first_has_their_turn_first() -> None:
    earlier = replace(WAITS, requested_at=NOW - timedelta(hours=1))

    assert taken(planned(idle("n-1"), idle("n-2", earlier))) == ["n-2"]


def test_a_check_that_is_not_to_wait_takes_a_busy_node_within_the_budget() -> None:
    plan = planned(busy("n-1", AT_ONCE), busy("n-2", AT_ONCE), idle("n-3", AT_ONCE))

    assert taken(plan) == ["n-3"]
    assert taken(planned(busy("n-1", AT_ONCE), busy("n-2", AT_ONCE))) == ["n-1"]


def test_no_more_nodes_are_taken_than_may_be_under_a_check() -> None:
    policy = RemediationPolicy(max_unavailable=Quota(percent=100.0), max_checking=Quota(count=1))
    checking = a_node(Phase.CHECKING, name="n-1")

    plan = planned(checking, idle("n-2"), policy=policy)

    assert taken(plan) == []
    assert "other deep health checks" in waits(plan)["n-2"]


def test_a_node_that_drains_for_its_check_counts_as_one_under_check() -> None:
    policy = RemediationPolicy(max_unavailable=Quota(percent=100.0), max_checking=Quota(count=1))
    remediation = a_remediation(
        Remedy.NONE, condition=Condition.REQUESTED, reason=Reason.REQUESTED_DEEP_CHECK
    )
    draining = a_node(Phase.DRAINING, name="n-1", record={"remediation": remediation})

    plan = planned(draining, idle("n-2"), policy=policy)

    assert taken(plan) == []
    assert "other deep health checks" in waits(plan)["n-2"]


def test_a_repair_that_is_due_has_its_place_in_the_budget_before_a_check() -> None:
    faulty = a_node(Phase.QUARANTINED, name="n-1", faults=(a_fault(),))

    plan = planned(faulty, idle("n-2"))

    assert Drain(node="n-1") in plan.actions
    assert taken(plan) == []


def test_a_fault_of_a_node_whose_check_waits_is_marked_at_once() -> None:
    (action,) = planned(busy("n-1", faults=(a_fault(),))).actions

    assert isinstance(action, Quarantine)
    assert action.fault.reason == Reason.XID_REBOOT


def test_an_open_breaker_and_a_hold_keep_checks_waiting() -> None:
    is_open = planned(idle("n-1"), breaker=Breaker(tripped_at=NOW))
    is_held = planned(idle("n-1", pause_reason="I look at it"))

    assert taken(is_open) == taken(is_held) == []
    assert "breaker" in waits(is_open)["n-1"]
    assert "I look at it" in waits(is_held)["n-1"]


def test_a_check_for_a_suspicion_is_no_planned_work() -> None:
    suspicion = replace(WAITS, reason=Reason.JOBS_KEEP_FAILING)

    assert taken(planned(busy("n-1", suspicion), busy("n-2", suspicion))) == ["n-1", "n-2"]


def test_a_check_that_waits_keeps_no_job_from_its_node() -> None:
    assert usable([idle("n-1")], "train", ONE, NOW)
    assert not usable([idle("n-1", a_request(Verb.REBOOT))], "train", ONE, NOW)


# laws

PHASES = st.sampled_from(
    [Phase.SCHEDULABLE] * 4 + [Phase.QUARANTINED, Phase.DRAINING, Phase.CHECKING]
)
JOBS = st.lists(st.sampled_from(["a", "b", "c", "d", "e"]), max_size=5, unique=True).map(tuple)


@st.composite
def nodes(draw, name: str):
    phase = draw(PHASES)
    jobs = draw(JOBS)
    requested = draw(st.sampled_from([None, WAITS, AT_ONCE]))
    is_requested = draw(st.booleans())
    remediation = a_remediation(
        Remedy.NONE if is_requested else Remedy.REBOOT,
        condition=Condition.REQUESTED if is_requested else Condition.NVIDIA_REBOOT,
        reason=Reason.REQUESTED_DEEP_CHECK if is_requested else Reason.XID_REBOOT,
    )
    is_faulty = phase is not Phase.SCHEDULABLE and not is_requested
    return a_node(
        phase,
        name=name,
        provider_id=f"i-{name}",
        request=None if requested is None else replace(requested, id=f"request-{name}"),
        running_jobs=jobs,
        is_idle=phase is Phase.SCHEDULABLE and not jobs and draw(st.booleans()),
        pause_reason=draw(st.sampled_from(["", "", "", "by a person"])),
        faults=(a_fault(),) if is_faulty or draw(st.integers(0, 9)) == 0 else (),
        record={} if phase is Phase.SCHEDULABLE else {"remediation": remediation},
    )


CLUSTERS = st.integers(1, 8).flatmap(
    lambda count: st.tuples(*(nodes(f"n-{number}") for number in range(count)))
)
QUOTAS = st.sampled_from(
    [Quota(count=0), Quota(count=1), Quota(count=2), Quota(percent=20.0), Quota(percent=100.0)]
)


@given(
    cluster=CLUSTERS,
    unavailable=QUOTAS,
    checking=QUOTAS.filter(lambda quota: quota.of(1) > 0),
    is_open=st.booleans(),
    mode=st.sampled_from(RecoveryMode),
)
def test_requested_checks_keep_the_budget_and_leave_jobs_alone(
    cluster, unavailable, checking, is_open, mode
) -> None:
    policy = RemediationPolicy(
        max_unavailable=unavailable, max_checking=checking, node_recovery=mode
    )
    breaker = Breaker(tripped_at=NOW) if is_open else Breaker()
    by_name = {node.name: node for node in cluster}

    plan = planned(*cluster, policy=policy, breaker=breaker)

    begun = [
        by_name[one.node]
        for one in plan.actions
        if isinstance(one, Quarantine) and one.fault.reason == Reason.REQUESTED_DEEP_CHECK
    ]
    requested = [
        node
        for node in cluster
        if node.record.phase is Phase.SCHEDULABLE and node.request and not node.faults
    ]
    assert {node.name for node in begun} | set(waits(plan)) == {node.name for node in requested}
    for node in begun:
        assert node.is_idle or node.request.urgency is Urgency.IMMEDIATE
        assert not node.pause_reason
        assert not is_open
    records = {node.name: node.record for node in cluster}
    for action in plan.actions:
        records[action.node] = after(by_name[action.node], action, NOW)
    out = [name for name, record in records.items() if is_out_of_service(record)]
    coming = [node.name for node in begun if node.name not in out]
    if begun:
        assert len(out) + len(coming) <= unavailable.of(len(cluster))
        under_check = sum(record.phase is Phase.CHECKING for record in records.values())
        assert under_check + len(coming) <= checking.of(len(cluster))
        left_out = [
            node
            for node in requested
            if node not in begun and node.is_idle and not node.pause_reason
        ]
        assert all(node.is_idle for node in begun) or not left_out, "idle nodes go first"


@given(count=st.integers(1, 6), budget=st.integers(1, 3))
def test_every_requested_check_is_made_in_the_end(count, budget) -> None:
    policy = RemediationPolicy(max_unavailable=Quota(count=budget))
    left = {node.name: replace(node, is_idle=True, request=WAITS) for node in healthy_nodes(count)}
    made = 0
    while any(node.request for node in left.values()):
        begun = taken(planned(*left.values(), policy=policy))
        assert 1 <= len(begun) <= budget
        for name in begun:
            left[name] = replace(left[name], request=None)
        made += len(begun)
    assert made == count
