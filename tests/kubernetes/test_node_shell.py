"""A shell on a node, through the real API server to a played kubelet with a real terminal."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from controlled import NAMESPACE, Controlled, installed  # noqa: F401 - a fixture
from person import Person, at_terminal
from real_cluster import Cluster

from holdfast.adapters.kubernetes.nodes.debug_pod import manifest, running
from holdfast.apps.exit_codes import ExitCode
from holdfast.model.errors import BackendError
from tests.engines.kubelet import PodServer

ON_NODE = ["nsenter", "-t", "1", "-m", "-u", "-i", "-n", "-p", "--"]
GUIDE = Path(__file__).parents[2] / "docs/howto/operate-on-kubernetes.md"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


@dataclass
class Node:
    cluster: Cluster
    kubelet: PodServer
    node: Controlled
    ran: list[list[str]]

    @property
    def options(self) -> list[str]:
        return ["--kubeconfig", str(self.cluster.plane.kubeconfig())]

    @property
    def pods(self) -> list[dict]:
        return list(self.node.api.list(PODS))

    def call(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "holdfast", "nodes", "shell", "a", *self.options, *argv],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            check=False,
            timeout=60,
        )

    def at_terminal(self, *argv: str):
        return at_terminal(["nodes", "shell", "a", *self.options, *argv])


@pytest.fixture
def node(installed, cluster: Cluster) -> Iterator[Node]:  # noqa: F811
    ran: list[list[str]] = []

    def program(pod: str, command: list[str]) -> list[str]:
        ran.append(command)
        return ["env", "PS1=ready> ", "sh", "-i"]

    one = Controlled(cluster)
    one.join("a")
    with PodServer(cluster.plane) as kubelet:
        kubelet.serve("a")
        kubelet.program = program
        yield Node(cluster, kubelet, one, ran)
    one.api.close()


def shell_of(person: Person) -> None:
    person.sees(r"Creating the privileged pod holdfast/holdfast-shell-a-\w{6} on a;")
    person.sees("ready> ")


def test_a_person_has_a_terminal_on_the_node_with_size_keys_and_exit_code(node: Node) -> None:
    with node.at_terminal() as person:
        shell_of(person)
        [pod] = node.pods
        spec = pod["spec"]
        assert (spec["nodeName"], spec["hostPID"], spec["activeDeadlineSeconds"]) == (
            "a",
            True,
            28800,
        )
        assert spec["containers"][0]["securityContext"] == {"privileged": True, "runAsUser": 0}
        person.type("stty size\r")
        person.sees(r"\b30 100\r\n")
        person.resize(70, 20)
        person.type("stty size\r")
        person.sees(r"\b20 70\r\n")
        person.type("echo begun; sleep 100; echo not that\r")
        person.sees(r"begun\r\n")  # what is typed may be shown before the prompt
        person.type("\x03")
        person.sees("ready> ")
        person.type("stty -echo\r")
        person.sees("ready> ")
        person.type("wc -c <<'end'\r")
        person.type(("x" * 99 + "\r") * 300 + "end\r")
        person.sees(r"\b30000\r\n")
        person.type("exit 7\r")
        assert person.ends() == 7
        assert "Deleted the pod holdfast/holdfast-shell-a-" in person.seen

    assert node.pods == []
    assert [command[: len(ON_NODE)] for command in node.ran] == [ON_NODE]


def test_the_pod_goes_with_whoever_wanted_it(node: Node) -> None:
    for number, code in ((signal.SIGTERM, 143), (signal.SIGHUP, 129)):
        with node.at_terminal() as person:
            shell_of(person)
            os.kill(person.process.pid, number)
            assert person.ends() == code
        assert node.pods == []

    with node.at_terminal() as person:
        shell_of(person)
        node.kubelet.break_terminals()
        assert person.ends() == ExitCode.FAILED
        assert "Deleted" not in person.seen
        assert "exec: " in person.seen
    assert node.pods == []


def test_what_a_killed_call_has_left_goes_with_the_next_once_it_has_ended(node: Node) -> None:
    left = []
    for _ in range(2):
        with node.at_terminal() as person:
            shell_of(person)
            person.process.kill()
            person.process.wait()
        left = [pod["metadata"]["name"] for pod in node.pods]
    over, running_still = left
    foreign = {"metadata": {"name": "foreign"}, "spec": node.pods[0]["spec"]}
    node.node.api.create(PODS, foreign)
    for name in (over, "foreign"):
        node.cluster.nodes.finish(name, namespace=NAMESPACE, exit_code=1)
    node.kubelet.run = lambda pod, command: ("", "", 0)

    done = node.call("--", "true")

    assert done.returncode == 0, done.stderr
    assert {pod["metadata"]["name"] for pod in node.pods} == {running_still, "foreign"}


def test_a_command_needs_no_terminal_and_gives_its_output_and_exit_code(node: Node) -> None:
    node.kubelet.run = lambda pod, command: (f"{command}\n", "half of it failed\n", 3)

    done = node.call("--", "ls", "-l", "a & b")

    assert (done.returncode, done.stdout) == (3, f"{[*ON_NODE, 'ls', '-l', 'a & b']}\n")
    assert "half of it failed" in done.stderr
    assert node.pods == []
    refused = node.call()
    assert (refused.returncode, "pass a command after --" in refused.stderr) == (
        ExitCode.BAD_INPUT,
        True,
    )


def test_a_dry_run_prints_the_pod_and_makes_none(node: Node) -> None:
    done = node.call("--dry-run", "--image", "registry.example/tools:1")

    pod = yaml.safe_load(done.stdout)
    assert pod["spec"]["containers"][0]["image"] == "registry.example/tools:1"
    assert (done.returncode, node.pods) == (ExitCode.OK, [])


def test_the_image_is_that_of_the_agent_on_the_node(node: Node) -> None:
    for name, image in (("a", "registry.example/holdfast:2"), ("other", "none")):
        label = {"app.kubernetes.io/component": "agent"}
        spec = {"nodeName": name, "containers": [{"name": "agent", "image": image}]}
        node.node.api.create(PODS, {"metadata": {"name": name, "labels": label}, "spec": spec})

    pod = yaml.safe_load(node.call("--dry-run").stdout)

    assert pod["spec"]["containers"][0]["image"] == "registry.example/holdfast:2"


@pytest.mark.parametrize(
    ("argv", "reported"),
    [
        (("--namespace", "missing"), "namespace missing not found; set another"),
        (("--via", "srun"), "--via srun: a is not a Slurm node"),
        (("--via", "ssm"), "--via ssm: a is not a known AWS machine"),
    ],
)
def test_what_cannot_be_is_reported(node: Node, argv: tuple[str, ...], reported: str) -> None:
    done = node.call(*argv, "--", "true")

    assert done.returncode in (ExitCode.BAD_INPUT, ExitCode.FAILED)
    assert reported in done.stderr
    assert node.pods == []


def test_a_node_whose_kubelet_is_dead_is_reported_and_nothing_is_left(node: Node) -> None:
    node.cluster.nodes.hang("a")
    pod = manifest("a", "shell", "none")
    left = []

    with (
        pytest.raises(BackendError, match="did not start: Pending: its kubelet does not respond"),
        running(node.node.api, NAMESPACE, pod, timedelta(seconds=0.2), lambda: left.append(1)),
    ):
        pass

    assert left == [1]
    assert node.pods == []


def test_the_rights_of_the_guide_are_enough(node: Node) -> None:
    plane = node.cluster.plane
    guide = GUIDE.read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    [documents] = [found for found in blocks if "pods/exec" in found]
    subject = {"kind": "ServiceAccount", "name": "ada", "namespace": NAMESPACE}
    for document in yaml.safe_load_all(documents):
        folder = "roles" if document["kind"] == "Role" else "clusterroles"
        binding = f"{document['kind'].lower()}bindings"
        path = f"{RBAC}/namespaces/{NAMESPACE}" if folder == "roles" else RBAC
        plane.request("POST", f"{path}/{folder}", document)
        bound = {
            "metadata": {"name": document["metadata"]["name"]},
            "roleRef": {"kind": document["kind"], "name": document["metadata"]["name"]},
            "subjects": [subject],
        }
        plane.request("POST", f"{path}/{binding}", bound)
    account = {"metadata": {"name": "ada"}}
    plane.request("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", account)
    node.kubelet.run = lambda pod, command: ("it works\n", "", 0)
    kubeconfig = plane.kubeconfig("ada", plane.service_account_token(NAMESPACE, "ada"))

    done = node.call("--kubeconfig", str(kubeconfig), "--", "true")

    assert (done.returncode, done.stdout) == (0, "it works\n"), done.stderr
    assert node.pods == []
