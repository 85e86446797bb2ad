"""What people ask for."""

from dataclasses import replace

import pytest

from holdfast.decisions.faults import request_fault
from holdfast.decisions.lifecycle import after
from holdfast.decisions.policy import RecoveryMode, RemediationPolicy
from holdfast.decisions.remediation import decide, decide_node
from holdfast.decisions.taken_requests import is_request_taken
from holdfast.model.actions import Drain, Quarantine, Reassign, Release, Replace, StartCheck, Wait
from holdfast.model.health import Remedy, Urgency
from holdfast.model.names import Condition, DeepCheck, Reason
from holdfast.model.nodes import Phase
from holdfast.model.requests import Verb
from tests.ports.builders import NOW, a_cluster, a_fault, a_node, a_remediation, a_request

POLICY = RemediationPolicy()
MARK_ONLY = RemediationPolicy(node_recovery=RecoveryMode.NONE)
HERE = [Phase.JOINING, Phase.CHECKING, Phase.SCHEDULABLE, Phase.QUARANTINED, Phase.DRAINING]
ASKS_FOR_REPAIR = [(Verb.REBOOT, Remedy.REBOOT), (Verb.REPLACE, Remedy.REPLACE)]


def decided(node, policy=POLICY):
    return decide_node(node, policy, NOW)


@pytest.mark.parametrize("policy", [POLICY, MARK_ONLY])
@pytest.mark.parametrize(("verb", "remedy"), ASKS_FOR_REPAIR)
@pytest.mark.parametrize("phase", [Phase.JOINING, Phase.CHECKING, Phase.SCHEDULABLE])
def test_a_request_opens_a_remediation_in_every_mode(phase, verb, remedy, policy) -> None:
    action = decided(a_node(phase, request=a_request(verb)), policy)

    assert isinstance(action, Quarantine)
    assert (action.remedy, action.request_id) == (remedy, "request-1")
    assert action.fault.condition == Condition.REQUESTED


@pytest.mark.parametrize(("verb", "remedy"), ASKS_FOR_REPAIR)
@pytest.mark.parametrize("phase", [Phase.QUARANTINED, Phase.DRAINING])
def test_a_request_goes_before_the_fault_that_opened_the_remediation(phase, verb, remedy) -> None:
    node = a_node(phase, faults=(a_fault(Remedy.REPLACE),), request=a_request(verb))

    action = decided(node)

    assert isinstance(action, Reassign)
    assert (action.remedy, action.request_id) == (remedy, "request-1")


@pytest.mark.parametrize("phase", [Phase.QUARANTINED, Phase.DRAINING])
def test_a_fault_does_not_undo_what_a_person_decided(phase) -> None:
    remediation = a_remediation(
        Remedy.REBOOT, condition=Condition.REQUESTED, request_id="request-1"
    )
    node = a_node(phase, faults=(a_fault(Remedy.REPLACE),), record={"remediation": remediation})

    assert not isinstance(decided(node), Reassign)


def test_a_fault_that_is_left_after_the_requested_repair_is_answered() -> None:
    remediation = a_remediation(
        Remedy.REBOOT, condition=Condition.REQUESTED, machine="i-1#boot-0", repairs=1
    )
    node = a_node(Phase.JOINING, faults=(a_fault(),), record={"remediation": remediation})

    action = decided(node)

    assert isinstance(action, Quarantine)
    assert (action.fault.reason, action.remedy) == (Reason.XID_REBOOT, Remedy.REPLACE)


@pytest.mark.parametrize("phase", [Phase.QUARANTINED, Phase.DRAINING])
def test_a_second_request_replaces_the_first(phase) -> None:
    remediation = a_remediation(
        Remedy.REBOOT, condition=Condition.REQUESTED, request_id="request-1"
    )
    node = a_node(
        phase, request=a_request(Verb.REPLACE, id="request-2"), record={"remediation": remediation}
    )

    action = decided(node)

    assert isinstance(action, Reassign)
    assert (action.remedy, action.request_id) == (Remedy.REPLACE, "request-2")


@pytest.mark.parametrize("phase", [Phase.QUARANTINED, Phase.DRAINING])
def test_a_request_is_taken_up_once(phase) -> None:
    remediation = a_remediation(
        Remedy.REBOOT, condition=Condition.REQUESTED, request_id="request-1"
    )
    node = a_node(phase, request=a_request(Verb.REBOOT), record={"remediation": remediation})

    assert not isinstance(decided(node), Reassign)
    assert is_request_taken(node)


def test_a_requested_repair_begins_in_mode_none() -> None:
    remediation = a_remediation(condition=Condition.REQUESTED)

    assert decided(
        a_node(Phase.QUARANTINED, record={"remediation": remediation}), MARK_ONLY
    ) == Drain(node="node-1")


def test_a_deferred_request_waits_for_the_jobs() -> None:
    remediation = a_remediation(condition=Condition.REQUESTED, urgency=Urgency.DEFERRED)
    node = a_node(Phase.QUARANTINED, running_jobs=("a",), record={"remediation": remediation})

    assert isinstance(decided(node), Wait)


# deep checks


def test_a_deep_check_of_a_node_in_service_drains_it_first() -> None:
    idle = a_node(is_idle=True, request=a_request(Verb.DEEP_CHECK))
    (action,) = decide(a_cluster(idle), POLICY, NOW).actions

    assert isinstance(action, Quarantine)
    assert (action.remedy, action.request_id) == (Remedy.NONE, "request-1")
    remediation = a_remediation(Remedy.NONE, condition=Condition.REQUESTED)
    assert decided(a_node(Phase.QUARANTINED, record={"remediation": remediation})) == Drain(
        node="node-1"
    )
    assert decided(a_node(Phase.DRAINING, record={"remediation": remediation})) == StartCheck(
        node="node-1"
    )


def test_a_deep_check_of_a_node_that_is_joining_begins_at_once() -> None:
    node = a_node(Phase.JOINING, request=a_request(Verb.DEEP_CHECK))

    assert decided(node) == StartCheck(node="node-1")


def test_a_deep_check_does_not_hide_a_fault() -> None:
    node = a_node(Phase.JOINING, faults=(a_fault(),), request=a_request(Verb.DEEP_CHECK))

    action = decided(node)

    assert isinstance(action, Quarantine)
    assert action.fault.reason == Reason.XID_REBOOT


def test_a_deep_check_waits_for_the_agent() -> None:
    node = a_node(Phase.JOINING, heartbeat_at=None, request=a_request(Verb.DEEP_CHECK))

    assert isinstance(decided(node), Wait)


# release


@pytest.mark.parametrize("phase", HERE)
def test_a_person_can_give_a_node_back_whatever_its_faults(phase) -> None:
    node = a_node(phase, faults=(a_fault(),), request=a_request(Verb.RELEASE))

    assert decided(node) == Release(node="node-1", forgive=True)


def test_a_node_that_was_never_heard_is_not_given_to_jobs_even_by_request() -> None:
    node = a_node(Phase.JOINING, heartbeat_at=None, request=a_request(Verb.RELEASE))

    assert isinstance(decided(node), Wait)


@pytest.mark.parametrize("phase", [Phase.REBOOTING, Phase.REPLACING])
def test_a_repair_under_way_is_not_called_back(phase) -> None:
    node = a_node(
        phase,
        request=a_request(Verb.RELEASE),
        record={"remediation": a_remediation(machine="i-1#boot-1", ordered_at=NOW)},
    )

    assert isinstance(decided(node), Wait)


# during a repair


def test_a_person_can_have_a_node_replaced_that_does_not_come_back() -> None:
    request = a_request(Verb.REPLACE)
    node = a_node(
        Phase.REBOOTING,
        request=request,
        record={"remediation": a_remediation(machine="i-1#boot-1", ordered_at=NOW)},
    )

    order = decided(node, MARK_ONLY)

    assert order == Replace(node="node-1", reason=Reason.REQUESTED_REPLACE, request_id=request.id)
    record = after(node, order, NOW)
    assert record.remediation.request_id == request.id
    assert is_request_taken(replace(node, record=record))


@pytest.mark.parametrize(
    ("phase", "taken"),
    [
        (Phase.JOINING, set()),
        (Phase.CHECKING, {Verb.DEEP_CHECK}),
        (Phase.SCHEDULABLE, set()),
        (Phase.QUARANTINED, set()),
        (Phase.DRAINING, set()),
        (Phase.REBOOTING, {Verb.REBOOT}),
        (Phase.REPLACING, {Verb.REBOOT, Verb.REPLACE}),
    ],
)
def test_what_is_under_way_anyway_is_not_done_twice(phase, taken) -> None:
    requested = {verb: a_node(phase, request=a_request(verb)) for verb in Verb}

    assert {verb for verb, node in requested.items() if is_request_taken(node)} == taken


def test_no_request_is_no_taken_request() -> None:
    assert not is_request_taken(a_node(Phase.CHECKING))


# the same again


@pytest.mark.parametrize("phase", [Phase.QUARANTINED, Phase.DRAINING])
@pytest.mark.parametrize(("verb", "remedy"), ASKS_FOR_REPAIR)
def test_a_repeated_request_changes_nothing_and_counts_as_taken(phase, verb, remedy) -> None:
    requested = request_fault(a_request(verb))
    remediation = a_remediation(
        remedy, condition=Condition.REQUESTED, reason=requested.reason, request_id="request-1"
    )
    node = a_node(
        phase, record={"remediation": remediation}, request=a_request(verb, id="request-2")
    )

    assert not isinstance(decided(node), Reassign)
    assert is_request_taken(node)


def test_a_request_that_is_more_urgent_than_the_one_before_is_no_repetition() -> None:
    requested = request_fault(a_request(Verb.REBOOT))
    remediation = a_remediation(
        condition=Condition.REQUESTED, reason=requested.reason, urgency=Urgency.DEFERRED
    )
    node = a_node(
        Phase.QUARANTINED,
        record={"remediation": remediation},
        request=a_request(Verb.REBOOT, id="request-2"),
    )

    assert isinstance(decided(node), Reassign)
    assert not is_request_taken(node)


def test_a_check_of_other_kinds_is_no_repetition() -> None:
    requested = request_fault(a_request(Verb.DEEP_CHECK))
    remediation = a_remediation(Remedy.NONE, condition=Condition.REQUESTED, reason=requested.reason)
    kinds = (DeepCheck.STRESS,)
    record = {"remediation": remediation, "kinds": kinds}
    same = a_request(Verb.DEEP_CHECK, id="2", checks=kinds)
    other = a_request(Verb.DEEP_CHECK, id="2", checks=(DeepCheck.CONNECTIVITY,))

    assert is_request_taken(a_node(Phase.QUARANTINED, record=record, request=same))
    assert not is_request_taken(a_node(Phase.QUARANTINED, record=record, request=other))


@pytest.mark.parametrize("phase", [Phase.QUARANTINED, Phase.DRAINING])
def test_a_check_that_waits_for_jobs_lets_a_repair_go_first(phase) -> None:
    waits = a_request(Verb.DEEP_CHECK, urgency=Urgency.DEFERRED)
    node = a_node(phase, faults=(a_fault(),), request=waits)

    assert not isinstance(decided(node), Reassign)
    assert isinstance(decided(node, MARK_ONLY), Reassign), "nothing else would ever begin"
    assert isinstance(decided(replace(node, request=a_request(Verb.DEEP_CHECK))), Reassign)
