"""How the API server takes the order to kill a pod that terminates."""

from typing import Any

import pytest
from controlled import Controlled, controlled, installed
from job_objects import KIND
from real_cluster import Cluster, until

from holdfast.adapters.kubernetes.jobs.objects import PodState, pod_state
from holdfast.adapters.kubernetes.jobs.pod_removal import PodRemoval

__all__ = ["installed"]

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def one(installed: None, cluster: Cluster):
    with controlled(cluster) as one:
        one.join("node-1")
        one.seen("node-1")
        yield one


def read(one: Controlled) -> dict[str, Any]:
    return one.api.get(f"{PODS}/llama-master-0")


def state(one: Controlled) -> PodState:
    pod = read(one)
    member = KIND.member(pod)
    assert member is not None
    return pod_state(pod, member)


def test_a_kubelet_gets_a_shorter_grace_period_and_the_pod_stays_until_it_has_ended(
    one: Controlled,
) -> None:
    labels = {"job-name": "llama", "replica-type": "master", "replica-index": "0"}
    metadata = {
        "name": "llama-master-0",
        "labels": {f"training.kubeflow.org/{key}": value for key, value in labels.items()},
    }
    spec = {"nodeName": "node-1", "containers": [{"name": "pytorch", "image": "a"}]}
    one.api.create(PODS, {"metadata": metadata, "spec": spec})
    until(lambda: read(one)["status"].get("phase") == "Running")
    one.real.nodes.hang("node-1")
    removal = PodRemoval(one.api, one.cluster)

    one.api.delete(f"{PODS}/llama-master-0")
    before = state(one)
    assert (before.is_terminating, before.grace_s) == (True, 30)
    removal.kill([before], is_overdue=False)

    after = state(one)
    assert (after.uid, after.is_terminating, after.grace_s) == (before.uid, True, 1)
    one.real.nodes.resume("node-1")
