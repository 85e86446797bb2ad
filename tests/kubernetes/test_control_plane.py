from datetime import timedelta
from pathlib import Path

import pytest
from lightkube.core.exceptions import ApiError
from lightkube.models.core_v1 import Container, PodSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Namespace, Node, Pod, ServiceAccount
from real_cluster import Cluster, connected, until

from holdfast.kit.processes import is_alive, start_time
from holdfast.model.errors import BackendError
from tests.engines.control_plane import PROGRAMS, ControlPlane


def a_pod(name: str, namespace: str = "default", **metadata: object) -> Pod:
    container = Container(name="main", image="none")
    return Pod(
        metadata=ObjectMeta(name=name, namespace=namespace, **metadata),
        spec=PodSpec(containers=[container], restartPolicy="Never"),
    )


def phase(cluster: Cluster, pod: str) -> str:
    return cluster.client.get(Pod, pod).status.phase


def readiness(cluster: Cluster, node: str) -> str:
    conditions = cluster.client.get(Node, node).status.conditions
    return next(one.status for one in conditions if one.type == "Ready")


def pods(cluster: Cluster) -> list[str]:
    return [pod.metadata.name for pod in cluster.client.list(Pod)]


def test_the_server_reports_its_version(cluster: Cluster) -> None:
    server = cluster.plane.request("GET", "/version")["gitVersion"]

    assert server.startswith("v1.")
    assert f"Server Version: {server}" in cluster.kubectl("version").splitlines()


def test_a_service_account_may_do_nothing_by_itself(cluster: Cluster) -> None:
    cluster.client.create(ServiceAccount(metadata=ObjectMeta(name="nobody", namespace="default")))
    nobody = cluster.client_of("default", "nobody")

    with pytest.raises(ApiError, match=r"system:serviceaccount:default:nobody.* cannot list") as no:
        list(nobody.list(Node))

    assert no.value.status.code == 403
    nobody.close()


def test_a_bound_token_reports_the_node_of_its_pod(cluster: Cluster) -> None:
    cluster.nodes.join("n1")
    cluster.client.create(a_pod("p"))
    until(lambda: phase(cluster, "p") == "Running")
    token = cluster.plane.service_account_token("default", "default", pod="p")

    review = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token},
    }
    answer = cluster.plane.request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)

    assert answer["status"]["user"]["extra"]["authentication.kubernetes.io/node-name"] == ["n1"]


def test_a_pod_is_scheduled_runs_ends_and_vanishes(cluster: Cluster) -> None:
    cluster.client.create(a_pod("p"))
    cluster.nodes.join("n1", labels={"rack": "a"}, provider_id="aws:///us-east-1a/i-0abc")
    until(lambda: phase(cluster, "p") == "Running")
    node = cluster.client.get(Node, cluster.client.get(Pod, "p").spec.nodeName)
    assert (node.metadata.labels["rack"], node.spec.providerID) == ("a", "aws:///us-east-1a/i-0abc")

    cluster.nodes.finish("p", exit_code=3)
    [container] = cluster.client.get(Pod, "p").status.containerStatuses
    assert (phase(cluster, "p"), container.state.terminated.exitCode) == ("Failed", 3)

    cluster.client.delete(Pod, "p")
    until(lambda: not pods(cluster))


def test_a_kubelet_that_hangs_leaves_pods_terminating_until_it_resumes(cluster: Cluster) -> None:
    for name in ("dead", "alive"):
        cluster.nodes.join(name)
        pod = a_pod(f"on-{name}")
        pod.spec.nodeName = name
        cluster.client.create(pod)
        until(lambda name=name: phase(cluster, f"on-{name}") == "Running")
    cluster.nodes.hang("dead")

    cluster.client.delete(Pod, "on-dead")
    cluster.client.delete(Pod, "on-alive")
    until(lambda: pods(cluster) == ["on-dead"])
    assert cluster.client.get(Pod, "on-dead").metadata.deletionTimestamp is not None

    cluster.nodes.resume("dead")
    until(lambda: not pods(cluster))


def test_a_reboot_changes_the_boot_id_alone(cluster: Cluster) -> None:
    before = cluster.nodes.join("n1")

    cluster.nodes.reboot("n1")

    after = cluster.client.get(Node, "n1")
    assert after.status.nodeInfo.bootID != before.status.nodeInfo.bootID
    assert after.metadata.uid == before.metadata.uid


def test_a_machine_that_leaves_and_one_that_joins_are_two_nodes(cluster: Cluster) -> None:
    before = cluster.nodes.join("n1")

    cluster.nodes.leave("n1")
    assert list(cluster.client.list(Node)) == []

    assert cluster.nodes.join("n1").metadata.uid != before.metadata.uid


def test_what_was_answered_outlives_a_restart(cluster: Cluster) -> None:
    uid = cluster.nodes.join("n1").metadata.uid

    cluster.plane.stop_api_server()
    with pytest.raises(OSError, match="refused"):
        cluster.plane.request("GET", "/version")
    cluster.plane.start_api_server()

    assert cluster.client.get(Node, "n1").metadata.uid == uid
    cluster.client.create(a_pod("p"))
    until(lambda: phase(cluster, "p") == "Running")  # the controllers and kubelets are back, too


@pytest.mark.parametrize("round_", [1, 2])
def test_each_test_finds_a_clean_cluster(cluster: Cluster, round_: int) -> None:
    found = [*cluster.client.list(Node), *cluster.client.list(Pod, namespace="*")]
    assert found == []
    assert "mine" not in [one.metadata.name for one in cluster.client.list(Namespace)]

    cluster.client.create(Namespace(metadata=ObjectMeta(name="mine")))
    until(lambda: has_default_account(cluster, "mine"))
    cluster.nodes.join("n1")
    cluster.client.create(a_pod("p", "mine", finalizers=["example.com/held"]))
    cluster.client.delete(Pod, "p", namespace="mine")
    cluster.kubectl("create", "deployment", "d", "--image=none")


def has_default_account(cluster: Cluster, namespace: str) -> bool:
    return any(cluster.client.list(ServiceAccount, namespace=namespace))


def test_kwok_plays_what_is_marked_for_it(cluster: Cluster) -> None:
    node = Node(
        metadata=ObjectMeta(name="k1", annotations={"kwok.x-k8s.io/node": "fake"}),
    )
    cluster.plane.start("kwok")
    try:
        cluster.client.create(node)
        cluster.client.create(a_pod("p"))
        until(lambda: phase(cluster, "p") == "Running")
    finally:
        cluster.plane.stop("kwok")

    assert cluster.client.get(Pod, "p").spec.nodeName == "k1"


def test_a_node_without_heartbeat_is_found_out(binaries: dict[str, Path]) -> None:
    with (
        ControlPlane(binaries, node_grace=timedelta(seconds=4)) as plane,
        connected(plane, binaries) as cluster,
    ):
        cluster.nodes.join("dead")
        cluster.nodes.join("alive")
        cluster.nodes.hang("dead")

        until(lambda: readiness(cluster, "dead") == "Unknown")
        assert readiness(cluster, "alive") == "True"


def test_nothing_is_left_behind(binaries: dict[str, Path]) -> None:
    with ControlPlane(binaries) as plane:
        running = {plane.pid(name) for name in PROGRAMS}
        started = {pid: start_time(pid) for pid in running}
        assert None not in started.values()

    assert not any(is_alive(pid, ticks) for pid, ticks in started.items())
    assert not plane.folder.exists()


def test_a_program_that_cannot_start_says_why(binaries: dict[str, Path]) -> None:
    plane = ControlPlane(binaries, flags={"kube-apiserver": ["--no-such-flag"]})

    with pytest.raises(BackendError, match=r"kube-apiserver ended with 1:\n(?s:.)*no-such-flag"):
        plane.__enter__()

    assert not plane.folder.exists()
