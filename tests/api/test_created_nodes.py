"""Single nodes of clusters that the API created are added, repaired and deleted."""

import pytest
from created_calls import Lab, group

from holdfast.model.requests import Verb


@pytest.fixture
def lab(tmp_path):
    lab = Lab(f"sqlite:///{tmp_path}/clusters.db")
    yield lab
    lab.database.close()


@pytest.fixture
def grown(lab):
    """A cluster of three nodes that is in service."""
    lab.create(group("gpu", 3))
    lab.settle()
    return lab


@pytest.fixture
def steady(lab):
    """A cluster of three nodes, in the mode that lets single nodes be added."""
    lab.create(group("gpu", 3, MinInstanceCount=1), NodeProvisioningMode="Continuous")
    lab.settle()
    return lab


def test_nodes_are_added_and_have_their_names_before_they_come(steady) -> None:
    added = steady.call(
        "BatchAddClusterNodes",
        ClusterName="lab",
        ClientToken="t",
        NodesToAdd=[
            {"InstanceGroupName": "gpu", "IncrementTargetCountBy": 2},
            {"InstanceGroupName": "none", "IncrementTargetCountBy": 1},
            {
                "InstanceGroupName": "gpu",
                "IncrementTargetCountBy": 1,
                "InstanceTypes": ["ml.p5.48xlarge"],
            },
        ],
    )
    names = {one["NodeLogicalId"] for one in added["Successful"]}
    assert {one["ErrorCode"]: one["FailedCount"] for one in added["Failed"]} == {
        "InstanceGroupNotFound": 1,
        "IncompatibleInstanceTypes": 1,
    }
    waiting = {one["NodeLogicalId"] for one in steady.listed() if not one["InstanceId"]}
    plain = steady.call("ListClusterNodes", ClusterName="lab")["ClusterNodeSummaries"]
    assert (waiting, len(names), len(plain)) == (names, 2, 3)
    steady.settle()

    running = {one["NodeLogicalId"] for one in steady.listed()}
    assert names < running
    assert len(steady.ids()) == 5
    again = steady.call(
        "BatchAddClusterNodes",
        ClusterName="lab",
        ClientToken="t",
        NodesToAdd=[{"InstanceGroupName": "gpu", "IncrementTargetCountBy": 2}],
    )
    assert {one["NodeLogicalId"] for one in again["Successful"]} == names
    steady.settle()
    assert len(steady.ids()) == 5


def test_nodes_are_added_only_to_a_cluster_that_provisions_continuously(grown) -> None:
    wanted = [{"InstanceGroupName": "gpu", "IncrementTargetCountBy": 1}]

    code, message = grown.refused("BatchAddClusterNodes", ClusterName="lab", NodesToAdd=wanted)

    assert code == "ValidationException"
    assert "Continuous" in message
    most = [{"InstanceGroupName": "gpu", "IncrementTargetCountBy": 50}] * 2
    assert (
        "may add 50" in grown.refused("BatchAddClusterNodes", ClusterName="lab", NodesToAdd=most)[1]
    )


def test_the_nodes_that_are_named_are_deleted_and_none_comes_for_them(steady) -> None:
    first, second, third = sorted(steady.ids())
    names = {one["InstanceId"]: one["NodeLogicalId"] for one in steady.listed()}
    deleted = steady.call(
        "BatchDeleteClusterNodes", ClusterName="lab", NodeIds=[second, "i-00000000"]
    )
    assert deleted["Successful"] == [second]
    assert [one["Code"] for one in deleted["Failed"]] == ["NodeIdNotFound"]
    steady.settle()
    assert steady.ids() == {first, third}
    assert steady.described_groups()["gpu"]["TargetCount"] == 2

    named = steady.call(
        "BatchDeleteClusterNodes", ClusterName="lab", NodeLogicalIds=[names[first], names[third]]
    )
    assert named["SuccessfulNodeLogicalIds"] == [names[first]]
    [refused] = named["FailedNodeLogicalIds"]
    assert (refused["Code"], refused["NodeLogicalId"]) == ("NodeIdInUse", names[third])
    steady.settle()
    assert steady.ids() == {third}


def test_a_node_that_has_not_come_yet_can_be_deleted(steady) -> None:
    added = steady.call(
        "BatchAddClusterNodes",
        ClusterName="lab",
        NodesToAdd=[{"InstanceGroupName": "gpu", "IncrementTargetCountBy": 1}],
    )
    [name] = [one["NodeLogicalId"] for one in added["Successful"]]
    before = steady.ids()
    steady.call("BatchDeleteClusterNodes", ClusterName="lab", NodeLogicalIds=[name])
    steady.settle()

    assert steady.ids() == before


def test_repairs_go_by_the_name_that_a_node_is_known_by(steady) -> None:
    node = steady.listed()[0]
    added = steady.call(
        "BatchAddClusterNodes",
        ClusterName="lab",
        NodesToAdd=[{"InstanceGroupName": "gpu", "IncrementTargetCountBy": 1}],
    )
    [coming] = [one["NodeLogicalId"] for one in added["Successful"]]
    known = node["NodeLogicalId"]
    assert known != node["PrivateDnsHostname"]

    answer = steady.call(
        "BatchRebootClusterNodes", ClusterName="lab", NodeLogicalIds=[known, coming]
    )

    assert answer["SuccessfulNodeLogicalIds"] == [known]
    [refused] = answer["FailedNodeLogicalIds"]
    assert (refused["NodeLogicalId"], refused["Message"]) == (coming, "the node has no machine yet")
    assert steady.nodes.requested == [(node["InstanceId"], Verb.REBOOT)]


def test_a_node_is_deleted_once_however_often_that_is_asked(steady) -> None:
    first = min(steady.ids())
    for _ in range(2):
        deleted = steady.call("BatchDeleteClusterNodes", ClusterName="lab", NodeIds=[first])
        assert deleted["Successful"] == [first]

    steady.settle()
    assert len(steady.ids()) == 2


def test_a_node_that_was_replaced_meanwhile_is_still_gone_once(steady) -> None:
    steady.nodes.looked_after = True
    steady.settle()
    first = min(steady.ids())
    steady.call("BatchDeleteClusterNodes", ClusterName="lab", NodeIds=[first])
    steady.nodes.renew("lab", [first])
    steady.settle()

    assert first not in steady.ids()
    assert len(steady.ids()) == 2
