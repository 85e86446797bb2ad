"""How soon a command answers beside kubectl, in the same run on the same Kubernetes API server.

Both are started in turns, so that what else runs on the machine slows both; the fastest of each
counts.
"""

import json
import os
import subprocess
import sys
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

TIMES = 15
NODES = 20
KUBECTL: Final = "kubectl"
CRD: Final = Path(__file__).parents[1] / "deploy/helm/holdfast/crds/incidents.holdfast.dev.yaml"

PAIRS: Final = (
    (("--version",), ("version", "--client"), 0.5),
    (("nodes", "list"), ("get", "nodes"), 2.0),
    (("jobs", "list", "-A"), ("get", "pods", "-A"), 2.0),
)
"""Our command, that of kubectl, and the goal: at most so many times its duration."""


def lacks() -> str:
    """What of a control plane cannot be had here."""
    return needs.control_plane(KUBECTL)


def run() -> list[Figure]:
    """Start each pair of commands so many times; the first start of each does not count."""
    programs = provide(*PROGRAMS, KUBECTL)
    kubectl = str(programs[KUBECTL])
    with ControlPlane({name: programs[name] for name in PROGRAMS}) as plane:
        environment = {
            **os.environ,
            "KUBECONFIG": str(plane.kubeconfig()),
            "HOLDFAST_PLATFORM": "kubernetes",
        }
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
    own_ms, peer_ms = (min(times) for times in zip(*rounds, strict=True))
    name = " ".join(own)
    words = " ".join(("kubectl", *peer[1:]))
    return [
        Figure(name=f"holdfast {name}, best of {TIMES}", value=own_ms, unit="ms", goal=200),
        Figure(
            name=f"the same by the time of {words} ({peer_ms:.0f} ms)",
            value=own_ms / peer_ms,
            unit="x",
            goal=goal,
        ),
    ]


def _took_ms(command: Sequence[str], environment: dict[str, str]) -> float:
    begun = time.perf_counter()
    subprocess.run(
        command,
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=60,
    )
    return (time.perf_counter() - begun) * 1000
