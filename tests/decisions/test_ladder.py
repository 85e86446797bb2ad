from datetime import timedelta

import pytest

from holdfast.decisions.ladder import is_repeat_offender, remedy_for
from holdfast.decisions.policy import RemediationPolicy
from holdfast.model.health import Remedy
from holdfast.model.names import Condition
from holdfast.model.nodes import Phase
from tests.ports.builders import NOW, a_fault, a_node, a_past_fault, a_remediation

POLICY = RemediationPolicy()
WINDOW = POLICY.reboot_window
WEEK = POLICY.offender_window
TICK = timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("requested", "given"),
    [
        (Remedy.RESET_GPU, Remedy.REBOOT),
        (Remedy.REBOOT, Remedy.REBOOT),
        (Remedy.REPLACE, Remedy.REPLACE),
    ],
)
def test_a_first_fault_gets_the_remedy_that_it_asks_for(requested, given) -> None:
    assert remedy_for(a_node(), a_fault(requested), POLICY, NOW) is given


@pytest.mark.parametrize(
    ("ago", "remedy"),
    [
        (timedelta(0), Remedy.REPLACE),
        (WINDOW - TICK, Remedy.REPLACE),
        (WINDOW, Remedy.REPLACE),
        (WINDOW + TICK, Remedy.REBOOT),
    ],
)
def test_a_fault_within_the_window_after_a_reboot_is_answered_with_a_replacement(
    ago, remedy
) -> None:
    node = a_node(record={"history": (a_past_fault(Remedy.REBOOT, ago=ago),)})

    assert remedy_for(node, a_fault(), POLICY, NOW) is remedy


def test_the_reboot_window_counts_from_the_end_of_the_reboot() -> None:
    past = a_past_fault(Remedy.REBOOT, ago=WINDOW + TICK, closed_at=NOW - WINDOW)
    node = a_node(record={"history": (past,)})

    assert remedy_for(node, a_fault(), POLICY, NOW) is Remedy.REPLACE


def test_a_fault_that_went_away_by_itself_makes_no_reboot_vain() -> None:
    node = a_node(record={"history": (a_past_fault(Remedy.NONE, ago=TICK),)})

    assert remedy_for(node, a_fault(), POLICY, NOW) is Remedy.REBOOT


@pytest.mark.parametrize(
    ("machine", "remedy"),
    [
        ("", Remedy.REBOOT),  # nothing was ordered in this course yet
        ("i-1#boot-0", Remedy.REPLACE),  # this machine was rebooted in it
        ("i-0#boot-7", Remedy.REBOOT),  # the machine before it was replaced in it
    ],
)
@pytest.mark.parametrize("phase", [Phase.JOINING, Phase.QUARANTINED, Phase.DRAINING])
def test_a_reboot_in_the_same_remediation_on_the_same_machine_was_in_vain(
    phase, machine, remedy
) -> None:
    remediation = a_remediation(Remedy.REBOOT, machine=machine, repairs=int(bool(machine)))
    node = a_node(phase, record={"remediation": remediation})

    assert remedy_for(node, a_fault(), POLICY, NOW) is remedy


@pytest.mark.parametrize("requested", [Remedy.NONE, Remedy.REBOOT, Remedy.REPLACE])
def test_what_a_person_requests_is_done_as_requested(requested) -> None:
    pasts = tuple(a_past_fault(Remedy.REBOOT, ago=TICK) for _ in range(5))
    node = a_node(record={"history": pasts})
    request = a_fault(requested, condition=Condition.REQUESTED)

    assert remedy_for(node, request, POLICY, NOW) is requested


@pytest.mark.parametrize(
    ("ages", "is_offender"),
    [
        ([], False),
        ([TICK], False),
        ([TICK, 2 * WINDOW], True),
        ([WEEK, WEEK], True),
        ([WEEK, WEEK + TICK], False),
        ([WEEK + TICK, WEEK + TICK, WEEK + TICK], False),
    ],
)
def test_the_third_fault_within_a_week_makes_a_repeat_offender(ages, is_offender) -> None:
    pasts = tuple(a_past_fault(Remedy.NONE, ago=age) for age in ages)
    node = a_node(record={"history": pasts})

    assert is_repeat_offender(node, POLICY, NOW) is is_offender


def test_the_week_counts_from_the_begin_of_a_fault() -> None:
    past = a_past_fault(Remedy.NONE, ago=WEEK + TICK, closed_at=NOW)
    node = a_node(record={"history": (past, past)})

    assert not is_repeat_offender(node, POLICY, NOW)


def test_a_repeat_offender_is_replaced_whatever_its_fault() -> None:
    pasts = tuple(a_past_fault(Remedy.NONE, ago=2 * WINDOW) for _ in range(2))
    node = a_node(record={"history": pasts})

    assert remedy_for(node, a_fault(Remedy.RESET_GPU), POLICY, NOW) is Remedy.REPLACE


def test_with_one_fault_allowed_every_fault_makes_an_offender() -> None:
    assert is_repeat_offender(a_node(), RemediationPolicy(offender_faults=1), NOW)
