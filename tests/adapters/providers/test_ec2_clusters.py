"""A cluster from its creation to its end, with machines of EC2 as moto plays them."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

import boto3
import pytest
from aws_front import REGION, Cloud

from holdfast.adapters.database.connection import Database
from holdfast.adapters.database.records import DatabaseRecords
from holdfast.adapters.providers.ec2_machine_groups import Ec2MachineGroups, build
from holdfast.adapters.providers.machine_group_settings import Ec2GroupSettings, Ec2TypeSettings
from holdfast.adapters.providers.settings import AwsSettings
from holdfast.apps.clock import SystemClock
from holdfast.decisions.cluster_policy import ClusterPolicy
from holdfast.engine.cluster_reconciler import ClusterPorts, ClusterReconciler, PollIntervals
from holdfast.model.clusters import (
    DesiredCluster,
    DesiredGroup,
    GroupStage,
    MachineGroup,
    MachineState,
    NodeHealth,
)
from holdfast.model.errors import ProviderError
from holdfast.model.sagemaker import ClusterStatus, InstanceStatus
from holdfast.ports.cluster_records import Change, RecordedRequest

NAME = "whole"
GROUP = MachineGroup(cluster=NAME, name="gpu", instance_type="ml.g5.xlarge")
ROUNDS = 12


@dataclass
class EveryNode:
    """Controllers that say of every machine that its node runs."""

    groups: Ec2MachineGroups

    def health(self, cluster):
        found = self.groups.machines(GROUP.key)
        return {one.id: NodeHealth(status=InstanceStatus.RUNNING) for one in found}

    def renew(self, cluster, node):
        return False


class NoAlarms:
    def active_alarms(self, names):
        return frozenset()


@dataclass
class Whole:
    cloud: Cloud
    records: DatabaseRecords
    groups: Ec2MachineGroups
    reported: list[str]

    def pass_time(self) -> None:
        """Some rounds, each by a process of its own."""
        for _ in range(ROUNDS):
            ports = ClusterPorts(
                records=self.records,
                groups=self.groups,
                nodes=EveryNode(self.groups),
                alarms=NoAlarms(),
                clock=SystemClock(),
                report=self.reported.append,
            )
            pace = PollIntervals(busy=timedelta(0), quiet=timedelta(0))
            ClusterReconciler(ports, ClusterPolicy(), pace).step()

    def ask(self, **changes: object) -> None:
        def changed(held):
            return Change(cluster=replace(held.cluster, **changes), members=held.members, answer={})

        self.records.change(NAME, changed, requested())

    def machines(self) -> list[str]:
        found = self.groups.machines(GROUP.key)
        return [one.id for one in found if one.state is MachineState.RUNNING]

    def status(self) -> str:
        return self.records.load(NAME).cluster.status


def requested() -> RecordedRequest:
    return RecordedRequest(at=SystemClock().now(), person="ada", operation="x", request={})


@pytest.fixture
def whole(cloud: Cloud, moto: str, tmp_path) -> Iterator[Whole]:
    subnets = cloud.ec2.describe_subnets()["Subnets"]
    settings = Ec2GroupSettings(
        subnets=(subnets[0]["SubnetId"],),
        image=cloud.image,
        aws=AwsSettings(region=REGION, endpoint_url=moto, read_timeout=timedelta(seconds=20)),
    )
    with contextlib.closing(Database(f"sqlite:///{tmp_path / 'api.db'}", SystemClock())) as one:
        yield Whole(cloud, DatabaseRecords(one), build(settings, SystemClock()), [])


def test_a_cluster_is_made_grows_loses_a_named_node_and_goes(whole) -> None:
    now = SystemClock().now()
    group = DesiredGroup(made_of=GROUP, target=2)
    wanted = DesiredCluster(
        name=NAME,
        uid="0123456789ab",
        created_at=now,
        status=ClusterStatus.CREATING,
        since=now,
        groups=(group,),
    )
    assert whole.groups.rejections(wanted) == []
    assert whole.records.create(wanted, (), {}, requested())
    whole.pass_time()
    assert whole.status() == ClusterStatus.IN_SERVICE
    first = whole.machines()
    assert len(first) == 2

    [group] = whole.records.load(NAME).cluster.groups
    whole.ask(groups=(replace(group, target=3),))
    whole.pass_time()
    assert set(first) < set(whole.machines())

    [group] = whole.records.load(NAME).cluster.groups
    whole.ask(groups=(replace(group, target=2, leaving=(first[0],)),))
    whole.pass_time()
    assert len(whole.machines()) == 2
    assert first[0] not in whole.machines()

    [group] = whole.records.load(NAME).cluster.groups
    going = replace(group, stage=GroupStage.LEAVING)
    whole.ask(groups=(going,), status=ClusterStatus.DELETING)
    whole.pass_time()
    assert whole.records.load(NAME) is None
    assert list(whole.groups.machines(GROUP.key)) == []
    assert whole.reported == []


def test_what_cannot_be_had_is_objected_to_without_asking_aws(whole) -> None:
    now = SystemClock().now()
    no_type = DesiredGroup(made_of=replace(GROUP, instance_type=""), target=1)
    going = replace(no_type, stage=GroupStage.LEAVING)
    wanted = DesiredCluster(
        name=NAME,
        uid="0123456789ab",
        created_at=now,
        status=ClusterStatus.CREATING,
        since=now,
        groups=(no_type, going, DesiredGroup(made_of=GROUP, target=1)),
    )

    rejected = ["instance group gpu: InstanceType is missing; set it"]
    assert whole.groups.rejections(wanted) == rejected


def test_the_newest_image_is_that_of_the_settings_a_template_or_a_parameter(whole, moto) -> None:
    given = whole.groups.newest_image(replace(GROUP, image="ami-00000001"))
    assert given == whole.cloud.image
    data = {"ImageId": "ami-00000002"}
    whole.cloud.ec2.create_launch_template(LaunchTemplateName="own", LaunchTemplateData=data)
    aws = AwsSettings(region=REGION, endpoint_url=moto)

    def newest(**settings: str) -> str:
        types = {GROUP.instance_type: Ec2TypeSettings(**settings)}
        return build(Ec2GroupSettings(types=types, aws=aws), SystemClock()).newest_image(GROUP)

    assert newest(launch_template="own") == "ami-00000002"
    whole.cloud.ec2.create_launch_template_version(
        LaunchTemplateName="own", LaunchTemplateData={"ImageId": "ami-00000003"}
    )
    assert newest(launch_template="own") == "ami-00000002"
    whole.cloud.ec2.modify_launch_template(LaunchTemplateName="own", DefaultVersion="2")
    assert newest(launch_template="own") == "ami-00000003"
    ssm = boto3.client("ssm", region_name=REGION, endpoint_url=moto)
    ssm.put_parameter(Name="/eks/image", Value="ami-00000004", Type="String")
    ssm.close()
    assert newest(image="resolve:ssm:/eks/image") == "ami-00000004"
    with pytest.raises(ProviderError, match="ParameterNotFound"):
        newest(image="resolve:ssm:/other")
