"""What docs/howto/make-clusters-on-ec2.md tells can be used as it stands."""

import json
import re
import tomllib
from pathlib import Path

from botocore.loaders import Loader

from holdfast.adapters.providers import ec2_machine_groups
from holdfast.adapters.providers.machine_group_settings import Ec2GroupSettings
from holdfast.apps.api.config import ApiConfig
from holdfast.kit.config import parse_table
from holdfast.model.names import MachineTag

GUIDE = (Path(__file__).parents[3] / "docs/howto/make-clusters-on-ec2.md").read_text("utf-8")
ALONG = {"ec2:RunInstances", "ec2:CreateTags", "autoscaling:CreateOrUpdateTags", "iam:PassRole"}
"""Permissions that go with the calls of the server."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


def actions(policy: str) -> set[str]:
    found = [one["Action"] for one in json.loads(policy)["Statement"]]
    return {name for one in found for name in ([one] if isinstance(one, str) else one)}


def test_the_configuration_can_be_used() -> None:
    [text] = blocks("toml")
    keys = {"keys": [{"access_key_id": "A" * 16, "secret_access_key": "b" * 16}]}

    config = parse_table({**tomllib.loads(text), **keys}, ApiConfig)

    assert config.ec2 is not None
    assert config.ec2.types["ml.p5.48xlarge"].launch_template == "eks-p5"
    for name in Ec2GroupSettings.__dataclass_fields__:
        assert f"`{name}" in GUIDE or f"types.{name}" in GUIDE or name == "aws"


def test_the_server_is_permitted_what_it_calls_and_no_more() -> None:
    text = Path(ec2_machine_groups.__file__).read_text(encoding="utf-8")
    called = set()
    for service in ("ec2", "autoscaling", "ssm"):
        for name in Loader().load_service_model(service, "service-2")["operations"]:
            spelled = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
            if f'"{spelled}"' in text:
                called.add(f"{service}:{name}")

    assert len(called) > 10
    assert actions(blocks("json")[-1]) == called | ALONG


def test_the_tags_are_spelled_as_they_are() -> None:
    assert {MachineTag.CLUSTER, MachineTag.SCRIPTS} <= set(re.findall(r"`(holdfast:\w+)`", GUIDE))
