"""What docs/howto/choose-a-provider.md tells can be used as it stands."""

import hashlib
import hmac
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from aws_front import REGION, Cloud, Front, activities

from holdfast.adapters.providers.settings import AwsSettings, ProviderConfig, ProviderName
from holdfast.adapters.providers.table import build_provider
from holdfast.kit.config import parse_table
from holdfast.kit.webhooks import signature
from tests.ports.builders import NOW, a_node
from tests.ports.fakes import FakeClock

GUIDE = (Path(__file__).parents[3] / "docs/howto/choose-a-provider.md").read_text("utf-8")

SERVICES = {"Terminate": "ec2", "Reboot": "ec2", "DescribeInstances": "ec2", "Batch": "sagemaker"}


def blocks(language: str, text: str = GUIDE) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def permitted(section: str) -> set[str]:
    """The actions of the policy in a section of the guide."""
    (policy,) = blocks("json", GUIDE.split(f"\n## {section}\n")[1].split("\n## ")[0])
    actions: set[str] = set()
    for statement in json.loads(policy)["Statement"]:
        reported = statement["Action"]
        actions |= {reported} if isinstance(reported, str) else set(reported)
    return actions


def called(front: Front) -> set[str]:
    """The actions that the calls needed."""
    found = set()
    for operation in front.made:
        service = (name for start, name in SERVICES.items() if operation.startswith(start))
        found.add(f"{next(service, 'autoscaling')}:{operation}")
    return found


def orders(front: Front, name: ProviderName, **settings: Any) -> Any:
    aws = AwsSettings(region=REGION, endpoint_url=front.url)
    return build_provider(ProviderConfig(replace=name, aws=aws, **settings), FakeClock())


@pytest.mark.parametrize("block", blocks("toml"))
def test_every_example_is_a_configuration(block: str) -> None:
    parse_table(tomllib.loads(block)["provider"], ProviderConfig)


@pytest.mark.parametrize("name", sorted(set(ProviderName) - {ProviderName.NONE}))
def test_every_provider_is_in_the_guide(name: ProviderName) -> None:
    is_listed = f"| `{name}` |" in GUIDE
    assert is_listed, f"{name}: add a row to the table in docs/howto/choose-a-provider.md"


def test_the_policy_for_auto_scaling_is_what_it_needs_and_no_more(
    cloud: Cloud, front: Front
) -> None:
    front.always["DescribeScalingActivities"] = activities()
    (faulty,) = cloud.group()
    node = a_node(provider_id=faulty, addresses=cloud.addresses(faulty))
    provider = orders(front, ProviderName.EC2_AUTOSCALING)

    provider.reboot(node, "t/1")
    provider.replace(node, "t/2")
    cloud.terminate(faulty)
    provider.replace(node, "t/3")
    front.made.append("DescribeScalingActivities")  # moto takes the group's tag from what has left

    assert called(front) == permitted("EC2 Auto Scaling")


def test_the_policy_for_ec2_is_what_it_needs_and_no_more(cloud: Cloud, front: Front) -> None:
    instance = cloud.instance()
    node = a_node(provider_id=instance, addresses=cloud.addresses(instance))
    provider = orders(front, ProviderName.EC2)

    provider.reboot(node, "t/1")
    provider.replace(node, "t/2")

    assert called(front) == permitted("EC2")


def test_the_check_of_a_signature_takes_ours_and_no_other() -> None:
    (code,) = blocks("python")
    names: dict[str, Any] = {"hmac": hmac, "hashlib": hashlib}
    exec(code, names)  # noqa: S102 - it is ours
    is_genuine = names["is_genuine"]
    header, now = signature(b"secret", NOW, b"body"), NOW.timestamp()

    assert is_genuine(b"secret", header, b"body", now)
    assert not is_genuine(b"other", header, b"body", now)
    assert not is_genuine(b"secret", header, b"another body", now)
    assert not is_genuine(b"secret", header, b"body", now + 600)
