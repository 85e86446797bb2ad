"""Clusters that the API created are changed: their groups, their nodes, their software."""

from datetime import timedelta

import pytest
from created_calls import Lab, group

from holdfast.model.clusters import MachineState, NodeHealth
from holdfast.model.errors import ProviderError
from holdfast.model.requests import Verb
from holdfast.model.sagemaker import InstanceStatus
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


@pytest.fixture
def steady(lab):
    """The same, in the mode that lets single nodes be added."""
    lab.create(group("gpu", 3, MinInstanceCount=1), NodeProvisioningMode="Continuous")
    lab.settle()
    return lab


def ids(lab, group="gpu"):
    return {
        one["InstanceId"]
        for one in lab.listed()
        if one["InstanceGroupName"] == group and one["InstanceId"]
    }


def described(lab):
    return lab.call("DescribeCluster", ClusterName="lab")


def groups(lab):
    return {one["InstanceGroupName"]: one for one in described(lab)["InstanceGroups"]}


# groups


def test_a_group_grows_and_its_nodes_stay(grown) -> None:
    before = ids(grown)
    grown.call("UpdateCluster", ClusterName="lab", InstanceGroups=[group("gpu", 5)])
    assert grown.status() == "Updating"
    grown.settle()

    assert grown.status() == "InService"
    assert before < ids(grown)
    assert len(ids(grown)) == 5
    assert "Cluster lab update completed successfully" in grown.events()


def test_a_group_shrinks_by_the_nodes_that_cost_the_least(grown) -> None:
    grown.nodes.looked_after = True
    [busy, sick, idle] = sorted(ids(grown))
    running, pending = InstanceStatus.RUNNING, InstanceStatus.PENDING
    grown.nodes.sick = {
        busy: NodeHealth(status=running, is_busy=True),
        sick: NodeHealth(status=pending, message="It reboots."),
    }
    grown.call("UpdateCluster", ClusterName="lab", InstanceGroups=[group("gpu", 2)])
    grown.settle()
    assert ids(grown) == {busy, idle}
    grown.call("UpdateCluster", ClusterName="lab", InstanceGroups=[group("gpu", 1)])
    grown.settle()

    assert ids(grown) == {busy}
    assert grown.status() == "InService"


def test_groups_come_and_go_in_one_update(grown) -> None:
    grown.call(
        "UpdateCluster",
        ClusterName="lab",
        InstanceGroups=[group("cpu", 1)],
        InstanceGroupsToDelete=["gpu"],
        NodeRecovery="None",
    )
    assert {name: one["Status"] for name, one in groups(grown).items()} == {
        "gpu": "Deleting",
        "cpu": "Updating",
    }
    grown.settle()

    assert list(groups(grown)) == ["cpu"]
    assert described(grown)["NodeRecovery"] == "None"
    assert grown.groups.groups["lab/cpu"].repairs is False
    assert list(grown.groups.groups) == ["lab/cpu"]


def test_a_change_of_what_machines_are_made_of_holds_for_new_ones(grown) -> None:
    before = ids(grown)
    scripts = {"SourceS3Uri": "s3://b/new", "OnCreate": "x.sh"}
    grown.call(
        "UpdateCluster",
        ClusterName="lab",
        InstanceGroups=[group("gpu", 3, LifeCycleConfig=scripts)],
    )
    grown.settle()

    assert grown.groups.groups["lab/gpu"].scripts.source == "s3://b/new"
    assert groups(grown)["gpu"]["LifeCycleConfig"] == scripts
    assert ids(grown) == before


def test_an_update_that_fails_is_taken_back_and_says_why(grown) -> None:
    before = ids(grown)
    grown.groups.broken.add(("lab/gpu", 0))
    grown.call(
        "UpdateCluster", ClusterName="lab", InstanceGroups=[group("gpu", 5), group("new", 0)]
    )
    grown.settle()

    assert grown.status() == "InService"
    assert "its script ended with 1" in described(grown)["FailureMessage"]
    assert ids(grown) == before
    assert groups(grown)["gpu"]["TargetCount"] == 3
    grown.call("UpdateCluster", ClusterName="lab", InstanceGroups=[group("gpu", 2)])
    grown.settle()
    assert "FailureMessage" not in described(grown)


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

    assert (grown.status(), described(grown)["FailureMessage"]) == ("InService", "gpu: no room")
    assert (groups(grown)["gpu"]["TargetCount"], len(ids(grown))) == (3, 3)
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


# single nodes


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
    assert len(ids(steady)) == 5
    again = steady.call(
        "BatchAddClusterNodes",
        ClusterName="lab",
        ClientToken="t",
        NodesToAdd=[{"InstanceGroupName": "gpu", "IncrementTargetCountBy": 2}],
    )
    assert {one["NodeLogicalId"] for one in again["Successful"]} == names
    steady.settle()
    assert len(ids(steady)) == 5


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
    first, second, third = sorted(ids(steady))
    names = {one["InstanceId"]: one["NodeLogicalId"] for one in steady.listed()}
    deleted = steady.call(
        "BatchDeleteClusterNodes", ClusterName="lab", NodeIds=[second, "i-00000000"]
    )
    assert deleted["Successful"] == [second]
    assert [one["Code"] for one in deleted["Failed"]] == ["NodeIdNotFound"]
    steady.settle()
    assert ids(steady) == {first, third}
    assert groups(steady)["gpu"]["TargetCount"] == 2

    named = steady.call(
        "BatchDeleteClusterNodes", ClusterName="lab", NodeLogicalIds=[names[first], names[third]]
    )
    assert named["SuccessfulNodeLogicalIds"] == [names[first]]
    [refused] = named["FailedNodeLogicalIds"]
    assert (refused["Code"], refused["NodeLogicalId"]) == ("NodeIdInUse", names[third])
    steady.settle()
    assert ids(steady) == {third}


def test_a_node_that_has_not_come_yet_can_be_deleted(steady) -> None:
    added = steady.call(
        "BatchAddClusterNodes",
        ClusterName="lab",
        NodesToAdd=[{"InstanceGroupName": "gpu", "IncrementTargetCountBy": 1}],
    )
    [name] = [one["NodeLogicalId"] for one in added["Successful"]]
    before = ids(steady)
    steady.call("BatchDeleteClusterNodes", ClusterName="lab", NodeLogicalIds=[name])
    steady.settle()

    assert ids(steady) == before


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
    assert steady.nodes.requested == [(node["PrivateDnsHostname"], Verb.REBOOT)]


def test_a_node_is_deleted_once_however_often_that_is_asked(steady) -> None:
    first = min(ids(steady))
    for _ in range(2):
        deleted = steady.call("BatchDeleteClusterNodes", ClusterName="lab", NodeIds=[first])
        assert deleted["Successful"] == [first]

    steady.settle()
    assert len(ids(steady)) == 2


def test_a_node_that_was_replaced_meanwhile_is_still_gone_once(steady) -> None:
    steady.nodes.looked_after = True
    steady.settle()
    first = min(ids(steady))
    name = next(one.name for one in steady.groups.members["lab/gpu"] if one.id == first)
    steady.call("BatchDeleteClusterNodes", ClusterName="lab", NodeIds=[first])
    steady.nodes.renew("lab", name)
    steady.settle()

    assert first not in ids(steady)
    assert len(ids(steady)) == 2


# software


def rolling(size: int, **more):
    policy = {"MaximumBatchSize": {"Type": "INSTANCE_COUNT", "Value": size}}
    return {"RollingUpdatePolicy": policy, **more}


NEW = "ami-00000002"


def test_all_nodes_get_new_software_a_batch_at_a_time(grown) -> None:
    grown.nodes.looked_after = True
    before = ids(grown)
    grown.call(
        "UpdateClusterSoftware",
        ClusterName="lab",
        ImageId=NEW,
        DeploymentConfig=rolling(2, WaitIntervalInSeconds=60),
    )
    assert grown.status() == "SystemUpdating"
    grown.settle(rounds=6)
    assert len(grown.nodes.renewed) == 2
    assert groups(grown)["gpu"]["SoftwareUpdateStatus"] == "InProgress"
    assert groups(grown)["gpu"]["ActiveSoftwareUpdateConfig"]["WaitIntervalInSeconds"] == 60
    assert (groups(grown)["gpu"]["Status"], len(ids(grown) & before)) == ("SystemUpdating", 1)
    grown.late.late = timedelta(seconds=61)
    grown.settle(rounds=6)
    assert not ids(grown) & before
    assert grown.status() == "SystemUpdating"
    grown.late.late = timedelta(seconds=122)
    grown.settle()

    assert (grown.status(), len(ids(grown))) == ("InService", 3)
    found = groups(grown)["gpu"]
    assert (found["SoftwareUpdateStatus"], found["CurrentImageId"]) == ("Succeeded", NEW)
    assert len(grown.nodes.renewed) == 3
    batches = [text for text in grown.events() if "batch selected" in text]
    assert len(batches) == 2


def test_nodes_that_nobody_looks_after_are_taken_away_and_come_anew(grown) -> None:
    before = ids(grown)
    grown.call("UpdateClusterSoftware", ClusterName="lab", DeploymentConfig=rolling(1))
    grown.settle(rounds=40)

    assert grown.status() == "InService"
    assert not ids(grown) & before
    assert len(ids(grown)) == 3


def test_software_that_does_not_run_is_taken_back(grown) -> None:
    before = ids(grown)
    grown.groups.broken.add(("lab/gpu", 1))
    grown.call("UpdateClusterSoftware", ClusterName="lab", ImageId=NEW, DeploymentConfig=rolling(1))
    grown.settle(rounds=40)

    assert grown.status() == "InService"
    found = groups(grown)["gpu"]
    assert (found["SoftwareUpdateStatus"], found.get("CurrentImageId")) == (
        "RollbackComplete",
        None,
    )
    assert "software update failed" in described(grown)["FailureMessage"]
    assert len(ids(grown) & before) == 2
    assert [one["InstanceStatus"]["Status"] for one in grown.listed()] == ["Running"] * 3
    assert any("its script ended with 1" in text for text in grown.events())


def test_an_alarm_takes_an_update_back_while_it_bakes(grown) -> None:
    before = ids(grown)
    alarms = [{"AlarmName": "loss"}, {"AlarmName": "other"}]
    grown.alarms.on.add("unheard")
    grown.call(
        "UpdateClusterSoftware",
        ClusterName="lab",
        DeploymentConfig=rolling(1, WaitIntervalInSeconds=600, AutoRollbackConfiguration=alarms),
    )
    grown.settle(rounds=8)
    assert len(ids(grown) & before) == 2
    grown.alarms.on.add("loss")
    grown.settle(rounds=40)
    grown.late.late = timedelta(seconds=601)
    grown.settle(rounds=20)

    assert groups(grown)["gpu"]["SoftwareUpdateStatus"] == "RollbackComplete"
    assert len(ids(grown) & before) == 2
    assert any("loss" in text and "other" not in text for text in grown.events())


def test_only_the_groups_that_are_named_are_updated(lab) -> None:
    lab.create(group("gpu", 1), group("cpu", 1))
    lab.settle()
    before = ids(lab, "cpu")
    lab.call(
        "UpdateClusterSoftware", ClusterName="lab", InstanceGroups=[{"InstanceGroupName": "gpu"}]
    )
    lab.settle(rounds=30)

    assert (lab.status(), ids(lab, "cpu")) == ("InService", before)
    assert "SoftwareUpdateStatus" not in groups(lab)["cpu"]
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
    before = ids(grown)
    grown.call("UpdateClusterSoftware", ClusterName="lab", DeploymentConfig=rolling(1))
    for _ in range(60):
        grown.restart()
        grown.reconciler.step()
        grown.groups.settle()

    assert grown.status() == "InService"
    assert not ids(grown) & before
    assert all(one.state is MachineState.RUNNING for one in grown.groups.members["lab/gpu"])


def test_a_change_of_size_keeps_the_image_of_the_last_software(grown) -> None:
    grown.call("UpdateClusterSoftware", ClusterName="lab", ImageId=NEW)
    grown.settle(rounds=30)
    grown.call("UpdateCluster", ClusterName="lab", InstanceGroups=[group("gpu", 4)])
    grown.settle()

    assert groups(grown)["gpu"]["CurrentImageId"] == NEW
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
