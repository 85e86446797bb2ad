"""Values that contradict each other or the cluster are refused with what to set."""

import json
from pathlib import Path

import pytest
from chart import EXAMPLES, ChartRefused, Helm


@pytest.mark.parametrize("key", ["podMonitor", "prometheusRule"])
def test_what_needs_the_prometheus_operator_is_refused_without_it(helm: Helm, key: str) -> None:
    with pytest.raises(ChartRefused) as caught:
        helm.template(given=[f"{key}.enabled=true"], has_operator=False)

    assert f"{key}.enabled: the cluster does not serve monitoring.coreos.com/v1" in str(
        caught.value
    )
    assert f"set {key}.enabled=false" in str(caught.value)


@pytest.mark.parametrize("values", EXAMPLES, ids=lambda path: path.stem)
def test_only_the_example_for_the_prometheus_operator_needs_it(helm: Helm, values: Path) -> None:
    try:
        helm.template(values, has_operator=False)
    except ChartRefused:
        assert values.stem == "prometheus-operator"


def webhook(**more: str) -> str:
    settings = {"url": "https://a.example/", **more}
    provider = {"replace": "webhook", "webhook": settings}
    return f"controller.config.provider={json.dumps(provider)}"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([webhook()], "set HOLDFAST_WEBHOOK_SECRET"),
        (
            [
                webhook(secret_env="KEY"),  # noqa: S106 - the name of a variable
                'controller.env=[{"name": "HOLDFAST_WEBHOOK_SECRET", "value": "a"}]',
            ],
            "set KEY in controller.env",
        ),
        (
            [webhook(secret_file="/etc/holdfast-key/a")],  # noqa: S106 - a path
            "webhook.secret_file: /etc/holdfast-key/a is in none of controller.volumeMounts",
        ),
        (
            [
                'controller.config.notices.file="/var/log/holdfast/notices"',
                'controller.volumes=[{"name": "a", "emptyDir": {}}]',
                'controller.volumeMounts=[{"name": "a", "mountPath": "/var/log/hold"}]',
            ],
            "notices.file: /var/log/holdfast/notices is in none of controller.volumeMounts",
        ),
        (
            [
                'controller.config.notices.file="/var/log/holdfast/notices"',
                'controller.volumes=[{"name": "a", "emptyDir": {}}]',
                "controller.volumeMounts="
                '[{"name": "a", "mountPath": "/var/log/holdfast", "readOnly": true}]',
            ],
            "is in a volume that is mounted read-only",
        ),
    ],
)
def test_what_a_setting_needs_in_the_pod_is_asked_for(
    helm: Helm, given: list[str], words: str
) -> None:
    with pytest.raises(ChartRefused) as caught:
        helm.template(given=given)

    assert words in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        [
            webhook(),
            'controller.env=[{"name": "HOLDFAST_WEBHOOK_SECRET", "value": "a"}]',
        ],
        [
            webhook(),
            'controller.envFrom=[{"secretRef": {"name": "a"}}]',
        ],
        [
            'controller.config.notices.file="/var/log/holdfast/notices"',
            'controller.volumes=[{"name": "a", "emptyDir": {}}]',
            'controller.volumeMounts=[{"name": "a", "mountPath": "/var/log/holdfast/"}]',
        ],
        [webhook(), "controller.enabled=false"],
    ],
)
def test_a_setting_with_what_it_needs_in_the_pod_is_taken(helm: Helm, given: list[str]) -> None:
    helm.template(given=given)


def test_an_exporter_that_exports_nothing_is_refused(helm: Helm) -> None:
    with pytest.raises(ChartRefused) as caught:
        helm.template(
            given=['agent.cloudwatch={"enabled": true, "lines": false, "metrics": false}']
        )

    assert "agent.cloudwatch: lines and metrics are both false" in str(caught.value)
