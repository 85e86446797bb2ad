import pytest
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Pod
from real_cluster import Cluster, until

PyTorchJob = create_namespaced_resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs")


@pytest.mark.usefixtures("training_operator")
def test_a_job_gets_its_pods_and_ends_with_them(cluster: Cluster) -> None:
    cluster.nodes.join("n1")
    template = {"spec": {"containers": [{"name": "pytorch", "image": "none"}]}}
    replica = {"replicas": 1, "restartPolicy": "OnFailure", "template": template}
    spec = {"pytorchReplicaSpecs": {"Master": replica, "Worker": {**replica, "replicas": 2}}}
    metadata = ObjectMeta(name="job", namespace="default")
    cluster.client.create(PyTorchJob(metadata=metadata, spec=spec))

    until(lambda: phases(cluster) == ["Running"] * 3)
    until(lambda: "Running" in conditions(cluster))
    for pod in cluster.client.list(Pod):
        cluster.nodes.finish(pod.metadata.name)
    until(lambda: "Succeeded" in conditions(cluster))


def phases(cluster: Cluster) -> list[str]:
    return [pod.status.phase for pod in cluster.client.list(Pod)]


def conditions(cluster: Cluster) -> list[str]:
    status = cluster.client.get(PyTorchJob, "job").status or {}
    return [one["type"] for one in status.get("conditions", ()) if one["status"] == "True"]
