"""A server of the API whose machines are those of moto's EC2, and their Kubernetes nodes."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
from controlled import api_of
from moto.server import ThreadedMotoServer
from real_cluster import Cluster

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.kit.serial import to_plain
from holdfast.model.names import RECORD, REQUEST, MachineTag
from holdfast.model.nodes import NodeRecord, Phase
from tests.apps.served_api import Served, serving, with_keys

REGION = "us-west-2"
GPU = "nvidia.com/gpu"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/dev/null",
}
PODS = "/api/v1/namespaces/default/pods"


def create_pod(api: Api, name: str, gpus: int = 8, **spec: Any) -> None:
    container = {
        "name": "main",
        "image": "example.com/train",
        "resources": {"limits": {GPU: str(gpus)}, "requests": {"cpu": "500m", "memory": "1Gi"}},
    }
    body = {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}
    api.create(PODS, body)


def join(cluster: Cluster, name: str, machine: str, **more: Any) -> None:
    record = NodeRecord(phase=Phase.SCHEDULABLE, phase_since=datetime.now(UTC))
    cluster.nodes.join(
        name,
        provider_id=f"aws:///{REGION}a/{machine}",
        annotations={RECORD: json.dumps(to_plain(record))},
        **more,
    )


def node_of(api: Api, pod: str) -> str:
    return str(api.get(f"{PODS}/{pod}")["spec"].get("nodeName") or "")


def node_name(instance: dict[str, Any]) -> str:
    return f"gpu-{instance['InstanceId'].removeprefix('i-')}"


def running_instances(ec2: Any) -> list[dict[str, Any]]:
    filters = [{"Name": "instance-state-name", "Values": ["running"]}]
    found = ec2.describe_instances(Filters=filters)["Reservations"]
    return [one for each in found for one in each["Instances"]]


@dataclass
class Machines:
    """EC2, whose running instances join the cluster and whose terminated ones leave it.

    The names of the nodes are not the private DNS names of the instances, as with kubelets whose
    host name is set by the image.
    """

    cluster: Cluster
    url: str
    joined: dict[str, str] = field(default_factory=dict)
    """Ids of the machines by the names of their nodes."""

    def client(self, service: str = "ec2") -> Any:
        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )

    def settle(self) -> set[str]:
        """The nodes of the machines that run now."""
        ec2 = self.client()
        found = running_instances(ec2)
        ec2.close()
        running = {node_name(one): one["InstanceId"] for one in found}
        self.replace_requested(running)
        for one in sorted(running.keys() - self.joined.keys()):
            join(self.cluster, one, running[one])
        for one in self.joined.keys() - running.keys():
            self.cluster.nodes.leave(one)
        self.joined = running
        return set(running)

    def images(self) -> dict[str, str]:
        """The image of each node."""
        ec2 = self.client()
        found = running_instances(ec2)
        ec2.close()
        return {node_name(one): one["ImageId"] for one in found}

    def fail(self, image: str) -> None:
        """Machines with an image report that they cannot run, as the first boot script does."""
        ec2 = self.client()
        ids = [one["InstanceId"] for one in running_instances(ec2) if one["ImageId"] == image]
        if ids:
            tag = {"Key": MachineTag.SCRIPTS, "Value": "failed: no driver"}
            ec2.create_tags(Resources=ids, Tags=[tag])
        ec2.close()

    def put_image(self, template: str, number: int) -> str:
        """Release an image in the default version of a launch template; 0 is the first one."""
        ec2 = self.client()
        image = str(ec2.describe_images()["Images"][number]["ImageId"])
        data = {"LaunchTemplateName": template, "LaunchTemplateData": {"ImageId": image}}
        if number == 0:
            ec2.create_launch_template(**data)
        else:
            ec2.create_launch_template_version(**data)
            ec2.modify_launch_template(LaunchTemplateName=template, DefaultVersion=str(number + 1))
        ec2.close()
        return image

    def replace_requested(self, running: dict[str, str]) -> None:
        """Replace the machines of nodes as the controller would, with its provider for EC2."""
        api = api_of(self.cluster)
        named = {
            one["metadata"]["name"]
            for one in api.list("/api/v1/nodes")
            if REQUEST in (one["metadata"].get("annotations") or {})
        }
        api.close()
        scaling = self.client("autoscaling")
        for one in named & running.keys():
            scaling.terminate_instance_in_auto_scaling_group(
                InstanceId=running[one], ShouldDecrementDesiredCapacity=False
            )
        scaling.close()


@contextmanager
def served_on_ec2(
    cluster: Cluster, home: Path, *settings: str
) -> Iterator[tuple[Served, Machines]]:
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    machines = Machines(cluster, f"http://{host}:{port}")
    # All servers of moto in a process share their state.
    reset = urllib.request.Request(f"{machines.url}/moto-api/reset", method="POST")  # noqa: S310
    urllib.request.urlopen(reset, timeout=60).close()  # noqa: S310
    ec2 = machines.client()
    config = f"""
scale_down_after = "5s"
[ec2]
subnets = ["{ec2.describe_subnets()["Subnets"][0]["SubnetId"]}"]
image = "{ec2.describe_images()["Images"][0]["ImageId"]}"
[ec2.aws]
region = "{REGION}"
endpoint_url = "{machines.url}"
"""
    ec2.close()
    more = (config, *settings)
    where = ["--platform", "kubernetes", "--kubeconfig", str(cluster.plane.kubeconfig())]
    try:
        with serving(with_keys(home / "api.toml", *more), *where, **CREDENTIALS) as served:
            yield served, machines
    finally:
        moto.stop()
