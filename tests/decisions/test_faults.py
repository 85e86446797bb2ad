from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.decisions.faults import (
    START_FAILED,
    app_restart_since,
    check_fault,
    lost_fault,
    node_faults,
    offender_fault,
    request_fault,
    silent_at,
)
from holdfast.decisions.policy import RemediationPolicy
from holdfast.model.health import Remedy, Urgency
from holdfast.model.names import Condition, Reason
from holdfast.model.nodes import CheckResult, Phase
from holdfast.model.requests import Verb
from tests.ports.builders import LONG_AGO, NOW, a_fault, a_node, a_remediation, a_request

POLICY = RemediationPolicy()
TICK = timedelta(microseconds=1)
TALKATIVE = [phase for phase in Phase if phase not in (Phase.REBOOTING, Phase.REPLACING)]


@pytest.mark.parametrize("phase", TALKATIVE)
@pytest.mark.parametrize(
    ("silence", "is_lost"),
    [
        (timedelta(0), False),
        (POLICY.heartbeat_timeout - TICK, False),
        (POLICY.heartbeat_timeout, True),
        (POLICY.heartbeat_timeout + TICK, True),
    ],
)
def test_a_node_is_lost_exactly_when_its_heartbeat_is_overdue(phase, silence, is_lost) -> None:
    node = a_node(phase, heartbeat_at=NOW - silence)

    fault = lost_fault(node, POLICY, NOW)

    assert (fault is not None) is is_lost
    if fault is not None:
        assert (fault.reason, fault.remedy) == (Reason.NODE_SILENT, POLICY.silent_remedy)
        assert fault.since == node.heartbeat_at + POLICY.heartbeat_timeout


@pytest.mark.parametrize("phase", [Phase.REBOOTING, Phase.REPLACING])
@pytest.mark.parametrize("changes", [{"heartbeat_at": LONG_AGO}, {"powered_on": False}])
def test_a_machine_under_repair_may_be_silent_and_dark(phase, changes) -> None:
    node = a_node(phase, **changes)

    assert lost_fault(node, POLICY, NOW) is None
    assert silent_at(node, POLICY) is None


@pytest.mark.parametrize("phase", TALKATIVE)
def test_a_machine_without_power_is_lost_at_once(phase) -> None:
    node = a_node(phase, powered_on=False)

    fault = lost_fault(node, POLICY, NOW)

    assert fault is not None
    assert (fault.reason, fault.remedy) == (Reason.NODE_POWERED_OFF, POLICY.silent_remedy)
    assert fault.since == node.heartbeat_at


@pytest.mark.parametrize(
    ("remediation", "since"), [(None, NOW), (a_remediation(), a_remediation().opened_at)]
)
def test_a_machine_without_power_and_heartbeat_was_lost_just_now_or_with_its_remediation(
    remediation, since
) -> None:
    node = a_node(
        Phase.JOINING,
        powered_on=False,
        heartbeat_at=None,
        record={"phase_since": LONG_AGO, "remediation": remediation},
    )

    fault = lost_fault(node, POLICY, NOW)

    assert fault is not None
    assert fault.since == since


@pytest.mark.parametrize("powered_on", [True, None])
def test_power_that_is_on_or_unknown_is_no_fault(powered_on) -> None:
    assert lost_fault(a_node(powered_on=powered_on), POLICY, NOW) is None


@pytest.mark.parametrize(
    ("age", "is_lost"),
    [
        (POLICY.heartbeat_timeout, False),
        (POLICY.join_timeout - TICK, False),
        (POLICY.join_timeout, True),
    ],
)
def test_a_new_node_has_time_to_join_and_is_replaced_if_it_never_does(age, is_lost) -> None:
    node = a_node(Phase.JOINING, heartbeat_at=None, record={"phase_since": NOW - age})

    fault = lost_fault(node, POLICY, NOW)

    assert (fault is not None) is is_lost
    if fault is not None:
        assert (fault.reason, fault.remedy) == (Reason.NODE_NEVER_JOINED, Remedy.REPLACE)


@pytest.mark.parametrize(("age", "is_lost"), [(START_FAILED - TICK, False), (START_FAILED, True)])
def test_a_node_that_its_platform_has_given_up_is_replaced_with_the_platforms_reason(
    age, is_lost
) -> None:
    record = {"phase_since": NOW - age}
    node = a_node(Phase.JOINING, heartbeat_at=None, join_error="it timed out", record=record)

    fault = lost_fault(node, POLICY, NOW)

    assert (fault is not None) is is_lost
    if fault is not None:
        assert (fault.reason, fault.remedy) == (Reason.NODE_START_FAILED, Remedy.REPLACE)
        assert fault.message == "it timed out"
    heard = a_node(Phase.JOINING, join_error="it timed out", record=record)
    assert lost_fault(heard, POLICY, NOW) is None
    soon = replace(POLICY, join_timeout=START_FAILED - TICK)
    assert lost_fault(node, soon, NOW) is not None


@pytest.mark.parametrize("phase", [Phase.SCHEDULABLE, Phase.CHECKING])
def test_a_node_that_booted_anew_by_itself_must_be_heard_soon(phase) -> None:
    since = NOW - POLICY.heartbeat_timeout
    node = a_node(phase, heartbeat_at=None, record={"phase_since": since})

    assert lost_fault(node, POLICY, NOW - TICK) is None
    assert lost_fault(node, POLICY, NOW) is not None


@pytest.mark.parametrize("phase", [Phase.QUARANTINED, Phase.DRAINING])
def test_a_lost_node_stays_lost_for_the_same_reason_until_it_is_heard(phase) -> None:
    remediation = a_remediation(
        Remedy.REPLACE, condition=Condition.NODE_LOST, reason=Reason.NODE_NEVER_JOINED
    )
    node = a_node(phase, heartbeat_at=None, record={"remediation": remediation, "phase_since": NOW})

    fault = lost_fault(node, POLICY, NOW)

    assert fault is not None
    assert (fault.reason, fault.remedy) == (Reason.NODE_NEVER_JOINED, Remedy.REPLACE)
    assert fault.since == remediation.opened_at


def test_the_successor_of_a_lost_node_is_not_lost_itself() -> None:
    remediation = a_remediation(
        Remedy.REPLACE, condition=Condition.NODE_LOST, reason=Reason.NODE_SILENT
    )
    node = a_node(Phase.JOINING, heartbeat_at=None, record={"remediation": remediation})

    assert lost_fault(node, POLICY, NOW) is None


def test_faults_come_worst_first_and_those_of_the_application_not_at_all() -> None:
    mild = a_fault(Remedy.REBOOT, reason="Mild", since=NOW - timedelta(hours=2))
    later = a_fault(Remedy.REPLACE, reason="Later", since=NOW - timedelta(minutes=1))
    earlier = a_fault(Remedy.REPLACE, reason="Earlier", since=NOW - timedelta(minutes=2))
    deferred = a_fault(Remedy.REPLACE, reason="Deferred", since=LONG_AGO, urgency=Urgency.DEFERRED)
    app = a_fault(Remedy.RESTART_APP, reason="App")
    none = a_fault(Remedy.NONE, reason="None")

    found = node_faults(a_node(faults=(app, mild, deferred, later, none, earlier)), POLICY, NOW)

    assert [fault.reason for fault in found] == ["Earlier", "Later", "Deferred", "Mild"]


@pytest.mark.parametrize(
    ("since", "counts"), [(NOW - TICK, False), (NOW, False), (NOW + TICK, True)]
)
def test_a_release_forgives_the_faults_from_before_it_only(since, counts) -> None:
    node = a_node(faults=(a_fault(since=since),), record={"cleared_at": NOW})

    assert bool(node_faults(node, POLICY, NOW + 2 * TICK)) is counts


@pytest.mark.parametrize(
    ("seen_after", "counts"),
    [(-TICK, False), (timedelta(0), False), (TICK, True)],
)
def test_a_fault_that_happens_again_after_a_release_is_not_forgiven(seen_after, counts) -> None:
    fault = a_fault(since=LONG_AGO, seen_at=NOW + seen_after)
    node = a_node(faults=(fault,), record={"cleared_at": NOW})

    assert bool(node_faults(node, POLICY, NOW + 2 * TICK)) is counts


def test_silence_cannot_be_forgiven() -> None:
    node = a_node(heartbeat_at=LONG_AGO, record={"cleared_at": NOW})

    assert [fault.reason for fault in node_faults(node, POLICY, NOW)] == [Reason.NODE_SILENT]


def test_a_failed_check_asks_for_a_replacement() -> None:
    node = a_node(Phase.CHECKING, check=CheckResult(passed=False, ended_at=NOW, detail="bad link"))

    fault = check_fault(node, POLICY, NOW)

    assert fault is not None
    assert (fault.reason, fault.remedy) == (Reason.CHECK_FAILED, Remedy.REPLACE)
    assert (fault.message, fault.since) == ("bad link", NOW)


def test_a_passed_check_is_no_fault_even_if_it_was_late() -> None:
    node = a_node(
        Phase.CHECKING,
        check=CheckResult(passed=True, ended_at=NOW),
        record={"phase_since": LONG_AGO},
    )

    assert check_fault(node, POLICY, NOW) is None


def test_a_check_that_never_ends_has_failed_at_its_deadline() -> None:
    node = a_node(Phase.CHECKING, record={"phase_since": NOW - POLICY.deep_check_timeout})

    fault = check_fault(node, POLICY, NOW)

    assert check_fault(node, POLICY, NOW - TICK) is None
    assert fault is not None
    assert (fault.reason, fault.remedy) == (Reason.CHECK_NEVER_ENDED, Remedy.REPLACE)
    assert fault.since == NOW


def test_a_check_that_began_late_has_its_time() -> None:
    began_at = NOW - POLICY.deep_check_timeout
    since = {"phase_since": began_at - POLICY.deep_check_timeout}
    node = a_node(Phase.CHECKING, check_began_at=began_at, record=since)

    assert check_fault(node, POLICY, NOW - TICK) is None
    assert check_fault(node, POLICY, NOW) is not None


def test_a_check_that_has_not_begun_is_no_fault() -> None:
    node = a_node(
        Phase.CHECKING,
        check_pending="its job waits (Resources)",
        record={"phase_since": LONG_AGO - POLICY.deep_check_timeout},
    )

    assert check_fault(node, POLICY, NOW) is None


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.CHECKING])
def test_only_a_node_under_check_can_fail_it(phase) -> None:
    node = a_node(phase, check=CheckResult(passed=False, ended_at=NOW))

    assert check_fault(node, POLICY, NOW) is None


@pytest.mark.parametrize("phase", list(Phase))
def test_an_offender_is_met_when_it_comes_back(phase) -> None:
    fault = offender_fault(a_node(phase), frozenset({"i-1"}))

    assert (fault is not None) is (phase in (Phase.JOINING, Phase.CHECKING))
    assert offender_fault(a_node(phase), frozenset({"i-2"})) is None


@pytest.mark.parametrize(
    ("verb", "reason", "remedy"),
    [
        (Verb.REBOOT, Reason.REQUESTED_REBOOT, Remedy.REBOOT),
        (Verb.REPLACE, Reason.REQUESTED_REPLACE, Remedy.REPLACE),
        (Verb.DEEP_CHECK, Reason.REQUESTED_DEEP_CHECK, Remedy.NONE),
    ],
)
def test_a_request_has_the_form_of_a_fault(verb, reason, remedy) -> None:
    request = a_request(verb, urgency=Urgency.DEFERRED)

    fault = request_fault(request)

    assert fault is not None
    assert (fault.condition, fault.reason, fault.remedy) == (Condition.REQUESTED, reason, remedy)
    assert (fault.urgency, fault.since) == (Urgency.DEFERRED, request.requested_at)
    assert fault.message == f"{verb} requested by somebody"


def test_a_release_is_no_fault() -> None:
    assert request_fault(a_request(Verb.RELEASE)) is None


def test_the_newest_restart_of_the_application_counts_from_the_start_of_the_attempt() -> None:
    old = a_fault(Remedy.RESTART_APP, reason="Old", since=NOW - TICK)
    exact = a_fault(Remedy.RESTART_APP, reason="Exact", since=NOW)
    new = a_fault(Remedy.RESTART_APP, reason="New", since=NOW + TICK)

    assert app_restart_since(a_node(faults=(old,)), NOW) is None
    assert app_restart_since(a_node(faults=(old, exact)), NOW) is exact
    assert app_restart_since(a_node(faults=(new, exact, a_fault())), NOW) is new
