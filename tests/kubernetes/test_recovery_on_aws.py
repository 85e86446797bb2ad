"""The same with the machines of an Auto Scaling group, as moto plays it."""

import threading
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from controlled import installed  # noqa: F401 - a fixture
from machines import REPLACE_XID, Fleet, a_fleet, stays
from moto.server import ThreadedMotoServer
from real_cluster import Cluster, until

from holdfast.model.names import Condition, HealthStatus, Reason

REGION = "us-west-2"
GROUP = "trn1"
NEURON_LINE = (
    "NEURON_HW_ERR=SRAM_UNCORRECTABLE_ERROR instance-id=i-0592464924bd45322 "
    "hostname=ip-172-31-61-252 nd-id=0 nc-id=0 serial-num=19fcda00f5ff6eb9 "
    "action=TERMINATE_INSTANCE"
)


class AutoScaling:
    """A group whose unhealthy instances are terminated and replaced, which moto leaves to us."""

    def __init__(self, url: str, fleet: Fleet) -> None:
        self.client = boto3.client("autoscaling", region_name=REGION, endpoint_url=url)
        self.ec2 = boto3.client("ec2", region_name=REGION, endpoint_url=url)
        image = self.ec2.describe_images()["Images"][0]["ImageId"]
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

    def report_address(self, node: str, instance: str) -> None:
        """Give a node the address of its instance, as its kubelet does."""
        found = self.ec2.describe_instances(InstanceIds=[instance])
        address = found["Reservations"][0]["Instances"][0]["PrivateIpAddress"]
        status = {"addresses": [{"type": "InternalIP", "address": address}]}
        self._fleet.api.patch(f"/api/v1/nodes/{node}/status", {"status": status})

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
                    self.report_address(self.nodes[instance], instance)

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


@pytest.fixture
def group(fleet: Fleet, aws: str) -> Iterator[AutoScaling]:
    """Two instances, whose nodes are ``a`` and ``b``."""
    group = AutoScaling(aws, fleet)
    instances = tuple(group.instances())
    fleet.start("a", "b", group=GROUP, instances=instances)
    group.nodes = dict(zip(instances, "ab", strict=True))
    for instance, node in group.nodes.items():
        group.report_address(node, instance)
    group.thread.start()
    yield group
    group.stop()


def control(fleet: Fleet, aws: str, **environment: str) -> None:
    provider = f"""
        [provider]
        replace = "ec2-autoscaling"
        [provider.aws]
        region = "{REGION}"
        endpoint_url = "{aws}"
    """
    fleet.control(
        settings="[nodes]\nmax_unavailable = 1", provider=provider, environment=environment
    )
    fleet.until_schedulable("a", "b")


def test_auto_scaling_replaces_the_instance_of_a_faulty_node(
    fleet: Fleet, group: AutoScaling, aws: str
) -> None:
    first, _ = group.nodes
    control(fleet, aws)

    fleet.machines["a"].log(REPLACE_XID)
    incident = fleet.until_recovered("a")

    assert incident.reason == Reason.XID_REPLACE
    assert incident.provider_id.endswith(first)
    assert incident.successor == "spare-1"
    assert first not in group.instances()
    assert set(group.instances()) == set(group.nodes)
    until(lambda: fleet.health("spare-1") == HealthStatus.SCHEDULABLE)


def test_the_neuron_guide_with_recovery_replaces_the_instance(
    fleet: Fleet, group: AutoScaling, aws: str
) -> None:
    first, second = group.nodes
    control(fleet, aws, ENABLE_RECOVERY="true")

    fleet.machines["a"].log(NEURON_LINE)
    incident = fleet.until_recovered("a")

    assert incident.reason == Reason.NEURON_SRAM
    assert first not in group.instances()
    assert group.instances()[second] == "healthy"


def test_the_neuron_guide_without_recovery_marks_the_node_and_no_more(
    fleet: Fleet, group: AutoScaling, aws: str
) -> None:
    control(fleet, aws, ENABLE_RECOVERY="false")

    fleet.machines["a"].log(NEURON_LINE)
    until(lambda: fleet.phase("a") == "quarantined")
    until(lambda: condition(fleet, "a") == ("True", Reason.NEURON_SRAM))

    assert fleet.health("a") == HealthStatus.PENDING_REPLACEMENT
    assert fleet.is_marked("a")
    until(lambda: condition(fleet, "b") == ("False", "NeuronHasNoError"))
    stays(lambda: set(group.instances().values()) == {"healthy"}, 2)


def condition(fleet: Fleet, name: str) -> tuple[str, str] | None:
    """Status and reason of ``NeuronHealth``."""
    node = fleet.node(name)
    found = [] if node is None else node["status"]["conditions"]
    return next(
        ((one["status"], one["reason"]) for one in found if one["type"] == Condition.NEURON), None
    )
