"""Deep health checks: which idle nodes are due, and how many may be under a check at once."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.check_schedule import check_due_at, is_check_due
from holdfast.decisions.lifecycle import after
from holdfast.decisions.policy import RemediationPolicy
from holdfast.decisions.remediation import decide
from holdfast.kit.quota import Quota
from holdfast.model.actions import Drain, Quarantine, Release, StartCheck
from holdfast.model.health import Remedy, Urgency
from holdfast.model.names import Condition, Reason
from holdfast.model.nodes import CHECKS_LIMIT, Breaker, CheckResult, ClusterView, Phase
from holdfast.model.requests import Verb
from tests.ports.builders import (
    LONG_AGO,
    NOW,
    a_cluster,
    a_fault,
    a_node,
    a_remediation,
    a_request,
)

DAY = timedelta(days=1)
TICK = timedelta(microseconds=1)
SOON = timedelta(seconds=5)
POLICY = RemediationPolicy(deep_check_every=DAY)


def passed(ago: timedelta) -> CheckResult:
    return CheckResult(passed=True, ended_at=NOW - ago)


def an_idle_node(name: str = "node-1", *, ago: timedelta = DAY, **changes):
    return a_node(name=name, is_idle=True, record={"checks": (passed(ago),)}, **changes)


def taken(*nodes, policy=POLICY, **cluster) -> list[str]:
    plan = decide(ClusterView(nodes=nodes, **cluster), policy, NOW)
    return [action.node for action in plan.actions if isinstance(action, Quarantine)]


# schedule


def test_an_idle_node_is_checked_again_exactly_when_its_last_check_is_old_enough() -> None:
    assert taken(an_idle_node(ago=DAY)) == ["node-1"]
    assert taken(an_idle_node(ago=DAY - TICK)) == []


def test_only_nodes_that_work_are_due() -> None:
    checking = replace(an_idle_node().record, phase=Phase.CHECKING)

    assert check_due_at("", an_idle_node().record, POLICY) == NOW
    assert check_due_at("", checking, POLICY) is None
    assert is_check_due("", an_idle_node().record, POLICY, NOW)
    assert not is_check_due("", an_idle_node().record, POLICY, NOW - TICK)


def test_a_node_that_was_never_checked_is_due_from_its_release_on() -> None:
    assert taken(a_node(is_idle=True, record={"phase_since": NOW - DAY})) == ["node-1"]
    assert taken(a_node(is_idle=True, record={"phase_since": NOW - DAY + TICK})) == []


def test_a_node_that_has_or_may_have_jobs_is_not_taken_for_a_check() -> None:
    assert taken(replace(an_idle_node(), is_idle=False)) == []


def test_no_node_is_taken_where_no_time_is_set() -> None:
    assert taken(an_idle_node(ago=100 * DAY), policy=RemediationPolicy()) == []


def test_what_is_taken_is_a_check_alone_and_lets_a_job_that_just_came_run_on() -> None:
    (action,) = decide(a_cluster(an_idle_node()), POLICY, NOW).actions

    assert (action.remedy, action.fault.urgency) == (Remedy.NONE, Urgency.DEFERRED)
    assert action.fault.reason == Reason.SCHEDULED_DEEP_CHECK


def test_the_longest_waiting_node_goes_first_and_alone() -> None:
    nodes = [an_idle_node("a", ago=2 * DAY), an_idle_node("b", ago=3 * DAY), an_idle_node("c")]

    assert taken(*nodes) == ["b"]


@pytest.mark.parametrize("phase", [Phase.QUARANTINED, Phase.DRAINING, Phase.CHECKING])
def test_while_one_is_checked_by_schedule_no_other_is_taken(phase) -> None:
    remediation = a_remediation(
        Remedy.NONE, condition=Condition.REQUESTED, reason=Reason.SCHEDULED_DEEP_CHECK
    )
    busy = a_node(phase, name="b", record={"remediation": remediation})

    assert taken(an_idle_node("a"), busy) == []


def test_a_check_that_somebody_asked_for_does_not_stop_the_schedule() -> None:
    remediation = a_remediation(
        Remedy.NONE, condition=Condition.REQUESTED, reason=Reason.REQUESTED_DEEP_CHECK
    )

    assert taken(
        an_idle_node("a"), a_node(Phase.CHECKING, name="b", record={"remediation": remediation})
    ) == ["a"]


def test_an_open_breaker_or_a_hold_stops_the_schedule() -> None:
    assert taken(an_idle_node(), breaker=Breaker(tripped_at=NOW)) == []
    assert taken(an_idle_node(pause_reason="I look at it")) == []


def test_a_fault_goes_before_the_schedule() -> None:
    (action,) = decide(a_cluster(an_idle_node(faults=(a_fault(),))), POLICY, NOW).actions

    assert action.fault.condition != Condition.REQUESTED


def test_the_next_look_is_when_the_next_node_is_due() -> None:
    nodes = [
        an_idle_node("a", ago=DAY),
        an_idle_node("b", ago=DAY - SOON),
        an_idle_node("c", ago=TICK),
    ]
    busy = [replace(node, is_idle=False) for node in nodes]

    assert decide(a_cluster(*busy), POLICY, NOW).wake_at == NOW + SOON


# groups

GROUPED = RemediationPolicy(
    deep_check_on_start=True, deep_check_every=DAY, deep_check_groups=("gpu", "trn")
)


@pytest.mark.parametrize(("group", "is_checked"), [("gpu", True), ("trn", True), ("cpu", False)])
def test_only_nodes_of_the_named_groups_are_checked_unasked(group, is_checked) -> None:
    joining = decide(a_cluster(a_node(Phase.JOINING, group=group)), GROUPED, NOW).actions

    assert isinstance(joining[0], StartCheck) is is_checked
    assert bool(taken(an_idle_node(group=group), policy=GROUPED)) is is_checked


def test_a_node_of_another_group_is_checked_when_it_is_asked_for() -> None:
    requested = a_node(Phase.JOINING, group="cpu", request=a_request(Verb.DEEP_CHECK))

    (action,) = decide(a_cluster(requested), GROUPED, NOW).actions

    assert isinstance(action, Quarantine | StartCheck)


# limit


@given(running=st.integers(0, 5), joining=st.integers(0, 6), allowed=st.integers(1, 6))
def test_never_more_nodes_are_under_a_check_than_are_allowed(running, joining, allowed) -> None:
    policy = RemediationPolicy(deep_check_on_start=True, max_checking=Quota(count=allowed))
    nodes = [a_node(Phase.CHECKING, name=f"c{i}") for i in range(running)]
    nodes += [a_node(Phase.JOINING, name=f"j{i}") for i in range(joining)]

    plan = decide(a_cluster(*nodes), policy, NOW)

    begun = [action for action in plan.actions if isinstance(action, StartCheck)]
    held = [one for one in plan.deferred if one.node.startswith("j")]
    assert len(begun) == min(joining, max(0, allowed - running))
    assert len(begun) + len(held) == joining


def test_the_limit_holds_back_nothing_but_checks() -> None:
    policy = RemediationPolicy(
        deep_check_on_start=True, max_checking=Quota(count=1), max_unavailable=Quota(count=9)
    )
    bad = a_node(
        Phase.QUARANTINED, name="q", record={"remediation": a_remediation()}, faults=(a_fault(),)
    )
    nodes = [a_node(Phase.CHECKING, name="c"), a_node(Phase.JOINING, name="j"), bad]

    (action,) = decide(a_cluster(*nodes), policy, NOW).actions

    assert action == Drain(node="q")


def test_a_limit_of_none_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="max_checking"):
        RemediationPolicy(max_checking=Quota(count=0))


@pytest.mark.parametrize("every", [timedelta(0), -DAY])
def test_a_schedule_that_never_ends_is_refused(every) -> None:
    with pytest.raises(ValueError, match="deep_check_every"):
        RemediationPolicy(deep_check_every=every)


# record


def test_a_passed_check_is_kept_with_what_it_measured() -> None:
    check = CheckResult(passed=True, ended_at=NOW, measured={"nccl_gb_per_s": 480.0})

    record = after(a_node(Phase.CHECKING, check=check), Release(node="node-1", checked=True), NOW)

    assert record.checks == (check,)


def test_a_failed_check_is_kept_and_so_is_one_that_never_ended() -> None:
    fault = a_fault(Remedy.REPLACE, condition=Condition.DEEP_CHECK, message="GPU 3 is slow")
    action = Quarantine(node="node-1", fault=fault, remedy=Remedy.REPLACE)
    failed = CheckResult(passed=False, ended_at=LONG_AGO, detail="x" * 1000)

    (kept,) = after(a_node(Phase.CHECKING, check=failed), action, NOW).checks
    (never,) = after(a_node(Phase.CHECKING), action, NOW).checks

    assert (kept.passed, kept.ended_at, len(kept.detail)) == (False, LONG_AGO, 300)
    assert never == CheckResult(passed=False, ended_at=NOW, detail="GPU 3 is slow")


def test_a_fault_that_cuts_a_check_short_is_no_check() -> None:
    action = Quarantine(node="node-1", fault=a_fault(), remedy=Remedy.REPLACE)

    assert after(a_node(Phase.CHECKING), action, NOW).checks == ()


def test_only_the_last_checks_are_kept() -> None:
    before = tuple(passed(DAY * i) for i in range(CHECKS_LIMIT, 0, -1))
    node = a_node(Phase.CHECKING, check=passed(TICK), record={"checks": before})

    record = after(node, Release(node="node-1", checked=True), NOW)

    assert record.checks == (*before[1:], passed(TICK))


def test_another_machine_begins_without_checks() -> None:
    remediation = a_remediation(machine="i-1#boot-1")
    checks = (passed(DAY),)
    for provider_id, left in (("i-1", checks), ("i-2", ())):
        node = a_node(
            Phase.REBOOTING,
            provider_id=provider_id,
            boot_id="boot-2",
            record={"remediation": remediation, "checks": checks},
        )
        (action,) = decide(a_cluster(node), POLICY, NOW).actions
        assert after(node, action, NOW).checks == left
