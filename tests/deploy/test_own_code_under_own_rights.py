"""The agent's and the controller's own code, each with the rights that the chart gives it."""

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest
from chart import Helm
from installation import NAMESPACE, NODES, Installation, until

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.leases import LeaderElection
from holdfast.adapters.kubernetes.nodes.agent_settings import AgentKubernetes
from holdfast.adapters.kubernetes.nodes.cluster import KubernetesCluster
from holdfast.adapters.kubernetes.nodes.dependencies import Dependencies
from holdfast.adapters.kubernetes.nodes.events import KubernetesEvents
from holdfast.adapters.kubernetes.nodes.incidents import KubernetesIncidents
from holdfast.adapters.kubernetes.nodes.report import NodeReporter
from holdfast.adapters.kubernetes.settings import CheckSettings, KubernetesSettings
from holdfast.apps.clock import SystemClock
from holdfast.decisions.policy import RemediationPolicy
from holdfast.engine.node_reconciler import NodePorts, NodeReconciler
from holdfast.kit.quota import Quota
from holdfast.model.health import Fault, Remedy, Severity
from holdfast.model.names import Condition, Reason
from holdfast.model.nodes import Phase
from holdfast.model.report import NodeReport
from tests.ports.fakes import Calls, FakeEvents, FakeProvider

NODE = NODES[1]
SETTINGS = KubernetesSettings(check=CheckSettings(image="check"))
POLICY = RemediationPolicy(
    max_unavailable=Quota(count=2),
    deep_check_on_start=True,
    drain_timeout=timedelta(seconds=1),  # no kubelet ends the pod of the check
)


def report(*faults: Fault, sequence: int) -> NodeReport:
    now = datetime.now(UTC)
    return NodeReport(
        node=NODE, boot_id="boot-1", sequence=sequence, reported_at=now, faults=faults
    )


def fault() -> Fault:
    return Fault(
        family="gpu-xid",
        condition=Condition.NVIDIA_TERMINATE,
        reason=Reason.XID_REPLACE,
        severity=Severity.FATAL,
        remedy=Remedy.REPLACE,
        message="NVRM: Xid (PCI:0000:b9:00): 74",
        since=datetime.now(UTC),
    )


def tellers(installation: Installation) -> set[str]:
    """Who has told an Event of the node."""
    found = installation.plane.request("GET", "/api/v1/namespaces/default/events")["items"]
    return {one["source"].get("component", "") for one in found if NODE in str(one)}


@pytest.fixture
def api(installation: Installation, helm: Helm) -> Iterator[Api]:
    """The controller of a release whose nodes have deep health checks."""
    manifests = helm.template(given=['controller.config.kubernetes.check.image="check"'])
    installation.kubectl("apply", "--filename=-", stdin=manifests)
    api = installation.controller()
    yield api
    api.close()


def test_a_fault_is_marked_reported_and_carried_to_the_provider_with_these_rights_alone(
    installation: Installation, api: Api
) -> None:
    said: list[str] = []
    events, calls, clock = FakeEvents(), Calls(), SystemClock()
    with ExitStack() as running:
        agent_api = installation.agent(NODE)
        running.callback(agent_api.close)
        agent = NodeReporter(
            agent_api,
            NODE,
            settings=AgentKubernetes(),
            timeout=timedelta(hours=1),
            clock=clock,
            log=said.append,
        )
        running.callback(agent.close)
        agent.changed(None, report(sequence=1))
        agent.heartbeat_sent()
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
        until(lambda: NODE in [one["metadata"]["name"] for one in api.list(leases)])

        dependencies = Dependencies(
            clock=clock,
            events=events,
            changed=lambda: None,
            may_act=lambda: True,
            evicted=lambda node, owner: None,
        )
        cluster = KubernetesCluster(api, SETTINGS, dependencies)
        reported = KubernetesEvents(api, clock, namespace=NAMESPACE, memory="holdfast-state")
        election = LeaderElection(
            api,
            namespace=NAMESPACE,
            name="holdfast-controller",
            identity="a",
            changed=lambda: None,
        )
        for one in (cluster, reported, election):
            one.start()
            running.callback(one.stop)
        until(lambda: cluster.synced and election.leading)
        incidents = KubernetesIncidents(api)
        loop = NodeReconciler(
            NodePorts(
                cluster=cluster,
                provider=FakeProvider(calls),
                incidents=incidents,
                events=events,
                clock=clock,
            ),
            POLICY,
        )

        def phase() -> Phase | None:
            loop.step()
            found = {node.name: node.record.phase for node in cluster.snapshot().nodes}
            return found.get(NODE)

        until(lambda: phase() is Phase.CHECKING)
        agent.changed(report(sequence=1), report(fault(), sequence=2))
        until(lambda: phase() is Phase.REPLACING and calls.made)
        for event in events.reported:
            reported.emit(event)
        until(lambda: tellers(installation) >= {"holdfast-agent", "holdfast-controller"})
        cluster.retire(NODE)
        until(lambda: NODE not in installation.kubectl("get", "nodes"))

    assert said == []
    assert "engine.call_failed" not in events.names()
    assert cluster.errors == ()
    assert [made for made in calls.made if made.startswith("replace")] != []
    assert NODE in installation.kubectl("get", "incidents")
    installation.add_node(NODE)
