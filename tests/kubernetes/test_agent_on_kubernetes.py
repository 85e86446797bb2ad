"""The whole agent, a process of its own, on a real API server."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.request import urlopen

import pytest
from agent_on_node import ACCOUNT, NAMESPACE, OnNode, grant
from real_cluster import Cluster, until

from holdfast.model.names import Condition, Reason
from tests.engines.ports import free_port

NODE = "n1"
RELOADED = "configuration reloaded"
XID = "NVRM: Xid (PCI:0000:{}:00): {}, pid=<unknown>, name=<unknown>, GPU has an error"
NEURON = (
    "NEURON_HW_ERR=HBM_UNCORRECTABLE_ERROR instance-id=i-1 hostname=h nd-id=0 nc-id=0 "
    "serial-num=1 action=TERMINATE_INSTANCE"
)


class Agent(OnNode):
    """An agent's process with its files; ``start`` may be called again after ``kill``."""

    def __init__(self, cluster: Cluster, folder: Path, token: str) -> None:
        super().__init__(cluster.plane, None, NODE)
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[str] | None = None
        self.lines = 0
        (folder / "boot_id").write_text("boot-1\n", encoding="utf-8")
        (folder / "kmsg").touch()
        (folder / "token").write_text(token, encoding="utf-8")
        self.configure()

    def configure(self, *lines: str) -> None:
        text = [
            *lines,
            f'kmsg = "{self.folder}/kmsg"',
            f'boot_id_file = "{self.folder}/boot_id"',
            f'report_dir = "{self.folder}/run"',
            "log_files = []",
            "logs_only = true",
            'heartbeat = "50ms"',
            "[telemetry]",
            f'listen = "0.0.0.0:{self.port}"',
            "[kubernetes]",
            f'server = "{self.plane.url}"',
            f'ca_file = "{self.plane.certificate}"',
            f'token_file = "{self.folder}/token"',
        ]
        (self.folder / "agent.toml").write_text("\n".join(text), encoding="utf-8")

    def start(self) -> None:
        with (self.folder / "stderr").open("a", encoding="utf-8") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "holdfast", "agent", "--config", self.folder / "agent.toml"],
                env={**os.environ, "NODE_NAME": NODE},
                stderr=errors,
            )

    def reload(self, *lines: str) -> None:
        self.configure(*lines)
        reloads = self.stderr.count(RELOADED)
        self.process.send_signal(signal.SIGHUP)
        until(lambda: self.stderr.count(RELOADED) > reloads)

    def end(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(timeout=20)
            self.process = None

    def log(self, message: str) -> None:
        self.lines += 1
        with (self.folder / "kmsg").open("a", encoding="utf-8") as kmsg:
            kmsg.write(f"4,{self.lines},{self.lines},-;{message}\n")

    @property
    def stderr(self) -> str:
        return (self.folder / "stderr").read_text(encoding="utf-8")


@pytest.fixture
def agent(cluster: Cluster, tmp_path: Path) -> Iterator[Agent]:
    cluster.nodes.join(NODE)
    agent = Agent(cluster, tmp_path, grant(cluster.plane))
    yield agent
    agent.end(signal.SIGKILL)
    print(agent.stderr)  # noqa: T201 - for whoever reads why a test failed


def test_a_line_of_the_kernel_marks_the_node(agent: Agent) -> None:
    agent.start()
    until(lambda: agent.report)
    assert agent.label is None

    agent.log(XID.format("b9", 79))

    until(lambda: agent.label)
    assert [one["value"] for one in agent.taints] == ["Unschedulable"]
    assert agent.report["boot_id"] == "boot-1"
    agent.end()
    assert "kubernetes" not in agent.stderr


def test_a_drill_is_in_the_report_and_the_events_of_the_node(agent: Agent) -> None:
    drill_until = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=30)
    agent.configure(f"drill_until = {drill_until.isoformat()}")

    agent.start()

    until(lambda: Reason.DRILL_ACTIVE in [one["reason"] for one in agent.events])
    [event] = [one for one in agent.events if one["reason"] == Reason.DRILL_ACTIVE]
    assert event["type"] == "Warning"
    assert event["involvedObject"]["name"] == NODE
    assert datetime.fromisoformat(agent.report["drill_until"]) == drill_until


@pytest.mark.parametrize("is_forgetful", [False, True])
def test_a_killed_agent_goes_on_where_it_was(agent: Agent, is_forgetful: bool) -> None:
    agent.start()
    agent.log(XID.format("b9", 74))
    until(lambda: agent.condition(Condition.NVIDIA_TERMINATE) and agent.events)
    (event,), condition = agent.events, agent.condition(Condition.NVIDIA_TERMINATE)
    agent.end(signal.SIGKILL)
    if is_forgetful:
        for path in (agent.folder / "run").rglob("*.json"):
            path.unlink()

    agent.start()
    agent.log(XID.format("ba", 79))
    until(lambda: agent.report and len(agent.report["faults"]) == 2)
    until(lambda: len(agent.events) == 2)

    assert event["metadata"]["uid"] in {one["metadata"]["uid"] for one in agent.events}
    transition = agent.condition(Condition.NVIDIA_TERMINATE)["lastTransitionTime"]
    assert transition == condition["lastTransitionTime"]
    assert agent.label == "UnschedulablePendingReplacement"


def test_a_reboot_frees_the_node_that_no_controller_keeps(agent: Agent) -> None:
    agent.start()
    agent.log(XID.format("b9", 79))
    until(lambda: agent.label and agent.condition(Condition.NVIDIA_TERMINATE) and agent.events)
    agent.end()
    (agent.folder / "boot_id").write_text("boot-2\n", encoding="utf-8")
    (agent.folder / "kmsg").write_text("", encoding="utf-8")

    agent.start()

    until(lambda: agent.report["boot_id"] == "boot-2" and agent.label is None)
    assert agent.taints == []
    assert agent.report["faults"] == []
    until(lambda: {one["type"] for one in agent.events} == {"Warning", "Normal"})


def test_in_shadow_mode_nothing_is_marked_and_it_can_be_switched_on(agent: Agent) -> None:
    agent.configure("shadow = true")
    agent.start()
    agent.log(XID.format("b9", 74))
    until(lambda: agent.events)
    assert (agent.label, agent.mark, agent.taints) == (None, None, [])
    assert agent.events[0]["message"].startswith("shadow mode: would request replace")

    agent.reload()
    agent.log(XID.format("ba", 74))
    until(lambda: agent.label)

    agent.reload("shadow = true")
    until(lambda: agent.label is None)
    assert (agent.mark, agent.taints) == (None, [])


def test_a_token_that_is_replaced_is_used(agent: Agent) -> None:
    good = (agent.folder / "token").read_text(encoding="utf-8")
    (agent.folder / "token").write_text("stale", encoding="utf-8")
    agent.start()
    until(lambda: "cannot report to node n1" in agent.stderr)
    assert "401" in agent.stderr

    (agent.folder / "token").write_text(good, encoding="utf-8")

    until(lambda: agent.report)
    until(lambda: "report to node n1: succeeded again" in agent.stderr)


def test_a_revoked_token_is_reported(cluster: Cluster, agent: Agent) -> None:
    agent.start()
    until(lambda: agent.report)
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}"
    cluster.plane.request("DELETE", path)

    until(lambda: _is_refused(agent))
    assert agent.process.poll() is None


def _is_refused(agent: Agent) -> bool:
    agent.log(XID.format(f"{agent.lines % 200:02x}", 79))
    time.sleep(0.1)
    return "401" in agent.stderr


def test_the_kubelet_can_probe_it_and_neuron_recovery_can_read_it(agent: Agent) -> None:
    agent.start()
    address = f"http://{_address()}:{agent.port}"
    until(lambda: agent.report)

    assert _page(f"{address}/healthz") == "ok\n"
    before = _page(f"{address}/metrics")
    agent.log(NEURON)
    until(lambda: agent.condition(Condition.NEURON).get("status") == "True")
    after = _page(f"{address}/metrics")

    published = {reason for reason in Reason if reason.startswith("NeuronHasError_")}
    reasons = published - {Reason.NEURON_UNKNOWN}  # which repairs nothing, and is a warning
    assert len(reasons) == 5
    assert all(f'problem_counter{{reason="{reason}"}} 0\n' in before for reason in reasons)
    assert f'problem_counter{{reason="{Reason.NEURON_HBM}"}} 1\n' in after
    gauge = 'problem_gauge{{reason="{}",type="NeuronHealth"}} {}\n'
    assert all(gauge.format(reason, 0) in before for reason in reasons)
    assert gauge.format(Reason.NEURON_HBM, 1) in after
    assert agent.condition(Condition.NEURON)["reason"] == Reason.NEURON_HBM


def _address() -> str:
    """One that is not the loopback's, as a pod has, if this machine has one."""
    done = subprocess.run(["hostname", "-I"], capture_output=True, check=False, encoding="utf-8")
    return (done.stdout.split() or ["127.0.0.1"])[0]


def _page(url: str) -> str:
    with urlopen(url, timeout=5) as answer:  # noqa: S310 - our own agent's address
        return str(answer.read().decode())
