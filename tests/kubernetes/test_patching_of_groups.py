"""Idle nodes get the image of a newer launch template, with machines of moto's EC2."""

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from aws_caller import AwsCaller
from controlled import api_of, install
from ec2_nodes import PODS, create_pod, node_of, served_on_ec2
from real_cluster import Cluster, until

from holdfast.model.names import PENDING_PATCH

OWN = '[ec2.types."ml.p5.48xlarge"]\nlaunch_template = "own"'


def group(at: datetime | None = None) -> list[str]:
    schedule = {} if at is None else {"PatchSchedule": {"NextPatchDate": at.isoformat()}}
    one = {
        "InstanceGroupName": "gpu",
        "InstanceCount": 2,
        "InstanceType": "ml.p5.48xlarge",
        "ExecutionRole": "arn:aws:iam::123456789012:role/nodes",
        "AutoPatchConfig": {"PatchingStrategy": "WhenIdle", **schedule},
    }
    return ["--cluster-name", "lab", "--instance-groups", json.dumps([one])]


def test_a_newer_image_reaches_nodes_when_they_are_idle(cluster: Cluster, tmp_path: Path) -> None:
    install(cluster)
    api = api_of(cluster)
    with served_on_ec2(cluster, tmp_path, OWN) as (served, machines):
        aws = AwsCaller(served)
        old = machines.put_image("own", 0)
        aws("create-cluster", *group())

        def shown(key: str = "ClusterStatus") -> Any:
            machines.settle()
            found = aws("describe-cluster", "--cluster-name", "lab")
            return found[key] if key in found else found["InstanceGroups"][0].get(key)

        until(lambda: shown() == "InService")
        assert set(machines.images().values()) == {old}
        until(lambda: shown("ImageVersionStatus") == "UpToDate")
        create_pod(api, "job")
        until(lambda: node_of(api, "job"))
        busy = node_of(api, "job")
        new = machines.put_image("own", 1)
        until(lambda: shown("ImageVersionStatus") == "UpdateAvailable")
        began = time.monotonic()
        assert shown() == "InService"
        call = timedelta(seconds=time.monotonic() - began)  # long on a busy machine
        assert set(machines.images().values()) == {old}

        aws("update-cluster", *group(datetime.now(UTC) + timedelta(seconds=3) + 2 * call))
        until(lambda: shown() and sorted(machines.images().values()) == sorted((old, new)))
        assert machines.images()[busy] == old
        taints = api.get(f"/api/v1/nodes/{busy}")["spec"]["taints"]
        assert PENDING_PATCH in [one["key"] for one in taints]
        assert shown() == "SystemUpdating"
        api.delete(f"{PODS}/job", grace=0)
        until(lambda: shown("SoftwareUpdateStatus") == "Succeeded")

        assert list(machines.images().values()) == [new, new]
        assert shown("CurrentImageId") == new
        assert busy not in machines.images()
    api.close()
