"""Nodes whose agent is silent while the scheduler's daemon on them answers."""

from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.decisions.faults import agent_fault, lost_fault, node_faults
from holdfast.decisions.job_resume import hardware_failure
from holdfast.decisions.lifecycle import after
from holdfast.decisions.node_labels import health_status
from holdfast.decisions.placement import usable
from holdfast.decisions.policy import RecoveryMode, RemediationPolicy, SilentAgentAction
from holdfast.decisions.remediation import decide, decide_node
from holdfast.kit.quota import Quota
from holdfast.model.actions import (
    Drain,
    Quarantine,
    Reassign,
    Reboot,
    Rejoin,
    Release,
    Replace,
    SetAgentCondition,
    StartCheck,
    Wait,
)
from holdfast.model.health import Remedy, Urgency
from holdfast.model.names import Condition, HealthStatus, Reason
from holdfast.model.nodes import CheckResult, NodeView, Phase
from holdfast.model.requests import Verb
from tests.ports.builders import (
    NOW,
    a_cluster,
    a_fault,
    a_job,
    a_node,
    a_remediation,
    a_request,
    by_name,
    healthy_nodes,
)

POLICY = RemediationPolicy(max_unavailable=Quota(count=2))
TICK = timedelta(microseconds=1)
LONG = timedelta(hours=1)
DEEP = replace(POLICY, silent_agent_action=SilentAgentAction.DEEP_CHECK)
WARN = replace(POLICY, silent_agent_action=SilentAgentAction.WARN)
SINCE = NOW - LONG + POLICY.heartbeat_timeout


def answering(phase: Phase = Phase.SCHEDULABLE, **changes) -> NodeView:
    """A node whose kubelet is ready; its agent was heard an hour ago."""
    values = {"heartbeat_at": NOW - LONG, "answered_at": NOW, "is_ready": True}
    return a_node(phase, **{**values, **changes})


def marked(phase: Phase = Phase.SCHEDULABLE, **changes) -> NodeView:
    record = {"agent_silent_since": SINCE, **changes.pop("record", {})}
    return answering(phase, record=record, **changes)


def out_of_service(phase: Phase = Phase.QUARANTINED, **changes) -> NodeView:
    remediation = a_remediation(
        Remedy.NONE,
        condition=Condition.AGENT_SILENT,
        reason=Reason.AGENT_SILENT,
        urgency=Urgency.DEFERRED,
    )
    record = {"remediation": remediation, **changes.pop("record", {})}
    return marked(phase, record=record, **changes)


def only(node: NodeView, policy: RemediationPolicy = POLICY, others: int = 9):
    (action,) = decide(a_cluster(node, *healthy_nodes(others, first=2)), policy, NOW).actions
    return action


# what silence is


@pytest.mark.parametrize(
    ("silence", "is_silent"),
    [
        (POLICY.heartbeat_timeout - TICK, False),
        (POLICY.heartbeat_timeout, True),
        (POLICY.heartbeat_timeout + TICK, True),
    ],
)
def test_an_agent_is_silent_after_the_heartbeat_timeout(silence, is_silent) -> None:
    fault = agent_fault(answering(heartbeat_at=NOW - silence), POLICY, NOW)

    assert (fault is not None) is is_silent
    if fault is not None:
        assert (fault.condition, fault.remedy) == (Condition.AGENT_SILENT, Remedy.NONE)
        assert fault.since == NOW - silence + POLICY.heartbeat_timeout


def test_a_node_is_lost_only_if_its_kubelet_is_silent_too() -> None:
    dead = answering(answered_at=NOW - POLICY.heartbeat_timeout, is_ready=False)

    assert lost_fault(answering(), POLICY, NOW) is None
    assert lost_fault(dead, POLICY, NOW).reason == Reason.NODE_SILENT
    assert agent_fault(dead, POLICY, NOW) is None


def test_without_a_scheduler_a_silent_agent_is_a_lost_node() -> None:
    node = a_node(heartbeat_at=NOW - LONG)

    assert agent_fault(node, POLICY, NOW) is None
    assert lost_fault(node, POLICY, NOW).reason == Reason.NODE_SILENT


# nodes that come


@pytest.mark.parametrize("on_start", [False, True])
@pytest.mark.parametrize("policy", [POLICY, WARN, DEEP])
def test_a_node_whose_agent_never_reported_stays_out_though_its_kubelet_is_ready(
    policy, on_start
) -> None:
    policy = replace(policy, deep_check_on_start=on_start)
    node = answering(Phase.JOINING, heartbeat_at=None)

    assert isinstance(decide_node(node, policy, NOW), Wait)
    late = answering(
        Phase.JOINING, heartbeat_at=None, record={"phase_since": NOW - policy.join_timeout}
    )
    choice = decide_node(late, policy, NOW)
    assert isinstance(choice, Quarantine)
    assert choice.fault.reason == Reason.NODE_NEVER_JOINED


def test_a_node_that_never_joined_is_not_released_by_its_kubelet() -> None:
    remediation = a_remediation(
        Remedy.REPLACE, condition=Condition.NODE_LOST, reason=Reason.NODE_NEVER_JOINED
    )
    for phase in (Phase.QUARANTINED, Phase.DRAINING):
        node = answering(phase, heartbeat_at=None, record={"remediation": remediation})
        assert isinstance(decide_node(node, POLICY, NOW), Drain | Replace)


def test_a_lost_node_is_released_by_its_agent_and_not_by_its_kubelet() -> None:
    remediation = a_remediation(
        Remedy.REPLACE, condition=Condition.NODE_LOST, reason=Reason.NODE_SILENT
    )
    back = answering(Phase.QUARANTINED, record={"remediation": remediation})

    assert isinstance(decide_node(back, POLICY, NOW), Drain)
    heard = replace(back, heartbeat_at=NOW)
    assert decide_node(heard, POLICY, NOW) == Release(node=back.name)


def test_a_node_joins_with_agent_and_kubelet() -> None:
    node = answering(Phase.JOINING, heartbeat_at=NOW)

    assert decide_node(node, POLICY, NOW) == Release(node=node.name)
    assert isinstance(decide_node(replace(node, is_ready=False), POLICY, NOW), Wait)


def test_a_rebooted_node_rejoins_with_agent_and_kubelet() -> None:
    node = answering(Phase.REBOOTING, heartbeat_at=NOW, boot_id="boot-2")

    assert decide_node(node, POLICY, NOW) == Rejoin(node=node.name)
    assert isinstance(decide_node(replace(node, is_ready=False), POLICY, NOW), Wait)


def test_a_reboot_that_has_happened_is_not_ordered_again_though_its_response_was_lost() -> None:
    remediation = a_remediation(
        machine="i-1#boot-1", retry_at=NOW - timedelta(seconds=1), is_outcome_unknown=True
    )
    node = answering(
        Phase.REBOOTING, heartbeat_at=NOW, boot_id="boot-2", is_ready=False,
        record={"remediation": remediation},
    )  # fmt: skip

    deadline = NOW - timedelta(seconds=1) + POLICY.reboot_timeout
    assert decide_node(node, POLICY, NOW) == Wait(until=deadline)


# the mark


@pytest.mark.parametrize(("after_deadline", "is_silent"), [(-1, False), (0, True), (1, True)])
def test_an_agent_is_silent_only_if_the_node_answers_after_its_deadline(
    after_deadline: int, is_silent: bool
) -> None:
    deadline = NOW - timedelta(seconds=10)
    node = answering(
        heartbeat_at=deadline - POLICY.heartbeat_timeout,
        answered_at=deadline + timedelta(microseconds=after_deadline),
    )

    assert (agent_fault(node, POLICY, NOW) is not None) == is_silent


def test_silence_is_recorded_first_and_once() -> None:
    assert only(answering()) == SetAgentCondition(node="node-1", silent_since=SINCE)
    assert isinstance(only(marked()), Quarantine)
    assert decide(a_cluster(marked(), *healthy_nodes(9, first=2)), WARN, NOW).actions == ()


def test_the_mark_ends_when_the_agent_reports_and_before_the_release() -> None:
    back = out_of_service(heartbeat_at=NOW)

    assert only(back) == SetAgentCondition(node="node-1", silent_since=None)
    record = after(back, SetAgentCondition(node="node-1", silent_since=None), NOW)
    assert only(replace(back, record=record)) == Release(node="node-1")


def test_the_mark_stays_when_the_kubelet_falls_silent_too() -> None:
    dead = marked(answered_at=NOW - LONG, is_ready=False)

    assert isinstance(only(dead), Quarantine)
    assert only(dead).fault.reason == Reason.NODE_SILENT


def test_a_repair_goes_before_the_mark() -> None:
    action = only(answering(faults=(a_fault(),)))

    assert isinstance(action, Quarantine)
    assert action.fault.reason == Reason.XID_REBOOT


# what is done


def test_a_cordoned_node_takes_no_new_job_keeps_its_own_and_is_not_repaired() -> None:
    quarantine = only(marked())
    assert quarantine.remedy is Remedy.NONE
    record = after(marked(), quarantine, NOW)
    node = replace(marked(), record=record, running_jobs=("job-1",))

    assert health_status(record) == HealthStatus.UNSCHEDULABLE
    assert usable([node], "job-1", POLICY, NOW) == ()
    assert hardware_failure(a_job(nodes=1), by_name(node), POLICY, NOW) is None
    assert isinstance(decide_node(node, POLICY, NOW), Wait)
    assert isinstance(decide_node(replace(node, running_jobs=()), POLICY, NOW), Wait)


def test_with_warn_a_node_stays_in_service() -> None:
    node = marked()

    assert node_faults(node, WARN, NOW) == ()
    assert usable([node], "job-1", WARN, NOW) == (node,)


def test_with_deep_check_the_node_is_checked_once_it_has_no_job() -> None:
    busy = out_of_service(running_jobs=("a",))
    assert isinstance(decide_node(busy, DEEP, NOW), Wait)
    assert decide_node(replace(busy, running_jobs=()), DEEP, NOW) == Drain(node="node-1")
    assert isinstance(decide_node(out_of_service(Phase.DRAINING), DEEP, NOW), StartCheck)
    assert isinstance(decide_node(out_of_service(Phase.CHECKING), DEEP, NOW), Wait)


def test_a_node_that_passed_its_check_stays_out_until_its_agent_reports() -> None:
    passed = CheckResult(passed=True, ended_at=NOW)
    checked = out_of_service(Phase.CHECKING, check=passed)

    choice = decide_node(checked, DEEP, NOW)
    assert isinstance(choice, Quarantine)
    record = after(checked, choice, NOW)
    assert isinstance(decide_node(replace(checked, record=record), DEEP, NOW), Wait)
    back = replace(checked, record=record, heartbeat_at=NOW)
    assert decide_node(back, DEEP, NOW) == Release(node="node-1", checked=True)


def test_a_failed_check_of_such_a_node_replaces_it() -> None:
    failed = CheckResult(passed=False, ended_at=NOW, detail="bad memory")

    choice = decide_node(out_of_service(Phase.CHECKING, check=failed), DEEP, NOW)

    assert isinstance(choice, Quarantine)
    assert choice.fault.reason == Reason.CHECK_FAILED
    assert choice.remedy is Remedy.REPLACE


def test_a_fault_of_a_cordoned_node_is_repaired() -> None:
    node = out_of_service(faults=(a_fault(),))

    assert isinstance(decide_node(node, POLICY, NOW), Reassign)


def test_a_repair_that_has_begun_is_carried_out_though_only_the_kubelet_is_back() -> None:
    assert isinstance(decide_node(marked(Phase.DRAINING), POLICY, NOW), Reboot)


def test_a_person_who_releases_the_node_is_obeyed_until_the_agent_has_reported_again() -> None:
    release = Release(node="node-1", forgive=True)
    requested = out_of_service(request=a_request(Verb.RELEASE))
    assert decide_node(requested, POLICY, NOW) == release
    released = replace(requested, record=after(requested, release, NOW), request=None)

    later = NOW + LONG
    still = replace(released, answered_at=later)
    assert node_faults(still, POLICY, later) == ()
    again = replace(still, heartbeat_at=NOW + timedelta(minutes=1))
    assert [fault.reason for fault in node_faults(again, POLICY, later)] == [Reason.AGENT_SILENT]


def test_with_recovery_none_nodes_are_cordoned_all_the_same() -> None:
    marks = replace(POLICY, node_recovery=RecoveryMode.NONE)

    assert isinstance(only(marked(), marks), Quarantine)
    assert isinstance(decide_node(out_of_service(), marks, NOW), Wait)


def test_silence_of_the_agent_makes_no_repeat_offender() -> None:
    node = out_of_service(heartbeat_at=NOW)

    assert after(node, Release(node="node-1"), NOW).history == ()


# many at once


def fleet_of_silent(count: int):
    return [
        replace(marked(), name=f"node-{number}", provider_id=f"i-{number}")
        for number in range(count)
    ]


@pytest.mark.parametrize("allowed", [0, 1, 3])
def test_when_all_agents_are_silent_only_max_unavailable_nodes_are_cordoned(allowed) -> None:
    policy = replace(POLICY, max_unavailable=Quota(count=allowed))
    plan = decide(a_cluster(*fleet_of_silent(10)), policy, NOW)

    assert len([one for one in plan.actions if isinstance(one, Quarantine)]) == allowed
    assert len(plan.deferred) == 10 - allowed
    assert plan.trip is None


@pytest.mark.parametrize("phase", [Phase.QUARANTINED, Phase.DRAINING, Phase.CHECKING])
def test_those_that_are_cordoned_already_count(phase) -> None:
    first = [replace(out_of_service(), name=f"out-{n}", provider_id=f"o-{n}") for n in range(2)]
    first = [replace(one, record=replace(one.record, phase=phase)) for one in first]

    plan = decide(a_cluster(*first, *fleet_of_silent(3)), POLICY, NOW)

    assert not [one for one in plan.actions if isinstance(one, Quarantine)]


def test_a_fault_is_marked_however_many_agents_are_silent() -> None:
    broken = a_node(name="broken", provider_id="b", faults=(a_fault(),))
    first = [replace(out_of_service(), name=f"out-{n}", provider_id=f"o-{n}") for n in range(2)]

    plan = decide(a_cluster(*first, broken, *healthy_nodes(7)), POLICY, NOW)

    assert [one.node for one in plan.actions if isinstance(one, Quarantine)] == ["broken"]


# loss of power


def test_the_repair_of_a_node_whose_kubelet_is_not_ready_is_ordered_without_waiting_for_pods() -> (
    None
):
    remediation = a_remediation(
        Remedy.REPLACE, condition=Condition.NODE_LOST, reason=Reason.NODE_SILENT
    )
    dead = answering(
        Phase.DRAINING,
        answered_at=NOW - LONG,
        is_ready=False,
        running_jobs=("default/pod",),
        record={"remediation": remediation, "phase_since": NOW},
    )

    assert isinstance(decide_node(dead, POLICY, NOW), Replace)
    alive = replace(dead, answered_at=NOW, is_ready=True)
    assert isinstance(decide_node(alive, POLICY, NOW), Wait)
