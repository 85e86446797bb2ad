"""Decisions: what one round over a large fleet costs on one core."""

import time
from dataclasses import replace
from statistics import median

from bench.figure import Figure
from holdfast.decisions.policy import RemediationPolicy
from holdfast.decisions.remediation import decide
from holdfast.kit.quota import Quota
from holdfast.model.health import Remedy
from holdfast.model.nodes import Breaker, ClusterView, NodeView, Phase
from tests.ports.builders import LONG_AGO, NOW, a_cluster, a_fault, a_node, healthy_nodes

ROUNDS = 30
_MS = 1000


def run() -> list[Figure]:
    """A fleet in which nothing happens, and one in which every node is at some point of repair."""
    return [
        Figure(
            name="decision over 10,000 healthy nodes",
            value=_round_ms(a_cluster(*healthy_nodes(10_000))), unit="ms", goal=20,
        ),
        Figure(
            name="decision over 1,000 faulty nodes",
            value=_round_ms(_faulty_cluster(1000)), unit="ms", goal=50,
        ),
    ]  # fmt: skip


def _round_ms(cluster: ClusterView) -> float:
    """CPU time of the median round."""
    policy = RemediationPolicy(max_unavailable=Quota(percent=20.0))
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        decide(cluster, policy, NOW)
        times.append(time.process_time() - began)
    return median(times) * _MS


def _faulty_cluster(count: int) -> ClusterView:
    """Two faults on every node; half of the nodes just turned faulty, half are under repair."""
    faults = (a_fault(Remedy.REBOOT, since=LONG_AGO), a_fault(Remedy.REPLACE, since=LONG_AGO))
    phases = (Phase.SCHEDULABLE, Phase.QUARANTINED, Phase.SCHEDULABLE, Phase.DRAINING)
    nodes = [_renamed(a_node(phases[n % 4], faults=faults), n) for n in range(count)]
    return a_cluster(*nodes, breaker=Breaker(reset_at=NOW))


def _renamed(node: NodeView, number: int) -> NodeView:
    return replace(node, name=f"node-{number}", provider_id=f"i-{number}")
