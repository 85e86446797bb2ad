"""Which nodes a pod could go to, as the scheduler would say."""

from typing import Any

import pytest
from job_objects import LABELS, a_pod, a_state

from holdfast.adapters.kubernetes.jobs.fitting import capacity, fits, unclaimed
from holdfast.adapters.kubernetes.jobs.objects import group_of
from holdfast.adapters.kubernetes.nodes.node import Conventions, trimmed

HEALTH = LABELS.node_health_status


def a_node(name: str = "a", gpus: int = 8, taints=(), **labels: str):
    node: dict[str, Any] = {
        "metadata": {"name": name, "uid": name, "labels": labels},
        "spec": {"taints": list(taints)},
        "status": {"allocatable": {"nvidia.com/gpu": str(gpus), "cpu": "96"}},
    }
    return trimmed(node, Conventions())


def taint(key: str, effect: str = "NoSchedule", value: str = "") -> dict[str, str]:
    return {"key": key, "effect": effect, "value": value}


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    selector = {"nodeSelectorTerms": list(terms)}
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"affinity": {"nodeAffinity": {key: selector}}}


def wants(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("pods", "fit"),
    [
        ({}, True),
        ({"nodeSelector": {"zone": "x"}}, True),
        ({"nodeSelector": {"zone": "y"}}, False),
        ({"nodeSelector": {"absent": ""}}, False),
        ({"nodeSelector": {HEALTH: "Schedulable"}}, True),
        (required({"matchExpressions": [wants("zone", "In", "w", "x")]}), True),
        (required({"matchExpressions": [wants("zone", "NotIn", "x")]}), False),
        (required({"matchExpressions": [wants("absent", "NotIn", "x")]}), True),
        (required({"matchExpressions": [wants("zone", "Exists")]}), True),
        (required({"matchExpressions": [wants("zone", "DoesNotExist")]}), False),
        (required({"matchExpressions": [wants("size", "Gt", "3")]}), True),
        (required({"matchExpressions": [wants("size", "Gt", "4")]}), False),
        (required({"matchExpressions": [wants("size", "Lt", "5")]}), True),
        (required({"matchExpressions": [wants("zone", "Gt", "3")]}), False),
        (required({"matchExpressions": [wants("zone", "Near", "x")]}), False),
        (required({"matchExpressions": [wants(HEALTH, "In", "Schedulable")]}), True),
        (required({"matchFields": [wants("metadata.name", "In", "a")]}), True),
        (required({"matchFields": [wants("metadata.name", "NotIn", "a")]}), False),
        (required({"matchExpressions": [wants("zone", "In", "y")]},
                  {"matchExpressions": [wants("zone", "In", "x")]}), True),
        (required({}), False),
        (required(), False),
    ],
)  # fmt: skip
def test_a_pod_goes_where_its_selectors_let_it(pods, fit) -> None:
    assert fits(pods, a_node(zone="x", size="4", **{HEALTH: "Unschedulable"}), LABELS) == fit


@pytest.mark.parametrize(
    ("found", "tolerations", "fit"),
    [
        (taint("gpu"), [], False),
        (taint("gpu", "NoExecute"), [], False),
        (taint("gpu", "PreferNoSchedule"), [], True),
        (taint(HEALTH, value="Unschedulable"), [], True),
        (taint("node.kubernetes.io/unreachable", "NoExecute"), [], True),
        (taint("gpu"), [{"key": "gpu", "operator": "Exists"}], True),
        (taint("gpu"), [{"operator": "Exists"}], True),
        (taint("gpu", value="x"), [{"key": "gpu", "value": "x"}], True),
        (taint("gpu", value="x"), [{"key": "gpu", "value": "y"}], False),
        (taint("gpu", value="x"), [{"key": "other", "operator": "Exists"}], False),
        (taint("gpu"), [{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}], False),
    ],
)
def test_a_taint_keeps_off_who_does_not_tolerate_it(found, tolerations, fit) -> None:
    assert fits({"tolerations": tolerations}, a_node(taints=[found]), LABELS) == fit


def test_room_is_what_other_jobs_leave() -> None:
    nodes = [a_node("a"), a_node("b"), a_node("c", gpus=4), a_node("d", gpus=16), a_node("e")]
    others = [a_pod(0, node="b"), a_pod(1, node="d"), a_pod(2, node="e", phase="Succeeded")]

    found = capacity(a_state(workers=3).groups, nodes, others, LABELS)

    assert found == {"a": 1, "d": 1, "e": 1}


def test_a_pod_takes_what_all_its_containers_take() -> None:
    half = {"resources": {"limits": {"nvidia.com/gpu": 4}}}
    group = group_of(3, {"spec": {"containers": [half, half, {}]}})

    assert capacity([group], [a_node("a"), a_node("b", gpus=7)], [], LABELS) == {"a": 1}


def test_what_is_promised_to_another_job_is_taken_where_it_could_go() -> None:
    nodes = {one.name: one for one in (a_node("a"), a_node("b", zone="x"), a_node("c", zone="x"))}
    elsewhere = a_state(pods={"containers": [], "nodeSelector": {"zone": "x"}}).groups
    found = {"a": 1, "b": 1, "c": 1, "gone": 1}

    assert unclaimed(found, elsewhere, 1, nodes, LABELS) == {"a": 1, "b": 0, "c": 1, "gone": 1}
    assert unclaimed(found, elsewhere, 9, nodes, LABELS) == {"a": 1, "b": 0, "c": 0, "gone": 0}
    assert unclaimed(found, elsewhere, -1, nodes, LABELS) == found


def test_pods_that_take_no_device_have_room_for_all_of_them() -> None:
    groups = a_state(pods={"containers": [{"name": "pytorch"}]}).groups

    assert capacity(groups, [a_node()], [], LABELS) == {"a": 2}


def test_a_node_has_room_only_if_it_suits_all_pods_of_a_job() -> None:
    (master, _) = a_state(pods={"containers": [], "nodeSelector": {"zone": "x"}}).groups
    (_, worker) = a_state(pods={"containers": [], "nodeSelector": {"size": "4"}}).groups
    nodes = [a_node("a", zone="x", size="4"), a_node("b", zone="x"), a_node("c", size="4")]

    assert capacity((master, worker), nodes, [], LABELS) == {"a": 2}


def test_a_launcher_without_devices_takes_no_room_and_runs_where_nodes_are_in_service() -> None:
    gpus = {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "8"}}}]}
    groups = [
        group_of(1, {"spec": {"containers": [{}]}}),
        group_of(3, {"spec": gpus}),
    ]
    service = {HEALTH: "Schedulable"}
    nodes = [
        a_node("a", **{HEALTH: "Unschedulable"}),
        a_node("b", **service),
        a_node("c", **service),
    ]

    assert capacity(groups, nodes, [], LABELS) == {"a": 1, "b": 2, "c": 1}
    assert capacity(groups, [], [], LABELS) == {}
