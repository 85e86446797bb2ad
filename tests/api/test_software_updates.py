"""Software of clusters that the API created is updated, and taken back if it fails."""

from datetime import timedelta

import pytest
from created_calls import Lab, group

from holdfast.model.clusters import MachineState
from tests.ports.fake_machine_groups import FakeMachineGroups


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


def rolling(size: int, **more):
    policy = {"MaximumBatchSize": {"Type": "INSTANCE_COUNT", "Value": size}}
    return {"RollingUpdatePolicy": policy, **more}


NEW = "ami-00000002"


def test_all_nodes_get_new_software_a_batch_at_a_time(grown) -> None:
    grown.nodes.looked_after = True
    before = grown.ids()
    grown.call(
        "UpdateClusterSoftware",
        ClusterName="lab",
        ImageId=NEW,
        DeploymentConfig=rolling(2, WaitIntervalInSeconds=60),
    )
    assert grown.status() == "SystemUpdating"
    grown.settle(rounds=6)
    assert len(grown.nodes.renewed) == 2
    assert grown.described_groups()["gpu"]["SoftwareUpdateStatus"] == "InProgress"
    assert (
        grown.described_groups()["gpu"]["ActiveSoftwareUpdateConfig"]["WaitIntervalInSeconds"] == 60
    )
    assert (grown.described_groups()["gpu"]["Status"], len(grown.ids() & before)) == (
        "SystemUpdating",
        1,
    )
    grown.late.late = timedelta(seconds=61)
    grown.settle(rounds=6)
    assert not grown.ids() & before
    assert grown.status() == "SystemUpdating"
    grown.late.late = timedelta(seconds=122)
    grown.settle()

    assert (grown.status(), len(grown.ids())) == ("InService", 3)
    found = grown.described_groups()["gpu"]
    assert (found["SoftwareUpdateStatus"], found["CurrentImageId"]) == ("Succeeded", NEW)
    assert len(grown.nodes.renewed) == 3
    batches = [text for text in grown.events() if "batch selected" in text]
    assert len(batches) == 2


def test_nodes_that_nobody_looks_after_are_taken_away_and_come_anew(grown) -> None:
    before = grown.ids()
    grown.call("UpdateClusterSoftware", ClusterName="lab", DeploymentConfig=rolling(1))
    grown.settle(rounds=40)

    assert grown.status() == "InService"
    assert not grown.ids() & before
    assert len(grown.ids()) == 3


def test_software_that_does_not_run_is_taken_back(grown) -> None:
    before = grown.ids()
    grown.groups.broken.add(("lab/gpu", 1))
    grown.call("UpdateClusterSoftware", ClusterName="lab", ImageId=NEW, DeploymentConfig=rolling(1))
    grown.settle(rounds=40)

    assert grown.status() == "InService"
    found = grown.described_groups()["gpu"]
    assert (found["SoftwareUpdateStatus"], found.get("CurrentImageId")) == (
        "RollbackComplete",
        None,
    )
    assert "software update failed" in grown.described()["FailureMessage"]
    assert len(grown.ids() & before) == 2
    assert [one["InstanceStatus"]["Status"] for one in grown.listed()] == ["Running"] * 3
    assert any("its script ended with 1" in text for text in grown.events())


def test_nodes_without_an_image_of_their_group_go_back_to_the_one_that_they_had(grown) -> None:
    grown.groups.image = "ami-0000000a"
    grown.call("UpdateClusterSoftware", ClusterName="lab")
    grown.settle(rounds=40)
    assert grown.described_groups()["gpu"]["CurrentImageId"] == "ami-0000000a"
    grown.groups.image = NEW
    grown.groups.broken.add(("lab/gpu", 2))
    grown.call("UpdateClusterSoftware", ClusterName="lab", DeploymentConfig=rolling(1))
    grown.settle(rounds=40)

    found = grown.described_groups()["gpu"]
    assert found["SoftwareUpdateStatus"] == "RollbackComplete"
    assert (found["CurrentImageId"], found["DesiredImageId"]) == ("ami-0000000a",) * 2
    grown.call("UpdateCluster", ClusterName="lab", InstanceGroups=[group("gpu", 4)])
    grown.settle()
    assert len(grown.ids()) == 4
    for one in grown.ids():
        node = grown.call("DescribeClusterNode", ClusterName="lab", NodeId=one)["NodeDetails"]
        assert node["CurrentImageId"] == "ami-0000000a"


def test_an_alarm_takes_an_update_back_while_it_bakes(grown) -> None:
    before = grown.ids()
    alarms = [{"AlarmName": "loss"}, {"AlarmName": "other"}]
    grown.alarms.on.add("unheard")
    grown.call(
        "UpdateClusterSoftware",
        ClusterName="lab",
        DeploymentConfig=rolling(1, WaitIntervalInSeconds=600, AutoRollbackConfiguration=alarms),
    )
    grown.settle(rounds=8)
    assert len(grown.ids() & before) == 2
    grown.alarms.on.add("loss")
    grown.settle(rounds=40)
    grown.late.late = timedelta(seconds=601)
    grown.settle(rounds=20)

    assert grown.described_groups()["gpu"]["SoftwareUpdateStatus"] == "RollbackComplete"
    assert len(grown.ids() & before) == 2
    assert any("loss" in text and "other" not in text for text in grown.events())


def test_only_the_groups_that_are_named_are_updated(lab) -> None:
    lab.create(group("gpu", 1), group("cpu", 1))
    lab.settle()
    before = lab.ids("cpu")
    lab.call(
        "UpdateClusterSoftware", ClusterName="lab", InstanceGroups=[{"InstanceGroupName": "gpu"}]
    )
    lab.settle(rounds=30)

    assert (lab.status(), lab.ids("cpu")) == ("InService", before)
    assert "SoftwareUpdateStatus" not in lab.described_groups()["cpu"]
    none = [{"InstanceGroupName": "none"}]
    refused = lab.refused("UpdateClusterSoftware", ClusterName="lab", InstanceGroups=none)
    assert refused == ("ResourceNotFound", "Instance group none not found")


@pytest.mark.parametrize(("percent", "size"), [(1, 1), (50, 2), (67, 3), (100, 3)])
def test_a_batch_may_be_a_share_of_the_group_rounded_up(grown, percent, size) -> None:
    policy = {"MaximumBatchSize": {"Type": "CAPACITY_PERCENTAGE", "Value": percent}}
    grown.call(
        "UpdateClusterSoftware",
        ClusterName="lab",
        DeploymentConfig={"RollingUpdatePolicy": policy},
    )

    update = grown.records.load("lab").cluster.groups[0].update
    assert (update.batch, update.rollback_batch) == (size, size)


def test_an_update_goes_on_where_it_was_when_its_loop_was_killed(grown) -> None:
    grown.nodes.looked_after = True
    before = grown.ids()
    grown.call("UpdateClusterSoftware", ClusterName="lab", DeploymentConfig=rolling(1))
    for _ in range(60):
        grown.restart()
        grown.reconciler.step()
        grown.groups.settle()

    assert grown.status() == "InService"
    assert not grown.ids() & before
    assert all(one.state is MachineState.RUNNING for one in grown.groups.members["lab/gpu"])


def test_a_change_of_size_keeps_the_image_of_the_last_software(grown) -> None:
    grown.call("UpdateClusterSoftware", ClusterName="lab", ImageId=NEW)
    grown.settle(rounds=30)
    grown.call("UpdateCluster", ClusterName="lab", InstanceGroups=[group("gpu", 4)])
    grown.settle()

    assert grown.described_groups()["gpu"]["CurrentImageId"] == NEW
    assert grown.groups.groups["lab/gpu"].image == NEW


class Interrupted(FakeMachineGroups):
    """Somebody changes the cluster while the owner is told of a group."""

    meanwhile = None

    def ensure(self, group):
        super().ensure(group)
        meanwhile, Interrupted.meanwhile = Interrupted.meanwhile, None
        if meanwhile is not None:
            meanwhile()


def test_a_request_that_comes_while_the_owner_is_informed_of_another_is_not_lost(grown) -> None:
    owner = Interrupted(grown.late, groups=grown.groups.groups, members=grown.groups.members)
    owner.made = grown.groups.made
    grown.groups = grown.nodes.groups = owner
    grown.restart()
    Interrupted.meanwhile = lambda: grown.call("DeleteCluster", ClusterName="lab")
    grown.call("UpdateClusterSoftware", ClusterName="lab", ImageId=NEW)
    grown.settle()

    assert grown.records.names() == []
    assert not any(owner.members.values())
