from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.conditions import STANDING, ConditionStatus, NodeCondition, node_conditions
from holdfast.model.health import Fault, Remedy, Severity, Urgency
from holdfast.model.names import Condition, Reason

NOW = datetime(2025, 11, 20, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def fault(
    reason: str = Reason.XID_REPLACE,
    *,
    condition: str = Condition.NVIDIA_TERMINATE,
    remedy: Remedy = Remedy.REPLACE,
    urgency: Urgency = Urgency.IMMEDIATE,
    since: datetime = NOW - MINUTE,
    message: str = "Xid 74",
) -> Fault:
    return Fault(
        family="xid",
        condition=condition,
        reason=reason,
        severity=Severity.FATAL,
        remedy=remedy,
        urgency=urgency,
        message=message,
        since=since,
    )


def of_kind(conditions: tuple[NodeCondition, ...], kind: str) -> NodeCondition:
    (found,) = [condition for condition in conditions if condition.type == kind]
    return found


TERMINATE = Condition.NVIDIA_TERMINATE


def test_a_healthy_node_has_the_standing_conditions_in_the_words_of_hyperpod() -> None:
    conditions = node_conditions((), (), NOW)

    assert {condition.type for condition in conditions} == set(STANDING)
    assert of_kind(conditions, TERMINATE) == NodeCondition(
        type="NvidiaErrorTerminate",
        status=ConditionStatus.FALSE,
        reason="NvidiaNoErrorRequiredTerminate",
        message="Nvidia no error required terminate",
        transition=NOW,
    )
    assert of_kind(conditions, Condition.NVIDIA_REBOOT).reason == "NvidiaNoErrorRequiredReboot"


def test_a_fault_makes_its_condition_true_since_its_evidence() -> None:
    conditions = node_conditions((), [fault()], NOW)

    assert of_kind(conditions, TERMINATE) == NodeCondition(
        type="NvidiaErrorTerminate",
        status=ConditionStatus.TRUE,
        reason=Reason.XID_REPLACE,
        message="Xid 74",
        transition=NOW - MINUTE,
    )
    assert of_kind(conditions, Condition.NVIDIA_REBOOT).status == "False"


def test_the_same_word_again_is_no_transition() -> None:
    set_once = node_conditions((), [fault()], NOW)

    again = node_conditions(set_once, [fault(since=NOW + MINUTE, message="worse")], NOW + MINUTE)
    healthy = node_conditions(again, (), NOW + 2 * MINUTE)

    assert of_kind(again, TERMINATE).transition == NOW - MINUTE
    assert of_kind(again, TERMINATE).message == "worse"
    assert of_kind(healthy, TERMINATE).transition == NOW + 2 * MINUTE
    assert node_conditions(healthy, (), NOW + 3 * MINUTE) == healthy


def test_another_reason_is_a_transition_that_never_goes_back_in_time() -> None:
    first = node_conditions((), [fault()], NOW)
    newer = fault(Reason.XID_RESET, since=NOW)
    older = fault(Reason.XID_RESET, since=NOW - 5 * MINUTE)

    assert of_kind(node_conditions(first, [newer], NOW), TERMINATE).transition == NOW
    assert of_kind(node_conditions(first, [older], NOW), TERMINATE).transition == NOW - MINUTE


def test_a_condition_that_was_cleared_is_true_again_since_its_new_evidence() -> None:
    cleared = node_conditions(node_conditions((), [fault()], NOW), (), NOW + MINUTE)

    again = node_conditions(cleared, [fault(since=NOW + 2 * MINUTE)], NOW + 3 * MINUTE)

    assert of_kind(again, TERMINATE).status == "True"
    assert of_kind(again, TERMINATE).transition == NOW + 2 * MINUTE


def test_the_strongest_fault_leads_then_the_urgent_one_then_the_first() -> None:
    reboot = fault("A", remedy=Remedy.REBOOT)
    later = fault("B", urgency=Urgency.DEFERRED)
    urgent = fault("C")
    equal = fault("D")

    def reason(*faults: Fault) -> str:
        return of_kind(node_conditions((), faults, NOW), TERMINATE).reason

    assert reason(reboot, later) == reason(later, reboot) == "B"
    assert reason(later, urgent) == reason(urgent, later) == "C"
    assert reason(urgent, equal) == "C"


def test_a_condition_that_is_no_standing_one_stays_once_it_was_there() -> None:
    software = fault(condition=Condition.SOFTWARE)

    conditions = node_conditions((), [software], NOW)
    cleared = node_conditions(conditions, (), NOW + MINUTE)

    assert of_kind(conditions, Condition.SOFTWARE).status == "True"
    assert of_kind(cleared, Condition.SOFTWARE).status == "False"
    assert of_kind(cleared, Condition.SOFTWARE).reason != Reason.XID_REPLACE


def test_a_condition_of_another_release_is_carried_on() -> None:
    old = NodeCondition(
        type="Older", status=ConditionStatus.TRUE, reason="R", message="m", transition=NOW
    )

    assert of_kind(node_conditions([old], (), NOW + MINUTE), "Older").status == "False"


faults = st.lists(
    st.builds(
        fault,
        st.sampled_from(list(Reason)),
        condition=st.sampled_from([*Condition, "Other"]),
        remedy=st.sampled_from([remedy for remedy in Remedy if remedy is not Remedy.NONE]),
        since=st.sampled_from([NOW - MINUTE, NOW, NOW + MINUTE]),
    ),
    max_size=4,
)


@given(st.lists(faults, max_size=4))
def test_conditions_are_true_exactly_where_there_are_faults_and_time_never_goes_back(
    history: list[list[Fault]],
) -> None:
    conditions: tuple[NodeCondition, ...] = ()
    for step, held in enumerate(history):
        before = {condition.type: condition for condition in conditions}
        conditions = node_conditions(conditions, held, NOW + (step + 2) * MINUTE)

        true = {condition.type for condition in conditions if condition.status == "True"}
        assert true == {one.condition for one in held}
        assert len({condition.type for condition in conditions}) == len(conditions)
        for condition in conditions:
            if condition.type in before:
                assert condition.transition >= before[condition.type].transition
        assert node_conditions(conditions, held, NOW + 99 * MINUTE) == conditions
