"""Providers keep the contract of ``NodeProvider``; the harness plays the platform around them."""

import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aws_front import REGION, Cloud, Front, activities

from holdfast.adapters.providers.settings import (
    AwsSettings,
    CommandSettings,
    ProviderConfig,
    ProviderName,
    SageMakerSettings,
)
from holdfast.adapters.providers.table import build_provider
from holdfast.model.nodes import ClusterView, Pool
from holdfast.testing.builders import a_node
from holdfast.testing.contracts import (
    DurableReplaceContract,
    ProviderContract,
)
from holdfast.testing.fakes import FakeClock


class Platform:
    """A cluster of one node; the first machine that its owner adds is that node's successor."""

    def __init__(self, config: ProviderConfig) -> None:
        self._config = config
        self.provider = self.reopened()
        self.cluster = self
        self.node = "node-1"

    def reopened(self) -> Any:
        return build_provider(self._config, FakeClock())

    def snapshot(self, peer_pools: Collection[Pool] = ()) -> ClusterView:
        first, *others = self.machines()
        node = a_node(provider_id=first, boot_id=f"boot-{self.reboots()}")
        names = [f"node-{number}" for number in range(2, 2 + len(others))]
        successors = [
            replace(node, name=name, provider_id=one, replaces=self.node)
            for name, one in zip(names, others, strict=True)
        ]
        return ClusterView(nodes=(node, *successors))

    def machines(self) -> list[str]:
        """Every machine there ever was, oldest first."""
        raise NotImplementedError

    def reboots(self) -> int:
        raise NotImplementedError

    def settle(self) -> None:
        pass


class AutoScaling(Platform):
    def __init__(self, cloud: Cloud, front: Front) -> None:
        aws = AwsSettings(region=REGION, endpoint_url=front.url)
        super().__init__(ProviderConfig(replace=ProviderName.EC2_AUTOSCALING, aws=aws))
        front.always["DescribeScalingActivities"] = activities()
        self._cloud, self._front = cloud, front
        self._machines = cloud.group()

    def machines(self) -> list[str]:
        new = set(self._cloud.members()) - set(self._machines)
        self._machines += sorted(new)
        return self._machines

    def reboots(self) -> int:
        return self._front.made.count("RebootInstances")

    def settle(self) -> None:
        self._cloud.replace_unhealthy()


class HyperPod(Platform):
    def __init__(self, front: Front) -> None:
        config = ProviderConfig(
            replace=ProviderName.SAGEMAKER,
            aws=AwsSettings(region=REGION, endpoint_url=front.url),
            sagemaker=SageMakerSettings(cluster="c"),
        )
        super().__init__(config)
        self._front = front
        self._machines = ["i-00000000000000000"]
        self._replacing: set[str] = set()
        self._gone: set[str] = set()
        front.batch = self.take

    def take(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        (instance,) = arguments["NodeIds"]
        failure = {"NodeId": instance, "ErrorCode": "InstanceIdNotFound", "Message": "gone"}
        if instance in self._replacing:
            failure |= {"ErrorCode": "InstanceIdInUse", "Message": "active replacement operation"}
        elif instance not in self._gone:
            if operation == "BatchReplaceClusterNodes":
                self._replacing.add(instance)
            return {"Successful": [instance]}
        return {"Failed": [failure]}

    def machines(self) -> list[str]:
        return self._machines

    def reboots(self) -> int:
        return self._front.made.count("BatchRebootClusterNodes")

    def settle(self) -> None:
        for instance in sorted(self._replacing):
            self._machines.append(f"i-{len(self._machines):017x}")
            self._gone.add(instance)
        self._replacing.clear()


SCRIPT = """
import os, pathlib, sys
machines = pathlib.Path(sys.argv[1])
name = os.environ["HOLDFAST_PROVIDER_ID"]
if os.environ["HOLDFAST_ACTION"] == "reboot":
    with open(machines / "reboots", "a") as log:
        print(name, file=log)
else:
    (machines / ("after-" + name)).touch()  # which changes nothing if it is there
"""


class Site(Platform):
    """A command that takes orders as the guide tells."""

    def __init__(self, path: Path) -> None:
        argv = (sys.executable, "-c", SCRIPT, str(path))
        command = CommandSettings(reboot=argv, replace=argv)
        super().__init__(ProviderConfig(replace=ProviderName.COMMAND, command=command))
        self._path = path

    def machines(self) -> list[str]:
        return ["m-1", *sorted(one.name for one in self._path.glob("after-*"))]

    def reboots(self) -> int:
        log = self._path / "reboots"
        return len(log.read_text().splitlines()) if log.exists() else 0


class TestAutoScaling(ProviderContract, DurableReplaceContract):
    @pytest.fixture
    def harness(self, cloud: Cloud, front: Front) -> AutoScaling:
        return AutoScaling(cloud, front)


class TestHyperPod(ProviderContract, DurableReplaceContract):
    @pytest.fixture
    def harness(self, front: Front) -> HyperPod:
        return HyperPod(front)


class TestCommand(ProviderContract, DurableReplaceContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Site:
        return Site(tmp_path)
