"""The same with the machines of an Auto Scaling group, as moto plays it."""

import threading
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from controlled import installed  # noqa: F401 - a fixture
from machines import REPLACE_XID, Fleet, a_fleet
from moto.server import ThreadedMotoServer
from real_cluster import Cluster

from holdfast.model.names import HealthStatus, Reason

REGION = "us-west-2"
GROUP = "trn1"


class AutoScaling:
    """A group whose unhealthy instances are terminated and replaced, which moto leaves to us."""

    def __init__(self, url: str, fleet: Fleet) -> None:
        self.client = boto3.client("autoscaling", region_name=REGION, endpoint_url=url)
        ec2 = boto3.client("ec2", region_name=REGION, endpoint_url=url)
        image = ec2.describe_images()["Images"][0]["ImageId"]
        self.client.create_launch_configuration(
            LaunchConfigurationName="l", ImageId=image, InstanceType="t3.micro"
        )
        self.client.create_auto_scaling_group(
            AutoScalingGroupName=GROUP,
            LaunchConfigurationName="l",
            MinSize=2,
            MaxSize=3,
            AvailabilityZones=[f"{REGION}a"],
        )
        self.nodes: dict[str, str] = {}
        self._fleet = fleet
        self._over = threading.Event()
        self.thread = threading.Thread(target=self._work, daemon=True)

    def instances(self) -> dict[str, str]:
        """Id and health of each."""
        groups = self.client.describe_auto_scaling_groups(AutoScalingGroupNames=[GROUP])
        members = groups["AutoScalingGroups"][0]["Instances"]
        return {one["InstanceId"]: one["HealthStatus"].lower() for one in members}

    def _work(self) -> None:
        while not self._over.wait(0.2):
            for instance, health in self.instances().items():
                if health == "unhealthy":
                    self.client.terminate_instance_in_auto_scaling_group(
                        InstanceId=instance, ShouldDecrementDesiredCapacity=False
                    )
                    self._fleet.leave(self.nodes.pop(instance))
                elif instance not in self.nodes:
                    self.nodes[instance] = self._fleet.new_name()
                    self._fleet.join(self.nodes[instance], GROUP, instance)

    def stop(self) -> None:
        self._over.set()
        self.thread.join()


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
    }.items():
        monkeypatch.setenv(name, value)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def fleet(installed, cluster: Cluster, tmp_path: Path) -> Iterator[Fleet]:  # noqa: F811
    with a_fleet(cluster, tmp_path) as fleet:
        yield fleet


def test_auto_scaling_replaces_the_instance_of_a_faulty_node(fleet: Fleet, aws: str) -> None:
    group = AutoScaling(aws, fleet)
    first, second = group.instances()
    fleet.start("a", "b", group=GROUP, instances=(first, second))
    group.nodes = {first: "a", second: "b"}
    group.thread.start()
    fleet.control(
        settings="[nodes]\nmax_unavailable = 1",
        provider=f"""
            [provider]
            replace = "ec2-autoscaling"
            [provider.aws]
            region = "{REGION}"
            endpoint_url = "{aws}"
        """,
    )
    fleet.until_schedulable("a", "b")

    fleet.machines["a"].log(REPLACE_XID)
    incident = fleet.until_recovered("a")
    group.stop()

    assert incident.reason == Reason.XID_REPLACE
    assert incident.provider_id.endswith(first)
    assert incident.successor == "spare-1"
    assert first not in group.instances()
    assert set(group.instances()) == set(group.nodes)
    assert fleet.health("spare-1") == HealthStatus.SCHEDULABLE
