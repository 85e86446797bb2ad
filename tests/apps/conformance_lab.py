"""The API of a cluster of seven nodes with a past and of one that it creates; what may be asked.

No controller manages the first one. The second has real machines: processes on this one.
"""

import contextlib
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from botocore import xform_name
from model_cases import MODEL
from served_api import Served, Wire, serving, with_keys
from written_runs import NOW, WrittenRuns, machine, node

from holdfast.adapters.local.store import LocalStore
from holdfast.model.incidents import Incident

CLUSTER = "train"
STEADY_S = 60.0
NODES = tuple(range(1, 8))
CHECK = {"InstanceGroupName": "nodes", "DeepHealthChecks": ["InstanceStress"]}


@dataclass
class Lab:
    served: Served
    store: LocalStore
    wire: Wire
    home: Path

    @cached_property
    def boto3(self) -> Any:
        return self.served.client()

    @cached_property
    def careless(self) -> Any:
        """A client that does not look at what it sends."""
        return self.served.client(parameter_validation=False)

    def made(self, **more: Any) -> dict[str, Any]:
        """A request for a cluster without nodes, of a new name."""
        name = f"made-{uuid.uuid4()}"
        return {"ClusterName": name, "InstanceGroups": [a_group(0)], **more}

    @cached_property
    def created(self) -> str:
        """The name of a cluster with one node."""
        request = self.made(NodeProvisioningMode="Continuous", InstanceGroups=[a_group(1)])
        self.call("CreateCluster", **request)
        return self.steady(request["ClusterName"])

    def steady(self, name: str | None = None) -> str:
        """The name of a created cluster, once nothing happens to it."""
        name = name or self.created
        deadline = time.monotonic() + STEADY_S
        while time.monotonic() < deadline:
            found = self.call("DescribeCluster", ClusterName=name)
            if found["ClusterStatus"] == "InService" and all(
                one["CurrentCount"] == one["TargetCount"] for one in found["InstanceGroups"]
            ):
                return name
            time.sleep(0.05)
        raise AssertionError(f"it does not become steady: {found}")

    def arn(self) -> str:
        return self.call("DescribeCluster", ClusterName=self.created)["ClusterArn"]

    def node(self) -> str:
        """A node of the created cluster."""
        found = self.call("ListClusterNodes", ClusterName=self.steady())["ClusterNodeSummaries"]
        return found[0]["InstanceId"]

    def accepted(self) -> tuple[object, int]:
        """What of everything that was asked for was taken."""
        with contextlib.closing(sqlite3.connect(self.home / "api.db")) as database:
            [(count,)] = database.execute("SELECT count(*) FROM requests")
        return self.store.requests(), count

    def call(self, operation: str, client: Any = None, **request: Any) -> dict[str, Any]:
        client = client or self.boto3
        return getattr(client, xform_name(operation))(**request)


@contextlib.contextmanager
def a_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    home = tmp_path_factory.mktemp("home")
    runs = WrittenRuns(home, None)
    store = runs.add(CLUSTER, nodes=NODES)
    for number in NODES:
        store.put(incident(number))
    config = with_keys(tmp_path_factory.mktemp("api") / "api.toml")
    with (
        contextlib.closing(runs),
        serving(config, HOLDFAST_HOME=str(home)) as served,
        contextlib.closing(Wire(served)) as wire,
    ):
        yield Lab(served, store, wire, home)


def incident(number: int) -> Incident:
    at = NOW - timedelta(hours=number)
    return Incident(
        id=f"{node(number)}-20260102T030405.{number:03d}",
        node=node(number),
        provider_id=machine(number),
        reason="Xid74",
        remedy="reboot",
        message="NVLink",
        detected_at=at,
        quarantined_at=at,
        drained_at=at + timedelta(minutes=1),
        released_at=at + timedelta(minutes=9),
    )


def a_group(count: int) -> dict[str, Any]:
    return {
        "InstanceGroupName": "gpu",
        "InstanceCount": count,
        "InstanceType": "ml.g5.xlarge",
        "ExecutionRole": "arn:aws:iam::123456789012:role/nodes",
    }


def an_event(lab: Lab) -> str:
    return lab.call("ListClusterEvents", ClusterName=CLUSTER)["Events"][0]["EventId"]


RIGHT: dict[str, Callable[[Lab], dict[str, Any]]] = {
    "ListClusters": lambda lab: {"NameContains": lab.created, "SortBy": "NAME"},
    "DescribeCluster": lambda lab: {"ClusterName": CLUSTER},
    "ListClusterNodes": lambda lab: {"ClusterName": CLUSTER, "IncludeNodeLogicalIds": True},
    "DescribeClusterNode": lambda lab: {"ClusterName": CLUSTER, "NodeId": machine(1)},
    "ListClusterEvents": lambda lab: {"ClusterName": CLUSTER, "ResourceType": "Instance"},
    "DescribeClusterEvent": lambda lab: {"ClusterName": CLUSTER, "EventId": an_event(lab)},
    "BatchRebootClusterNodes": lambda lab: {"ClusterName": CLUSTER, "NodeIds": [machine(1)]},
    "BatchReplaceClusterNodes": lambda lab: {"ClusterName": CLUSTER, "NodeIds": [machine(2)]},
    "StartClusterHealthCheck": lambda lab: {
        "ClusterName": CLUSTER,
        "DeepHealthCheckConfigurations": [{**CHECK, "InstanceIds": [machine(3)]}],
    },
    "CreateCluster": lambda lab: lab.made(Tags=[{"Key": "team", "Value": "a b"}]),
    "UpdateCluster": lambda lab: {"ClusterName": lab.steady(), "NodeRecovery": "None"},
    "UpdateClusterSoftware": lambda lab: {"ClusterName": lab.steady()},
    "BatchAddClusterNodes": lambda lab: {
        "ClusterName": lab.steady(),
        "NodesToAdd": [{"InstanceGroupName": "gpu", "IncrementTargetCountBy": 1}],
    },
    "BatchDeleteClusterNodes": lambda lab: {"ClusterName": lab.steady(), "NodeIds": [lab.node()]},
    "DeleteCluster": lambda lab: {
        "ClusterName": lab.call("CreateCluster", **(made := lab.made()))
        and lab.steady(made["ClusterName"])
    },
    "AddTags": lambda lab: {"ResourceArn": lab.arn(), "Tags": [{"Key": "team", "Value": "b"}]},
    "ListTags": lambda lab: {"ResourceArn": lab.arn()},
    "DeleteTags": lambda lab: {"ResourceArn": lab.arn(), "TagKeys": ["none"]},
}


def has(member: str, operation: str) -> bool:
    """Whether the requests of an operation have a member."""
    return member in MODEL.operation_model(operation).input_shape.members
