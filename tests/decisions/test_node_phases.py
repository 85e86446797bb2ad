"""One node, phase by phase: what is decided, at the exact edges."""

from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.decisions.policy import RecoveryMode, RemediationPolicy
from holdfast.decisions.remediation import decide, decide_node
from holdfast.model.actions import (
    Drain,
    Quarantine,
    Reassign,
    Reboot,
    Rejoin,
    Release,
    Replace,
    Retire,
    StartCheck,
    Wait,
)
from holdfast.model.health import Remedy, Urgency
from holdfast.model.names import Condition, Reason
from holdfast.model.nodes import CheckResult, Phase
from tests.ports.builders import (
    LONG_AGO,
    NOW,
    a_cluster,
    a_fault,
    a_node,
    a_past_fault,
    a_remediation,
)

POLICY = RemediationPolicy()
MARK_ONLY = RemediationPolicy(node_recovery=RecoveryMode.NONE)
TICK = timedelta(microseconds=1)


def decided(node, policy=POLICY, now=NOW):
    return decide_node(node, policy, now)


# schedulable


def test_a_healthy_node_is_left_alone() -> None:
    assert decided(a_node()) == Wait(until=None)


@pytest.mark.parametrize("policy", [POLICY, MARK_ONLY])
def test_a_faulty_node_is_marked_at_once_in_every_mode(policy) -> None:
    fault = a_fault(Remedy.REPLACE)

    assert decided(a_node(faults=(fault,)), policy) == Quarantine(
        node="node-1", fault=fault, remedy=Remedy.REPLACE
    )


@pytest.mark.parametrize("remedy", [Remedy.NONE, Remedy.RESTART_APP])
def test_what_the_node_itself_needs_nothing_for_leaves_it_alone(remedy) -> None:
    assert decided(a_node(faults=(a_fault(remedy),))) == Wait(until=None)


# joining


def test_a_new_node_is_given_to_jobs_when_its_agent_reports() -> None:
    assert decided(a_node(Phase.JOINING)) == Release(node="node-1")


def test_a_new_node_whose_agent_is_not_heard_yet_waits() -> None:
    assert decided(a_node(Phase.JOINING, heartbeat_at=None)) == Wait(until=None)


def test_a_new_node_with_a_fault_is_never_given_to_jobs() -> None:
    assert isinstance(decided(a_node(Phase.JOINING, faults=(a_fault(),))), Quarantine)


CHECKED = RemediationPolicy(deep_check_on_start=True)


@pytest.mark.parametrize(
    ("checked_machine", "action"),
    [
        ("", StartCheck(node="node-1")),
        ("i-1#boot-0", StartCheck(node="node-1")),  # it was rebooted since
        ("i-0#boot-1", StartCheck(node="node-1")),  # another machine passed
        ("i-1#boot-1", Release(node="node-1")),
    ],
)
def test_each_boot_of_a_machine_is_checked_once(checked_machine, action) -> None:
    node = a_node(Phase.JOINING, record={"checked_machine": checked_machine})

    assert decided(node, CHECKED) == action


# checking


def test_a_node_that_passes_its_check_is_given_to_jobs() -> None:
    node = a_node(Phase.CHECKING, check=CheckResult(passed=True, ended_at=NOW))

    assert decided(node) == Release(node="node-1", checked=True)


def test_a_node_that_went_silent_after_its_check_is_waited_for() -> None:
    node = a_node(
        Phase.CHECKING,
        heartbeat_at=None,
        check=CheckResult(passed=True, ended_at=NOW),
        record={"phase_since": NOW},
    )

    assert decided(node) == Wait(until=None)


def test_a_node_that_fails_its_check_is_replaced() -> None:
    node = a_node(Phase.CHECKING, check=CheckResult(passed=False, ended_at=NOW))

    action = decided(node)

    assert isinstance(action, Quarantine)
    assert (action.fault.reason, action.remedy) == (Reason.CHECK_FAILED, Remedy.REPLACE)


def test_a_check_has_its_time_and_then_has_failed() -> None:
    node = a_node(Phase.CHECKING, record={"phase_since": NOW})
    deadline = NOW + POLICY.deep_check_timeout
    node_heard_then = a_node(
        Phase.CHECKING, record={"phase_since": NOW}, heartbeat_at=deadline - TICK
    )

    assert decided(node) == Wait(until=deadline)
    assert decided(node_heard_then, now=deadline - TICK) == Wait(until=deadline)
    assert isinstance(decided(node_heard_then, now=deadline), Quarantine)


def test_a_node_whose_check_has_not_begun_stays_out_of_service_and_says_why() -> None:
    deadline = NOW + POLICY.deep_check_timeout
    node = a_node(
        Phase.CHECKING,
        record={"phase_since": NOW},
        heartbeat_at=deadline - TICK,
        check_pending="its job waits (Resources)",
    )

    assert decided(node, now=deadline - TICK) == Wait(until=deadline)
    why = "its deep health check has not begun: its job waits (Resources)"
    assert decided(node, now=deadline) == Wait(until=None, why=why)


def test_a_fault_ends_a_check_even_if_it_was_passed() -> None:
    node = a_node(Phase.CHECKING, check=CheckResult(passed=True, ended_at=NOW), faults=(a_fault(),))

    assert isinstance(decided(node), Quarantine)


# quarantined


def test_a_marked_node_is_drained() -> None:
    assert decided(a_node(Phase.QUARANTINED, faults=(a_fault(),))) == Drain(node="node-1")


def test_in_mode_none_a_marked_node_stays_marked_and_says_why() -> None:
    choice = decided(a_node(Phase.QUARANTINED, faults=(a_fault(),)), MARK_ONLY)

    assert choice == Wait(until=None, why="node recovery is set to None")


@pytest.mark.parametrize("policy", [POLICY, MARK_ONLY])
@pytest.mark.parametrize("phase", [Phase.QUARANTINED, Phase.DRAINING])
def test_a_fault_that_clears_before_its_repair_gives_the_node_back(phase, policy) -> None:
    assert decided(a_node(phase), policy) == Release(node="node-1")


@pytest.mark.parametrize("phase", [Phase.QUARANTINED, Phase.DRAINING])
def test_a_node_whose_agent_is_not_heard_is_not_given_back(phase) -> None:
    node = a_node(phase, heartbeat_at=None)

    assert not isinstance(decided(node), Release)


@pytest.mark.parametrize("phase", [Phase.QUARANTINED, Phase.DRAINING])
@pytest.mark.parametrize(
    "condition", [Condition.REQUESTED, Condition.DEEP_CHECK, Condition.REPEAT_OFFENDER]
)
def test_a_cause_that_no_agent_reports_does_not_clear(phase, condition) -> None:
    remediation = a_remediation(Remedy.REPLACE, condition=condition)

    assert isinstance(decided(a_node(phase, record={"remediation": remediation})), Drain | Replace)


def test_a_deferred_repair_waits_for_the_jobs_of_its_node() -> None:
    fault = a_fault(urgency=Urgency.DEFERRED)
    remediation = a_remediation(urgency=Urgency.DEFERRED)
    busy = a_node(
        Phase.QUARANTINED, faults=(fault,), running_jobs=("a",), record={"remediation": remediation}
    )
    idle = a_node(Phase.QUARANTINED, faults=(fault,), record={"remediation": remediation})

    assert decided(busy) == Wait(
        until=None, why="its jobs are still running; the repair starts when they end"
    )
    assert decided(idle) == Drain(node="node-1")


def test_an_immediate_repair_does_not_wait_for_jobs() -> None:
    node = a_node(Phase.QUARANTINED, faults=(a_fault(),), running_jobs=("a",))

    assert decided(node) == Drain(node="node-1")


@pytest.mark.parametrize("phase", [Phase.QUARANTINED, Phase.DRAINING])
def test_a_worse_fault_takes_the_remediation_over(phase) -> None:
    worse = a_fault(Remedy.REPLACE)
    node = a_node(phase, faults=(a_fault(), worse))

    assert decided(node) == Reassign(node="node-1", fault=worse, remedy=Remedy.REPLACE)


@pytest.mark.parametrize("phase", [Phase.QUARANTINED, Phase.DRAINING])
def test_a_milder_fault_does_not_while_the_first_one_holds(phase) -> None:
    node = a_node(
        phase,
        faults=(a_fault(Remedy.REPLACE), a_fault(Remedy.REBOOT)),
        record={"remediation": a_remediation(Remedy.REPLACE)},
    )

    assert not isinstance(decided(node), Reassign)


@pytest.mark.parametrize("phase", [Phase.QUARANTINED, Phase.DRAINING])
def test_no_repair_is_stronger_than_the_causes_that_are_left(phase) -> None:
    left = a_fault(Remedy.REBOOT)
    node = a_node(phase, faults=(left,), record={"remediation": a_remediation(Remedy.REPLACE)})

    assert decided(node) == Reassign(node="node-1", fault=left, remedy=Remedy.REBOOT)


@pytest.mark.parametrize(
    ("before", "after", "takes_over"),
    [
        (Urgency.DEFERRED, Urgency.IMMEDIATE, True),
        (Urgency.IMMEDIATE, Urgency.DEFERRED, False),
        (Urgency.DEFERRED, Urgency.DEFERRED, False),
    ],
)
def test_an_equal_fault_takes_over_only_if_it_is_more_urgent(before, after, takes_over) -> None:
    first = a_fault(urgency=before)
    second = a_fault(urgency=after, code=1)
    node = a_node(
        Phase.QUARANTINED,
        faults=(first, second),
        running_jobs=("a",),
        record={"remediation": a_remediation(urgency=before)},
    )

    assert isinstance(decided(node), Reassign) is takes_over


def test_a_failed_check_stays_the_cause_beside_a_milder_fault() -> None:
    remediation = a_remediation(
        Remedy.REPLACE, condition=Condition.DEEP_CHECK, reason=Reason.CHECK_FAILED
    )
    node = a_node(Phase.DRAINING, faults=(a_fault(),), record={"remediation": remediation})

    assert decided(node) == Replace(node="node-1", reason=Reason.CHECK_FAILED)


# draining


@pytest.mark.parametrize(
    ("remedy", "action"),
    [
        (Remedy.REBOOT, Reboot(node="node-1")),
        (Remedy.REPLACE, Replace(node="node-1", reason=Reason.XID_REPLACE)),
    ],
)
def test_an_empty_node_is_repaired(remedy, action) -> None:
    node = a_node(
        Phase.DRAINING, faults=(a_fault(remedy),), record={"remediation": a_remediation(remedy)}
    )

    assert decided(node) == action


def test_jobs_have_until_the_deadline_to_leave() -> None:
    node = a_node(
        Phase.DRAINING,
        faults=(a_fault(),),
        running_jobs=("a",),
        record={"phase_since": NOW - POLICY.drain_timeout},
        heartbeat_at=NOW,
    )

    assert decided(node, now=NOW - TICK) == Wait(until=NOW)
    assert decided(node) == Reboot(node="node-1")


@pytest.mark.parametrize(
    ("drain_timeout", "timeout"),
    [
        (timedelta(minutes=15), POLICY.heartbeat_timeout),
        (timedelta(seconds=5), timedelta(seconds=5)),
    ],
)
def test_a_lost_node_gets_no_long_time_to_drain(drain_timeout, timeout) -> None:
    policy = RemediationPolicy(drain_timeout=drain_timeout)
    remediation = a_remediation(
        Remedy.REPLACE, condition=Condition.NODE_LOST, reason=Reason.NODE_SILENT
    )
    node = a_node(
        Phase.DRAINING,
        heartbeat_at=LONG_AGO,
        running_jobs=("a",),
        record={"remediation": remediation, "phase_since": NOW},
    )

    assert decided(node, policy, NOW + timeout - TICK) == Wait(until=NOW + timeout)
    assert isinstance(decided(node, policy, NOW + timeout), Replace)


def test_a_machine_without_power_has_no_jobs_to_wait_for() -> None:
    remediation = a_remediation(
        Remedy.REPLACE, condition=Condition.NODE_LOST, reason=Reason.NODE_POWERED_OFF
    )
    node = a_node(
        Phase.DRAINING,
        powered_on=False,
        running_jobs=("a",),
        record={"remediation": remediation, "phase_since": NOW},
    )

    assert isinstance(decided(node), Replace)


def test_a_repeat_offender_is_replaced_and_remembered() -> None:
    pasts = tuple(a_past_fault(Remedy.NONE, ago=timedelta(days=1)) for _ in range(2))
    node = a_node(
        Phase.DRAINING,
        faults=(a_fault(Remedy.REPLACE),),
        record={"history": pasts, "remediation": a_remediation(Remedy.REPLACE)},
    )

    assert decided(node) == Replace(node="node-1", reason=Reason.XID_REPLACE, repeat_offender=True)


def test_a_machine_that_a_person_wants_replaced_is_not_held_against_it() -> None:
    pasts = tuple(a_past_fault(Remedy.NONE, ago=timedelta(days=1)) for _ in range(2))
    remediation = a_remediation(Remedy.REPLACE, condition=Condition.REQUESTED)
    node = a_node(Phase.DRAINING, record={"history": pasts, "remediation": remediation})

    action = decided(node)

    assert isinstance(action, Replace)
    assert not action.repeat_offender


# rebooting


def rebooting(**remediation):
    return a_node(
        Phase.REBOOTING,
        heartbeat_at=LONG_AGO,
        record={
            "remediation": a_remediation(
                **{"machine": "i-1#boot-1", "repairs": 1, "ordered_at": NOW, **remediation}
            )
        },
    )


def test_a_reboot_is_done_when_the_agent_reports_from_another_boot() -> None:
    ordered = {"remediation": a_remediation(machine="i-1#boot-1", ordered_at=NOW)}
    back = a_node(Phase.REBOOTING, boot_id="boot-2", record=ordered)
    mute = a_node(Phase.REBOOTING, boot_id="boot-2", heartbeat_at=None, record=ordered)
    not_yet = a_node(Phase.REBOOTING, record=ordered)

    assert decided(back) == Rejoin(node="node-1")
    assert isinstance(decided(mute), Wait)
    assert isinstance(decided(not_yet), Wait)


def test_a_reboot_that_takes_too_long_becomes_a_replacement() -> None:
    node = rebooting(ordered_at=NOW - POLICY.reboot_timeout)

    assert decided(node, now=NOW - TICK) == Wait(until=NOW)
    assert decided(node) == Replace(node="node-1", reason=Reason.XID_REBOOT)


def test_a_reboot_that_was_never_answered_is_ordered_again() -> None:
    assert decided(rebooting(ordered_at=None)) == Reboot(node="node-1")


def test_a_refused_reboot_is_ordered_again_at_the_time_the_provider_gave() -> None:
    node = rebooting(ordered_at=None, retry_at=NOW)

    assert decided(node, now=NOW - TICK) == Wait(until=NOW)
    assert decided(node) == Reboot(node="node-1")


def test_a_reboot_that_is_refused_for_too_long_becomes_a_replacement() -> None:
    since = NOW - POLICY.reboot_timeout
    refused = rebooting(ordered_at=None, retry_at=NOW)
    refused = replace(refused, record=replace(refused.record, phase_since=since))

    assert decided(refused) == Replace(node="node-1", reason=Reason.XID_REBOOT)
    assert decided(refused, now=NOW - TICK) == Wait(until=NOW)
    assert decided(refused, MARK_ONLY) == Reboot(node="node-1")


def test_a_reboot_whose_answer_was_lost_long_ago_is_ordered_again_first() -> None:
    unanswered = rebooting(ordered_at=None)
    since = NOW - 2 * POLICY.reboot_timeout
    unanswered = replace(unanswered, record=replace(unanswered.record, phase_since=since))

    assert decided(unanswered) == Reboot(node="node-1")


def test_a_machine_that_is_gone_is_replaced_without_delay() -> None:
    node = rebooting(remedy=Remedy.REPLACE, ordered_at=None)

    assert decided(node) == Replace(node="node-1", reason=Reason.XID_REPLACE)


@pytest.mark.parametrize(
    "remediation",
    [
        {"ordered_at": NOW - POLICY.reboot_timeout},
        {"remedy": Remedy.REPLACE, "ordered_at": None},
    ],
)
def test_in_mode_none_a_vain_reboot_is_not_followed_by_a_replacement(remediation) -> None:
    choice = decided(rebooting(condition=Condition.REQUESTED, **remediation), MARK_ONLY)

    assert choice == Wait(
        until=None,
        why="the node did not rejoin after its reboot; node recovery is set to None",
    )


# replacing


def replacing(**remediation):
    return a_node(
        Phase.REPLACING,
        powered_on=False,
        record={
            "remediation": a_remediation(
                Remedy.REPLACE,
                **{"machine": "i-1#boot-1", "repairs": 1, "ordered_at": NOW, **remediation},
            )
        },
    )


def test_a_replacement_under_the_same_name_rejoins() -> None:
    node = a_node(
        Phase.REPLACING,
        provider_id="i-2",
        heartbeat_at=None,
        record={"remediation": a_remediation(Remedy.REPLACE, machine="i-1#boot-1", ordered_at=NOW)},
    )

    assert decided(node) == Rejoin(node="node-1")


def test_a_reboot_of_the_old_machine_is_no_replacement() -> None:
    node = a_node(
        Phase.REPLACING,
        boot_id="boot-2",
        record={"remediation": a_remediation(Remedy.REPLACE, machine="i-1#boot-1", ordered_at=NOW)},
    )

    assert isinstance(decided(node), Wait)


def test_a_replacement_that_does_not_appear_is_ordered_again() -> None:
    node = replacing(ordered_at=NOW - POLICY.replace_timeout)

    assert decided(node, now=NOW - TICK) == Wait(until=NOW)
    assert decided(node) == Replace(node="node-1", reason=Reason.XID_REPLACE)


def test_a_refused_replacement_is_ordered_again_at_the_time_the_provider_gave() -> None:
    node = replacing(ordered_at=None, retry_at=NOW)

    assert decided(node, now=NOW - TICK) == Wait(until=NOW)
    assert isinstance(decided(node), Replace)


# successors


def successor(name="node-2", replaces="node-1", **record):
    return a_node(Phase.JOINING, name=name, provider_id="i-2", replaces=replaces, record=record)


def test_a_successor_takes_over_before_it_does_anything_else() -> None:
    plan = decide(a_cluster(replacing(), successor()), POLICY, NOW)

    assert plan.actions == (Retire(node="node-1", successor="node-2"),)


@pytest.mark.parametrize("names", [("node-2", "node-3"), ("node-3", "node-2")])
def test_a_node_has_one_successor_however_many_were_sent(names) -> None:
    plan = decide(a_cluster(replacing(), *map(successor, names)), POLICY, NOW)

    assert plan.actions == (Retire(node="node-1", successor="node-2"),)


def test_a_successor_that_has_the_remediation_already_still_lets_the_old_node_go_first() -> None:
    old = replacing()
    plan = decide(a_cluster(old, successor(remediation=old.record.remediation)), POLICY, NOW)

    assert plan.actions == (Retire(node="node-1", successor="node-2"),)


def test_a_node_that_replaced_an_earlier_one_of_the_same_name_is_no_successor() -> None:
    earlier = a_remediation(Remedy.REPLACE, incident_id="incident-0")

    plan = decide(a_cluster(replacing(), successor(remediation=earlier)), POLICY, NOW)

    assert plan.actions == (Release(node="node-2"),)


@pytest.mark.parametrize("phase", [Phase.SCHEDULABLE, Phase.QUARANTINED, Phase.REBOOTING])
def test_a_successor_of_a_node_that_we_do_not_replace_joins_like_any_other(phase) -> None:
    plan = decide(a_cluster(a_node(phase), successor()), POLICY, NOW)

    assert Release(node="node-2") in plan.actions


def test_an_offender_that_is_handed_back_is_sent_away_again() -> None:
    plan = decide(a_cluster(a_node(Phase.JOINING), offenders=["i-1"]), POLICY, NOW)

    (action,) = plan.actions
    assert isinstance(action, Quarantine)
    assert (action.fault.reason, action.remedy) == (Reason.REPEAT_OFFENDER, Remedy.REPLACE)


@pytest.mark.parametrize("phase", [Phase.QUARANTINED, Phase.DRAINING, *(Phase.REBOOTING,)])
def test_a_damaged_record_is_reported_and_not_guessed_at(phase) -> None:
    node = a_node(phase, record={"remediation": None})

    with pytest.raises(ValueError, match=r"node-1 is .* without a remediation"):
        decided(node)
