"""Scheduler configurations and compute quotas of the AWS CLI, in a real Kueue."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aws_caller import AwsCaller
from controlled import api_of, install
from kueues import run_kueue
from real_cluster import Cluster, connected, until

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import NotFound
from holdfast.adapters.kubernetes.client.values import compact_json
from holdfast.model.names import RECORD
from holdfast.model.nodes import NodeRecord, Phase
from tests.apps.served_api import serving, with_keys
from tests.engines.control_plane import Built, ControlPlane

KUEUE = "/apis/kueue.x-k8s.io/v1beta1"
P5, M5 = "ml.p5.48xlarge", "ml.m5.2xlarge"
GPU = "nvidia.com/gpu"
RESOURCES = {
    P5: {"cpu": "191500m", "memory": "2097152Mi", GPU: "8", "vpc.amazonaws.com/efa": "32"},
    M5: {"cpu": "8", "memory": "32Gi"},
}


@dataclass
class Site:
    """A cluster of three nodes with GPUs and one without, and its API."""

    cluster: Cluster
    api: Api
    aws: AwsCaller

    @property
    def arn(self) -> str:
        [found] = self.aws("list-clusters")["ClusterSummaries"]
        return found["ClusterArn"]

    def get(self, path: str) -> Any:
        return self.api.get(f"{KUEUE}/{path}")

    def is_gone(self, path: str) -> bool:
        try:
            self.get(path)
        except NotFound:
            return True
        return False


@pytest.fixture(scope="module")
def site(
    built: Built, binaries: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """On a control plane of its own, as nothing gets past the webhooks of Kueue afterwards."""
    programs = built("kueue")
    config = with_keys(tmp_path_factory.mktemp("api") / "api.toml", 'name = "lab"')
    with ControlPlane(binaries) as plane, connected(plane, binaries) as cluster:
        install(cluster)
        api = api_of(cluster)
        for name, kind in (("a", P5), ("b", P5), ("c", P5), ("d", M5)):
            _create_node(api, name, kind)
        where = ["--platform", "kubernetes", "--kubeconfig", str(plane.kubeconfig())]
        with serving(config, *where) as served:
            aws = AwsCaller(served)
            site = Site(cluster, api, aws)
            _refused_without_kueue(site)
            run_kueue(plane, programs["kueue"], binaries, ("batch/job",))
            yield site
        api.close()


def _create_node(api: Api, name: str, kind: str) -> None:
    record = NodeRecord(phase=Phase.SCHEDULABLE, phase_since=datetime.now(UTC))
    metadata = {
        "name": name,
        "labels": {"node.kubernetes.io/instance-type": kind},
        "annotations": {RECORD: compact_json(record)},
    }
    status = {"allocatable": RESOURCES[kind], "capacity": RESOURCES[kind]}
    api.create("/api/v1/nodes", {"metadata": metadata, "spec": {}, "status": status})


def _refused_without_kueue(site: Site) -> None:
    """A policy fails with the reason while Kueue is not installed."""
    created = site.aws("create-cluster-scheduler-config", *scheduler(site, {}))
    named = ["--cluster-scheduler-config-id", created["ClusterSchedulerConfigId"]]
    found: dict[str, Any] = {}

    def has_failed() -> bool:
        found.update(site.aws("describe-cluster-scheduler-config", *named))
        return found["Status"] == "CreateFailed"

    until(has_failed)
    assert "Kueue is not installed" in found["FailureReason"]


def scheduler(site: Site, config: dict[str, Any]) -> list[str]:
    return [
        "--name", "policy", "--cluster-arn", site.arn,
        "--scheduler-config", json.dumps(config),
    ]  # fmt: skip


def quota(site: Site, team: str, *resources: dict[str, Any], weight: int = 0, **more: Any):
    config = {"ComputeQuotaResources": resources, **more}
    target = {"TeamName": team, "FairShareWeight": weight}
    return site.aws(
        "create-compute-quota", "--name", f"quota-{team}", "--cluster-arn", site.arn,
        "--compute-quota-config", json.dumps(config),
        "--compute-quota-target", json.dumps(target),
    )["ComputeQuotaId"]  # fmt: skip


def until_status(site: Site, quota_id: str, status: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def is_there() -> bool:
        found.update(site.aws("describe-compute-quota", "--compute-quota-id", quota_id))
        return found["Status"] == status

    until(is_there)
    return found


def amounts(flavor: dict[str, Any], key: str = "nominalQuota") -> dict[str, str]:
    return {one["name"]: one.get(key) for one in flavor["resources"]}


def submit(site: Site, team: str, name: str, gpus: int, priority: str = "") -> None:
    labels = {"kueue.x-k8s.io/queue-name": f"hyperpod-ns-{team}-localqueue"}
    if priority:
        labels["kueue.x-k8s.io/priority-class"] = priority
    limits = {"limits": {GPU: str(gpus)}, "requests": {"cpu": "1", "memory": "1Gi"}}
    container = {"name": "main", "image": "none", "resources": limits}
    job = {
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "suspend": True,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }
    site.api.create(f"/apis/batch/v1/namespaces/hyperpod-ns-{team}/jobs", job)


def is_admitted(site: Site, team: str, name: str) -> Callable[[], bool]:
    path = f"/apis/batch/v1/namespaces/hyperpod-ns-{team}/jobs/{name}"
    return lambda: not site.api.get(path)["spec"]["suspend"]


def workloads(site: Site, team: str) -> dict[str, Any]:
    """By the name of their job."""
    found = site.api.list(f"{KUEUE}/namespaces/hyperpod-ns-{team}/workloads")
    return {one["metadata"]["ownerReferences"][0]["name"]: one for one in found}


def test_teams_share_a_cluster_by_quota_priority_and_idle_compute(site: Site) -> None:
    aws = site.aws
    [config] = aws("list-cluster-scheduler-configs")["ClusterSchedulerConfigSummaries"]
    named = ["--cluster-scheduler-config-id", config["ClusterSchedulerConfigId"]]
    classes = [{"Name": "training", "Weight": 90}, {"Name": "batch", "Weight": 10}]
    wanted = {"PriorityClasses": classes, "FairShare": "Enabled", "IdleResourceSharing": "Enabled"}
    until(
        lambda: aws("describe-cluster-scheduler-config", *named)["Status"] == "Created"
    )  # as Kueue is there now
    updated = aws(
        "update-cluster-scheduler-config", *named, "--target-version", "1",
        "--scheduler-config", json.dumps(wanted),
    )  # fmt: skip
    assert updated["ClusterSchedulerConfigVersion"] == 2
    whole, shares = {"InstanceType": P5, "Count": 1}, {"Strategy": "LendAndBorrow"}
    red = quota(site, "red", whole, weight=7, ResourceSharingConfig={**shares, "BorrowLimit": 100})
    blue = quota(site, "blue", {"InstanceType": P5, "Accelerators": 4}, PreemptTeamTasks="Never")
    for one in (red, blue):
        until_status(site, one, "Created")
    until(lambda: aws("describe-cluster-scheduler-config", *named)["Status"] == "Updated")

    queue = site.get("clusterqueues/hyperpod-ns-red-clusterqueue")
    [group] = queue["spec"]["resourceGroups"]
    [flavor] = group["flavors"]
    assert flavor["name"] == P5
    assert amounts(flavor)[GPU] == amounts(flavor, "borrowingLimit")[GPU] == "8"
    assert amounts(flavor)["vpc.amazonaws.com/efa"] == "32"
    assert queue["spec"]["fairSharing"]["weight"] == "7"
    assert queue["spec"]["preemption"]["withinClusterQueue"] == "LowerPriority"
    blue_queue = site.get("clusterqueues/hyperpod-ns-blue-clusterqueue")["spec"]
    assert blue_queue["preemption"]["withinClusterQueue"] == "Never"
    [flavor] = blue_queue["resourceGroups"][0]["flavors"]
    assert amounts(flavor) == {
        "cpu": "95750m", "memory": str(1 << 40), GPU: "4", "vpc.amazonaws.com/efa": "16",
    }  # fmt: skip
    assert amounts(flavor, "borrowingLimit")[GPU] == "2"
    flavor = site.get(f"resourceflavors/{P5}")
    assert flavor["spec"]["nodeLabels"] == {"node.kubernetes.io/instance-type": P5}
    assert site.get("workloadpriorityclasses/training-priority")["value"] == 90
    [cohort] = site.api.list(f"{KUEUE}/cohorts")
    assert queue["spec"]["cohort"] == cohort["metadata"]["name"]
    [idle] = cohort["spec"]["resourceGroups"][0]["flavors"]
    assert amounts(idle)[GPU] == "12"

    submit(site, "red", "big", 16, "training-priority")
    until(is_admitted(site, "red", "big"))
    assert workloads(site, "red")["big"]["spec"]["priority"] == 90
    submit(site, "blue", "wide", 6, "batch-priority")
    until(is_admitted(site, "blue", "wide"))
    assert is_admitted(site, "red", "big")()

    delete_quota_in_use(site, blue)
    change_quota(site, red)
    aws("delete-compute-quota", "--compute-quota-id", red)
    aws("delete-cluster-scheduler-config", *named)
    until(lambda: aws("list-compute-quotas")["ComputeQuotaSummaries"] == [])
    until(lambda: aws("list-cluster-scheduler-configs")["ClusterSchedulerConfigSummaries"] == [])
    for path in ("clusterqueues/hyperpod-ns-red-clusterqueue", f"resourceflavors/{P5}",
                 "workloadpriorityclasses/training-priority"):  # fmt: skip
        until(lambda path=path: site.is_gone(path))
    assert list(site.api.list(f"{KUEUE}/cohorts")) == []
    assert site.get("clusterqueues/all")
    assert site.api.get("/api/v1/namespaces/hyperpod-ns-red")


def delete_quota_in_use(site: Site, quota_id: str) -> None:
    """A deleted quota stays until the job that it has admitted is over."""
    site.aws("delete-compute-quota", "--compute-quota-id", quota_id)
    until(
        lambda: site.is_gone("namespaces/hyperpod-ns-blue/localqueues/hyperpod-ns-blue-localqueue")
    )
    found = site.aws("describe-compute-quota", "--compute-quota-id", quota_id)
    assert found["Status"] == "Deleting"
    assert is_admitted(site, "blue", "wide")()
    site.api.delete(
        "/apis/batch/v1/namespaces/hyperpod-ns-blue/jobs/wide", propagation="Background"
    )
    until(lambda: len(site.aws("list-compute-quotas")["ComputeQuotaSummaries"]) == 1)


def change_quota(site: Site, quota_id: str) -> None:
    """An update changes the objects, and a disabled quota admits no further job."""
    named = ["--compute-quota-id", quota_id]
    config = {
        "ComputeQuotaResources": [
            {"InstanceType": P5, "Count": 2},
            {"InstanceType": M5, "VCpu": 4},
        ],
        "ResourceSharingConfig": {"Strategy": "DontLend"},
    }
    refused = site.aws.refused("update-compute-quota", *named, "--target-version", "7")
    assert "TargetVersion: expected 1, the present version of quota-red, got 7" in refused
    site.aws(
        "update-compute-quota", *named, "--target-version", "1",
        "--compute-quota-config", json.dumps(config), "--activation-state", "Disabled",
    )  # fmt: skip
    found = until_status(site, quota_id, "Updated")
    assert (found["ComputeQuotaVersion"], found["ActivationState"]) == (2, "Disabled")
    assert found["ComputeQuotaConfig"] == config
    spec = site.get("clusterqueues/hyperpod-ns-red-clusterqueue")["spec"]
    assert spec["stopPolicy"] == "Hold"
    assert "cohort" not in spec
    first, second = spec["resourceGroups"][0]["flavors"]
    assert (amounts(first)[GPU], amounts(second)[GPU]) == ("16", "0")
    assert amounts(second) == {
        "cpu": "4000m", "memory": "17179869184", GPU: "0", "vpc.amazonaws.com/efa": "0",
    }  # fmt: skip
    assert set(amounts(first, "borrowingLimit").values()) == {None}
    submit(site, "red", "late", 1)
    until(lambda: "late" in workloads(site, "red"))
    assert not is_admitted(site, "red", "late")()
    site.api.delete("/apis/batch/v1/namespaces/hyperpod-ns-red/jobs/big", propagation="Background")


def test_objects_of_others_are_not_changed(site: Site) -> None:
    spec = {"namespaceSelector": {}, "resourceGroups": []}
    name = "hyperpod-ns-green-clusterqueue"
    other = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": spec,
    }
    site.api.create(f"{KUEUE}/clusterqueues", other)
    green = quota(site, "green", {"InstanceType": P5, "Count": 1})
    found = until_status(site, green, "CreateFailed")
    assert f"ClusterQueue {name} exists and is not of this policy" in found["FailureReason"]
    assert site.get(f"clusterqueues/{name}")["spec"].get("resourceGroups", []) == []

    site.api.delete(f"{KUEUE}/clusterqueues/{name}")
    until_status(site, green, "Created")
    site.aws("delete-compute-quota", "--compute-quota-id", green)
    until(lambda: site.is_gone(f"clusterqueues/{name}"))


def test_an_unknown_instance_type_is_the_reason_of_a_failure(site: Site) -> None:
    none = quota(site, "none", {"InstanceType": "ml.g5.xlarge", "Count": 1})
    found = until_status(site, none, "CreateFailed")

    assert found["FailureReason"] == (
        f"ml.g5.xlarge: the cluster has no such nodes; its instance types: {M5}, {P5}"
    )
    site.aws("delete-compute-quota", "--compute-quota-id", none)
    until(lambda: site.aws("list-compute-quotas")["ComputeQuotaSummaries"] == [])
