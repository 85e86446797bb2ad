import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.kubernetes.client.values import format_time
from holdfast.adapters.kubernetes.nodes.agent_events import events, fault_events
from holdfast.adapters.kubernetes.nodes.report_patch import (
    HEARTBEAT,
    MESSAGE_CHARS,
    brief,
    conditions_patch,
    node_patch,
    reported,
)
from holdfast.kit.serial import to_plain
from holdfast.model.conditions import STANDING, node_conditions
from holdfast.model.health import Finding, Remedy, Severity, Urgency
from holdfast.model.names import (
    AGENT_HEALTH_STATUS,
    FAULT_DETAILS_LIMIT,
    RECORD,
    REPORT,
    Condition,
    HealthStatus,
    Labels,
    Reason,
)
from holdfast.model.nodes import Phase
from holdfast.model.report import NodeReport
from tests.ports.builders import NOW, a_fault, a_record

LABELS = Labels()
HEALTH = LABELS.node_health_status
TAINT = {"key": HEALTH, "value": "Unschedulable", "effect": "NoSchedule"}
OTHER_TAINT = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
OURS = {HEALTH, LABELS.fault_types, LABELS.fault_reasons}
OUR_NOTES = {REPORT, AGENT_HEALTH_STATUS, LABELS.fault_details}
SECOND = timedelta(seconds=1)
NAIVE = json.dumps({**to_plain(a_record(Phase.SCHEDULABLE)), "cleared_at": "2026-01-01T12:00:00"})
OF_THE_CONTROLLER = (
    Condition.NODE_LOST,
    Condition.REQUESTED,
    Condition.REPEAT_OFFENDER,
    Condition.DEEP_CHECK,
    Condition.AGENT_SILENT,
)
"""Conditions that no agent finds, and so that none may change."""

SUSPENDED_PHASES = [phase for phase in Phase if phase not in (Phase.JOINING, Phase.SCHEDULABLE)]


def a_report(*faults, boot_id="boot-1", at=NOW, **changes: Any) -> NodeReport:
    values = {"node": "n1", "boot_id": boot_id, "sequence": 7, "reported_at": at, **changes}
    conditions = node_conditions((), faults, at)
    return NodeReport(faults=faults, conditions=conditions, **values)


def a_node(
    label: str | None = None,
    *,
    mark: str | None = None,
    record: object = None,
    taints: list[dict[str, str]] | None = None,
    **annotations: str,
) -> dict[str, Any]:
    notes = {"example.com/note": "x", **annotations}
    if mark is not None:
        notes[AGENT_HEALTH_STATUS] = mark
    if record is not None:
        notes[RECORD] = record if isinstance(record, str) else json.dumps(to_plain(record))
    return {
        "metadata": {
            "name": "n1",
            "uid": "u1",
            "resourceVersion": "5",
            "labels": {"zone": "a", **({} if label is None else {HEALTH: label})},
            "annotations": notes,
        },
        "spec": {"providerID": "i-1", "taints": taints or []},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def merged(value: Any, patch: Any) -> Any:
    """JSON merge patch, RFC 7386."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(value) if isinstance(value, Mapping) else {}
    for key, part in patch.items():
        if part is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), part)
    return result


def last_report(node: dict[str, Any], *reports: NodeReport) -> dict[str, Any]:
    for report in reports:
        before = copy.deepcopy(node)
        patch = node_patch(node, report, LABELS)
        assert node == before
        if patch is not None:
            assert patch["metadata"]["resourceVersion"] == "5"
            node = merged(node, patch)
    return node


def label(node: dict[str, Any]) -> str | None:
    return node["metadata"]["labels"].get(HEALTH)


def note(node: dict[str, Any], key: str) -> str | None:
    return node["metadata"]["annotations"].get(key)


def mark(node: dict[str, Any]) -> str | None:
    return note(node, AGENT_HEALTH_STATUS)


def taints(node: dict[str, Any]) -> list[dict[str, str]]:
    return node["spec"]["taints"]


REBOOT, REPLACE = a_fault(Remedy.REBOOT), a_fault(Remedy.REPLACE)
PENDING_REBOOT, PENDING_REPLACEMENT = HealthStatus.PENDING_REBOOT, HealthStatus.PENDING_REPLACEMENT

faults = st.builds(
    lambda remedy, code, ago, seen, urgency: a_fault(
        remedy, code=code, since=NOW - ago * SECOND, seen_at=NOW if seen else None, urgency=urgency
    ),
    st.sampled_from([one for one in Remedy if one is not Remedy.NONE]),
    st.sampled_from([None, 74, 79]),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from(Urgency),
)
reports = st.builds(
    lambda found, boot: a_report(*found, boot_id=boot),
    st.lists(faults, max_size=3, unique_by=lambda fault: fault.key),
    st.sampled_from(["boot-1", "boot-2"]),
)
values = st.sampled_from([None, *HealthStatus, "Odd"])
records = st.sampled_from([None, "", "[", "[]", '{"phase":"odd"}', *map(a_record, Phase)])
texts = st.sampled_from(
    ["", "null", "7", "[" * 5000, "{}", '{"node":1}', '"node"', '{"faults":[{}]}', "ü\0"]
)
nodes = st.builds(
    lambda value, own, record, some, text: a_node(
        value, mark=own, record=record, taints=some, **({} if text is None else {REPORT: text})
    ),
    values,
    values,
    records,
    st.lists(
        st.sampled_from([TAINT, OTHER_TAINT, {**TAINT, "effect": "NoExecute"}]),
        unique_by=str,
        max_size=3,
    ),
    st.none() | texts,
)


@given(nodes, reports)
def test_what_a_report_makes_of_a_node_is_made_once(node, report) -> None:
    node = last_report(node, report)

    assert node_patch(node, report, LABELS) is None
    later = replace(report, sequence=99, reported_at=NOW + timedelta(hours=1))
    assert node_patch(node, later, LABELS) is None


@given(nodes, reports)
def test_nothing_is_touched_but_what_is_the_agents(node, report) -> None:
    after = last_report(node, report)

    def rest(one: dict[str, Any]) -> object:
        metadata = one["metadata"]
        return (
            {key: value for key, value in metadata["labels"].items() if key not in OURS},
            {key: value for key, value in metadata["annotations"].items() if key not in OUR_NOTES},
            [taint for taint in taints(one) if taint != TAINT],
            {key: value for key, value in one["spec"].items() if key != "taints"},
            one["status"],
        )

    assert rest(after) == rest(node)


@given(nodes, reports)
def test_a_mark_of_somebody_else_is_neither_weakened_nor_removed(node, report) -> None:
    is_ours = label(node) == mark(node)
    after = last_report(node, report)

    if label(node) not in (None, HealthStatus.SCHEDULABLE) and not is_ours:
        assert label(after) == label(node)
    if not is_ours and TAINT in taints(node):
        assert TAINT in taints(after)


@given(st.sampled_from(SUSPENDED_PHASES), values, values, reports, st.booleans())
def test_a_node_that_the_controller_holds_keeps_its_mark(
    phase, value, own, report, is_tainted
) -> None:
    node = a_node(value, mark=own, record=a_record(phase), taints=[TAINT] * is_tainted)

    after = last_report(node, report)

    assert (label(after), mark(after)) == (value, None)
    assert taints(after) == taints(node)


@pytest.mark.parametrize("record", ["{", "[]", '"x"', '{"phase":"odd"}', "[" * 9999, NAIVE])
def test_a_record_that_cannot_be_read_is_the_controllers(record) -> None:
    node = a_node(PENDING_REBOOT, mark=PENDING_REBOOT, record=record, taints=[TAINT])

    assert label(last_report(node, a_report())) == PENDING_REBOOT
    assert taints(last_report(node, a_report())) == [TAINT]


@given(nodes, st.lists(faults.filter(lambda fault: not fault.remedy.touches_node), max_size=2))
def test_what_needs_no_repair_marks_nothing(node, found) -> None:
    after = last_report(node, a_report(*found))

    assert label(after) in (label(node), None, HealthStatus.SCHEDULABLE)
    assert mark(after) is None
    assert TAINT not in taints(after) or TAINT in taints(node)


@given(
    st.sampled_from([a_node(), a_node(HealthStatus.SCHEDULABLE, record=a_record())]),
    st.lists(reports, min_size=1, max_size=4),
)
def test_after_an_outage_of_any_length_the_node_says_what_the_newest_report_says(
    node, told_meanwhile
) -> None:
    newest = told_meanwhile[-1]

    one_by_one = last_report(node, *told_meanwhile)
    at_once = last_report(node, newest)

    assert (label(one_by_one), mark(one_by_one)) == (label(at_once), mark(at_once))
    assert taints(one_by_one) == taints(at_once)
    assert reported(one_by_one) == reported(at_once) == brief(newest)
    assert note(one_by_one, LABELS.fault_details) == note(at_once, LABELS.fault_details)


@pytest.mark.parametrize(
    ("remedy", "expected"),
    [
        (Remedy.RESTART_APP, None),
        (Remedy.RESET_GPU, PENDING_REBOOT),
        (Remedy.REBOOT, PENDING_REBOOT),
        (Remedy.REPLACE, PENDING_REPLACEMENT),
    ],
)
@pytest.mark.parametrize("value", [None, "Schedulable"])
def test_the_label_names_the_repair(remedy, expected, value) -> None:
    after = last_report(a_node(value, taints=[OTHER_TAINT]), a_report(a_fault(remedy)))

    assert (label(after), mark(after)) == (expected or value, expected)
    assert taints(after) == ([OTHER_TAINT, TAINT] if expected else [OTHER_TAINT])


def test_the_strongest_fault_counts_and_is_named() -> None:
    after = last_report(a_node(), a_report(a_fault(Remedy.RESTART_APP), REBOOT, REPLACE))

    assert label(after) == PENDING_REPLACEMENT
    assert after["metadata"]["labels"][LABELS.fault_types] == REPLACE.condition
    assert after["metadata"]["labels"][LABELS.fault_reasons] == REPLACE.reason


def test_without_a_controller_the_mark_follows_the_faults() -> None:
    node = last_report(a_node(), a_report(REBOOT))
    stronger = last_report(node, a_report(REBOOT, REPLACE))
    weaker = last_report(stronger, a_report(REBOOT))
    free = last_report(weaker, a_report())

    assert [label(one) for one in (node, stronger, weaker, free)] == [
        PENDING_REBOOT, PENDING_REPLACEMENT, PENDING_REBOOT, None,
    ]  # fmt: skip
    assert [mark(one) for one in (node, free)] == [PENDING_REBOOT, None]
    assert [taints(one) for one in (stronger, weaker, free)] == [[TAINT], [TAINT], []]
    assert set(free["metadata"]["labels"]) == {"zone"}
    assert note(free, LABELS.fault_details) is None


@pytest.mark.parametrize(
    ("phase", "value", "expected", "tainted"),
    [
        (Phase.SCHEDULABLE, "Schedulable", "Schedulable", False),
        (Phase.JOINING, None, None, True),
    ],
)
def test_a_fault_that_the_controller_never_saw_leaves_no_request_behind(
    phase, value, expected, tainted
) -> None:
    node = a_node(value, record=a_record(phase), taints=[TAINT] * tainted)

    free = last_report(node, a_report(REBOOT), a_report())

    assert (label(free), mark(free)) == (expected, None)
    assert taints(free) == [TAINT] * tainted


def test_what_a_person_gives_free_is_marked_for_new_evidence_only() -> None:
    node = last_report(a_node(), a_report(replace(REBOOT, seen_at=NOW)))
    node["metadata"]["labels"][HEALTH] = "Schedulable"
    node["spec"]["taints"] = []

    same = last_report(node, a_report(replace(REBOOT, seen_at=NOW, count=2)))
    again = last_report(same, a_report(replace(REBOOT, seen_at=NOW + SECOND)))
    rebooted = last_report(same, a_report(replace(REBOOT, seen_at=NOW), boot_id="boot-2"))

    assert (label(same), mark(same), taints(same)) == ("Schedulable", None, [])
    assert label(again) == label(rebooted) == PENDING_REBOOT


@pytest.mark.parametrize("ago", [0, 1])
@pytest.mark.parametrize("is_event", [False, True])
def test_what_the_controller_forgave_is_not_marked_though_the_report_was_lost(
    ago, is_event
) -> None:
    record = a_record(Phase.SCHEDULABLE, cleared_at=NOW)
    seen_at = NOW - ago * SECOND
    since = NOW - timedelta(hours=1) if is_event else seen_at
    old = replace(REBOOT, since=since, seen_at=seen_at if is_event else None)
    marked = a_node(PENDING_REBOOT, mark=PENDING_REBOOT, record=record, taints=[TAINT])

    for node in (a_node("Schedulable", record=record), marked):
        after = last_report(node, a_report(old))
        assert (label(after), mark(after), taints(after)) == ("Schedulable", None, [])

    new = replace(REBOOT, since=since, seen_at=NOW + timedelta(microseconds=1))
    assert (
        label(last_report(a_node("Schedulable", record=record), a_report(old, new)))
        == PENDING_REBOOT
    )


def test_a_taint_of_another_value_is_left_and_not_doubled() -> None:
    theirs = {**TAINT, "value": "UnschedulablePendingReplace"}

    marked = last_report(a_node(taints=[theirs]), a_report(REBOOT))

    assert taints(marked) == [theirs]
    assert taints(last_report(marked, a_report())) == [theirs]


def test_another_prefix_is_used_throughout() -> None:
    patch = node_patch(a_node(), a_report(REBOOT), Labels("example.com"))

    keys = {*patch["metadata"]["labels"], *patch["metadata"]["annotations"]}
    assert {key for key in keys if not key.startswith("example.com/")} == {
        REPORT,
        AGENT_HEALTH_STATUS,
    }
    assert patch["spec"]["taints"][0]["key"] == "example.com/node-health-status"


def test_details_are_the_newest_and_the_report_keeps_the_worst() -> None:
    found = [a_fault(code=n, since=NOW + n * SECOND, message="x" * 999) for n in range(1, 30)]
    found[0] = replace(found[0], remedy=Remedy.REPLACE)

    node = last_report(a_node(), a_report(*found))

    details = json.loads(note(node, LABELS.fault_details))
    assert len(details) == FAULT_DETAILS_LIMIT
    assert details[-1] == {
        "timestamp": "2026-01-01T12:00:29Z",
        "type": Condition.NVIDIA_REBOOT,
        "reason": Reason.XID_REBOOT,
        "message": "x" * (MESSAGE_CHARS - 1) + "…",
    }
    assert [one["timestamp"] for one in details] == sorted(one["timestamp"] for one in details)
    kept = reported(node).faults
    assert [fault.code for fault in kept] == [1, *range(11, 30)]
    assert label(node) == PENDING_REPLACEMENT
    assert len(note(node, REPORT)) < 20_000
    assert node_patch(node, a_report(*found), LABELS) is None


def test_every_reason_and_condition_can_be_the_value_of_a_label() -> None:
    for name in (*Reason, *Condition):
        assert name.replace("_", "").isalnum()
        assert len(name) <= 63


# Conditions


def beaten(node: dict[str, Any], report: NodeReport, at=NOW) -> dict[str, Any]:
    patch = conditions_patch(node, report, at)
    if patch is None:
        return node
    assert patch["metadata"] == {"resourceVersion": "5"}
    entries = {entry["type"]: entry for entry in node["status"]["conditions"]}
    for entry in patch["status"]["conditions"]:
        entries[entry["type"]] = {**entries.get(entry["type"], {}), **entry}
    return {**node, "status": {"conditions": list(entries.values())}}


def conditions(node: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {entry["type"]: entry for entry in node["status"]["conditions"]}


entries = st.builds(
    lambda kind, status, reason, at, beat: {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": "m",
        "lastTransitionTime": at,
        "lastHeartbeatTime": beat,
    },
    st.sampled_from([*Condition, "Ready", "Odd"]),
    st.sampled_from(["True", "False", "Unknown", "", None]),
    st.sampled_from([*Reason, "NoFault", ""]),
    *[st.sampled_from([None, "", "x", "2026-01-01T11:00:00Z", "2026-01-01T11:00:00"])] * 2,
)


@given(st.lists(entries, unique_by=lambda entry: entry["type"], max_size=4), reports)
def test_conditions_are_written_once_and_only_those_of_agents(found, report) -> None:
    node = a_node()
    node["status"]["conditions"] = found

    after = beaten(node, report)

    assert conditions_patch(after, report, NOW + HEARTBEAT - SECOND) is None
    for kind in ("Ready", "Odd", *OF_THE_CONTROLLER):
        assert conditions(after).get(kind) == conditions(node).get(kind)
    true = {kind for kind, one in conditions(after).items() if one["status"] == "True"}
    assert true - {"Ready", "Odd", *OF_THE_CONTROLLER} == {
        fault.condition for fault in report.faults
    }
    assert set(STANDING) <= set(conditions(after))


def test_an_unchanged_condition_gives_a_sign_of_life_every_five_minutes() -> None:
    report = a_report(REBOOT)
    node = beaten(a_node(), report)
    later = NOW + HEARTBEAT

    assert conditions_patch(node, report, later - timedelta(microseconds=1)) is None
    again = conditions(beaten(node, report, later))
    was = conditions(node)
    assert again[Condition.NVIDIA_REBOOT]["lastHeartbeatTime"] == format_time(later)
    assert [again[kind]["lastTransitionTime"] for kind in was if kind != "Ready"] == [
        was[kind]["lastTransitionTime"] for kind in was if kind != "Ready"
    ]


def test_an_agent_that_forgot_everything_keeps_the_transitions_that_the_node_has() -> None:
    fault = replace(REBOOT, since=NOW - timedelta(hours=2))
    node = beaten(a_node(), a_report(fault))
    was = conditions(node)
    found_late = replace(fault, since=NOW)
    forgetful = a_report(found_late, at=NOW + timedelta(hours=1))

    after = conditions(beaten(node, forgetful, NOW + timedelta(hours=1)))

    assert was[Condition.NVIDIA_REBOOT]["lastTransitionTime"] == "2026-01-01T10:00:00Z"
    for kind in was:
        assert after[kind].get("lastTransitionTime") == was[kind].get("lastTransitionTime")


def test_a_condition_that_clears_or_changes_its_reason_has_a_new_transition() -> None:
    later = NOW + timedelta(minutes=1)
    node = beaten(a_node(), a_report(REBOOT))

    sent_at = later + timedelta(minutes=2)

    cleared = conditions(beaten(node, a_report(at=later), sent_at))[Condition.NVIDIA_REBOOT]
    other = replace(REBOOT, reason=Reason.XID_RESET, since=later)
    changed = conditions(beaten(node, a_report(other, at=later), sent_at))[Condition.NVIDIA_REBOOT]

    assert (cleared["status"], cleared["lastTransitionTime"]) == ("False", format_time(later))
    assert (changed["reason"], changed["lastTransitionTime"]) == (
        Reason.XID_RESET,
        format_time(later),
    )


def test_a_condition_of_an_earlier_life_does_not_stay_true() -> None:
    fault = replace(REBOOT, condition=Condition.HOST_HARDWARE, reason=Reason.MACHINE_CHECK)
    node = beaten(a_node(), a_report(fault))

    after = conditions(beaten(node, a_report(boot_id="boot-2")))[Condition.HOST_HARDWARE]

    assert (after["status"], after["reason"]) == ("False", "NoFault")


# Events


NOTICE = Finding(
    family="xid",
    condition=Condition.NVIDIA_REBOOT,
    reason=Reason.XID_WARNING,
    severity=Severity.WARNING,
    remedy=Remedy.NONE,
    message="Xid 163",
    observed_at=NOW,
)


def names(found: list[dict[str, Any]]) -> list[str]:
    return [event["metadata"]["name"] for event in found]


def test_new_faults_and_notices_are_warned_of_and_their_end_is_normal() -> None:
    before = a_report(REPLACE)
    after = a_report(REBOOT, notices=(NOTICE, replace(NOTICE, code=1, severity=Severity.INFO)))

    found = events(before, after)

    assert [(event["type"], event["reason"]) for event in found] == [
        ("Warning", REBOOT.reason),
        ("Warning", NOTICE.reason),
        ("Normal", NOTICE.reason),
        ("Normal", REPLACE.reason),
    ]
    assert len(set(names(found))) == 4
    assert events(after, after) == []


@given(reports, reports)
def test_the_name_of_an_event_says_what_it_is_about(before, after) -> None:
    first = {event["metadata"]["name"]: event for event in events(before, after)}
    kept = reported(last_report(a_node(), before))
    again = events(kept, brief(after))

    assert len(first) == len(events(before, after))
    assert sorted(names(again)) == sorted(first)
    assert set(names(fault_events(after, after.faults))).isdisjoint(
        name for name, event in first.items() if event["type"] == "Normal"
    )


def test_a_fault_that_is_seen_again_keeps_its_event_and_counts() -> None:
    one = a_report(REBOOT)
    two = a_report(replace(REBOOT, count=2, seen_at=NOW + SECOND))

    (first,), (second,) = events(None, one), events(one, two)

    assert names([first]) == names([second])
    assert (first["count"], second["count"]) == (1, 2)
    assert second["lastTimestamp"] == format_time(NOW + SECOND)
    assert first["firstTimestamp"] == second["firstTimestamp"] == format_time(REBOOT.since)


@pytest.mark.parametrize(
    "changed",
    [
        {"remedy": Remedy.REPLACE},
        {"code": 1},
        {"device": "x"},
        {"reason": Reason.XID_RESET},
    ],
)
def test_another_fault_has_another_event(changed) -> None:
    other = replace(REBOOT, **changed)

    one, two = fault_events(a_report(), [REBOOT, other])

    assert names([one]) != names([two])
    assert names(fault_events(a_report(boot_id="boot-2"), [REBOOT])) != names([one])


def test_a_fault_of_an_earlier_boot_is_over_and_the_same_in_this_one_is_new() -> None:
    over = events(a_report(REBOOT, REPLACE), a_report(REBOOT, boot_id="boot-2"))

    assert [(event["type"], event["reason"]) for event in over] == [
        ("Warning", REBOOT.reason),
        ("Normal", REPLACE.reason),
    ]


def test_an_event_is_about_the_node_alone() -> None:
    name = "n" * 253
    (event,) = events(None, replace(a_report(REBOOT), node=name))

    assert len(event["metadata"]["name"]) == 253
    assert event["metadata"]["namespace"] == "default"
    assert event["involvedObject"]["kind"] == "Node"
    assert event["involvedObject"]["name"] == event["involvedObject"]["uid"] == name
    assert event["source"] == {"component": "holdfast-agent", "host": name}


def test_the_cluster_knows_of_a_drill_and_of_what_is_not_corroborated() -> None:
    until = NOW + timedelta(minutes=30)
    suspect = replace(a_fault(), corroborated_within=timedelta(minutes=5))
    report = NodeReport(
        node="n", boot_id="b", sequence=1, reported_at=NOW, suspects=(suspect,), drill_until=until
    )

    kept = brief(report)

    assert (kept.drill_until, kept.suspects, kept.faults) == (until, (suspect,), ())
