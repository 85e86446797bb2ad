import base64
import json
import threading
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from agent_on_node import HEALTH, OnNode, allow_events, grant, reporting
from real_cluster import Cluster, until

from holdfast.adapters.kubernetes.nodes.hardware import unpack
from holdfast.adapters.kubernetes.nodes.report import ReportIntervals
from holdfast.apps.kubernetes.nodes import connect
from holdfast.kit.serial import to_plain
from holdfast.model.hardware import Device, DeviceGroup, DeviceKind
from holdfast.model.health import Fault, Remedy
from holdfast.model.names import HARDWARE, RECORD, REPORT, Condition, Labels
from holdfast.model.nodes import Phase
from holdfast.model.report import NodeReport
from tests.engines.api_connection import Refused
from tests.ports.builders import a_fault, a_record

NODE, OTHER = "n1", "n2"
TAINT = {"key": HEALTH, "value": "Unschedulable", "effect": "NoSchedule"}
START = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=5)
REBOOT = a_fault(Remedy.REBOOT, since=START)
REPLACE = a_fault(Remedy.REPLACE, since=START)


def a_report(*faults: Fault, boot_id: str = "boot-1") -> NodeReport:
    return NodeReport(
        node=NODE, boot_id=boot_id, sequence=1, reported_at=datetime.now(UTC), faults=faults
    )


def pack_bytes(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content, 9)).decode()


@pytest.fixture
def token(cluster: Cluster) -> str:
    cluster.nodes.join(NODE)
    return grant(cluster.plane)


@pytest.fixture
def node(cluster: Cluster, token: str) -> Iterator[OnNode]:
    with reporting(cluster.plane, NODE, token) as on_node:
        yield on_node


def test_a_fault_and_its_end_show_in_every_form(cluster: Cluster, node: OnNode) -> None:
    node.tell(a_report(REBOOT))
    until(lambda: node.label and node.condition(Condition.NVIDIA_REBOOT) and node.events)

    assert (node.label, node.mark) == ("UnschedulablePendingReboot",) * 2
    assert node.taints == [TAINT]
    labels = Labels()
    assert node.object["metadata"]["labels"][labels.fault_types] == REBOOT.condition
    assert node.object["metadata"]["labels"][labels.fault_reasons] == REBOOT.reason
    assert json.loads(node.annotation(labels.fault_details))[0]["message"] == REBOOT.message
    condition = node.condition(Condition.NVIDIA_REBOOT)
    assert (condition["status"], condition["reason"]) == ("True", REBOOT.reason)
    assert condition["lastTransitionTime"] == REBOOT.since.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert node.condition(Condition.NEURON)["status"] == "False"
    assert node.condition("Ready")["status"] == "True"
    reported = cluster.kubectl("describe", "node", NODE)
    assert f"Warning  {REBOOT.reason}" in reported

    node.tell(a_report())
    until(lambda: node.label is None and len(node.events) == 2)
    until(lambda: node.condition(Condition.NVIDIA_REBOOT).get("status") == "False")

    assert (node.mark, node.taints) == (None, [])
    assert sorted(event["type"] for event in node.events) == ["Normal", "Warning"]
    assert node.annotation(labels.fault_details) is None
    assert node.said == []


def test_the_same_report_again_changes_nothing(node: OnNode) -> None:
    report = a_report(REBOOT)
    node.tell(report)
    until(lambda: node.label and node.condition(Condition.NVIDIA_REBOOT) and node.lease)
    before = node.object

    for number in range(5):
        node.tell(replace(report, sequence=number, reported_at=datetime.now(UTC)))
        renewed = {node.lease["spec"]["renewTime"]}
        until(lambda renewed=renewed: node.lease["spec"]["renewTime"] not in renewed)

    assert node.object == before


def test_an_agent_keeps_a_lease_that_goes_with_its_node(node: OnNode) -> None:
    node.tell(a_report())
    until(lambda: node.lease)
    first = node.lease

    assert first["spec"]["holderIdentity"] == "boot-1"
    assert first["metadata"]["ownerReferences"][0]["uid"] == node.object["metadata"]["uid"]
    until(lambda: node.lease["spec"]["renewTime"] > first["spec"]["renewTime"])


def test_a_node_of_the_same_name_gets_everything_anew(cluster: Cluster, token: str) -> None:
    intervals = ReportIntervals(
        check=900, evidence=900, lease=0.1, events=900
    )  # the lost lease gives the sign
    with reporting(cluster.plane, NODE, token, intervals=intervals) as node:
        node.tell(a_report(REPLACE))
        until(lambda: node.lease)
        cluster.nodes.leave(NODE)
        cluster.nodes.join(NODE)

        until(lambda: node.label == "UnschedulablePendingReplacement")
        uid = node.object["metadata"]["uid"]
        until(lambda: node.lease and node.lease["metadata"]["ownerReferences"][0]["uid"] == uid)


def test_no_other_node_is_ever_touched(cluster: Cluster, node: OnNode) -> None:
    cluster.nodes.join(OTHER)

    for report in (a_report(REBOOT), a_report(REPLACE), a_report()):
        node.tell(report)
        until(lambda report=report: bool(node.label) == bool(report.faults))

    assert "holdfast-agent" in _writers(cluster, NODE)
    assert "holdfast-agent" not in _writers(cluster, OTHER)


def _writers(cluster: Cluster, name: str) -> set[str]:
    metadata = cluster.plane.request("GET", f"/api/v1/nodes/{name}")["metadata"]
    return {entry["manager"] for entry in metadata["managedFields"]}


def test_what_others_write_at_the_same_time_is_not_lost(node: OnNode) -> None:
    over = threading.Event()

    def others() -> None:
        number = 0
        while not over.is_set():
            number += 1
            taint = {"key": "example.com/x", "value": str(number), "effect": "PreferNoSchedule"}
            seen = node.object
            taints = seen["spec"].get("taints", [])
            kept = [one for one in taints if one["key"] != taint["key"]]
            version = seen["metadata"]["resourceVersion"]
            patch = {
                "metadata": {"resourceVersion": version, "labels": {f"l{number}": "x"}},
                "spec": {"taints": [*kept, taint]},
            }
            try:
                node.change(patch)
            except Refused:  # the agent was first; the label is not counted
                number -= 1
        written.append(number)

    written: list[int] = []
    thread = threading.Thread(target=others)
    thread.start()
    try:
        for n in range(8):
            report = a_report(*([REBOOT] if n % 2 else [REPLACE]))
            node.tell(report)
            expected = "Reboot" if n % 2 else "Replacement"
            until(lambda expected=expected: str(node.label).endswith(expected))
    finally:
        over.set()
        thread.join()

    labels = node.object["metadata"]["labels"]
    assert {f"l{n}" for n in range(1, written[0] + 1)} <= set(labels)
    assert TAINT in node.taints
    assert len(node.taints) == 2


@pytest.mark.parametrize("text", ["", "{", "null", "[" * 9000, '{"faults":[7]}', '{"node":"x"}'])
def test_annotations_that_others_invalidated_stop_nobody(node: OnNode, text: str) -> None:
    notes = {REPORT: text, Labels().fault_details: text}
    node.change({"metadata": {"annotations": notes}})

    node.tell(a_report(REBOOT))

    until(lambda: node.label == "UnschedulablePendingReboot")
    assert json.loads(node.annotation(REPORT))["faults"][0]["reason"] == REBOOT.reason


def test_the_controllers_marks_stay(node: OnNode) -> None:
    record = json.dumps(to_plain(a_record(Phase.QUARANTINED)))
    label = {HEALTH: "UnschedulablePendingReplacement"}
    node.change(
        {
            "metadata": {"labels": label, "annotations": {RECORD: record}},
            "spec": {"taints": [TAINT]},
        }
    )

    for faults in ((REBOOT,), ()):
        node.tell(a_report(*faults))
        reasons = [fault.reason for fault in faults]
        until(lambda reasons=reasons: _reasons(node) == reasons)
        assert node.label == "UnschedulablePendingReplacement"
        assert TAINT in node.taints


def _reasons(node: OnNode) -> list[str] | None:
    text = node.annotation(REPORT)
    return [fault["reason"] for fault in json.loads(text)["faults"]] if text else None


def test_after_an_outage_the_node_says_what_is_newest(cluster: Cluster, node: OnNode) -> None:
    node.tell(a_report(REBOOT))
    until(lambda: node.label)
    cluster.plane.stop_api_server()
    try:
        for n in range(300):
            node.tell(a_report(*([REPLACE] if n % 2 else [])))
        until(lambda: any("cannot" in line for line in node.said))
    finally:
        cluster.plane.start_api_server()

    until(lambda: node.label == "UnschedulablePendingReplacement")
    until(lambda: any("again" in line for line in node.said))
    until(lambda: {event["reason"] for event in node.events} == {REBOOT.reason, REPLACE.reason})
    faults = [event for event in node.events if event["type"] == "Warning"]
    assert len(faults) == 2


def test_an_agent_that_starts_again_writes_no_second_event(
    cluster: Cluster, token: str, node: OnNode
) -> None:
    node.tell(a_report(REBOOT))
    until(lambda: node.events and node.condition(Condition.NVIDIA_REBOOT))
    node.reporter.close()
    condition = node.condition(Condition.NVIDIA_REBOOT)
    (event,) = node.events

    later = replace(a_report(REBOOT), reported_at=datetime.now(UTC) + timedelta(minutes=1))
    with reporting(cluster.plane, NODE, token) as again:
        again.tell(later)
        until(lambda: again.lease)
        again.tell(replace(later, faults=(REBOOT, REPLACE)))
        until(lambda: len(again.events) == 2)

        assert event["metadata"]["uid"] in [one["metadata"]["uid"] for one in again.events]
        transition = again.condition(Condition.NVIDIA_REBOOT)["lastTransitionTime"]
        assert transition == condition["lastTransitionTime"]


def test_a_fault_that_went_with_a_reboot_and_all_memory_is_reported_to_be_over(
    cluster: Cluster, token: str, node: OnNode
) -> None:
    node.tell(a_report(REBOOT))
    until(lambda: node.events)
    node.reporter.close()

    with reporting(cluster.plane, NODE, token) as rebooted:
        rebooted.tell(a_report(boot_id="boot-2"))
        until(lambda: {event["type"] for event in rebooted.events} == {"Warning", "Normal"})


def test_a_fault_that_nobody_was_informed_of_has_its_event(
    cluster: Cluster, token: str, node: OnNode
) -> None:
    node.tell(a_report(REBOOT))
    until(lambda: node.events)
    node.reporter.close()
    path = "/api/v1/namespaces/default/events/" + node.events[0]["metadata"]["name"]
    cluster.plane.request("DELETE", path)  # as if the agent had been killed before

    with reporting(cluster.plane, NODE, token) as again:
        known = a_report(REBOOT)
        again.reporter.changed(known, replace(known, sequence=2))
        until(lambda: again.events)


def test_evidence_counts_up_on_one_event(node: OnNode) -> None:
    for count in (1, 2, 3):
        node.tell(a_report(replace(REBOOT, count=count)))
        until(lambda count=count: [event["count"] for event in node.events] == [count])

    until(lambda: node.report and [one["count"] for one in node.report["faults"]] == [3])


def test_a_missing_right_is_named_and_holds_up_nothing_else(cluster: Cluster) -> None:
    cluster.nodes.join(NODE)
    token = grant(cluster.plane, events=False)
    with reporting(cluster.plane, NODE, token) as node:
        node.tell(a_report(REBOOT))
        until(lambda: node.label and node.lease and node.said)
        (line,) = node.said
        assert "cannot write events" in line
        assert 'the rule {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}' in line

        node.tell(a_report(REPLACE))
        until(lambda: node.label == "UnschedulablePendingReplacement")
        allow_events(cluster.plane)
        until(lambda: len(node.events) == 3)


def test_a_node_that_is_not_there_yet_is_waited_for(cluster: Cluster) -> None:
    token = grant(cluster.plane)
    with reporting(cluster.plane, NODE, token) as node:
        node.tell(a_report(REBOOT))
        until(lambda: node.said)
        assert f'nodes "{NODE}" not found' in node.said[0]

        cluster.nodes.join(NODE)
        until(lambda: node.label == "UnschedulablePendingReboot")
        until(lambda: node.said[-1] == f"report to node {NODE}: succeeded again")


def test_an_agent_whose_loop_hangs_is_not_alive(cluster: Cluster, token: str) -> None:
    intervals = ReportIntervals(check=9, evidence=9, lease=0.05, events=9)
    with reporting(cluster.plane, NODE, token, intervals=intervals, timeout_s=0.5) as node:
        node.tell(a_report())
        until(lambda: node.lease)
        renewals = [""]

        def is_silent() -> bool:
            renewals.append(node.lease["spec"]["renewTime"])
            return len(renewals) > 40 and len(set(renewals[-40:])) == 1

        until(is_silent)
        node.reporter.heartbeat_sent()
        until(lambda: node.lease["spec"]["renewTime"] > renewals[-1])


def test_a_closed_reporter_is_silent(node: OnNode) -> None:
    node.tell(a_report())
    until(lambda: node.lease)
    node.reporter.close()
    before = node.object

    node.tell(a_report(REBOOT))
    node.reporter.close()

    assert node.object["metadata"].get("labels") == before["metadata"].get("labels")


def test_devices_are_in_an_annotation_of_their_own(cluster: Cluster, node: OnNode) -> None:
    gpus = DeviceGroup(
        kind=DeviceKind.GPU,
        read_at=START,
        versions={"driver": "595.45.04"},
        devices=tuple(
            Device(name=f"PCI:0000:{bus:02x}:00", values={"temperature": "34 C"})
            for bus in range(8)
        ),
    )
    node.tell(replace(a_report(REBOOT), hardware=(gpus,)))
    until(lambda: node.annotation(HARDWARE))

    path = f"/api/v1/nodes/{NODE}"
    assert unpack(cluster.plane.request("GET", path)) == (gpus,)
    assert len(node.annotation(HARDWARE)) < 300
    assert json.loads(node.annotation(REPORT))["hardware"] == []
    with closing(connect(cluster.plane.kubeconfig(), None)) as fleet:
        assert fleet.hardware(NODE) == (gpus,)
        assert fleet.hardware("nobody") == ()

    node.tell(a_report())
    until(lambda: node.annotation(HARDWARE) is None)


@pytest.mark.parametrize(
    "text", ["", "!", "e30=", pack_bytes(b"[" * 9000), pack_bytes(b'[{"kind":"gpu"}]')]
)
def test_devices_that_others_invalidated_are_none(text: str) -> None:
    assert unpack({"metadata": {"annotations": {HARDWARE: text}}}) == ()


def test_a_compressed_bomb_is_cut_off() -> None:
    group = json.dumps({"kind": "gpu", "read_at": "2026-01-01T00:00:00+00:00"}).encode()
    assert unpack({"metadata": {"annotations": {HARDWARE: pack_bytes(b"[" + group + b"]")}}})
    bomb = pack_bytes(b"[" + b" " * 40_000_000 + group + b"]")

    assert len(bomb) < 64 * 1024
    assert unpack({"metadata": {"annotations": {HARDWARE: bomb}}}) == ()
