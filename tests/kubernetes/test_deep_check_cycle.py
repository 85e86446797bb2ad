"""Deep health checks on a real control plane: the controller's Job, and in it the real command."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from controlled import NAMESPACE, api_of, installed  # noqa: F401 - a fixture
from machines import Fleet, a_fleet, stays
from real_cluster import Cluster, until

from holdfast.adapters.kubernetes.settings import CheckSettings
from holdfast.model.deep_checks import RESULT_VARIABLE
from holdfast.model.names import CONFIG, RECORD, REQUEST, HealthStatus, Labels

DEEP = Labels().deep_health_check_status
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
QUOTAS = f"/api/v1/namespaces/{NAMESPACE}/resourcequotas"
WORK = "/api/v1/namespaces/default/pods"
OWN = f"/api/v1/namespaces/{NAMESPACE}/pods"
BROKEN_STRESS = "echo 'stress-ng: fail: [9] cpu: matrixprod: value mismatch' >&2; exit 2"


class Kubelets:
    """Run the containers of checks as processes, as kubelets would."""

    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self.fleet = fleet
        self.folder = folder
        self.broken: set[str] = set()
        """Nodes on which stress tests fail."""

        self.silent: set[str] = set()
        """Nodes on which a check never ends."""

        self.said: dict[str, str] = {}
        self._begun: set[str] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._play, daemon=True)
        self._thread.start()

    def settings(self, more: str = "") -> str:
        """Of a controller whose nodes have to pass the check."""
        config = self.folder / "check.toml"
        config.write_text(f'disk = "{self.folder}"\n', encoding="utf-8")
        options = ["--config", str(config), "--stress-time", "1s", "--only", "cpu"]
        command = [*CheckSettings().command, *options]
        return f"""
        [nodes]
        deep_check_on_start = true
        drain_timeout = "20s"
        max_unavailable = 3
        {more}
        [kubernetes.check]
        image = "holdfast"
        command = {json.dumps(command)}
        """

    def _play(self) -> None:
        api = api_of(self.fleet.cluster)
        while not self._over.wait(0.1):
            for pod in list(api.list(PODS)):
                name = pod["metadata"]["name"]
                is_running = (pod.get("status") or {}).get("phase") == "Running"
                is_check = "env" in pod["spec"]["containers"][0]
                if is_check and is_running and name not in self._begun:
                    self._run(name, pod["spec"])
        api.close()

    def _run(self, pod: str, spec: dict[str, Any]) -> None:
        node = spec["nodeName"]
        self._begun.add(pod)
        if node in self.silent:
            return
        [container] = spec["containers"]
        given = {one["name"]: one["value"] for one in container["env"]}
        assert given[RESULT_VARIABLE] == container["terminationMessagePath"]
        left = self.folder / f"{pod}.message"
        given[RESULT_VARIABLE] = str(left)
        done = subprocess.run(
            [sys.executable, "-m", *container["command"]],
            env={**os.environ, **given, "PATH": self._path(node)},
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        self.said[node] = done.stdout + done.stderr
        self.fleet.cluster.nodes.finish(
            pod,
            namespace=NAMESPACE,
            exit_code=done.returncode,
            message=left.read_text(encoding="utf-8") if left.is_file() else "",
        )

    def _path(self, node: str) -> str:
        path = os.environ["PATH"]
        if node not in self.broken:
            return path
        tools = self.folder / "broken"
        tools.mkdir(exist_ok=True)
        (tools / "stress-ng").write_text(f"#!/bin/sh\n{BROKEN_STRESS}\n", encoding="utf-8")
        (tools / "stress-ng").chmod(0o755)
        return f"{tools}:{path}"

    def close(self) -> None:
        self._over.set()
        self._thread.join()


@pytest.fixture
def fleet(installed, cluster: Cluster, tmp_path: Path) -> Iterator[Fleet]:  # noqa: F811
    with a_fleet(cluster, tmp_path) as fleet:
        yield fleet


@pytest.fixture
def kubelets(fleet: Fleet, tmp_path: Path) -> Iterator[Kubelets]:
    kubelets = Kubelets(fleet, tmp_path)
    yield kubelets
    kubelets.close()


def deep(fleet: Fleet, node: str) -> str | None:
    found = fleet.node(node)
    return None if found is None else found["metadata"]["labels"].get(DEEP)


def test_a_joining_node_takes_no_work_before_it_has_passed(fleet, kubelets) -> None:
    kubelets.silent.add("a")
    fleet.start("a")
    fleet.control(settings=kubelets.settings())
    until(lambda: deep(fleet, "a") == "InProgress")
    assert fleet.health("a") == HealthStatus.UNSCHEDULABLE
    assert fleet.is_marked("a")
    stays(lambda: deep(fleet, "a") == "InProgress" and fleet.is_marked("a"), 1)

    fleet.join("b", "p5")
    until(lambda: deep(fleet, "b") == "Passed")

    assert kubelets.said["b"].splitlines()[-1] == "passed: 1 passed"
    until(lambda: fleet.health("b") == HealthStatus.SCHEDULABLE and not fleet.is_marked("b"))
    assert fleet.orders == []


def test_a_node_that_fails_is_marked_and_replaced_by_one_that_passes(fleet, kubelets) -> None:
    kubelets.broken.add("a")
    fleet.carries_out = False
    fleet.start("a")
    fleet.control(settings=kubelets.settings())

    until(lambda: deep(fleet, "a") == "Failed")
    until(lambda: fleet.orders)
    assert fleet.is_marked("a")
    assert any("value mismatch" in line for line in kubelets.said["a"].splitlines()[-1:])

    fleet.carries_out = True
    until(lambda: [one for one in fleet.incidents if one.node == "a" and one.ended_at])
    [incident] = [one for one in fleet.incidents if one.node == "a"]
    assert "value mismatch" in incident.message
    successor = incident.successor or "a"
    until(lambda: fleet.health(successor) == HealthStatus.SCHEDULABLE)
    assert deep(fleet, successor) == "Passed"


def test_a_check_that_never_reports_back_has_failed_at_its_deadline(fleet, kubelets) -> None:
    kubelets.silent.add("a")
    fleet.carries_out = False
    fleet.start("a")
    fleet.control(settings=kubelets.settings('deep_check_timeout = "3s"'))

    until(lambda: deep(fleet, "a") == "Failed")
    until(lambda: fleet.orders)

    assert fleet.is_marked("a")


def test_a_check_whose_pod_is_forbidden_costs_no_node_and_is_made_when_it_is_allowed(
    fleet, kubelets
) -> None:
    limit = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    fleet.api.create(QUOTAS, limit)
    until(lambda: fleet.api.get(f"{QUOTAS}/none").get("status", {}).get("used"))
    fleet.start("a")
    controller = fleet.control(settings=kubelets.settings('deep_check_timeout = "15s"'))

    why = "a: repair deferred: its deep health check has not begun: its Job has no pod"
    until(lambda: why in controller.log)
    assert deep(fleet, "a") == "InProgress"
    assert fleet.is_marked("a")

    fleet.api.delete(f"{QUOTAS}/none")
    until(lambda: deep(fleet, "a") == "Passed")
    assert fleet.orders == []


def test_an_idle_node_is_checked_again_by_schedule_and_a_busy_one_is_not(fleet, kubelets) -> None:
    fleet.start("a")
    fleet.start("b")
    pod = {"nodeName": "b", "containers": [{"name": "c", "image": "none"}]}
    fleet.api.create(WORK, {"metadata": {"name": "work"}, "spec": pod})
    fleet.control(settings=kubelets.settings('deep_check_every = "3s"'))

    until(lambda: len(checks(fleet, "a")) >= 2)

    assert all(check["passed"] for check in checks(fleet, "a"))
    assert checks(fleet, "a")[-1]["measured"]["cpu_ops_per_s"] > 0
    assert len(checks(fleet, "b")) == 1
    assert fleet.orders == []


def test_a_requested_check_waits_for_the_pods_of_its_node_but_not_for_holdfasts(
    fleet, kubelets
) -> None:
    fleet.start("a")
    fleet.start("b")
    fleet.control(settings=kubelets.settings())
    until(lambda: len(checks(fleet, "a")) == len(checks(fleet, "b")) == 1)
    fleet.until_schedulable("a", "b")
    pod = {"nodeName": "b", "containers": [{"name": "c", "image": "none"}]}
    fleet.api.create(WORK, {"metadata": {"name": "work"}, "spec": pod})
    about = {"name": "replica", "annotations": {CONFIG: "x"}}
    replica = {**pod, "nodeName": "a", "terminationGracePeriodSeconds": 0}
    fleet.api.create(OWN, {"metadata": about, "spec": replica})
    for node in ("a", "b"):
        asks = {"metadata": {"annotations": {REQUEST: "deep-check"}}}
        fleet.api.patch(f"/api/v1/nodes/{node}", asks)

    until(lambda: len(checks(fleet, "a")) == 2)

    assert "replica" not in [one["metadata"]["name"] for one in fleet.api.list(OWN)]
    stays(lambda: fleet.phase("b") == "schedulable" and len(checks(fleet, "b")) == 1, 1.0)
    fleet.api.delete(f"{WORK}/work", grace=0)
    until(lambda: len(checks(fleet, "b")) == 2)
    assert fleet.orders == []


def checks(fleet: Fleet, node: str) -> list[dict[str, Any]]:
    annotations = (fleet.node(node) or {"metadata": {}})["metadata"].get("annotations") or {}
    return json.loads(annotations.get(RECORD, "{}")).get("checks", [])
