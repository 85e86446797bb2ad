"""Software updates and failures of groups whose machines are those of moto's EC2."""

import json
from pathlib import Path
from typing import Any

from aws_caller import AwsCaller
from controlled import install
from ec2_nodes import REGION, Machines, served_on_ec2
from real_cluster import Cluster, until

from tests.apps.served_api import Served

OWN = '[ec2.types."ml.p5.48xlarge"]\nlaunch_template = "own"'


class Group:
    """The cluster ``lab`` of one group, as the AWS CLI shows it."""

    def __init__(self, served: Served, machines: Machines) -> None:
        self.aws = AwsCaller(served)
        self.machines = machines
        self.broken = ""

    def put(self, operation: str, count: int) -> None:
        one = {
            "InstanceGroupName": "gpu",
            "InstanceCount": count,
            "InstanceType": "ml.p5.48xlarge",
            "ExecutionRole": "arn:aws:iam::123456789012:role/nodes",
        }
        groups = ["--cluster-name", "lab", "--instance-groups", json.dumps([one])]
        self.aws(operation, *groups)

    def shown(self) -> dict[str, Any]:
        self.machines.settle()
        found: dict[str, Any] = self.aws("describe-cluster", "--cluster-name", "lab")
        return found

    def status(self) -> str:
        self.machines.fail(self.broken)
        return str(self.shown()["ClusterStatus"])

    def group(self) -> dict[str, Any]:
        found: dict[str, Any] = self.shown()["InstanceGroups"][0]
        return found


def test_nodes_go_back_to_the_image_that_they_had(cluster: Cluster, tmp_path: Path) -> None:
    install(cluster)
    with served_on_ec2(cluster, tmp_path, OWN) as (served, machines):
        old = machines.put_image("own", 0)
        lab = Group(served, machines)
        lab.put("create-cluster", 2)
        until(lambda: lab.status() == "InService")
        assert lab.group()["CurrentImageId"] == old
        lab.broken = machines.put_image("own", 1)

        rolling = {"MaximumBatchSize": {"Type": "INSTANCE_COUNT", "Value": 1}}
        config = json.dumps({"RollingUpdatePolicy": rolling})
        lab.aws("update-cluster-software", "--cluster-name", "lab", "--deployment-config", config)
        until(lambda: lab.status() == "InService")

        group = lab.group()
        assert (group["SoftwareUpdateStatus"], group["CurrentImageId"]) == ("RollbackComplete", old)
        assert list(machines.images().values()) == [old, old]
        lab.put("update-cluster", 3)
        until(lambda: lab.status() == "InService")
        assert list(machines.images().values()) == [old, old, old]


def test_a_name_that_is_taken_fails_the_creation_with_a_remedy(
    cluster: Cluster, tmp_path: Path
) -> None:
    install(cluster)
    with served_on_ec2(cluster, tmp_path, OWN) as (served, machines):
        machines.put_image("own", 0)
        scaling = machines.client("autoscaling")
        template = {"LaunchTemplateName": "own", "Version": "$Latest"}
        scaling.create_auto_scaling_group(
            AutoScalingGroupName="lab/gpu",
            LaunchTemplate=template,
            MinSize=1,
            MaxSize=1,
            AvailabilityZones=[f"{REGION}a"],
        )
        lab = Group(served, machines)
        lab.put("create-cluster", 2)
        until(lambda: lab.shown()["ClusterStatus"] == "Failed")

        why = lab.shown()["FailureMessage"]
        assert "the Auto Scaling group lab/gpu is not Holdfast's" in why
        assert "choose another name for the cluster or the group" in why
        lab.aws("delete-cluster", "--cluster-name", "lab")
        until(lambda: "lab" not in str(lab.aws("list-clusters")))
        [foreign] = scaling.describe_auto_scaling_groups()["AutoScalingGroups"]
        assert (foreign["DesiredCapacity"], len(foreign["Instances"])) == (1, 1)
        scaling.close()
