"""What is remembered about a node after each action."""

from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.decisions.lifecycle import (
    accepted,
    after,
    incident_id,
    inherited,
    machine_removed,
    refused,
)
from holdfast.decisions.node_labels import deep_check_status, health_status
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
)
from holdfast.model.health import Remedy, Urgency
from holdfast.model.names import Condition, DeepCheckStatus, HealthStatus, Reason
from holdfast.model.nodes import HISTORY_LIMIT, Phase
from tests.ports.builders import (
    LONG_AGO,
    NOW,
    a_fault,
    a_node,
    a_past_fault,
    a_record,
    a_remediation,
)

REJOIN = Rejoin(node="node-1")
ORDERED = {"machine": "i-1#boot-1", "repairs": 1, "ordered_at": LONG_AGO, "retry_at": LONG_AGO}


def test_a_quarantine_opens_a_remediation() -> None:
    fault = a_fault(urgency=Urgency.DEFERRED)
    action = Quarantine(node="node-1", fault=fault, remedy=Remedy.REPLACE, request_id="r")

    record = after(a_node(), action, NOW)

    assert (record.phase, record.phase_since) == (Phase.QUARANTINED, NOW)
    assert record.remediation == a_remediation(
        Remedy.REPLACE,
        incident_id="node-1-20260101T120000.000",
        opened_at=NOW,
        condition=fault.condition,
        reason=fault.reason,
        urgency=Urgency.DEFERRED,
        request_id="r",
    )


def test_a_fault_after_a_repair_continues_the_remediation() -> None:
    node = a_node(Phase.JOINING, record={"remediation": a_remediation(**ORDERED)})
    action = Quarantine(node="node-1", fault=a_fault(Remedy.REPLACE), remedy=Remedy.REPLACE)

    remediation = after(node, action, NOW).remediation

    assert remediation is not None
    assert (remediation.incident_id, remediation.opened_at) == (
        "incident-1",
        node.record.remediation.opened_at,
    )
    assert (remediation.repairs, remediation.machine) == (1, "i-1#boot-1")
    assert (remediation.ordered_at, remediation.retry_at) == (None, None)
    assert (remediation.reason, remediation.remedy) == (Reason.XID_REPLACE, Remedy.REPLACE)


@pytest.mark.parametrize("phase", [Phase.QUARANTINED, Phase.DRAINING])
def test_another_remedy_does_not_restart_the_phase(phase) -> None:
    node = a_node(phase)
    action = Reassign(node="node-1", fault=a_fault(Remedy.REPLACE), remedy=Remedy.REPLACE)

    record = after(node, action, NOW)

    assert (record.phase, record.phase_since) == (phase, node.record.phase_since)
    assert record.remediation is not None
    assert record.remediation.remedy is Remedy.REPLACE


@pytest.mark.parametrize(
    ("action", "phase"),
    [(Drain(node="node-1"), Phase.DRAINING), (StartCheck(node="node-1"), Phase.CHECKING)],
)
def test_a_step_keeps_the_remediation(action, phase) -> None:
    node = a_node(Phase.QUARANTINED)

    record = after(node, action, NOW)

    assert (record.phase, record.phase_since) == (phase, NOW)
    assert record.remediation == node.record.remediation


ORDERS = [
    (Reboot(node="node-1"), Phase.REBOOTING, Remedy.REBOOT),
    (Replace(node="node-1", reason="R"), Phase.REPLACING, Remedy.REPLACE),
]


@pytest.mark.parametrize(("action", "phase", "remedy"), ORDERS)
def test_an_order_is_recorded_before_it_is_given(action, phase, remedy) -> None:
    record = after(a_node(Phase.DRAINING), action, NOW)

    remediation = record.remediation
    assert remediation is not None
    assert (record.phase, record.phase_since) == (phase, NOW)
    assert (remediation.remedy, remediation.repairs, remediation.token) == (
        remedy,
        1,
        "incident-1/1",
    )
    assert (remediation.machine, remediation.ordered_at, remediation.retry_at) == (
        "i-1#boot-1",
        None,
        None,
    )


@pytest.mark.parametrize(("action", "phase", "remedy"), ORDERS)
def test_an_order_that_was_not_accepted_is_repeated_under_the_same_name(
    action, phase, remedy
) -> None:
    remediation = a_remediation(remedy, machine="i-1#boot-1", repairs=3, retry_at=LONG_AGO)
    node = a_node(phase, boot_id="boot-2", record={"remediation": remediation})

    record = after(node, action, NOW)

    assert record.phase_since == node.record.phase_since
    assert record.remediation == replace(remediation, retry_at=None)


@pytest.mark.parametrize(("action", "phase", "remedy"), ORDERS)
def test_an_order_that_was_accepted_and_did_not_help_is_followed_by_a_new_one(
    action, phase, remedy
) -> None:
    remediation = a_remediation(remedy, machine="i-1#boot-0", repairs=3, ordered_at=LONG_AGO)
    node = a_node(phase, record={"remediation": remediation})

    record = after(node, action, NOW)

    is_replacement = remedy is Remedy.REPLACE
    assert record.phase_since == node.record.phase_since
    assert record.remediation == replace(
        remediation, repairs=4, replacements=is_replacement, ordered_at=None, machine="i-1#boot-1"
    )


def test_replacements_are_counted_but_not_what_was_refused() -> None:
    node, counts = a_node(Phase.DRAINING), []
    order = Replace(node="node-1", reason="R")

    for is_accepted in (False, True, True, False, False):
        record = after(node, order, NOW)
        assert record.remediation is not None
        counts.append(record.remediation.replacements)
        node = replace(node, record=accepted(record, NOW) if is_accepted else refused(record, NOW))

    assert counts == [1, 1, 2, 3, 3]


def test_the_next_machine_begins_without_replacements() -> None:
    remediation = a_remediation(Remedy.REPLACE, machine="i-0#boot-1", replacements=3)
    leaving = a_record(Phase.REPLACING, remediation=remediation)

    rejoined = after(a_node(Phase.REPLACING, record={"remediation": remediation}), REJOIN, NOW)

    assert rejoined.remediation == replace(remediation, replacements=0)
    assert inherited(a_record(Phase.JOINING), leaving, NOW).remediation == replace(
        remediation, replacements=0
    )


def test_a_replacement_after_a_reboot_is_an_order_of_its_own() -> None:
    remediation = a_remediation(
        Remedy.REPLACE, machine="i-1#boot-1", repairs=1
    )  # the machine is gone
    node = a_node(Phase.REBOOTING, record={"remediation": remediation})

    record = after(node, Replace(node="node-1", reason="R"), NOW)

    assert record.phase is Phase.REPLACING
    assert record.remediation is not None
    assert (record.remediation.incident_id, record.remediation.repairs) == ("incident-1", 2)


def test_the_answers_of_the_provider_are_recorded() -> None:
    record = a_record(Phase.REBOOTING, remediation=a_remediation(retry_at=LONG_AGO))

    yes, no, gone = (
        accepted(record, NOW).remediation,
        refused(record, NOW).remediation,
        machine_removed(record).remediation,
    )

    assert yes is not None
    assert no is not None
    assert gone is not None
    assert (yes.ordered_at, yes.retry_at) == (NOW, None)
    assert (no.ordered_at, no.retry_at) == (None, NOW)
    assert (gone.remedy, gone.retry_at) == (Remedy.REPLACE, None)


@pytest.mark.parametrize(("provider_id", "keeps"), [("i-1", True), ("i-2", False)])
def test_a_machine_keeps_its_history_and_another_has_none(provider_id, keeps) -> None:
    past = a_past_fault(ago=timedelta(days=1))
    node = a_node(
        Phase.REPLACING,
        provider_id=provider_id,
        record={"history": (past,), "remediation": a_remediation(**ORDERED)},
    )

    record = after(node, Rejoin(node="node-1"), NOW)

    assert (record.phase, record.phase_since) == (Phase.JOINING, NOW)
    assert record.remediation == node.record.remediation
    assert record.history == ((past,) if keeps else ())


def test_a_successor_inherits_the_remediation_and_the_replacements_and_nothing_else() -> None:
    earlier = NOW - timedelta(hours=20)
    old = a_record(
        Phase.REPLACING,
        remediation=a_remediation(Remedy.REPLACE, ordered_at=NOW - timedelta(hours=1)),
        history=(a_past_fault(ago=timedelta(days=1)),),
        replaced_at=(NOW - timedelta(days=1), earlier),
    )
    new = a_record(Phase.JOINING)

    assert inherited(new, old, NOW) == replace(
        new, remediation=old.remediation, replaced_at=(earlier, NOW - timedelta(hours=1))
    )


def test_a_successor_inherits_no_replacement_that_a_person_requested() -> None:
    remediation = a_remediation(Remedy.REPLACE, ordered_at=NOW, request_id="request-1")
    old = a_record(Phase.REPLACING, remediation=remediation)

    assert inherited(a_record(Phase.JOINING), old, NOW).replaced_at == ()


def test_a_retired_node_keeps_its_record() -> None:
    node = a_node(Phase.REPLACING)

    assert after(node, Retire(node="node-1", successor="node-2"), NOW) == node.record


# release


def test_a_release_ends_the_remediation() -> None:
    record = after(a_node(Phase.DRAINING), Release(node="node-1"), NOW)

    assert (record.phase, record.phase_since, record.remediation) == (Phase.SCHEDULABLE, NOW, None)
    assert (record.cleared_at, record.checked_machine) == (None, "")


def test_only_a_person_forgives() -> None:
    record = after(a_node(Phase.DRAINING), Release(node="node-1", forgive=True), NOW)

    assert record.cleared_at == NOW


def test_what_was_forgiven_and_checked_stays_so() -> None:
    node = a_node(Phase.JOINING, record={"cleared_at": LONG_AGO, "checked_machine": "i-1#boot-1"})

    record = after(node, Release(node="node-1"), NOW)

    assert (record.cleared_at, record.checked_machine) == (LONG_AGO, "i-1#boot-1")


def test_a_passed_check_is_remembered_for_this_boot_of_this_machine() -> None:
    record = after(a_node(Phase.CHECKING), Release(node="node-1", checked=True), NOW)

    assert record.checked_machine == "i-1#boot-1"


@pytest.mark.parametrize(
    ("remediation", "remembered"),
    [
        (a_remediation(Remedy.REBOOT), Remedy.NONE),  # it went away before the repair
        (a_remediation(Remedy.REPLACE), Remedy.NONE),
        (a_remediation(Remedy.REBOOT, **ORDERED), Remedy.REBOOT),
        (
            a_remediation(Remedy.REPLACE, **ORDERED),
            Remedy.REBOOT,
        ),  # then it was decided to replace it
        (a_remediation(Remedy.REPLACE, **{**ORDERED, "machine": "i-0#boot-1"}), None),
        (a_remediation(Remedy.REBOOT, condition=Condition.REQUESTED), None),
        (a_remediation(Remedy.REBOOT, condition=Condition.REQUESTED, **ORDERED), None),
        (None, None),
    ],
)
def test_a_machine_is_remembered_for_its_own_faults(remediation, remembered) -> None:
    node = a_node(Phase.JOINING, record={"remediation": remediation})

    history = after(node, Release(node="node-1"), NOW).history

    if remembered is None:
        assert history == ()
    else:
        assert history == (
            a_past_fault(
                remembered,
                ago=timedelta(0),
                opened_at=remediation.opened_at,
                reason=remediation.reason,
            ),
        )


def test_the_oldest_faults_are_forgotten() -> None:
    pasts = tuple(a_past_fault(ago=timedelta(days=100 - n)) for n in range(HISTORY_LIMIT))
    node = a_node(Phase.DRAINING, record={"history": pasts})

    history = after(node, Release(node="node-1"), NOW).history

    assert history[:-1] == pasts[1:]
    assert history[-1].closed_at == NOW


def test_two_remediations_of_one_node_have_different_names() -> None:
    assert incident_id("a", NOW) != incident_id("a", NOW + timedelta(milliseconds=1))
    assert incident_id("a", NOW + timedelta(microseconds=123_456)) == "a-20260101T120000.123"


# labels


@pytest.mark.parametrize(
    ("phase", "remediation", "label"),
    [
        (Phase.JOINING, None, None),
        (Phase.JOINING, a_remediation(), HealthStatus.UNSCHEDULABLE),
        (Phase.CHECKING, None, HealthStatus.UNSCHEDULABLE),
        (Phase.CHECKING, a_remediation(Remedy.REPLACE), HealthStatus.UNSCHEDULABLE),
        (Phase.SCHEDULABLE, None, HealthStatus.SCHEDULABLE),
        (Phase.QUARANTINED, a_remediation(Remedy.REBOOT), HealthStatus.PENDING_REBOOT),
        (Phase.QUARANTINED, a_remediation(Remedy.REPLACE), HealthStatus.PENDING_REPLACEMENT),
        (Phase.QUARANTINED, a_remediation(Remedy.NONE), HealthStatus.UNSCHEDULABLE),
        (Phase.DRAINING, a_remediation(Remedy.REPLACE), HealthStatus.PENDING_REPLACEMENT),
        (Phase.REBOOTING, a_remediation(Remedy.REBOOT), HealthStatus.PENDING_REBOOT),
        (Phase.REPLACING, a_remediation(Remedy.REPLACE), HealthStatus.PENDING_REPLACEMENT),
    ],
)
def test_the_health_label_is_that_of_hyperpod(phase, remediation, label) -> None:
    assert health_status(a_record(phase, remediation=remediation)) is label


FAILED = a_remediation(Remedy.REPLACE, condition=Condition.DEEP_CHECK)


@pytest.mark.parametrize(
    ("phase", "changes", "label"),
    [
        (Phase.SCHEDULABLE, {}, None),
        (Phase.SCHEDULABLE, {"checked_machine": "i-1#boot-0"}, None),
        (Phase.SCHEDULABLE, {"checked_machine": "i-1#boot-1"}, DeepCheckStatus.PASSED),
        (Phase.CHECKING, {"checked_machine": "i-1#boot-1"}, DeepCheckStatus.IN_PROGRESS),
        (Phase.CHECKING, {"remediation": FAILED}, DeepCheckStatus.IN_PROGRESS),
        (Phase.QUARANTINED, {"remediation": FAILED}, DeepCheckStatus.FAILED),
        (Phase.REPLACING, {"remediation": FAILED}, DeepCheckStatus.FAILED),
        (Phase.JOINING, {"remediation": FAILED}, None),  # the machine before it failed
        (Phase.QUARANTINED, {}, None),
    ],
)
def test_the_deep_check_label_is_that_of_hyperpod(phase, changes, label) -> None:
    assert deep_check_status(a_node(phase, record=changes)) is label
