from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.adapters.providers.settings import (
    AwsSettings,
    ProviderConfig,
    ProviderName,
    WebhookSettings,
)
from holdfast.kit.config import parse_table
from holdfast.model.errors import ConfigError


def problems(table: dict[str, object]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_table(table, ProviderConfig)
    return list(caught.value.problems)


def test_without_a_word_nothing_is_repaired_by_itself() -> None:
    config = parse_table({}, ProviderConfig)

    assert (config.replace, config.rebooter) == (ProviderName.NONE, ProviderName.NONE)


@pytest.mark.parametrize("name", sorted(set(ProviderName) - {ProviderName.SLURM_REBOOT}))
def test_who_replaces_also_reboots_if_it_can(name: ProviderName) -> None:
    table = {
        "replace": str(name),
        "sagemaker": {"cluster": "c"},
        "webhook": {"url": "https://example.org"},
        "command": {"reboot": ["r"], "replace": ["r"]},
        "plugin": {"name": "acme"},
    }

    config = parse_table(table, ProviderConfig)

    unable = (
        ProviderName.KARPENTER, ProviderName.CLUSTER_API, ProviderName.SLURM_POWER,
        ProviderName.NONE,
    )  # fmt: skip
    assert config.rebooter is (ProviderName.NONE if name in unable else name)


def test_reboots_may_be_left_to_people() -> None:
    config = parse_table({"replace": "ec2", "reboot": "none"}, ProviderConfig)

    assert config.rebooter is ProviderName.NONE


def test_one_may_reboot_and_another_replace() -> None:
    config = parse_table({"replace": "karpenter", "reboot": "ec2"}, ProviderConfig)

    assert (config.replace, config.rebooter) == (ProviderName.KARPENTER, ProviderName.EC2)


def test_all_mistakes_are_reported_at_once() -> None:
    reported = problems(
        {
            "replace": "ec2-autoscale",
            "aws": {"connect_timeout": "0s", "regoin": "x"},
            "sagemaker": {},
            "webhook": {"url": "http://example.org/x", "timeout": "0s"},
            "command": {"replace": ["x", "{nod}", "{token}"], "timeout": "soon"},
        }
    )

    assert len(reported) == 5
    text = "\n".join(reported)
    assert "replace: expected one of" in text
    assert "aws.regoin: unknown key (did you mean aws.region?)" in text
    assert "sagemaker.cluster: missing" in text
    assert "webhook: timeout must be longer than 0s, got 0s; url: expected an https" in text
    assert "command.timeout" in text


def test_unknown_placeholders_are_reported_with_those_there_are() -> None:
    (reported,) = problems({"command": {"reboot": ["{nod}"], "replace": ["{x} {token}"]}})

    assert "unknown placeholder {nod}" in reported
    assert "unknown placeholder {x}" in reported
    assert (
        "expected one of {action}, {node}, {provider_id}, {addresses}, {token}, {reason}"
        in reported
    )


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"reboot": "karpenter"}, '"karpenter" cannot reboot machines; these can: "ec2"'),
        ({"reboot": "cluster-api"}, '"cluster-api" cannot reboot machines'),
        ({"replace": "sagemaker"}, "sagemaker: missing, expected a table with cluster"),
        ({"reboot": "sagemaker"}, "sagemaker: missing"),
        ({"replace": "webhook"}, "webhook: missing, expected a table with url"),
        ({"replace": "command"}, "command.replace: missing"),
        ({"replace": "command"}, "command.reboot: missing"),
        ({"reboot": "command"}, "command.reboot: missing"),
        ({"sagemaker": {"cluster": "a/b"}}, "'a/b' is not the name or ARN of a HyperPod cluster"),
        ({"cluster_api": {"context": "c"}}, "cluster_api: context: requires kubeconfig"),
        ({"aws": {"read_timeout": "0s"}}, "aws: read_timeout must be longer than 0s"),
    ],
)
def test_what_a_choice_needs_is_asked_for(table: dict[str, object], expected: str) -> None:
    assert expected in "\n".join(problems(table))


def test_a_command_for_replacements_alone_is_enough_where_another_reboots() -> None:
    table = {"replace": "command", "reboot": "ec2", "command": {"replace": ["r"]}}

    assert parse_table(table, ProviderConfig).command.reboot == ()


@pytest.mark.parametrize(
    "url",
    [
        "https://machines.example.org/orders?site=1",
        "https://10.0.0.1:8443",
        "http://127.0.0.1:8080/x",
        "http://127.3.2.1/x",
        "http://[::1]:80/",
        "http://localhost:1",
    ],
)
def test_orders_go_over_tls_or_stay_on_the_machine(url: str) -> None:
    assert WebhookSettings(url=url).url == url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://example.org", "https address"),
        ("http://10.0.0.1/x", "https address"),
        ("http://localhost.example.org", "https address"),
        ("https://user:password@example.org", "no user name"),
        ("ftp://example.org", "https address"),
        ("example.org/x", "https address"),
        ("https://", "https address"),
        ("https://[::1", "https address"),
        ("https://x:99999", "https address"),
    ],
)
def test_other_addresses_are_refused(url: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        WebhookSettings(url=url)


def test_an_arn_names_a_cluster() -> None:
    arn = "arn:aws:sagemaker:us-west-2:123456789012:cluster/abc123def456"

    config = parse_table({"replace": "sagemaker", "sagemaker": {"cluster": arn}}, ProviderConfig)

    assert config.sagemaker is not None
    assert config.sagemaker.cluster == arn


def test_values_arrive() -> None:
    table = {
        "aws": {"region": "eu-central-1", "read_timeout": "20s"},
        "cluster_api": {"kubeconfig": "/k", "context": "m", "version": "v1beta2"},
    }

    config = parse_table(table, ProviderConfig)

    assert config.aws == AwsSettings(region="eu-central-1", read_timeout=timedelta(seconds=20))
    assert config.cluster_api.kubeconfig == Path("/k")
    assert (config.cluster_api.context, config.cluster_api.version) == ("m", "v1beta2")


def test_who_only_reboots_is_refused_as_the_one_that_replaces() -> None:
    config = parse_table({"replace": "slurm-power", "reboot": "slurm-reboot"}, ProviderConfig)

    assert config.rebooter is ProviderName.SLURM_REBOOT
    with pytest.raises(ConfigError, match='"slurm-reboot" cannot replace machines; these can:'):
        parse_table({"replace": "slurm-reboot"}, ProviderConfig)
