"""Clusters that the API creates, from the request to the nodes, with machines in memory."""

from dataclasses import replace
from datetime import timedelta

import pytest
from api_calls import BOB
from created_calls import ROLE, Lab, group

from holdfast.engine.cluster_reconciler import PollIntervals
from holdfast.model.clusters import DesiredCluster, DesiredGroup, MachineGroup
from holdfast.model.incidents import Incident
from holdfast.model.sagemaker import ClusterStatus
from holdfast.ports.cluster_records import RecordedRequest
from tests.engines.fake_clusters import ShownCluster


@pytest.fixture
def lab(tmp_path):
    lab = Lab(f"sqlite:///{tmp_path}/clusters.db")
    yield lab
    lab.database.close()


def test_a_cluster_is_created_and_its_nodes_run(lab) -> None:
    lab.create(group("gpu", 2), group("cpu", 1), Tags=[{"Key": "team", "Value": "a"}])
    assert lab.status() == "Creating"
    assert lab.listed() == []
    lab.settle()

    described = lab.call("DescribeCluster", ClusterName="lab")
    assert described["ClusterStatus"] == "InService"
    counts = {
        one["InstanceGroupName"]: (one["CurrentCount"], one["TargetCount"], one["Status"])
        for one in described["InstanceGroups"]
    }
    assert counts == {"gpu": (2, 2, "InService"), "cpu": (1, 1, "InService")}
    assert lab.statuses() == ["Running"] * 3
    assert described["NodeRecovery"] == "Automatic"
    assert described["InstanceGroups"][0]["ExecutionRole"] == ROLE
    assert len({one["NodeLogicalId"] for one in lab.listed()}) == 3


def test_a_node_is_described_with_the_settings_of_its_group(lab) -> None:
    scripts = {"SourceS3Uri": "s3://sagemaker-scripts", "OnCreate": "on_create.sh"}
    plain, special = group("cpu", 1), group(ThreadsPerCore=1, LifeCycleConfig=scripts)
    lab.call("CreateCluster", ClusterName="lab", InstanceGroups=[plain, special])
    lab.settle()
    found = {
        one["InstanceGroupName"]: lab.call(
            "DescribeClusterNode", ClusterName="lab", NodeId=one["InstanceId"]
        )["NodeDetails"]
        for one in lab.call("ListClusterNodes", ClusterName="lab")["ClusterNodeSummaries"]
    }

    assert (found["gpu"]["ThreadsPerCore"], found["gpu"]["LifeCycleConfig"]) == (1, scripts)
    assert not {"ThreadsPerCore", "LifeCycleConfig"} & found["cpu"].keys()


def test_each_step_of_a_creation_is_an_event(lab) -> None:
    lab.create(group("gpu", 1))
    lab.settle()

    [node] = lab.listed()
    found = lab.call("DescribeClusterNode", ClusterName="lab", NodeId=node["InstanceId"])
    assert found["NodeDetails"]["PrivatePrimaryIp"] == "10.0.0.1"
    assert lab.events() == [
        "Cluster lab creation started successfully",
        f"Instance creation of {node['InstanceId']} started in Cluster lab and IG gpu",
        f"Instance creation of {node['InstanceId']} in Cluster lab and IG gpu completed "
        "successfully",
        "Cluster lab creation completed successfully",
    ]
    of_cluster = lab.call("ListClusterEvents", ClusterName="lab", ResourceType="Cluster")
    assert len(of_cluster["Events"]) == 2
    of_node = lab.call("ListClusterEvents", ClusterName="lab", NodeId=node["InstanceId"])
    event = of_node["Events"][0]
    described = lab.call("DescribeClusterEvent", ClusterName="lab", EventId=event["EventId"])
    metadata = described["EventDetails"]["EventDetails"]["EventMetadata"]
    assert metadata == {"Instance": {"NodeLogicalId": node["NodeLogicalId"]}}


def test_a_node_has_one_logical_id_in_lists_and_in_all_events_also_when_it_is_gone(lab) -> None:
    lab.create(group("gpu", 1))
    lab.settle()
    [node] = lab.listed()
    lab.nodes.past = [an_incident(node, lab)]

    def reported() -> set[str]:
        found = lab.call("ListClusterEvents", ClusterName="lab", NodeId=node["InstanceId"])
        ids = [one["EventId"] for one in found["Events"]]
        assert len(ids) > 2
        described = [
            lab.call("DescribeClusterEvent", ClusterName="lab", EventId=one)["EventDetails"]
            for one in ids
        ]
        return {
            one["EventDetails"]["EventMetadata"]["Instance"]["NodeLogicalId"] for one in described
        }

    assert reported() == {node["NodeLogicalId"]}
    lab.groups.remove("lab/gpu", [node["InstanceId"]])
    lab.settle()
    assert node["InstanceId"] not in {one["InstanceId"] for one in lab.listed()}
    assert reported() == {node["NodeLogicalId"]}


def test_incidents_from_before_a_cluster_was_created_are_not_its_own(lab) -> None:
    lab.create(group("gpu", 1))
    lab.settle()
    [node] = lab.listed()
    late = an_incident(node, lab)
    lab.nodes.past = [replace(late, id="early", detected_at=late.detected_at - timedelta(days=1))]
    assert not any("Xid74" in one for one in lab.events())

    lab.nodes.past.append(late)
    assert any("Xid74" in one for one in lab.events())


def an_incident(node: dict, lab: Lab) -> Incident:
    now = lab.late.now()
    return Incident(
        id="i1",
        node=node["PrivateDnsHostname"],
        provider_id=node["InstanceId"],
        reason="Xid74",
        remedy="reboot",
        message="NVLink",
        detected_at=now,
        quarantined_at=now,
    )


def test_a_name_is_taken_once(lab) -> None:
    lab.clusters.append(ShownCluster("other", lab.late.now()))
    lab.create()

    for name in ("lab", "other"):
        refused = lab.refused("CreateCluster", ClusterName=name, InstanceGroups=[group()])
        assert refused[0] == "ResourceInUse"


def test_a_deleted_cluster_leaves_nothing_and_its_name_is_free(lab) -> None:
    lab.create(Tags=[{"Key": "team", "Value": "a"}])
    lab.settle()
    arn = lab.arn()
    for _ in range(2):
        assert lab.call("DeleteCluster", ClusterName="lab")["ClusterArn"] == arn
        assert lab.status() == "Deleting"
    lab.settle()

    assert lab.refused("DescribeCluster", ClusterName="lab")[0] == "ResourceNotFound"
    assert lab.groups.groups == {}
    lab.create()
    lab.settle()
    assert lab.status() == "InService"
    assert lab.arn() != arn
    assert lab.call("ListTags", ResourceArn=lab.arn())["Tags"] == []
    assert lab.events()[0] == "Cluster lab creation started successfully"


def test_a_cluster_may_be_deleted_while_it_is_created(lab) -> None:
    lab.create()
    lab.reconciler.step()
    lab.call("DeleteCluster", ClusterName="lab")
    lab.settle()

    assert lab.records.names() == []
    assert not any(lab.groups.members.values())


def test_who_may_only_read_creates_nothing(lab) -> None:
    code, _ = lab.refused("CreateCluster", BOB, ClusterName="lab", InstanceGroups=[group()])

    assert code == "AccessDeniedException"
    assert lab.records.names() == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"InstanceGroups": [group("a"), group("a")]}, "a is duplicated"),
        ({"InstanceGroups": [group(MinInstanceCount=3)]}, "MinInstanceCount is 3"),
        ({"InstanceGroups": [group(InstanceRequirements={"InstanceTypes": ["ml.g5.xlarge"]})]},
         "exactly one of"),
        ({"InstanceGroups": [group(LifeCycleConfig={"SourceS3Uri": "s3://b"})]}, "OnCreate"),
        ({"InstanceGroups": [group(LifeCycleConfig={"SourceS3Uri": "/b", "OnCreate": "../x"})]},
         "within SourceS3Uri"),
        ({"InstanceGroups": [group(LifeCycleConfig={"SourceS3Uri": "/b\0", "OnCreate": "x"})]},
         "SourceS3Uri contains characters"),
        ({"InstanceGroups": [group(LifeCycleConfig={"SourceS3Uri": "/\ud800", "OnCreate": "x"})]},
         "SourceS3Uri contains characters"),
        ({"InstanceGroups": [group(LifeCycleConfig={"SourceS3Uri": "/b", "OnCreate": "x\0"})]},
         "OnCreate contains characters"),
        ({"InstanceGroups": [group(LifeCycleConfig={"SourceS3Uri": "b", "OnCreate": "x"})]},
         "regular expression"),
        ({"InstanceGroups": [group(ImageReleaseVersion="1.2.3")]}, "not supported"),
        ({"AutoScaling": {"Mode": "Enable"}}, "requires NodeProvisioningMode Continuous"),
        ({"Tags": [{"Key": "aws:x", "Value": ""}]}, "reserved"),
        ({"ClusterName": "-lab"}, "regular expression"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_and_leaves_nothing(lab, changes, says) -> None:
    request = {"ClusterName": "lab", "InstanceGroups": [group()], **changes}

    code, message = lab.refused("CreateCluster", **request)

    assert code == "ValidationException"
    assert says in message
    assert lab.records.names() == []


def test_what_the_platform_cannot_do_is_refused(lab) -> None:
    lab.rejections.append("gpu: there are only 1 nodes")

    refused = lab.refused("CreateCluster", ClusterName="lab", InstanceGroups=[group()])

    assert refused == ("ValidationException", "gpu: there are only 1 nodes")


def test_all_clusters_together_keep_the_limit(tmp_path) -> None:
    lab = Lab(f"sqlite:///{tmp_path}/clusters.db", limit=3)
    lab.create(group(count=2))
    more = {"ClusterName": "more", "InstanceGroups": [group(count=2)]}

    assert lab.refused("CreateCluster", **more)[0] == "ResourceLimitExceeded"
    lab.settle()
    grown = {"ClusterName": "lab", "InstanceGroups": [group(count=4)]}
    assert lab.refused("UpdateCluster", **grown)[0] == "ResourceLimitExceeded"
    lab.create(group(count=1), name="more")
    lab.database.close()


def test_clusters_above_a_limit_that_was_lowered_may_become_smaller(lab) -> None:
    lab.create(group(count=4))
    lab.settle()
    lab.limit = 2
    lab.protocol = lab.served()

    grown = {"ClusterName": "lab", "InstanceGroups": [group(count=5)]}
    assert lab.refused("UpdateCluster", **grown)[0] == "ResourceLimitExceeded"
    lab.call("UpdateCluster", ClusterName="lab", InstanceGroups=[group(count=3)])
    lab.settle()
    assert lab.statuses() == ["Running"] * 3


def test_a_cluster_that_came_while_a_request_was_read_counts(lab) -> None:
    lab.limit = 3
    lab.protocol = lab.served()
    other = DesiredCluster(
        name="other",
        uid="0123456789ab",
        created_at=lab.late.now(),
        status=ClusterStatus.CREATING,
        since=lab.late.now(),
        groups=(DesiredGroup(made_of=MachineGroup(cluster="other", name="gpu"), target=2),),
    )
    requested = RecordedRequest(
        at=lab.late.now(), person="bob", operation="CreateCluster", request={}
    )
    lab.meanwhile = lambda: lab.records.create(other, (), {}, requested)

    refused = lab.refused("CreateCluster", ClusterName="lab", InstanceGroups=[group(count=2)])

    assert refused[0] == "ResourceLimitExceeded"
    assert lab.records.names() == ["other"]


def test_what_is_asked_for_while_a_cluster_is_looked_at_is_not_left_for_later(lab) -> None:
    lab.create()
    lab.settle()
    later = timedelta(hours=1)
    lab.restart(PollIntervals(busy=later, quiet=later))
    lab.nodes.meanwhile = lambda: lab.reconciler.wake("lab")

    assert lab.reconciler.step() <= lab.late.now()

    lab.nodes.meanwhile = lambda: None
    assert lab.reconciler.step() > lab.late.now() + later / 2


def test_a_cluster_does_not_wait_until_the_clock_has_caught_up_with_an_earlier_step(lab) -> None:
    lab.create()
    lab.settle()
    later = timedelta(minutes=1)
    lab.restart(PollIntervals(busy=later, quiet=later))
    rounds = []
    lab.nodes.meanwhile = lambda: rounds.append(lab.late.late)
    lab.late.late = timedelta(hours=3)
    lab.reconciler.step()

    lab.late.late = timedelta(0)
    lab.reconciler.step()
    lab.reconciler.step()

    assert rounds == [timedelta(hours=3), timedelta(0)]
