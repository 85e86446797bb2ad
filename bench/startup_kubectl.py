"""How soon a command answers beside kubectl, in the same run on the same Kubernetes API server.

Both are started in turns, so that what else runs on the machine slows both. The median counts, of
the duration and of the time of the processor. The kubeconfig is YAML, as people have it.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench import needs
from bench.figure import Figure
from holdfast.kit.serial import to_plain
from holdfast.model.names import RECORD
from holdfast.model.nodes import NodeRecord, Phase
from tests.engines.control_plane import PROGRAMS, ControlPlane
from tools.control_plane import provide

TIMES = 20
NODES = 20
KUBECTL: Final = "kubectl"
CRD: Final = Path(__file__).parents[1] / "deploy/helm/holdfast/crds/incidents.holdfast.dev.yaml"

PAIRS: Final = (
    (("--version",), ("version", "--client"), 0.5),
    (("nodes", "list"), ("get", "nodes"), 2.0),
    (("jobs", "list", "-A"), ("get", "jobs", "-A"), 2.0),
)
"""Our command, that of kubectl, and the goal: at most so many times its duration."""


def lacks() -> str:
    """What of a control plane cannot be had here."""
    return needs.control_plane(KUBECTL)


def run() -> list[Figure]:
    """Start each pair of commands so many times; the first start of each does not count."""
    programs = provide(*PROGRAMS, KUBECTL)
    kubectl = str(programs[KUBECTL])
    with (
        tempfile.NamedTemporaryFile("wb", suffix=".yaml") as kubeconfig,
        ControlPlane({name: programs[name] for name in PROGRAMS}) as plane,
    ):
        environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig())}
        shown = [kubectl, "config", "view", "--raw"]
        subprocess.run(shown, env=environment, check=True, stdout=kubeconfig)
        environment |= {"KUBECONFIG": kubeconfig.name, "HOLDFAST_PLATFORM": "kubernetes"}
        crd = [kubectl, "apply", "-f", str(CRD)]
        subprocess.run(crd, env=environment, check=True, stdout=subprocess.DEVNULL)
        _make_nodes(plane)
        return [
            figure
            for own, peer, goal in PAIRS
            for figure in _compared(own, (kubectl, *peer), goal, environment)
        ]


def _make_nodes(plane: ControlPlane) -> None:
    record = NodeRecord(phase=Phase.SCHEDULABLE, phase_since=datetime.now(UTC))
    notes = {RECORD: json.dumps(to_plain(record))}
    for number in range(NODES):
        metadata = {"name": f"n{number}", "annotations": notes}
        plane.request("POST", "/api/v1/nodes", {"metadata": metadata})


def _compared(
    own: Sequence[str], peer: Sequence[str], goal: float, environment: dict[str, str]
) -> list[Figure]:
    commands = ([sys.executable, "-m", "holdfast", *own], list(peer))
    for command in commands:  # writes bytecode, fills caches
        _took_ms(command, environment)
    rounds = [[_took_ms(command, environment) for command in commands] for _ in range(TIMES)]
    name = " ".join(own)
    words = " ".join(("kubectl", *peer[1:]))
    figures = []
    for index, what in enumerate(("duration", "processor")):
        own_ms, peer_ms = (
            statistics.median(took[index] for took in times) for times in zip(*rounds, strict=True)
        )
        figures += [
            Figure(name=f"holdfast {name}, {what}", value=own_ms, unit="ms", goal=200),
            Figure(
                name=f"the same by that of {words} ({peer_ms:.0f} ms)",
                value=own_ms / peer_ms,
                unit="x",
                goal=goal,
            ),
        ]
    return figures


def _took_ms(command: Sequence[str], environment: dict[str, str]) -> tuple[float, float]:
    """Duration of a command, and the time of the processor that it used."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    duration = time.perf_counter() - begun
    return duration * 1000, (used.ru_utime + used.ru_stime) * 1000
