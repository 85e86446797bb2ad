"""Every helm and kubectl command of the documentation works as written, on a fresh cluster."""

import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from chart import HELM_CHART
from installation import NODES, TIMEOUT_S, Installation

from tests.engines.control_plane import FOR_GO, PROGRAMS, Built, ControlPlane

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(?:console)?\n(.*?)^```", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^(?:\$ )?((?:helm|kubectl) .*)$", re.MULTILINE)
COMMENT = re.compile(r"\s{2,}#.*")

PLACEHOLDERS = {
    "NODE": NODES[0],
    "gpu2": NODES[0],
    "REGISTRY": "registry.example.org",
    "mine.yaml": str(HELM_CHART / "examples" / "karpenter.yaml"),
}

RUN_ELSEWHERE = {"check-a-node.md", "resume-jobs-on-kubernetes.md", "use-hyp.md"}
"""Pages whose commands are about jobs of the reader, or run in ``test_eks_clients.py``."""


@dataclass(frozen=True)
class Part:
    """The commands of a page, or of those sections of it."""

    page: str
    sections: tuple[str, ...] = ()

    def commands(self) -> list[str]:
        text = (ROOT / self.page).read_text(encoding="utf-8").replace("\\\n", " ")
        parts = re.split(r"^#{2,} (.*)$", text, flags=re.MULTILINE)
        titles = ["", *parts[1::2]]
        chosen = [
            body
            for title, body in zip(titles, parts[::2], strict=True)
            if not self.sections or title in self.sections
        ]
        return [
            COMMENT.sub("", command)
            for body in chosen
            for block in BLOCK.findall(body)
            for command in COMMAND.findall(block)
        ]


INSTALL = "docs/howto/install-on-kubernetes.md"
OPERATE = "docs/howto/operate-on-kubernetes.md"
AGENT = "docs/howto/run-the-agent-on-kubernetes.md"
CLUSTERS = {
    "operate": (Part(INSTALL, ("Install with Helm",)), Part(OPERATE), Part(AGENT)),
    "helm": (
        Part(INSTALL, ("Install with Helm", "Permissions")),
        Part(INSTALL, ("Start without repairs", "Upgrades", "Uninstall")),
    ),
    "namespaces": (Part(INSTALL, ("Agents in a separate namespace",)),),
    "manifests": (Part(INSTALL, ("Install without Helm",)),),
}
"""What is written for one cluster, in its order."""


@contextmanager
def a_cluster(programs: Mapping[str, Path]) -> Iterator[tuple[Installation, dict[str, str]]]:
    """A fresh one with two nodes, and the environment in which helm and kubectl find it."""
    with ControlPlane(programs) as plane:
        cluster = Installation(plane, programs["kubectl"])
        for name in NODES:
            cluster.add_node(name)
        folders = {str(programs[name].parent) for name in ("kubectl", "helm")}
        path = os.pathsep.join([*folders, os.environ["PATH"]])
        own = {"PATH": path, "KUBECONFIG": str(plane.kubeconfig())}
        yield cluster, {**os.environ, **FOR_GO, **own}


def written(command: str) -> str:
    """A command as somebody types it who has replaced the placeholders."""
    for placeholder, value in PLACEHOLDERS.items():
        command = re.sub(rf"(?<![\w.]){re.escape(placeholder)}(?!\w)", value, command)
    # No kubelet runs here, so that there are no logs; the pods are found the same way.
    return command.replace("kubectl logs", "kubectl get pods").replace(" | jq", "")


def runs(command: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", written(command)],
        cwd=ROOT,
        env=environment,
        check=False,
        capture_output=True,
        encoding="utf-8",
    )


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_command_works_as_it_is_written(name: str, built: Built) -> None:
    commands = [command for part in CLUSTERS[name] for command in part.commands()]
    assert commands

    programs = built(*PROGRAMS, "kubectl", "helm")
    with a_cluster(programs) as (cluster, environment):
        for command in commands:
            if command.startswith("kubectl delete namespace"):
                end_pods(cluster, command.split()[3])
            done = runs(command, environment)
            deadline = time.monotonic() + TIMEOUT_S
            while done.returncode and " get " in command and time.monotonic() < deadline:
                time.sleep(0.5)  # a kind is served a moment after its definition
                done = runs(command, environment)
            assert (command, done.returncode, done.stderr) == (command, 0, done.stderr)
            assert "Warning" not in done.stderr, command


def end_pods(cluster: Installation, namespace: str) -> None:
    """What kubelets do."""
    cluster.kubectl(
        *("delete", "pods", "--all", "--namespace", namespace),
        *("--grace-period=0", "--force", "--wait=false"),
    )


def test_every_page_with_such_commands_is_run() -> None:
    run = {part.page for parts in CLUSTERS.values() for part in parts}
    pages = [ROOT / "README.md", *sorted((ROOT / "docs" / "howto").glob("*.md"))]
    found = {
        str(page.relative_to(ROOT))
        for page in pages
        if Part(str(page.relative_to(ROOT))).commands() and page.name not in RUN_ELSEWHERE
    }
    sections = [one for parts in CLUSTERS.values() for part in parts for one in part.sections]

    assert found == run
    assert len(Part(INSTALL, tuple(sections)).commands()) == len(Part(INSTALL).commands())
