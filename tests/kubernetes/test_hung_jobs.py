"""Jobs that hang, with Kubeflow's training operator, a real controller and logs of their pods."""

import json
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from controlled import installed  # noqa: F401 - a fixture
from machines import Fleet, a_fleet, stays
from real_cluster import Cluster, until
from training import ON, Training

from holdfast.model.names import (
    HEARTBEAT_FILE,
    HEARTBEAT_TIMEOUT,
    LOG_MONITORING,
    LOG_MONITORING_CONFIG_MAP,
)
from tests.engines.api_connection import Refused
from tests.engines.kubelet import PodServer

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
STEPS = {"name": "Steps", "logPattern": r".*loss=(\S+)", "expectedRecurringFrequencyInSeconds": 3}
FAULT = {"name": "Nccl", "logPattern": "NCCL WARN", "faultOnMatch": True}
ENDLESS = {"name": "Endless", "logPattern": ".*(l+)+$", "expectedStartCutOffInSeconds": 600}

pytestmark = pytest.mark.usefixtures("training_operator")


class Talking(Training):
    """A job whose pods print a loss until they are told to be silent."""

    kubelet: PodServer

    def talk(self, kubelet: PodServer) -> None:
        self.kubelet = kubelet
        self.is_silent = threading.Event()
        self.thread = threading.Thread(target=self._talk, daemon=True)
        self.thread.start()

    def _talk(self) -> None:
        while not self.is_silent.wait(0.3):
            self.write_lines("worker-0", f"step 7 loss=0.5 {'l' * 60}!")

    def write_lines(self, pod: str, line: str) -> None:
        with suppress(Refused):  # between two attempts
            self.kubelet.write_lines(f"{self.name}-{pod}", line)

    @property
    def reasons(self) -> list[str]:
        return [one["failure"]["reason"] for one in self.record["attempts"]]


@pytest.fixture
def fleet(installed, cluster: Cluster, tmp_path: Path) -> Iterator[Fleet]:  # noqa: F811
    with a_fleet(cluster, tmp_path) as fleet:
        yield fleet


@pytest.fixture
def kubelet(fleet: Fleet) -> Iterator[PodServer]:
    """Two nodes with room for all pods, a controller and the pods' logs."""
    fleet.start("a", "b")
    for name in ("a", "b"):
        many = {"nvidia.com/gpu": "64"}
        status = {"status": {"capacity": many, "allocatable": many}}
        fleet.api.patch(f"/api/v1/nodes/{name}/status", status)
    with PodServer(fleet.cluster.plane) as kubelet:
        kubelet.serve("a", "b")
        fleet.control(settings="[kubernetes]\ncapture_stacks = true\nread_heartbeats = true")
        fleet.until_schedulable("a", "b")
        yield kubelet


@pytest.fixture
def jobs(fleet: Fleet, kubelet: PodServer) -> Iterator[dict[str, Talking]]:
    """Jobs that run and print, by name."""
    rules = {
        "silent": {LOG_MONITORING: json.dumps([STEPS])},
        "steady": {LOG_MONITORING: json.dumps([STEPS, FAULT])},
        "faulty": {LOG_MONITORING_CONFIG_MAP: "log-monitoring"},
        "endless": {LOG_MONITORING: json.dumps([ENDLESS, STEPS])},
        "wrong": {LOG_MONITORING: '[{"name": "x", "logPattern": "("}, 7]'},
        "beating": {HEARTBEAT_FILE: "/tmp/beat", HEARTBEAT_TIMEOUT: "4s"},
        "without": {},
    }
    text = f"- name: Nccl\n  logPattern: {FAULT['logPattern']}\n  faultOnMatch: true\n"
    name = "log-monitoring"  # the only one that the chart lets a controller read
    fleet.api.create(CONFIG_MAPS, {"metadata": {"name": name}, "data": {name: text}})
    jobs = {
        name: Talking(fleet.cluster, fleet.api, name, annotations={**ON, **annotations})
        for name, annotations in rules.items()
    }
    for job in jobs.values():
        job.submit()
    for job in jobs.values():
        job.until_running(1)
        job.talk(kubelet)
    yield jobs
    for job in jobs.values():
        job.is_silent.set()
    for job in jobs.values():
        job.thread.join()


def test_a_job_is_restarted_when_its_log_says_so_and_no_other_is_touched(
    fleet: Fleet, jobs: dict[str, Talking], kubelet: PodServer
) -> None:
    silent, faulty = jobs["silent"], jobs["faulty"]
    over, is_stopped = threading.Event(), threading.Event()
    beating_at = 0.0

    def run(pod: str, command: Sequence[str]) -> tuple[str, str, int]:
        """py-spy works in all jobs but one, in which it hangs."""
        if command[-1] == "/tmp/beat":
            return str(int(time.monotonic() - beating_at) if is_stopped.is_set() else 0), "", 0
        return ("", "", int(over.wait(60))) if "faulty" in pod else (f"{pod}: all_reduce", "", 0)

    kubelet.run = run
    stays(lambda: all(job.record["attempt"] == 1 for job in jobs.values()), 4)

    silent.is_silent.set()
    jobs["without"].is_silent.set()
    faulty.write_lines("master-0", "NCCL WARN timeout")
    beating_at = time.monotonic()
    is_stopped.set()
    silent.until_running(2)
    faulty.until_running(2)
    jobs["beating"].until_running(2)
    is_stopped.clear()

    assert silent.reasons == ["LogStateHanging_Steps"]
    evidence = silent.record["attempts"][0]["failure"]["evidence"]
    assert evidence.startswith(r"no line matched '.*loss=(\\S+)' for 3s, last at 20")
    assert evidence.endswith("; stacks are in ConfigMap silent-stacks-attempt-1")
    stacks = fleet.api.get(f"{CONFIG_MAPS}/silent-stacks-attempt-1")["data"]
    assert stacks["silent-master-0"] == "silent-master-0: all_reduce"
    assert (silent.record["hardware_retries"], silent.record["app_retries"]) == (0, 1)
    assert silent.environment("silent-master-0")["HOLDFAST_RESTART_REASON"] == silent.reasons[0]
    (reported,) = [message for reason, message in silent.events if reason == "ApplicationFailure"]
    assert "stopped: LogStateHanging_Steps: no line matched" in reported
    assert faulty.reasons == ["LogStateHanging_Nccl"]
    failure = faulty.record["attempts"][0]["failure"]
    printed = r"node rank 0 on [ab] printed: NCCL WARN timeout; no stacks"
    assert re.match(printed, failure["evidence"])
    over.set()
    assert jobs["beating"].reasons == ["HeartbeatStopped"]
    evidence = jobs["beating"].record["attempts"][0]["failure"]["evidence"]
    assert evidence.startswith("no rank touched /tmp/beat for 4s, last at 20")
    assert evidence.endswith("; stacks are in ConfigMap beating-stacks-attempt-1")

    until(lambda: len(jobs["endless"].events) > 1 and len(jobs["wrong"].events) > 1)
    (slow,) = [text for reason, text in jobs["endless"].events if reason == "InvalidInput"]
    assert "log rule Endless rejected: got '.*(l+)+$', expected a regular expression" in slow
    wrong = "".join(text for reason, text in jobs["wrong"].events if reason == "InvalidInput")
    assert "holdfast.dev/log-monitoring[1] rejected: got '7'" in wrong
    for name in ("steady", "endless", "wrong", "without"):
        assert jobs[name].record["attempt"] == 1
