"""Labels and taints that an instance group requests for its Kubernetes nodes."""

import pytest
from created_calls import Lab, group

from holdfast.api.group_requests import resized
from holdfast.model.node_settings import KubernetesConfig, Taint

GOLD = {"Key": "example.com/tier", "Value": "gold", "Effect": "NoSchedule"}
CONFIG = {"Labels": {"example.com/tier": "gold"}, "Taints": [GOLD]}
APPLIED = KubernetesConfig(
    labels={"example.com/tier": "gold"},
    taints=(Taint(key="example.com/tier", effect="NoSchedule", value="gold"),),
)


@pytest.fixture
def lab(tmp_path):
    lab = Lab(f"sqlite:///{tmp_path}/clusters.db")
    yield lab
    lab.database.close()


def join(lab: Lab, **labels: str) -> None:
    """Every machine has a Kubernetes node with these labels."""
    for machines in lab.groups.members.values():
        for one in machines:
            lab.kubernetes.nodes.setdefault(one.id, KubernetesConfig(labels=labels))


def settle(lab: Lab, **labels: str) -> None:
    lab.settle()
    join(lab, **labels)
    lab.settle()


def shown(lab: Lab):
    [found] = lab.call("DescribeCluster", ClusterName="lab")["InstanceGroups"]
    return found.get("KubernetesConfig")


def change(lab: Lab, *groups) -> None:
    lab.call("UpdateCluster", ClusterName="lab", InstanceGroups=list(groups))


def test_nodes_get_the_labels_and_taints_of_their_group_before_the_cluster_is_in_service(
    lab,
) -> None:
    lab.create(group("gpu", 2, KubernetesConfig=CONFIG))
    lab.settle()
    assert lab.status() == "Creating"
    assert shown(lab) == {
        "CurrentLabels": {},
        "DesiredLabels": CONFIG["Labels"],
        "CurrentTaints": [],
        "DesiredTaints": [GOLD],
    }
    join(lab, foreign="1")
    lab.settle()

    assert lab.status() == "InService"
    for node in lab.kubernetes.nodes.values():
        assert node.labels == {"foreign": "1", **APPLIED.labels}
        assert node.taints == APPLIED.taints
    assert shown(lab)["CurrentLabels"] == CONFIG["Labels"]
    assert shown(lab)["CurrentTaints"] == [GOLD]
    node = lab.listed()[0]["InstanceId"]
    details = lab.call("DescribeClusterNode", ClusterName="lab", NodeId=node)["NodeDetails"]
    assert details["KubernetesConfig"] == shown(lab)


def test_an_update_replaces_and_removes_them(lab) -> None:
    lab.create(group("gpu", 2, KubernetesConfig=CONFIG))
    settle(lab)
    change(lab, group("gpu", 2, KubernetesConfig={"Labels": {"a": "1"}}))
    lab.settle()
    assert lab.status() == "InService"
    assert set(map(repr, lab.kubernetes.nodes.values())) == {
        repr(KubernetesConfig(labels={"a": "1"}))
    }
    change(lab, group("gpu", 2))
    lab.settle()

    assert lab.status() == "InService"
    assert all(one.is_empty for one in lab.kubernetes.nodes.values())
    assert shown(lab) is None


def test_a_node_that_joins_later_gets_them_and_a_restart_loses_none(lab) -> None:
    lab.create(group("gpu", 1, KubernetesConfig=CONFIG))
    settle(lab)
    lab.restart()
    [found] = lab.call("DescribeCluster", ClusterName="lab")["InstanceGroups"]
    change(lab, resized(found, 2))
    settle(lab)

    assert lab.status() == "InService"
    assert list(lab.kubernetes.nodes.values()) == [APPLIED] * 2


def test_a_label_of_somebody_else_fails_the_creation_and_stays(lab) -> None:
    lab.create(group("gpu", 1, KubernetesConfig=CONFIG))
    settle(lab, **{"example.com/tier": "bronze"})

    found = lab.call("DescribeCluster", ClusterName="lab")
    assert found["ClusterStatus"] == "Failed"
    assert "label example.com/tier is 'bronze', requested is 'gold'" in found["FailureMessage"]
    [node] = lab.kubernetes.nodes.values()
    assert node.labels == {"example.com/tier": "bronze"}
    assert any("were not applied: label example.com/tier" in one for one in lab.events())


def test_a_label_of_somebody_else_on_a_later_node_is_its_message(lab) -> None:
    lab.create(
        group("gpu", 2, KubernetesConfig=CONFIG, MinInstanceCount=1),
        NodeProvisioningMode="Continuous",
    )
    settle(lab)
    lab.call(
        "BatchAddClusterNodes",
        ClusterName="lab",
        NodesToAdd=[{"InstanceGroupName": "gpu", "IncrementTargetCountBy": 1}],
    )
    settle(lab, **{"example.com/tier": "bronze"})

    messages = [one["InstanceStatus"].get("Message", "") for one in lab.listed()]
    assert sum("label example.com/tier is 'bronze'" in one for one in messages) == 1
    assert lab.status() == "InService"
    assert shown(lab)["CurrentLabels"] == {}


def test_a_failed_update_brings_the_former_ones_back(lab) -> None:
    lab.create(group("gpu", 1, KubernetesConfig={"Labels": {"a": "1"}}))
    settle(lab, b="of somebody")
    change(lab, group("gpu", 1, KubernetesConfig={"Labels": {"b": "1", "c": "1"}}))
    lab.settle()

    assert lab.status() == "InService"
    [node] = lab.kubernetes.nodes.values()
    assert node.labels == {"a": "1", "b": "of somebody"}


def test_a_deleted_cluster_takes_them_along(lab) -> None:
    lab.create(group("gpu", 2, KubernetesConfig=CONFIG))
    settle(lab, foreign="1")
    lab.call("DeleteCluster", ClusterName="lab")
    lab.settle()

    assert lab.records.names() == []
    assert {repr(one) for one in lab.kubernetes.nodes.values()} == {
        repr(KubernetesConfig(labels={"foreign": "1"}))
    }


def test_nodes_are_not_read_unless_settings_are_requested(lab) -> None:
    lab.create(group("gpu", 2))
    lab.settle()

    assert lab.status() == "InService"
    assert lab.kubernetes.calls.made == []


@pytest.mark.parametrize(
    "key",
    ["sagemaker.amazonaws.com/x", "node.kubernetes.io/x", "kubernetes.io/x", "k8s.io/x",
     "topology.k8s.aws/x", "karpenter.sh/x", "eks.amazonaws.com/x", "holdfast.dev/x"],
)  # fmt: skip
def test_keys_of_others_are_refused(lab, key) -> None:
    config = {"Labels": {key: "1"}, "Taints": [{"Key": key, "Effect": "NoExecute"}]}
    code, message = lab.refused(
        "CreateCluster", ClusterName="lab", InstanceGroups=[group("gpu", KubernetesConfig=config)]
    )

    assert code == "ValidationException"
    for part in ("Labels", "Taints"):
        assert f"InstanceGroups: gpu: KubernetesConfig.{part}: {key}: the prefix " in message
    assert "is reserved; use a prefix of your own" in message


def test_similar_prefixes_are_accepted(lab) -> None:
    labels = {"mykubernetes.io/x": "1", "kubernetes.io.example.com/x": "1", "plain": "1"}
    lab.create(group("gpu", KubernetesConfig={"Labels": labels}))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"Labels": {"a" * 64: "1"}}, "got 0 and 64"),
        ({"Labels": {f"{'a' * 254}/b": "1"}}, "got 254 and 1"),
        ({"Taints": [GOLD, {**GOLD, "Value": "other"}]}, "example.com/tier:NoSchedule is dupl"),
    ],
)
def test_what_kubernetes_would_refuse_is_refused(lab, config, expected) -> None:
    code, message = lab.refused(
        "CreateCluster", ClusterName="lab", InstanceGroups=[group("gpu", KubernetesConfig=config)]
    )

    assert code == "ValidationException"
    assert expected in message
