"""Where the pods of the controller run, and when the kubelet restarts them."""

import pytest
from chart import Helm, named

from holdfast.adapters.kubernetes.nodes.node import NO_SCHEDULE
from holdfast.model.names import Labels


@pytest.mark.parametrize("prefix", ["sagemaker.amazonaws.com", "fleet.example.com"])
def test_the_controller_leaves_a_lost_node_soon_and_may_run_on_a_faulty_one(
    helm: Helm, prefix: str
) -> None:
    given = [f'labelPrefix="{prefix}"', 'controller.tolerations=[{"key": "own"}]']
    found = named(helm.objects(given=given), "Deployment", "holdfast-controller")

    assert found["spec"]["template"]["spec"]["tolerations"] == [
        *(
            {
                "key": f"node.kubernetes.io/{why}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 10,
            }
            for why in ("not-ready", "unreachable")
        ),
        {
            "key": Labels(prefix).node_health_status,
            "operator": "Exists",
            "effect": NO_SCHEDULE,
        },
        {"key": "own"},
    ]


def test_replicas_of_the_controller_share_no_node_if_there_are_two(helm: Helm) -> None:
    found = named(helm.objects(), "Deployment", "holdfast-controller")["spec"]
    spread = found["template"]["spec"]["topologySpreadConstraints"]

    hosts, zones = spread
    assert (hosts["topologyKey"], hosts["whenUnsatisfiable"], hosts["maxSkew"]) == (
        "kubernetes.io/hostname",
        "DoNotSchedule",  # a single node has no skew, so it takes all replicas
        1,
    )
    assert zones["whenUnsatisfiable"] == "ScheduleAnyway"
    for one in spread:
        assert one["nodeTaintsPolicy"] == "Honor"
        assert one["matchLabelKeys"] == ["pod-template-hash"]
        assert one["labelSelector"] == found["selector"]


def test_a_controller_that_starts_slowly_is_not_restarted(helm: Helm) -> None:
    pod = named(helm.objects(), "Deployment", "holdfast-controller")["spec"]["template"]["spec"]
    [container] = pod["containers"]
    probe = container["startupProbe"]

    assert probe["httpGet"] == container["livenessProbe"]["httpGet"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 120


def test_a_controller_knows_its_node_beside_given_variables(helm: Helm) -> None:
    given = ['controller.env=[{"name": "OWN", "value": "1"}]']
    found = named(helm.objects(given=given), "Deployment", "holdfast-controller")
    [container] = found["spec"]["template"]["spec"]["containers"]

    assert container["env"] == [
        {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "OWN", "value": "1"},
    ]
