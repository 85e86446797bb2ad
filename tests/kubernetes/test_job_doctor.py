"""The doctor of jobs on a real cluster: its note on nodes without a group label."""

import json

import pytest
from real_cluster import Cluster

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.main import run
from holdfast.model.names import Labels

LABELS = Labels()
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "llama", "namespace": "default"},
    "spec": {
        "suspend": True,
        "completionMode": "Indexed",
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "rank", "image": "train:1"}],
            }
        },
    },
}


def a_node(name: str, **labels: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def test_managed_nodes_without_a_group_label_are_named(
    cluster: Cluster, api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    managed = {LABELS.node_health_status: "Schedulable"}
    for node in (
        a_node("bare", **managed),
        a_node("grouped", **managed, **{"karpenter.sh/nodepool": "gpu"}),
        a_node("unmanaged"),
    ):
        api.create("/api/v1/nodes", node)
    api.create("/apis/batch/v1/namespaces/default/jobs", JOB)
    options = ["--kubeconfig", str(cluster.plane.kubeconfig()), "--output", "json"]

    code = run(["jobs", "doctor", "llama", "--platform", "kubernetes", *options])

    assert code in (ExitCode.OK, ExitCode.FAILED)
    (diagnosis,) = json.loads(capsys.readouterr().out)
    (note,) = [one for one in diagnosis["diagnostics"] if one["rule"] == "nodes-without-group"]
    assert note["severity"] == "note"
    assert note["found"] == "no group label: bare"
