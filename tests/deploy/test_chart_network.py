"""NetworkPolicies of the controller and of deep health checks."""

import itertools
import json
from collections.abc import Iterator

import pytest
import yaml
from chart import ChartRefused, Helm, Object
from installation import Installation

from holdfast.adapters.kubernetes.checks.check_jobs import PairIds, job_object, pair_objects
from holdfast.adapters.kubernetes.settings import CheckSettings

ON = "networkPolicy.enabled=true"
CHECK = CheckSettings(image="check")


def policies(found: list[Object]) -> dict[str, Object]:
    return {one["metadata"]["name"]: one["spec"] for one in found if one["kind"] == "NetworkPolicy"}


def to_anywhere(spec: Object) -> Iterator[int]:
    """TCP ports that are open to all addresses."""
    for rule in spec["egress"]:
        if "to" not in rule:
            yield from (one["port"] for one in rule["ports"] if one["protocol"] == "TCP")


def test_by_default_there_is_none(helm: Helm) -> None:
    assert policies(helm.objects()) == {}


@pytest.mark.parametrize(
    ("agent", "controller"), list(itertools.product((True, False), repeat=2)), ids=str
)
def test_each_combination_of_components_gets_the_policies_of_its_pods(
    helm: Helm, *, agent: bool, controller: bool
) -> None:
    parts = {"agent": agent, "controller": controller}
    given = [f"{name}.enabled={json.dumps(is_on)}" for name, is_on in parts.items()]
    wanted = {"holdfast-controller"} if controller else set()
    wanted |= {"holdfast-checks"} if agent or controller else set()

    assert policies(helm.objects(given=[ON, *given])).keys() == wanted


def test_the_controller_is_reached_on_the_port_of_its_metrics_alone(helm: Helm) -> None:
    peers = [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]
    given = [ON, "controller.metricsPort=9999"]
    [everyone] = policies(helm.objects(given=given))["holdfast-controller"]["ingress"]
    given += [f"networkPolicy.metricsFrom={json.dumps(peers)}"]
    [monitoring] = policies(helm.objects(given=given))["holdfast-controller"]["ingress"]

    assert everyone == {"ports": [{"protocol": "TCP", "port": 9999}]}
    assert monitoring == {**everyone, "from": peers}


@pytest.mark.parametrize(
    ("url", "port"),
    [
        ("https://a.example/x", 443),
        ("https://a.example:8443/x?y=1&z=<>", 8443),
        ("https://[::1]:9443", 9443),
        ("http://localhost", 80),
        ("http://127.0.0.1:8470/x", 8470),
    ],
)
def test_the_port_of_a_provider_is_open(helm: Helm, url: str, port: int) -> None:
    provider = {"replace": "webhook", "webhook": {"url": url}}
    given = [
        ON,
        f"controller.config.provider={json.dumps(provider)}",
        'controller.env=[{"name": "HOLDFAST_WEBHOOK_SECRET", "value": "a"}]',
    ]

    opened = set(to_anywhere(policies(helm.objects(given=given))["holdfast-controller"]))
    assert opened == {53, 443, 6443, port}


def test_ports_and_rules_of_the_values_replace_and_extend_the_default(helm: Helm) -> None:
    rule = {"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}
    given = [ON, "networkPolicy.egressPorts=[16443]", f"networkPolicy.egress={json.dumps([rule])}"]
    spec = policies(helm.objects(given=given))["holdfast-controller"]

    assert set(to_anywhere(spec)) == {53, 16443}
    assert spec["egress"][-1] == rule


def test_no_port_at_all_is_refused(helm: Helm) -> None:
    with pytest.raises(ChartRefused, match="egressPorts"):
        helm.template(given=[ON, "networkPolicy.egressPorts=[]"])


def test_policies_select_the_pods_that_they_are_for(helm: Helm) -> None:
    found = helm.objects(given=[ON])
    [deployment] = [one for one in found if one["kind"] == "Deployment"]
    pods = {
        "holdfast-controller": deployment["spec"]["template"],
        "holdfast-checks": job_object("node", "id", CHECK)["spec"]["template"],
    }

    for name, spec in policies(found).items():
        labels = pods[name]["metadata"]["labels"]
        assert spec["podSelector"]["matchLabels"].items() <= labels.items()
    assert policies(found)["holdfast-checks"]["policyTypes"] == ["Ingress"]
    assert "ingress" not in policies(found)["holdfast-checks"]
    pair = pair_objects(PairIds("a", "b", "id"), "10.0.0.1", "token", CHECK)
    assert [one["spec"]["template"]["spec"]["hostNetwork"] for one in pair] == [True, True]


def test_the_api_server_takes_the_policies(installation: Installation, helm: Helm) -> None:
    found = [one for one in helm.objects(given=[ON]) if one["kind"] == "NetworkPolicy"]

    applied = installation.kubectl(
        "apply",
        "--dry-run=server",
        "--validate=strict",
        "--filename=-",
        stdin=yaml.safe_dump_all(found),
    )
    assert len(applied.splitlines()) == 2
