"""Faults on a real control plane, from the kernel's line to the release, by real processes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from controlled import NAMESPACE, installed  # noqa: F401 - a fixture
from machines import HEALTH, REBOOT_XID, REPLACE_XID, Fleet, a_fleet, stays
from real_cluster import Cluster, until

from holdfast.apps.main import run
from holdfast.model.names import HOLD, HealthStatus, Reason

DRAIN = """
[nodes]
drain_timeout = "20s"
max_unavailable = 2
"""


@pytest.fixture
def fleet(installed, cluster: Cluster, tmp_path: Path) -> Iterator[Fleet]:  # noqa: F811
    with a_fleet(cluster, tmp_path) as fleet:
        yield fleet


def test_a_node_is_replaced_and_its_successor_takes_work(fleet: Fleet) -> None:
    fleet.start("a", "b", "c")
    fleet.control(settings=DRAIN)
    fleet.until_schedulable("a", "b", "c")

    fleet.machines["a"].log(REPLACE_XID)
    incident = fleet.until_recovered("a")

    assert incident.reason == Reason.XID_REPLACE
    assert incident.successor == "spare-1"
    assert incident.released_at is not None
    assert fleet.node("a") is None
    until(lambda: fleet.health("spare-1") == HealthStatus.SCHEDULABLE)
    until(lambda: not fleet.is_marked("spare-1"))
    assert [order["action"] for order in fleet.orders] == ["replace"]
    assert [fleet.phase(name) for name in "bc"] == ["schedulable"] * 2


def test_the_limit_counts_replacements_whose_nodes_have_new_names(fleet: Fleet) -> None:
    fleet.start("a", "b", "c")
    controller = fleet.control(settings=DRAIN + "replacements_per_day = 1")
    fleet.until_schedulable("a", "b", "c")
    fleet.machines["a"].log(REPLACE_XID)
    assert fleet.until_recovered("a").successor == "spare-1"
    until(lambda: fleet.health("spare-1") == HealthStatus.SCHEDULABLE)

    fleet.machines["b"].log(REPLACE_XID)

    until(lambda: "replacement limit reached (1 of 1 in 24h)" in controller.log)
    stays(lambda: fleet.phase("b") == "quarantined" and len(fleet.orders) == 1, 2)


@pytest.mark.attack
def test_nodes_that_claim_one_machine_are_left_alone_and_named(fleet: Fleet) -> None:
    twice, once = "i-0123456789abcdef0", "i-0123456789abcdef1"
    fleet.start("a", "b", "c", instances=(twice, twice, once))
    controller = fleet.control(settings=DRAIN)
    fleet.until_schedulable("a", "b", "c")

    fleet.machines["a"].log(REPLACE_XID)
    until(lambda: f"b has the same provider ID aws:///us-west-2a/{twice}" in controller.log)
    fleet.machines["c"].log(REPLACE_XID)

    assert fleet.until_recovered("c").successor == "spare-1"
    stays(lambda: fleet.phase("a") == "quarantined", 2)
    assert [order["node"] for order in fleet.orders] == ["c"]


def test_a_node_is_rebooted_checked_and_released(fleet: Fleet) -> None:
    fleet.start("a", "b")
    fleet.control(settings=DRAIN)
    fleet.until_schedulable("a", "b")
    before = fleet.node("a")["status"]["nodeInfo"]["bootID"]

    fleet.machines["a"].log(REBOOT_XID)
    incident = fleet.until_recovered("a")

    assert incident.reason == Reason.XID_REBOOT
    assert fleet.node("a")["status"]["nodeInfo"]["bootID"] != before
    until(lambda: fleet.health("a") == HealthStatus.SCHEDULABLE and not fleet.is_marked("a"))
    assert [order["action"] for order in fleet.orders] == ["reboot"]


def test_pods_leave_before_the_repair_and_daemons_stay(fleet: Fleet) -> None:
    fleet.start("a", "b")
    fleet.carries_out = False
    fleet.control(settings=DRAIN)
    fleet.until_schedulable("a", "b")
    pod = {
        "metadata": {"name": "work"},
        "spec": {
            "nodeName": "a",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "none"}],
        },
    }
    fleet.api.create("/api/v1/namespaces/default/pods", pod)

    fleet.machines["a"].log(REPLACE_XID)
    until(lambda: fleet.orders)

    assert list(fleet.api.list("/api/v1/namespaces/default/pods")) == []
    assert fleet.node("a")["spec"]["unschedulable"]


def test_with_recovery_none_a_node_is_marked_and_nobody_repairs_it(fleet: Fleet) -> None:
    fleet.start("a", "b")
    fleet.control(settings='[nodes]\nnode_recovery = "None"\nmax_unavailable = 2')
    fleet.until_schedulable("a", "b")

    fleet.machines["a"].log(REPLACE_XID)
    until(lambda: fleet.phase("a") == "quarantined")

    assert fleet.health("a") == HealthStatus.PENDING_REPLACEMENT
    assert fleet.is_marked("a")
    stays(lambda: fleet.phase("a") == "quarantined" and not fleet.orders, 2)


@pytest.mark.parametrize(
    ("value", "action"),
    [(HealthStatus.PENDING_REBOOT, "reboot"), (HealthStatus.PENDING_REPLACEMENT, "replace")],
)
def test_a_label_is_a_request(fleet: Fleet, value: str, action: str) -> None:
    fleet.start("a", "b")
    fleet.control(settings=DRAIN)
    fleet.until_schedulable("a", "b")

    fleet.cluster.kubectl("label", "node", "a", f"{HEALTH}={value}", "--overwrite")
    incident = fleet.until_recovered("a")

    assert [order["action"] for order in fleet.orders] == [action]
    assert incident.reason in (Reason.REQUESTED_REBOOT, Reason.REQUESTED_REPLACE)


def test_a_provider_that_refuses_is_asked_again_until_it_accepts(fleet: Fleet) -> None:
    fleet.start("a", "b")
    fleet.refuse()
    controller = fleet.control(settings=f'{DRAIN}provider_retry = "1s"\n')
    fleet.until_schedulable("a", "b")

    fleet.machines["a"].log(REPLACE_XID)
    until(lambda: len(fleet.orders) >= 2)
    assert "the owner of the machines refuses" in controller.log
    assert fleet.phase("a") == "replacing"

    fleet.accept()
    fleet.until_recovered("a")
    assert len({order["token"] for order in fleet.orders}) == 1
    assert fleet.done == [fleet.orders[0]["token"]]


def test_a_held_repair_begins_when_it_is_let_go(fleet: Fleet) -> None:
    fleet.start("a", "b")
    fleet.control(settings=DRAIN)
    fleet.until_schedulable("a", "b")
    fleet.cluster.kubectl("annotate", "node", "a", f"{HOLD}=somebody looks at it")

    fleet.machines["a"].log(REPLACE_XID)
    until(lambda: fleet.phase("a") == "quarantined")
    stays(lambda: not fleet.orders, 2)

    fleet.cluster.kubectl("annotate", "node", "a", f"{HOLD}-")
    fleet.until_recovered("a")


def test_the_incident_of_a_node_that_vanishes_by_itself_ends(fleet: Fleet) -> None:
    fleet.start("a", "b")
    fleet.control(settings='[nodes]\nnode_recovery = "None"\nmax_unavailable = 2')
    fleet.until_schedulable("a", "b")
    fleet.machines["a"].log(REPLACE_XID)
    until(lambda: fleet.phase("a") == "quarantined" and fleet.incidents)

    fleet.leave("a")

    incident = fleet.until_recovered("a")
    assert incident.vanished_at is not None
    assert incident.released_at is None


def test_of_two_controllers_one_acts_and_the_other_takes_over(fleet: Fleet) -> None:
    fleet.start("a", "b", "c")
    first = fleet.control(settings=DRAIN)
    fleet.until_schedulable("a", "b", "c")
    second = fleet.control(settings=DRAIN)
    until(lambda: "serving" in second.errors)

    fleet.machines["a"].log(REPLACE_XID)
    fleet.until_recovered("a")
    assert "a: replacement ordered" in first.log
    assert second.log == ""

    first.kill()
    fleet.machines["b"].log(REPLACE_XID)
    fleet.until_recovered("b")
    assert "b: replacement ordered" in second.log
    assert len(fleet.orders) == 2


def test_a_controller_orders_no_repair_of_the_node_that_it_runs_on(fleet: Fleet) -> None:
    fleet.start("a", "b", "c")
    first = fleet.control(settings=DRAIN, environment={"NODE_NAME": "a"})
    fleet.until_schedulable("a", "b", "c")
    second = fleet.control(settings=DRAIN, environment={"NODE_NAME": "b"})
    until(lambda: "serving" in second.errors)

    fleet.machines["a"].log(REPLACE_XID)
    fleet.until_recovered("a")

    assert "a: replacement ordered" in second.log
    assert "a: replacement ordered" not in first.log


def test_an_api_server_that_restarts_midway_costs_nothing_but_time(fleet: Fleet) -> None:
    fleet.start("a", "b")
    fleet.carries_out = False
    fleet.control(settings=DRAIN)
    fleet.until_schedulable("a", "b")
    fleet.machines["a"].log(REPLACE_XID)
    until(lambda: fleet.orders)

    fleet.cluster.plane.restart_api_server()
    fleet.carries_out = True

    incident = fleet.until_recovered("a")
    assert incident.successor == "spare-1"
    assert fleet.done == [fleet.orders[0]["token"]]


def test_an_open_breaker_holds_back_all_repairs_until_a_person_resets_it(
    fleet: Fleet, capsys
) -> None:
    fleet.start("a", "b")
    controller = fleet.control(settings=f"{DRAIN}breaker_min_nodes = 1\nbreaker_share = 40\n")
    fleet.until_schedulable("a", "b")
    where = ["--kubeconfig", str(fleet.cluster.plane.kubeconfig())]

    fleet.machines["a"].log(REPLACE_XID)
    until(lambda: "all repairs paused: 1 of 2 nodes turned faulty" in controller.log)
    stays(lambda: fleet.phase("a") in ("schedulable", "quarantined") and not fleet.orders, 1)
    assert run(["nodes", "list", *where]) == 0
    assert "all repairs of https://127.0.0.1" in capsys.readouterr().err
    until(lambda: "BreakerTripped" in fleet.cluster.kubectl("get", "events", "-n", NAMESPACE))

    assert run(["nodes", "reset-breaker", "--yes", *where]) == 0
    assert "repairs resume" in capsys.readouterr().out
    assert fleet.until_recovered("a").successor == "spare-1"


def test_the_commands_show_and_steer_what_goes_on(fleet: Fleet, capsys) -> None:
    fleet.start("a", "b")
    fleet.control(settings=DRAIN)
    fleet.until_schedulable("a", "b")
    where = ["--kubeconfig", str(fleet.cluster.plane.kubeconfig())]

    def call(*argv: str) -> str:
        assert run([*argv, *where]) == 0
        return capsys.readouterr().out

    listed = json.loads(call("nodes", "list", "-o", "json"))
    assert [(node["name"], node["phase"]) for node in listed] == [
        ("a", "schedulable"),
        ("b", "schedulable"),
    ]
    assert call("nodes", "hold", "a", "--why", "later") == "a: repairs paused\n"
    assert "later" in call("nodes", "describe", "a")
    call("nodes", "unhold", "a")
    assert "reboot would be requested" in call("nodes", "reboot", "a", "--yes", "--dry-run")
    call("nodes", "reboot", "a", "--yes", "--wait", "--timeout", "60s")
    assert [order["action"] for order in fleet.orders] == ["reboot"]
    (case,) = json.loads(call("incidents", "list", "-o", "json"))
    assert (case["node"], case["state"]) == ("a", "released")
