"""Laws between Node objects and what the core knows."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from node_objects import (
    CONVENTIONS,
    DEEP,
    HEALTH,
    TAINT,
    a_node_object,
    a_report,
    merged,
    node_objects,
    records,
    state_of,
)

from holdfast.adapters.kubernetes.client.values import compact_json
from holdfast.adapters.kubernetes.nodes.encoding import (
    differs_from_record,
    new_request_patch,
    node_patch,
    parse_annotations,
    request_patch,
)
from holdfast.decisions.node_labels import health_status, is_out_of_service
from holdfast.kit.serial import parse_value
from holdfast.model.health import Remedy, Urgency
from holdfast.model.names import (
    AGENT_HEALTH_STATUS,
    CORDONED,
    HOLD,
    RECORD,
    REPORT,
    REQUEST,
    Condition,
    HealthStatus,
    Reason,
)
from holdfast.model.nodes import NodeRecord, Phase
from holdfast.model.report import NodeReport
from holdfast.model.requests import Request, Verb
from tests.ports.builders import NOW, a_fault, a_past_fault, a_record, a_remediation, a_request

PENDING = {
    HealthStatus.PENDING_REBOOT: Verb.REBOOT,
    HealthStatus.PENDING_REPLACEMENT: Verb.REPLACE,
    "UnschedulablePendingReplace": Verb.REPLACE,
}
NO_CHECK = CONVENTIONS._replace(can_check=False)


def parsed(node, conventions=CONVENTIONS):
    return parse_annotations(state_of(node), conventions, NOW)


def put(node, record):
    """The node after ``record`` was put, as the API server makes it."""
    return merged(node, node_patch(state_of(node), parsed(node), record, CONVENTIONS))


def labels(node):
    return node["metadata"]["labels"]


def annotations(node):
    return node["metadata"]["annotations"]


def taints(node):
    return node["spec"].get("taints", [])


def is_ours(taint):
    return (taint["key"], taint["effect"]) == (HEALTH, "NoSchedule")


# what is stored


@given(records())
def test_a_record_is_read_as_it_was_written(record) -> None:
    full = replace(record, history=(a_past_fault(ago=timedelta(hours=1)),), cleared_at=NOW)

    assert parsed(put(a_node_object(), full)).record == full


@given(node_objects(), records())
def test_putting_twice_is_putting_once(node, record) -> None:
    once = put(node, record)

    assert parsed(once).record == record
    assert node_patch(state_of(once), parsed(once), record, CONVENTIONS) is None


@given(node_objects(may_be_cordoned=False), records(), records())
def test_what_was_put_before_leaves_no_trace(node, first, second) -> None:
    after = put(put(node, first), second)

    kept_cordon = is_out_of_service(first) and second.phase is not Phase.SCHEDULABLE
    direct = put(node, second)
    assert labels(after) == labels(direct)
    assert sorted(state_of(after).taints) == sorted(state_of(direct).taints)
    assert after["spec"].get("unschedulable", False) == (
        direct["spec"].get("unschedulable", False) or kept_cordon
    )


@given(records(), records(), st.sampled_from(Verb))
def test_a_verb_alone_is_one_request_until_it_is_taken_away(record, later, verb) -> None:
    node = put(a_node_object(annotations={REQUEST: verb.value}), record)
    requested = parsed(node).request

    answered = put(node, later)
    patch = request_patch(state_of(answered), parsed(answered), requested.id, CONVENTIONS)

    assert parsed(answered).request == requested
    assert REQUEST not in annotations(merged(answered, patch))


@given(node_objects(), records())
def test_pods_can_be_placed_exactly_while_the_node_is_schedulable(node, record) -> None:
    after = put(node, record)

    ours = [taint for taint in taints(after) if is_ours(taint)]
    assert ours == ([] if record.phase is Phase.SCHEDULABLE else [TAINT])
    assert labels(after).get(HEALTH) == health_status(record)


@given(node_objects(), records())
def test_nothing_of_others_is_touched(node, record) -> None:
    after = put(node, record)

    own = {HEALTH, DEEP}
    assert {k: v for k, v in labels(after).items() if k not in own} == {"kept": "yes"}
    own = {RECORD, AGENT_HEALTH_STATUS, CORDONED}
    before = {k: v for k, v in annotations(node).items() if k not in own}
    assert {k: v for k, v in annotations(after).items() if k not in own} == before
    assert [t for t in taints(after) if not is_ours(t)] == [
        t for t in taints(node) if not is_ours(t)
    ]
    assert after["spec"]["providerID"] == node["spec"]["providerID"]


@given(node_objects(), records())
def test_a_cordon_of_somebody_else_stays_and_ours_goes_with_the_release(node, record) -> None:
    state = state_of(node)
    is_foreign = state.is_unschedulable and state.cordoned is None

    after = state_of(put(node, record))

    if is_foreign:
        assert after.is_unschedulable
        assert after.cordoned is None
    elif record.phase is Phase.SCHEDULABLE:
        assert after.cordoned is None
        assert not after.is_unschedulable
    elif is_out_of_service(record):
        assert after.is_unschedulable
        assert after.cordoned is not None


def test_a_node_in_quarantine_is_cordoned_from_its_drain_on() -> None:
    quarantined = put(a_node_object(), a_record(Phase.QUARANTINED))
    assert "unschedulable" not in quarantined["spec"]

    draining = put(quarantined, a_record(Phase.DRAINING))
    assert draining["spec"]["unschedulable"] is True

    again = put(draining, a_record(Phase.QUARANTINED))
    assert again["spec"]["unschedulable"] is True

    assert "unschedulable" not in put(again, a_record())["spec"]


@given(node_objects(), records())
def test_a_patch_bears_the_version_that_it_is_made_for(node, record) -> None:
    patch = node_patch(state_of(node), parsed(node), record, CONVENTIONS)

    assert patch is None or patch["metadata"]["resourceVersion"] == "7"


@given(node_objects(), records())
def test_the_mark_of_the_agent_goes_when_we_take_over(node, record) -> None:
    assert AGENT_HEALTH_STATUS not in annotations(put(node, record))


@pytest.mark.parametrize(
    ("record", "label"),
    [
        (a_record(), None),
        (a_record(Phase.CHECKING), "InProgress"),
        (a_record(checked_machine="i-1#boot-1"), "Passed"),
        (a_record(checked_machine="i-1#boot-0"), None),
        (
            a_record(
                Phase.QUARANTINED, remediation=a_remediation(condition="DeepHealthCheckFailed")
            ),
            "Failed",
        ),
    ],
)
@pytest.mark.parametrize("before", [None, "Passed", "Failed"])
def test_the_deep_check_label_is_that_of_the_record(record, label, before) -> None:
    node = a_node_object(labels={} if before is None else {DEEP: before})

    assert labels(put(node, record)).get(DEEP) == label


def test_the_machine_of_the_deep_check_label_is_that_of_the_agents_boot() -> None:
    node = a_node_object(boot_id="boot-2", annotations={REPORT: a_report(boot_id="boot-1")})

    assert labels(put(node, a_record(checked_machine="i-1#boot-1")))[DEEP] == "Passed"


# what people ask for


@given(node_objects(), records())
def test_our_own_status_is_never_taken_for_a_request(node, record) -> None:
    after = put(node, record)
    annotations(after).pop(REQUEST, None)

    assert parsed(after).request is None
    assert not differs_from_record(state_of(after), parsed(after), CONVENTIONS)


@given(records(), st.sampled_from(list(HealthStatus)).map(str))
def test_the_mark_of_the_agent_is_never_taken_for_a_request(record, value) -> None:
    node = put(a_node_object(), record)
    labels(node)[HEALTH] = value
    annotations(node)[AGENT_HEALTH_STATUS] = value

    assert parsed(node).request is None
    assert parsed(node).rejected == ()


@given(records(), st.sampled_from(list(PENDING)))
def test_a_pending_label_that_we_did_not_set_is_a_request(record, value) -> None:
    assume(health_status(record) != value)
    assume(record.remediation is not None or record.phase is not Phase.JOINING)
    node = put(a_node_object(), record)
    labels(node)[HEALTH] = value

    said = parsed(node)

    assert said.request is not None
    assert said.request.verb is PENDING[value]
    assert said.request.urgency is Urgency.IMMEDIATE
    assert said.is_label_request
    assert not differs_from_record(state_of(node), said, CONVENTIONS)


@pytest.mark.parametrize("value", PENDING)
def test_a_label_may_ask_for_something_before_we_know_the_node(value) -> None:
    request = parsed(a_node_object(labels={HEALTH: value})).request

    assert request is not None
    assert request.verb is PENDING[value]


def managed(manager: str, time: str) -> dict:
    fields = {"f:metadata": {"f:labels": {".": {}, f"f:{HEALTH}": {}}}}
    return {"manager": manager, "operation": "Update", "time": time, "fieldsV1": fields}


def test_a_request_by_label_names_the_client_that_set_the_label_last() -> None:
    node = a_node_object(labels={HEALTH: HealthStatus.PENDING_REBOOT})
    assert parsed(node).request.requested_by == "the node's label"

    node["metadata"]["managedFields"] = [
        managed("kubectl-label", "2026-01-01T12:00:01Z"),
        managed("holdfast-controller", "2026-01-01T12:00:00Z"),
        {"manager": "kubelet", "time": "2026-01-01T12:00:02Z", "fieldsV1": {"f:status": {}}},
    ]
    assert parsed(node).request.requested_by == "kubectl-label by label"


@pytest.mark.parametrize("value", HealthStatus)
def test_a_node_whose_record_was_lost_asks_for_nothing_by_our_old_status(value) -> None:
    said = parsed(a_node_object(labels={HEALTH: value}, taints=[TAINT]))

    assert (said.request, said.rejected) == (None, ())


@given(records())
def test_schedulable_asks_for_a_release_while_the_node_is_out_of_service(record) -> None:
    assume(record.phase is not Phase.SCHEDULABLE)
    assume(record.remediation is not None or record.phase is not Phase.JOINING)
    node = put(a_node_object(), record)
    labels(node)[HEALTH] = "Schedulable"

    request = parsed(node).request

    assert request is not None
    assert request.verb is Verb.RELEASE


@pytest.mark.parametrize("value", ["Schedulable", "Unschedulable"])
def test_a_new_node_may_bear_a_label_that_asks_for_nothing(value) -> None:
    said = parsed(a_node_object(labels={HEALTH: value}))

    assert (said.request, said.rejected) == (None, ())


@given(records(), st.text(max_size=63).filter(lambda text: text not in frozenset(HealthStatus)))
def test_an_unknown_label_is_reported_and_put_right_and_asks_for_nothing(record, value) -> None:
    node = put(a_node_object(), record)
    labels(node)[HEALTH] = value

    said = parsed(node)

    assert said.request is None
    (rejection,) = said.rejected
    assert rejection.key == HEALTH
    assert "UnschedulablePendingReboot" in rejection.expected
    assert differs_from_record(state_of(node), said, CONVENTIONS)
    assert labels(put(node, record)).get(HEALTH) == health_status(record)


def test_unschedulable_by_hand_asks_for_nothing_and_is_put_right() -> None:
    node = put(a_node_object(), a_record())
    labels(node)[HEALTH] = "Unschedulable"

    assert parsed(node).request is None
    assert [one.key for one in parsed(node).rejected] == [HEALTH]
    assert differs_from_record(state_of(node), parsed(node), CONVENTIONS)


def test_the_same_request_in_another_phase_is_another_request() -> None:
    def requested(record):
        node = put(a_node_object(), record)
        labels(node)[HEALTH] = "UnschedulablePendingReboot"
        return parsed(node).request.id

    earlier = a_record(phase_since=NOW - timedelta(days=1))
    assert requested(a_record()) == requested(a_record())
    assert requested(a_record()) != requested(earlier)


@given(st.builds(a_request, st.sampled_from(list(Verb)), urgency=st.sampled_from(list(Urgency))))
def test_a_request_is_read_as_it_was_written(request) -> None:
    said = parsed(a_node_object(annotations={REQUEST: compact_json(request)}))

    assert said.request == request
    assert not said.is_label_request


@pytest.mark.parametrize("verb", Verb)
def test_a_person_may_write_the_verb_alone(verb) -> None:
    request = parsed(a_node_object(annotations={REQUEST: verb})).request

    assert request is not None
    assert (request.verb, request.requested_at) == (verb, NOW)


def test_the_annotation_goes_before_the_label() -> None:
    node = put(a_node_object(), a_record())
    labels(node)[HEALTH] = "UnschedulablePendingReboot"
    annotations(node)[REQUEST] = "replace"

    said = parsed(node)
    assert said.request.verb is Verb.REPLACE

    after = merged(node, request_patch(state_of(node), said, said.request.id, CONVENTIONS))
    assert parsed(after).request.verb is Verb.REBOOT


@pytest.mark.parametrize("text", ["deep-check", compact_json(a_request(Verb.DEEP_CHECK))])
def test_a_deep_check_can_only_be_asked_for_where_there_is_one(text) -> None:
    node = a_node_object(annotations={REQUEST: text})

    assert parsed(node).request.verb is Verb.DEEP_CHECK
    said = parsed(node, NO_CHECK)
    assert said.request is None
    assert "image" in said.rejected[0].expected


def test_the_label_of_a_check_in_progress_asks_for_one_on_a_node_that_takes_work() -> None:
    node = put(a_node_object(), a_record())
    labels(node)[DEEP] = "InProgress"

    said = parsed(node)

    assert (said.request.verb, said.is_label_request) == (Verb.DEEP_CHECK, True)
    assert parsed(node).request.id == said.request.id
    after = merged(node, request_patch(state_of(node), said, said.request.id, CONVENTIONS))
    assert DEEP not in labels(after)
    assert parsed(after).request is None
    refused = parsed(node, NO_CHECK)
    assert refused.request is None
    assert "image" in refused.rejected[0].expected


@pytest.mark.parametrize("phase", [one for one in Phase if one is not Phase.SCHEDULABLE])
def test_once_a_check_is_taken_up_its_label_asks_for_no_other(phase) -> None:
    remediation = a_remediation(Remedy.NONE, condition=Condition.REQUESTED)
    node = put(a_node_object(), a_record(phase, remediation=remediation))
    labels(node)[DEEP] = "InProgress"

    assert parsed(node).request is None


def test_clearing_a_request_leaves_the_check_of_an_unknown_node_alone() -> None:
    node = a_node_object(labels={HEALTH: "UnschedulablePendingReboot", DEEP: "Passed"})
    said = parsed(node)

    after = merged(node, request_patch(state_of(node), said, said.request.id, CONVENTIONS))

    assert labels(after)[DEEP] == "Passed"


def test_clearing_takes_the_request_of_that_name_alone() -> None:
    node = a_node_object(annotations={REQUEST: compact_json(a_request(Verb.REBOOT, id="r-1"))})

    assert request_patch(state_of(node), parsed(node), "r-2", CONVENTIONS) is None
    after = merged(node, request_patch(state_of(node), parsed(node), "r-1", CONVENTIONS))
    assert parsed(after).request is None
    assert REQUEST not in annotations(after)


def test_clearing_the_request_of_a_label_puts_our_status_back() -> None:
    record = a_record(Phase.REPLACING)
    node = put(a_node_object(), record)
    labels(node)[HEALTH] = "UnschedulablePendingReboot"
    said = parsed(node)

    after = merged(node, request_patch(state_of(node), said, said.request.id, CONVENTIONS))

    assert labels(after)[HEALTH] == "UnschedulablePendingReplacement"
    assert parsed(after).request is None


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("because", "because"),
        ("", "no reason given"),
        ("  ", "no reason given"),
        ("x" * 999, "x" * 200),
    ],
)
def test_a_hold_says_why(text, held) -> None:
    assert parsed(a_node_object(annotations={HOLD: text})).pause_reason == held
    assert parsed(a_node_object()).pause_reason == ""


# marks that went astray


def test_marks_are_put_right_unless_a_person_asks_or_the_agent_is_ahead() -> None:
    node = put(a_node_object(), a_record())
    assert not differs_from_record(state_of(node), parsed(node), CONVENTIONS)

    without_label = merged(node, {"metadata": {"labels": {HEALTH: None}}})
    assert differs_from_record(state_of(without_label), parsed(without_label), CONVENTIONS)

    tainted = merged(node, {"spec": {"taints": [TAINT]}})
    assert differs_from_record(state_of(tainted), parsed(tainted), CONVENTIONS)

    mark = {"labels": {HEALTH: "UnschedulablePendingReboot"}}
    requested = merged(node, {"metadata": mark})
    assert not differs_from_record(state_of(requested), parsed(requested), CONVENTIONS)
    marked = merged(
        requested,
        {"metadata": {"annotations": {AGENT_HEALTH_STATUS: "UnschedulablePendingReboot"}}},
    )
    assert not differs_from_record(state_of(marked), parsed(marked), CONVENTIONS)


def test_a_node_without_a_record_has_no_marks_to_put_right() -> None:
    node = a_node_object(taints=[TAINT], labels={HEALTH: "odd"})

    assert not differs_from_record(state_of(node), parsed(node), CONVENTIONS)


# what cannot be used

scraps = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["phase", "phase_since", "remediation", "history", "verb", "id", "faults"]
            ),
            children,
            max_size=4,
        )
    ),
    max_leaves=10,
)
nonsense = st.text(max_size=30) | scraps.map(json.dumps) | st.just("[" * 5000)


@given(nonsense, nonsense, nonsense, nonsense)
def test_nothing_that_anybody_writes_raises(record, report, request, hold) -> None:
    node = a_node_object(
        annotations={RECORD: record, REPORT: report, REQUEST: request, HOLD: hold},
        labels={HEALTH: hold},
    )

    said = parsed(node)

    for key, found in ((RECORD, said.record), (REPORT, said.report)):
        assert (found is None) == (key in {one.key for one in said.rejected})


GOOD = json.loads(compact_json(a_record(Phase.DRAINING)))


@pytest.mark.parametrize(
    "changes",
    [
        {"phase": "limbo"},
        {"phase_since": "2026-01-01T00:00:00"},
        {"phase_since": "9999-12-31T23:59:59+00:00"},
        {"phase_since": "0001-01-01T00:00:00+00:00"},
        {"remediation": None},
        {"remediation": {**GOOD["remediation"], "opened_at": "2026-01-01T00:00:00"}},
        {"history": [{"opened_at": "9999-12-31T00:00:00+00:00"}]},
        {"history": 3},
    ],
)
def test_a_damaged_record_is_reported_and_the_node_is_left_alone(changes) -> None:
    text = json.dumps({**GOOD, **changes})

    said = parsed(a_node_object(annotations={RECORD: text}))

    assert said.is_damaged
    assert said.record is None
    (rejection,) = said.rejected
    assert rejection.key == RECORD
    assert rejection.value
    assert not differs_from_record(
        state_of(a_node_object(annotations={RECORD: text})), said, CONVENTIONS
    )


@pytest.mark.parametrize("phase", Phase)
def test_every_record_of_the_core_is_whole(phase) -> None:
    text = compact_json(a_record(phase))

    assert not parsed(a_node_object(annotations={RECORD: text})).is_damaged


def test_a_long_value_is_reported_by_its_beginning() -> None:
    (rejection,) = parsed(a_node_object(annotations={REQUEST: "x" * 5000})).rejected

    assert rejection.value == "x" * 100 + "..."


def test_times_at_the_edges_can_be_meant() -> None:
    first = a_record(phase_since=NOW.replace(year=2000, month=1, day=1, hour=0))

    assert parse_value(NodeRecord, compact_json(first)) == first
    with pytest.raises(ValueError, match="2000 to 2199"):
        parse_value(
            NodeRecord, compact_json(replace(first, phase_since=first.phase_since - timedelta(1)))
        )


def test_a_report_with_faults_is_read() -> None:
    fault = a_fault(Remedy.REPLACE)

    report = parsed(a_node_object(annotations={REPORT: a_report(fault)})).report

    assert isinstance(report, NodeReport)
    assert report.faults == (fault,)


def test_a_request_by_annotation_is_whole() -> None:
    with pytest.raises(ValueError, match="Request"):
        parse_value(Request, "{}")


def test_a_request_of_ours_is_read_again_and_takes_no_place_of_a_persons() -> None:
    ours = a_request(Verb.DEEP_CHECK, reason=Reason.JOBS_KEEP_FAILING, why="jobs died here")
    node = a_node_object()
    requested = a_node_object(annotations={REQUEST: compact_json(a_request(Verb.REBOOT))})

    assert (
        parsed(merged(node, new_request_patch(state_of(node), parsed(node), ours))).request == ours
    )
    assert new_request_patch(state_of(requested), parsed(requested), ours) is None
