"""Groups of clusters with AutoScaling follow the pods that wait for nodes."""

from datetime import timedelta

import pytest
from created_calls import Lab, group

from holdfast.model.errors import BackendError
from holdfast.model.node_settings import KubernetesConfig
from holdfast.model.pod_demand import NodeLoad, NodeShape, PodDemand, WaitingPod

ENABLED = {
    "AutoScaling": {"Mode": "Enable", "AutoScalerType": "Karpenter"},
    "NodeProvisioningMode": "Continuous",
}
GPU = "nvidia.com/gpu"


@pytest.fixture
def lab(tmp_path):
    lab = Lab(f"sqlite:///{tmp_path}/clusters.db")
    lab.nodes.looked_after = True
    yield lab
    lab.database.close()


def pods_wait(lab, count: int, *, busy: bool = False) -> None:
    """As many pods wait for a whole node; all nodes of now have a pod, or none."""
    members = [one for found in lab.groups.members.values() for one in found]
    nodes = {
        one.id: NodeLoad(
            shape=NodeShape(resources={GPU: 8}), is_open=True, pods=("ns/p",) if busy else ()
        )
        for one in members
    }
    for one in nodes:
        lab.kubernetes.nodes.setdefault(one, KubernetesConfig())
    waiting = [
        WaitingPod(name=f"ns/pod-{number}", resources={GPU: 8}, fits=frozenset({"gpu"}))
        for number in range(count)
    ]
    lab.pods.found = PodDemand(nodes=nodes, waiting=tuple(waiting))


def shown(lab):
    found = lab.call("DescribeCluster", ClusterName="lab")
    [one] = found["InstanceGroups"]
    return one["TargetCount"], found["AutoScaling"]


def grown(lab, count: int) -> None:
    """A cluster whose only group has grown to a size of 4 at most."""
    lab.create(group("gpu", 4, MinInstanceCount=1), **ENABLED)
    lab.settle()
    pods_wait(lab, 0, busy=True)
    lab.settle()  # the first node shows what a node offers
    pods_wait(lab, count, busy=True)
    lab.settle()


def test_a_group_begins_with_its_minimum_and_grows_to_its_limit(lab) -> None:
    lab.create(group("gpu", 4, MinInstanceCount=1), **ENABLED)
    assert shown(lab) == (1, {**ENABLED["AutoScaling"], "Status": "Creating"})
    lab.settle()
    assert (lab.status(), len(lab.listed())) == ("InService", 1)

    pods_wait(lab, 0, busy=True)
    lab.settle()
    pods_wait(lab, 2, busy=True)
    lab.settle()
    assert shown(lab) == (3, {**ENABLED["AutoScaling"], "Status": "InService"})
    assert len(lab.listed()) == 3
    pods_wait(lab, 9, busy=True)
    lab.settle()

    assert shown(lab)[0] == len(lab.listed()) == 4
    [first, second] = [one for one in lab.events() if one.startswith("Scaling")]
    assert first == (
        "Scaling IG gpu in Cluster lab from 1 to 3 nodes for pods that wait, such as ns/pod-0"
    )
    assert "from 3 to 4 nodes" in second


def test_idle_nodes_go_after_a_while_and_a_restart(lab) -> None:
    grown(lab, 3)
    pods_wait(lab, 0)
    lab.settle()
    lab.late.late = timedelta(minutes=9)
    lab.restart()
    lab.settle()
    assert len(lab.listed()) == 4
    lab.late.late = timedelta(minutes=11)
    lab.reconciler.step()
    lab.restart()
    lab.settle()

    assert shown(lab)[0] == len(lab.listed()) == 1
    [kept] = lab.listed()
    assert lab.kubernetes.nodes[kept["InstanceId"]].taints == ()


def test_a_pod_that_comes_at_the_last_moment_keeps_its_node(lab) -> None:
    grown(lab, 1)
    pods_wait(lab, 0)
    lab.settle()
    lab.late.late = timedelta(minutes=11)
    lab.reconciler.step()
    assert any(one.taints for one in lab.kubernetes.nodes.values())
    pods_wait(lab, 0, busy=True)
    lab.settle()

    assert len(lab.listed()) == 2
    assert not any(one.taints for one in lab.kubernetes.nodes.values())


def test_an_update_changes_the_bounds_and_keeps_the_nodes(lab) -> None:
    grown(lab, 2)
    bounds = group("gpu", 8, MinInstanceCount=2)
    lab.call("UpdateCluster", ClusterName="lab", InstanceGroups=[bounds])
    lab.settle()
    assert shown(lab)[0] == len(lab.listed()) == 3
    lab.call("UpdateCluster", ClusterName="lab", InstanceGroups=[group("gpu", 2)])
    lab.settle()
    assert shown(lab)[0] == len(lab.listed()) == 2

    lab.call("UpdateCluster", ClusterName="lab", AutoScaling={"Mode": "Disable"})
    lab.settle()
    pods_wait(lab, 5, busy=True)
    lab.settle()
    assert shown(lab) == (2, {"Mode": "Disable", "Status": "InService"})
    lab.call("UpdateCluster", ClusterName="lab", InstanceGroups=[group("gpu", 3)])
    lab.settle()
    assert shown(lab)[0] == len(lab.listed()) == 3
    lab.call("UpdateCluster", ClusterName="lab", AutoScaling={"Mode": "Enable"})
    lab.settle()
    assert (shown(lab)[0], lab.records.load("lab").cluster.groups[0].most) == (3, 3)


def test_a_failed_update_keeps_the_nodes_that_pods_use(lab) -> None:
    grown(lab, 3)
    lab.kubernetes.nodes = {
        one: KubernetesConfig(labels={"a": "other"}) for one in lab.kubernetes.nodes
    }
    labels = group("gpu", 8, KubernetesConfig={"Labels": {"a": "1"}})
    lab.call("UpdateCluster", ClusterName="lab", InstanceGroups=[labels])
    lab.settle(rounds=30)

    assert lab.status() == "InService"
    assert shown(lab)[0] == len(lab.listed()) == 4
    assert lab.records.load("lab").cluster.groups[0].most == 4


def test_pods_that_cannot_be_read_are_reported_and_change_nothing(lab) -> None:
    grown(lab, 2)
    lab.pods.calls.failing["demand"] = BackendError("pods is forbidden")
    lab.late.late = timedelta(hours=1)
    lab.settle()
    assert len(lab.listed()) == 3
    assert shown(lab)[1] == {
        **ENABLED["AutoScaling"], "Status": "Failed", "FailureMessage": "pods is forbidden"
    }  # fmt: skip
    assert sum("pods is forbidden" in one for one in lab.events()) == 1
    lab.pods.calls.failing.clear()
    pods_wait(lab, 0, busy=True)
    lab.settle()

    assert shown(lab)[1]["Status"] == "InService"
    assert len(lab.listed()) == 3


def test_single_nodes_are_not_added_and_the_limit_counts(lab) -> None:
    grown(lab, 1)
    more = [{"InstanceGroupName": "gpu", "IncrementTargetCountBy": 1}]
    code, message = lab.refused("BatchAddClusterNodes", ClusterName="lab", NodesToAdd=more)
    assert (code, "raise MinInstanceCount" in message) == ("ValidationException", True)
    code, message = lab.refused(
        "UpdateCluster", ClusterName="lab", InstanceGroups=[group("gpu", lab.limit + 1)]
    )
    assert code == "ResourceLimitExceeded"
    [first, *_] = [one["InstanceId"] for one in lab.listed()]
    lab.call("BatchDeleteClusterNodes", ClusterName="lab", NodeIds=[first])
    lab.settle()
    assert shown(lab)[0] == len(lab.listed()) == 1


def test_a_cluster_of_fixed_size_is_not_scaled(lab) -> None:
    lab.create(group("gpu", 2), NodeProvisioningMode="Continuous")
    lab.settle()
    pods_wait(lab, 5)
    lab.late.late = timedelta(hours=1)
    lab.settle()

    assert "AutoScaling" not in lab.call("DescribeCluster", ClusterName="lab")
    assert len(lab.listed()) == 2
    assert lab.pods.calls.made == []
