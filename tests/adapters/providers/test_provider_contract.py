"""Providers keep the contract of ``NodeProvider``; the harness plays the platform around them."""

import ast
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from aws_front import REGION, Cloud, Front, activities

from holdfast.adapters.providers.settings import (
    AwsSettings,
    CommandSettings,
    PluginSettings,
    ProviderConfig,
    ProviderName,
    SageMakerSettings,
    WebhookSettings,
)
from holdfast.adapters.providers.table import ROWS, build_provider
from holdfast.model.nodes import NodeView
from holdfast.testing import (
    DurableRebootContract,
    DurableReplaceContract,
    IdentityContract,
    ProviderContract,
)
from tests.ports.builders import a_node
from tests.ports.fakes import FakeClock


class Platform:
    """A cluster of one node; the first machine that its owner adds is that node's successor."""

    def __init__(self, config: ProviderConfig) -> None:
        self._config = config
        self.stranger = ""
        self.provider = self.reopened()
        self.node = "node-1"

    def reopened(self) -> Any:
        return build_provider(self._config, FakeClock())

    def nodes(self) -> tuple[NodeView, ...]:
        first, *others = self.machines()
        boot_id = f"boot-{self.reboots()}"
        node = a_node(provider_id=first, boot_id=boot_id, addresses=self.addresses(first))
        names = [f"node-{number}" for number in range(2, 2 + len(others))]
        successors = [
            replace(node, name=name, provider_id=one, replaces=self.node)
            for name, one in zip(names, others, strict=True)
        ]
        return (node, *successors)

    def misled(self) -> NodeView:
        return replace(self.nodes()[0], provider_id=self.stranger)

    def machines(self) -> list[str]:
        """Every machine there ever was, oldest first."""
        raise NotImplementedError

    def addresses(self, machine: str) -> tuple[str, ...]:
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
        (self.stranger,) = cloud.group()
        self._machines = cloud.group()

    def addresses(self, machine: str) -> tuple[str, ...]:
        return self._cloud.addresses(machine)

    def is_untouched(self) -> bool:
        answer = self._cloud.autoscaling.describe_auto_scaling_instances(
            InstanceIds=[self.stranger]
        )
        (found,) = answer["AutoScalingInstances"]
        return found["HealthStatus"].lower() == "healthy" and not self.reboots()

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
        self.stranger = "i-000000000000000ff"
        self._replacing: set[str] = set()
        self._gone: set[str] = set()
        front.batch = self.take

    def take(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if operation == "DescribeClusterNode":
            (address,) = self.addresses(arguments["NodeId"])
            return {"NodeDetails": {"PrivatePrimaryIp": address}}
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

    def addresses(self, machine: str) -> tuple[str, ...]:
        return (f"10.0.0.{int(machine[-2:], 16)}",)

    def is_untouched(self) -> bool:
        return self.stranger not in self._gone and not self.reboots()

    def reboots(self) -> int:
        return self._front.made.count("BatchRebootClusterNodes")

    def settle(self) -> None:
        for instance in sorted(self._replacing):
            self._machines.append(f"i-{len(self._machines):017x}")
            self._gone.add(instance)
        self._replacing.clear()


class Ec2(Platform):
    """Instances that somebody launches anew when one was terminated."""

    def __init__(self, cloud: Cloud, front: Front) -> None:
        aws = AwsSettings(region=REGION, endpoint_url=front.url)
        super().__init__(ProviderConfig(replace=ProviderName.EC2, aws=aws))
        self._cloud, self._front = cloud, front
        self._machines = [cloud.instance()]
        self.stranger = cloud.instance()

    def addresses(self, machine: str) -> tuple[str, ...]:
        return self._cloud.addresses(machine)

    def is_untouched(self) -> bool:
        return self._cloud.state(self.stranger) == "running" and not self.reboots()

    def machines(self) -> list[str]:
        return self._machines

    def reboots(self) -> int:
        return self._front.made.count("RebootInstances")

    def settle(self) -> None:
        if self._cloud.state(self._machines[-1]) == "terminated":
            self._machines.append(self._cloud.instance())


SCRIPT = """
import os, pathlib, sys
machines = pathlib.Path(sys.argv[1])
name = os.environ["HOLDFAST_PROVIDER_ID"]
if name == "m-2" and "10.0.0.2" not in os.environ["HOLDFAST_ADDRESSES"].split():
    sys.exit("m-2 is 10.0.0.2")
if os.environ["HOLDFAST_ACTION"] == "reboot":
    (machines / ("reboot-" + os.environ["HOLDFAST_TOKEN"].replace("/", "-"))).touch()
else:
    (machines / ("after-" + name)).touch()  # which changes nothing if it is there
"""


class Site(Platform):
    """An owner that keeps what was ordered in files, named by the token or by the machine."""

    def __init__(self, path: Path, config: ProviderConfig) -> None:
        super().__init__(config)
        self._path = path
        self.stranger = "m-2"

    def addresses(self, machine: str) -> tuple[str, ...]:
        return ("10.0.0.1",)

    def is_untouched(self) -> bool:
        return "after-m-2" not in self.machines() and not self.reboots()

    def machines(self) -> list[str]:
        return ["m-1", *sorted(one.name for one in self._path.glob("after-*"))]

    def reboots(self) -> int:
        return len([*self._path.glob("reboot-*")])


def by_command(path: Path) -> Site:
    """A command that takes orders as the guide tells."""
    argv = (sys.executable, "-c", SCRIPT, str(path))
    command = CommandSettings(reboot=argv, replace=argv)
    return Site(path, ProviderConfig(replace=ProviderName.COMMAND, command=command))


class Orders(BaseHTTPRequestHandler):
    """A receiver of webhooks that takes orders as the guide tells."""

    def do_POST(self) -> None:
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if order["provider_id"] == "m-2" and "10.0.0.2" not in order["addresses"]:
            self.send_error(403, "m-2 is 10.0.0.2")
        elif order["action"] == "reboot":
            self.take(f"reboot-{order['token'].replace('/', '-')}")
        else:
            self.take(f"after-{order['provider_id']}")

    def take(self, name: str) -> None:
        path = self.server.folder / name
        self.send_response(409 if path.exists() else 202)
        self.end_headers()
        path.touch()

    def log_message(self, *_: object) -> None:
        pass


PLUGIN = """
import pathlib
from holdfast import ProviderError
class Files:
    def __init__(self, folder): self.folder = pathlib.Path(folder)
    def reboot(self, node, token): self.take(node, "reboot-" + token.replace("/", "-"))
    def replace(self, node, token): self.take(node, "after-" + node.provider_id)
    def take(self, node, name):
        if node.provider_id == "m-2" and "10.0.0.2" not in node.addresses:
            raise ProviderError("m-2 is 10.0.0.2")
        (self.folder / name).touch()
def build(settings): return Files(settings["folder"])
"""


class TestEc2(ProviderContract, IdentityContract, DurableReplaceContract):
    provider = ProviderName.EC2

    @pytest.fixture
    def harness(self, cloud: Cloud, front: Front) -> Ec2:
        return Ec2(cloud, front)


class TestAutoScaling(ProviderContract, IdentityContract, DurableReplaceContract):
    provider = ProviderName.EC2_AUTOSCALING

    @pytest.fixture
    def harness(self, cloud: Cloud, front: Front) -> AutoScaling:
        return AutoScaling(cloud, front)


class TestHyperPod(ProviderContract, IdentityContract, DurableReplaceContract):
    provider = ProviderName.SAGEMAKER

    @pytest.fixture
    def harness(self, front: Front) -> HyperPod:
        return HyperPod(front)


class TestCommand(
    ProviderContract, IdentityContract, DurableReplaceContract, DurableRebootContract
):
    provider = ProviderName.COMMAND

    @pytest.fixture
    def harness(self, tmp_path: Path) -> Site:
        return by_command(tmp_path)


class TestWebhook(
    ProviderContract, IdentityContract, DurableReplaceContract, DurableRebootContract
):
    provider = ProviderName.WEBHOOK

    @pytest.fixture
    def harness(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
        monkeypatch.setenv("HOLDFAST_WEBHOOK_SECRET", "a secret of some length")
        with ThreadingHTTPServer(("127.0.0.1", 0), Orders) as server:
            server.folder = tmp_path
            Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            webhook = WebhookSettings(url=f"http://127.0.0.1:{server.server_port}/")
            yield Site(tmp_path, ProviderConfig(replace=ProviderName.WEBHOOK, webhook=webhook))
            server.shutdown()


class TestPlugin(ProviderContract, IdentityContract, DurableReplaceContract, DurableRebootContract):
    provider = ProviderName.PLUGIN

    @pytest.fixture
    def harness(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
        metadata = tmp_path / "site/acme_orders-1.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "entry_points.txt").write_text("[holdfast.providers]\nacme = acme_orders:build")
        (tmp_path / "site/acme_orders.py").write_text(PLUGIN)
        monkeypatch.syspath_prepend(tmp_path / "site")
        plugin = PluginSettings(name="acme", settings={"folder": str(tmp_path)})
        return Site(tmp_path, ProviderConfig(replace=ProviderName.PLUGIN, plugin=plugin))


ON_A_REAL_SLURM = {ProviderName.SLURM_POWER, ProviderName.SLURM_REBOOT}
"""Their laws are those of ``tests/slurm/test_slurm_providers.py``: a harness would have to do as
slurmctld does. They name the node, and no machine, so no provider ID can mislead them."""


def contracts_of(name: ProviderName) -> set[str]:
    """The contracts of the classes in all tests whose attribute ``provider`` is the member."""
    found: set[str] = set()
    for path in Path(__file__).parents[2].rglob("test_*providers.py"):
        found |= _contracts(path, name)
    return found | _contracts(Path(__file__), name)


def _contracts(path: Path, name: ProviderName) -> set[str]:
    classes = [one for one in ast.parse(path.read_text()).body if isinstance(one, ast.ClassDef)]
    return {
        ast.unparse(base)
        for one in classes
        if f"provider = ProviderName.{name.name}" in map(ast.unparse, one.body)
        for base in one.bases
    }


PROVIDERS = sorted(set(ProviderName) - {ProviderName.NONE})


@pytest.mark.parametrize("name", PROVIDERS)
def test_every_provider_has_a_module_and_a_row(name: ProviderName) -> None:
    module = f"holdfast.adapters.providers.{name.key}"

    assert find_spec(module), f"{name}: create the module {module} with build(config)"
    assert name in ROWS, f"{name}: add a row to ROWS in adapters/providers/table.py"


@pytest.mark.parametrize("name", sorted(set(PROVIDERS) - ON_A_REAL_SLURM))
def test_every_provider_keeps_the_contract_of_what_it_can_do(name: ProviderName) -> None:
    expected = (
        {"ProviderContract", "IdentityContract", "DurableReplaceContract"}
        if name.can_reboot
        else {"ReplaceContract", "ReplacedIdentityContract", "DurableReplaceContract"}
    )
    is_of_aws = name in ROWS and ROWS[name].extra == "aws"
    if name.can_reboot and not is_of_aws:  # reboot calls of AWS take no token
        expected |= {"DurableRebootContract"}

    missing = sorted(expected - contracts_of(name))

    assert missing == [], (
        f"{name}: let a test class with provider = ProviderName.{name.name} extend these contracts"
    )
