"""The chart on a real API server: every variant is accepted, installed, upgraded and removed."""

from pathlib import Path

import pytest
import yaml
from chart import DEPLOY, EXAMPLES, HELM_CHART, Helm
from installation import Installation

OPERATORS = ("PodMonitor", "PrometheusRule")
"""Kinds that the Prometheus operator brings along."""


@pytest.mark.parametrize("values", EXAMPLES, ids=lambda path: path.stem)
def test_the_api_server_takes_every_example(
    installation: Installation, helm: Helm, values: Path
) -> None:
    found = helm.objects(values, given=["dashboards.enabled=true"])
    native = [one for one in found if one["kind"] not in OPERATORS]

    applied = installation.kubectl(
        "apply",
        "--dry-run=server",
        "--validate=strict",
        "--filename=-",
        stdin=yaml.safe_dump_all(native),
    )

    assert len(applied.splitlines()) == len(native)
    assert "warning" not in applied.lower()


def test_the_plain_manifests_are_the_chart(helm: Helm) -> None:
    plain = (DEPLOY / "kubernetes" / "holdfast.yaml").read_text(encoding="utf-8")
    rendered = helm.template(HELM_CHART / "examples" / "plain-manifests.yaml")

    assert plain.partition("\n")[2] == rendered, "run python tools/render_manifests.py"


def test_there_is_one_definition_of_incidents(helm: Helm) -> None:
    shown = yaml.safe_load(helm.run("show", "crds", HELM_CHART))

    assert shown["metadata"]["name"] == "incidents.holdfast.dev"
    assert list(DEPLOY.rglob("incidents*.yaml")) == list((HELM_CHART / "crds").glob("*.yaml"))


def test_helm_installs_upgrades_and_removes_a_release(
    installation: Installation, helm: Helm
) -> None:
    target = ("--kubeconfig", installation.plane.kubeconfig(), "--namespace", "team")
    release = ("second", HELM_CHART, *target)

    helm.run("install", *release, "--create-namespace", "--set=dashboards.enabled=true")
    before = _names(installation)
    helm.run("upgrade", *release, "--set=controller.enabled=false")
    between = _names(installation)
    helm.run("uninstall", "second", *target)
    after = _names(installation)

    assert {"second-holdfast-agent", "second-holdfast-controller"} <= before
    assert "second-holdfast-controller" not in between
    assert "second-holdfast-agent" in between
    assert not [name for name in after if name.startswith("second")]
    assert "incidents.holdfast.dev" in installation.kubectl("get", "crds", "--output=name")


def test_the_notes_say_who_repairs(installation: Installation, helm: Helm) -> None:
    def notes(*given: str) -> str:
        keys = [word for pair in given for word in ("--set-json", pair)]
        target = ("--dry-run=client", "--kubeconfig", installation.plane.kubeconfig())
        return helm.run("install", "third", HELM_CHART, *target, *keys).partition("NOTES:")[2]

    assert "No provider is set" in notes()
    assert "replaced by karpenter" in notes('controller.config.provider.replace="karpenter"')
    assert "marked and not repaired" in notes('controller.config.nodes.node_recovery="None"')


@pytest.mark.parametrize(
    ("kind", "level"), [("Deployment", "restricted"), ("DaemonSet", "privileged")]
)
def test_pods_are_admitted_at_the_strictest_level_that_they_can_keep_to(
    installation: Installation, helm: Helm, kind: str, level: str
) -> None:
    [workload] = [one for one in helm.objects() if one["kind"] == kind]
    space = f"level-{level}"
    labels = {"pod-security.kubernetes.io/enforce": level}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}
    namespace["metadata"]["labels"] = labels
    installation.plane.request("POST", "/api/v1/namespaces", namespace)
    account = {"apiVersion": "v1", "kind": "ServiceAccount"}
    spec = workload["spec"]["template"]["spec"]
    account["metadata"] = {"name": spec["serviceAccountName"]}
    path = f"/api/v1/namespaces/{space}"
    installation.plane.request("POST", f"{path}/serviceaccounts", account)

    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
    installation.plane.request("POST", f"{path}/pods", pod)


def _names(installation: Installation) -> set[str]:
    """Of all that the chart makes, in any namespace."""
    kinds = (
        "configmaps,daemonsets,deployments,services,serviceaccounts,poddisruptionbudgets,roles,"
        "rolebindings,clusterroles,clusterrolebindings,validatingadmissionpolicies,"
        "validatingadmissionpolicybindings"
    )
    shown = installation.kubectl("get", kinds, "--all-namespaces", "--output=name")
    return {line.rpartition("/")[2] for line in shown.splitlines()}
