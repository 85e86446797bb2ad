"""Labels and taints that instance groups request, on the Nodes of a real API server."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aws_caller import AwsCaller
from controlled import api_of, install
from real_cluster import Cluster, until

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.nodes.group_settings import LabeledNodes
from holdfast.api.clusters import instance_id
from holdfast.kit.serial import to_plain
from holdfast.model.names import RECORD
from holdfast.model.nodes import NodeRecord, Phase
from holdfast.model.sagemaker import ClusterStatus
from tests.apps.served_api import Served, serving, with_keys
from tests.ports.kubernetes_node_contract import FOREIGN, KubernetesNodesContract

PREFIX = "sagemaker.amazonaws.com"
DEDICATED = {"key": "example.com/dedicated", "value": "team", "effect": "NoSchedule"}
HEALTH = {"key": f"{PREFIX}/node-health-status", "value": "Unschedulable", "effect": "NoSchedule"}
TIER = {"Key": "example.com/tier", "Value": "gold", "Effect": "PreferNoSchedule"}
CONFIG = {"Labels": {"example.com/tier": "gold", "example.com/rack": "7"}, "Taints": [TIER]}
OVER = (ClusterStatus.IN_SERVICE, ClusterStatus.FAILED)


def create_node(api: Api, number: int, *, taints: Any = (), **labels: str) -> None:
    record = NodeRecord(phase=Phase.SCHEDULABLE, phase_since=datetime.now(UTC))
    node = {
        "metadata": {
            "name": f"n{number}",
            "labels": {
                f"{PREFIX}/instance-group-name": "gpu",
                f"{PREFIX}/node-health-status": "Schedulable",
                **{key.replace("_", "/"): value for key, value in labels.items()},
            },
            "annotations": {RECORD: json.dumps(to_plain(record))},
        },
        "spec": {"providerID": f"aws:///us-east-1a/i-{number:017x}", "taints": list(taints)},
    }
    api.create("/api/v1/nodes", node)


class RealHarness:
    def __init__(self, api: Api) -> None:
        taints = [to_plain(one) for one in FOREIGN.taints]
        create_node(api, 1, taints=taints, **FOREIGN.labels)
        create_node(api, 2)
        self.nodes = LabeledNodes(api, instance_id)


class TestLabeledNodes(KubernetesNodesContract):
    @pytest.fixture
    def harness(self, api: Api) -> RealHarness:
        return RealHarness(api)


@pytest.fixture
def served(cluster: Cluster, api: Api, tmp_path: Path) -> Iterator[Served]:
    """A server for a cluster of two nodes, one of which Holdfast and others have marked."""
    install(cluster)
    create_node(api, 1, taints=[DEDICATED, HEALTH], **{"example.com/zone": "a"})
    create_node(api, 2)
    where = ["--platform", "kubernetes", "--kubeconfig", str(cluster.plane.kubeconfig())]
    with serving(with_keys(tmp_path / "api.toml"), *where) as served:
        yield served


def groups(config: Any = None) -> list[str]:
    group = {
        "InstanceGroupName": "gpu",
        "InstanceCount": 2,
        "InstanceType": "ml.p5.48xlarge",
        "ExecutionRole": "arn:aws:iam::123456789012:role/nodes",
        **({} if config is None else {"KubernetesConfig": config}),
    }
    return ["--cluster-name", "lab", "--instance-groups", json.dumps([group])]


def until_over(aws: AwsCaller) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def is_over() -> bool:
        found.update(aws("describe-cluster", "--cluster-name", "lab"))
        return found["ClusterStatus"] in OVER

    until(is_over)
    return found


def node(api: Api, name: str) -> tuple[dict[str, str], list[dict[str, str]]]:
    found = api.get(f"/api/v1/nodes/{name}")
    taints = found["spec"].get("taints") or []
    kept = [one for one in taints if not one["key"].startswith("node.kubernetes.io/")]
    return found["metadata"]["labels"], sorted(kept, key=lambda one: one["key"])


def test_nodes_get_labels_and_taints_of_their_group_and_lose_them_with_it(
    served: Served, cluster: Cluster
) -> None:
    aws, api = AwsCaller(served), api_of(cluster)
    before = {name: node(api, name) for name in ("n1", "n2")}
    tier = {"key": TIER["Key"], "value": "gold", "effect": TIER["Effect"]}

    aws("create-cluster", *groups(CONFIG))
    found = until_over(aws)
    assert found["ClusterStatus"] == "InService"
    assert node(api, "n1")[0] == {**before["n1"][0], **CONFIG["Labels"]}
    assert node(api, "n1")[1] == [DEDICATED, tier, HEALTH]
    assert node(api, "n2")[1] == [tier]
    [group] = found["InstanceGroups"]
    assert group["KubernetesConfig"] == {
        "CurrentLabels": CONFIG["Labels"],
        "DesiredLabels": CONFIG["Labels"],
        "CurrentTaints": [TIER],
        "DesiredTaints": [TIER],
    }
    id_of = ["--cluster-name", "lab", "--node-id", f"i-{1:017x}"]
    details = aws("describe-cluster-node", *id_of)["NodeDetails"]
    assert details["KubernetesConfig"]["CurrentLabels"] == CONFIG["Labels"]

    aws("update-cluster", *groups({"Labels": {"example.com/tier": "silver"}}))
    assert until_over(aws)["ClusterStatus"] == "InService"
    assert node(api, "n1") == (
        {**before["n1"][0], "example.com/tier": "silver"},
        before["n1"][1],
    )

    api.delete("/api/v1/nodes/n2")
    create_node(api, 2)  # the same machine registers again, without labels
    until(lambda: node(api, "n2")[0].get("example.com/tier") == "silver")

    aws("delete-cluster", "--cluster-name", "lab")
    until(lambda: aws("list-clusters", "--name-contains", "lab")["ClusterSummaries"] == [])
    assert {name: node(api, name) for name in ("n1", "n2")} == before
    api.close()


def test_a_label_of_somebody_else_fails_the_creation_and_stays(
    served: Served, cluster: Cluster
) -> None:
    aws, api = AwsCaller(served), api_of(cluster)
    before = {name: node(api, name) for name in ("n1", "n2")}
    labels = {"example.com/zone": "b", "example.com/rack": "7"}

    aws("create-cluster", *groups({"Labels": labels}))
    found = until_over(aws)

    assert found["ClusterStatus"] == "Failed"
    assert "label example.com/zone is 'a', requested is 'b'" in found["FailureMessage"]
    assert {name: node(api, name) for name in ("n1", "n2")} == before
    api.close()


def test_keys_that_define_groups_are_refused(served: Served) -> None:
    labels = {"alpha.eksctl.io/nodegroup-name": "other"}

    refused = AwsCaller(served).refused("create-cluster", *groups({"Labels": labels}))

    assert "KubernetesConfig.Labels: alpha.eksctl.io/nodegroup-name assigns nodes" in refused
