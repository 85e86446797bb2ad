"""The API for a cluster of Kubernetes: its nodes as SageMaker shows them, and a reboot."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from controlled import installed  # noqa: F401 - a fixture
from machines import Fleet, a_fleet
from real_cluster import Cluster, until

from holdfast.apps.api.adopted import clusters_of
from holdfast.apps.target import Where
from holdfast.model.requests import Verb
from holdfast.model.sagemaker import InstanceStatus


@pytest.fixture
def fleet(installed, cluster: Cluster, tmp_path: Path) -> Iterator[Fleet]:  # noqa: F811
    with a_fleet(cluster, tmp_path) as fleet:
        yield fleet


def test_a_cluster_is_shown_and_a_node_rebooted_as_at_sagemaker(fleet: Fleet) -> None:
    fleet.start("a", "b")
    fleet.control(settings='[nodes]\nmax_unavailable = 1\ndrain_timeout = "0s"')
    fleet.until_schedulable("a", "b")
    addresses = [("ExternalIP", "192.0.2.7"), ("Hostname", "a"), ("InternalIP", "10.0.0.7")]
    reported = [{"type": kind, "address": address} for kind, address in addresses]
    fleet.cluster.plane.request(
        "PATCH", "/api/v1/nodes/a/status", {"status": {"addresses": reported}}
    )
    where = Where(kubeconfig=fleet.cluster.plane.kubeconfig())
    with ExitStack() as opened:
        clusters = clusters_of(where, "lab", opened)
        with clusters() as [cluster]:
            nodes = {one.name: one for one in cluster.nodes()}
            assert (cluster.name, set(nodes)) == ("lab", {"a", "b"})
            assert nodes["a"].addresses == ("10.0.0.7", "192.0.2.7", "a")
            assert nodes["b"].addresses == ()
            assert {one.group for one in nodes.values()} == {"p5"}
            assert nodes["a"].status is InstanceStatus.RUNNING
            assert cluster.created_at == min(one.launched_at for one in nodes.values())
            assert cluster.submit("a", Verb.REBOOT, "ada") == ""

        def ended() -> bool:
            with clusters() as [cluster]:
                return any(one.ended_at is not None for one in cluster.incidents())

        until(ended)
    assert [order["action"] for order in fleet.orders] == ["reboot"]
    [incident] = fleet.incidents
    assert (incident.node, "ada" in incident.message) == ("a", True)
