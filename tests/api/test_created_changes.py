"""Clusters that the API created are changed: their groups and the sizes of these."""

import pytest
from created_calls import Lab, group

from holdfast.model.clusters import NodeHealth
from holdfast.model.errors import ProviderError
from holdfast.model.sagemaker import InstanceStatus


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


def test_a_group_grows_and_its_nodes_stay(grown) -> None:
    before = grown.ids()
    grown.call("UpdateCluster", ClusterName="lab", InstanceGroups=[group("gpu", 5)])
    assert grown.status() == "Updating"
    grown.settle()

    assert grown.status() == "InService"
    assert before < grown.ids()
    assert len(grown.ids()) == 5
    assert "Cluster lab update completed successfully" in grown.events()


def test_a_group_shrinks_by_the_nodes_that_cost_the_least(grown) -> None:
    grown.nodes.looked_after = True
    [busy, sick, idle] = sorted(grown.ids())
    running, pending = InstanceStatus.RUNNING, InstanceStatus.PENDING
    grown.nodes.sick = {
        busy: NodeHealth(status=running, is_busy=True),
        sick: NodeHealth(status=pending, message="It reboots."),
    }
    grown.call("UpdateCluster", ClusterName="lab", InstanceGroups=[group("gpu", 2)])
    grown.settle()
    assert grown.ids() == {busy, idle}
    grown.call("UpdateCluster", ClusterName="lab", InstanceGroups=[group("gpu", 1)])
    grown.settle()

    assert grown.ids() == {busy}
    assert grown.status() == "InService"


def test_groups_come_and_go_in_one_update(grown) -> None:
    grown.call(
        "UpdateCluster",
        ClusterName="lab",
        InstanceGroups=[group("cpu", 1)],
        InstanceGroupsToDelete=["gpu"],
        NodeRecovery="None",
    )
    assert {name: one["Status"] for name, one in grown.described_groups().items()} == {
        "gpu": "Deleting",
        "cpu": "Updating",
    }
    grown.settle()

    assert list(grown.described_groups()) == ["cpu"]
    assert grown.described()["NodeRecovery"] == "None"
    assert grown.groups.groups["lab/cpu"].repairs is False
    assert list(grown.groups.groups) == ["lab/cpu"]


def test_a_change_of_what_machines_are_made_of_holds_for_new_ones(grown) -> None:
    before = grown.ids()
    scripts = {"SourceS3Uri": "s3://b/new", "OnCreate": "x.sh"}
    grown.call(
        "UpdateCluster",
        ClusterName="lab",
        InstanceGroups=[group("gpu", 3, LifeCycleConfig=scripts)],
    )
    grown.settle()

    assert grown.groups.groups["lab/gpu"].scripts.source == "s3://b/new"
    assert grown.described_groups()["gpu"]["LifeCycleConfig"] == scripts
    assert grown.ids() == before


def test_an_update_that_fails_is_taken_back_and_says_why(grown) -> None:
    before = grown.ids()
    grown.groups.broken.add(("lab/gpu", 0))
    grown.call(
        "UpdateCluster", ClusterName="lab", InstanceGroups=[group("gpu", 5), group("new", 0)]
    )
    grown.settle()

    assert grown.status() == "InService"
    assert "its script ended with 1" in grown.described()["FailureMessage"]
    assert grown.ids() == before
    assert grown.described_groups()["gpu"]["TargetCount"] == 3
    grown.call("UpdateCluster", ClusterName="lab", InstanceGroups=[group("gpu", 2)])
    grown.settle()
    assert "FailureMessage" not in grown.described()


def test_an_update_that_the_owner_refuses_is_taken_back(grown) -> None:
    before = grown.groups.groups["lab/gpu"]
    grown.groups.calls.failing["scale"] = ProviderError("no room")
    scripts = {"SourceS3Uri": "s3://b/new", "OnCreate": "x.sh"}
    grown.call(
        "UpdateCluster",
        ClusterName="lab",
        InstanceGroups=[group("gpu", 9, LifeCycleConfig=scripts)],
    )
    grown.settle()

    assert (grown.status(), grown.described()["FailureMessage"]) == ("InService", "gpu: no room")
    assert (grown.described_groups()["gpu"]["TargetCount"], len(grown.ids())) == (3, 3)
    assert grown.groups.groups["lab/gpu"].scripts == before.scripts


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        ({"InstanceGroups": [group(InstanceType="ml.p5.48xlarge")]}, "cannot be changed"),
        ({"InstanceGroupsToDelete": ["none"]}, "instance group none not found"),
        ({"InstanceGroupsToDelete": ["gpu"]}, "must keep at least one instance group"),
        ({"InstanceGroupsToDelete": ["gpu"], "InstanceGroups": [group()]}, "both in"),
    ],
)
def test_an_update_that_cannot_be_is_refused(grown, request_, says) -> None:
    code, message = grown.refused("UpdateCluster", ClusterName="lab", **request_)

    assert code == "ValidationException"
    assert says in message
    assert grown.status() == "InService"


@pytest.mark.parametrize("operation", ["UpdateCluster", "UpdateClusterSoftware"])
def test_a_cluster_that_changes_is_not_changed_otherwise(lab, operation) -> None:
    lab.create()

    code, message = lab.refused(operation, ClusterName="lab")

    assert code == "ConflictException"
    assert "Creating" in message
