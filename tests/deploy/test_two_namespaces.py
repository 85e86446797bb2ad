"""The controller in a namespace of level restricted, the agents in one of their own."""

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest
from chart import HELM_CHART, Helm
from installation import NODES, Installation, until

from holdfast.adapters.kubernetes.client.leases import LeaderElection
from holdfast.adapters.kubernetes.nodes.agent_settings import AgentKubernetes
from holdfast.adapters.kubernetes.nodes.cluster import KubernetesCluster
from holdfast.adapters.kubernetes.nodes.dependencies import Dependencies
from holdfast.adapters.kubernetes.nodes.heartbeats import LeaseReader
from holdfast.adapters.kubernetes.nodes.report import NodeReporter
from holdfast.adapters.kubernetes.settings import CheckSettings, KubernetesSettings
from holdfast.apps.clock import SystemClock
from holdfast.model.actions import TripBreaker
from holdfast.model.report import NodeReport
from tests.ports.fakes import FakeEvents

OWN = "training-control"
AGENTS = "training-agents"
NODE = NODES[0]
LEASE = "apart-holdfast-controller"


@pytest.fixture(scope="module")
def apart(installation: Installation, helm: Helm) -> Iterator[Installation]:
    level = "pod-security.kubernetes.io/enforce"
    installation.kubectl("create", "namespace", OWN)
    installation.kubectl("label", "namespace", OWN, f"{level}=restricted")
    target = ("--kubeconfig", installation.plane.kubeconfig(), "--namespace", OWN)
    values = f"agent.namespace={AGENTS},agent.createNamespace=true,agent.metricsPort=20259"
    values += ",agent.probePort=20254"
    values += ",controller.config.kubernetes.check.image=check"
    helm.run("install", "apart", HELM_CHART, *target, "--set", values)
    yield installation
    helm.run("uninstall", "apart", *target)
    installation.kubectl("delete", "namespace", OWN, "--wait=false")


def pods(installation: Installation, namespace: str) -> list[str]:
    return [one["spec"]["containers"][0]["name"] for one in _pods(installation, namespace)]


def _pods(installation: Installation, namespace: str) -> list[dict[str, dict[str, str]]]:
    found: list[dict[str, dict[str, str]]] = installation.plane.request(
        "GET", f"/api/v1/namespaces/{namespace}/pods"
    )["items"]
    return found


def test_pod_security_admits_the_pods_of_both(apart: Installation) -> None:
    until(lambda: len(pods(apart, OWN)) == 2 and len(pods(apart, AGENTS)) == len(NODES))

    assert set(pods(apart, OWN)) == {"controller"}
    assert set(pods(apart, AGENTS)) == {"agent"}


def test_a_restricted_namespace_does_not_admit_agents(
    installation: Installation, helm: Helm
) -> None:
    found = helm.template(given=["controller.enabled=false", 'fullnameOverride="astray"'])
    installation.kubectl("create", "namespace", "strict")
    installation.kubectl(
        "label", "namespace", "strict", "pod-security.kubernetes.io/enforce=restricted"
    )
    moved = found.replace("namespace: holdfast\n", "namespace: strict\n")
    installation.kubectl("apply", "--filename=-", stdin=moved)
    events = ("get", "events", "--namespace", "strict")

    until(lambda: "violates PodSecurity" in installation.kubectl(*events))

    assert pods(installation, "strict") == []
    installation.kubectl("delete", "--filename=-", "--wait=false", stdin=moved)


def test_a_controller_works_from_its_own_namespace_with_its_own_rights_alone(
    apart: Installation,
) -> None:
    settings = KubernetesSettings(
        namespace=OWN, agent_namespace=AGENTS, check=CheckSettings(image="check")
    )
    events, clock = FakeEvents(), SystemClock()
    until(lambda: any(one["spec"].get("nodeName") == NODE for one in _pods(apart, AGENTS)))
    [pod] = [one for one in _pods(apart, AGENTS) if one["spec"].get("nodeName") == NODE]
    with ExitStack() as opened:
        agent_api = apart.client(AGENTS, "apart-holdfast-agent", pod=pod["metadata"]["name"])
        api = apart.client(OWN, "apart-holdfast-controller")
        for one in (agent_api, api):
            opened.callback(one.close)
        said: list[str] = []
        agent = NodeReporter(
            agent_api,
            NODE,
            settings=AgentKubernetes(namespace=AGENTS),
            timeout=timedelta(hours=1),
            clock=clock,
            log=said.append,
        )
        opened.callback(agent.close)
        agent.changed(
            None, NodeReport(node=NODE, boot_id="b", sequence=1, reported_at=datetime.now(UTC))
        )
        agent.heartbeat_sent()
        dependencies = Dependencies(
            clock=clock,
            events=events,
            changed=lambda: None,
            may_act=lambda: True,
            evicted=lambda node, owner: None,
        )
        cluster = KubernetesCluster(api, settings, dependencies)
        election = LeaderElection(
            api, namespace=OWN, name=LEASE, identity="a", changed=lambda: None
        )
        for part in (cluster, election):
            part.start()
            opened.callback(part.stop)
        until(lambda: cluster.synced and election.leading)
        until(lambda: NODE in LeaseReader(api, AGENTS).of([NODE], clock.now()))
        cluster.start_check(NODE, "first", ())
        cluster.trip_breaker(TripBreaker(reason="a test", nodes=(NODE,)))

    assert said == []
    assert cluster.errors == ()
    assert "holdfast-check" in apart.kubectl("get", "jobs", "--namespace", AGENTS)
    assert "holdfast-state" in apart.kubectl("get", "configmaps", "--namespace", OWN)
    assert LEASE in apart.kubectl("get", "leases", "--namespace", OWN)
    assert NODE in apart.kubectl("get", "leases", "--namespace", AGENTS)
