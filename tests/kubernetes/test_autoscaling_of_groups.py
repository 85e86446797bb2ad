"""Groups follow pods that a real scheduler cannot place, with machines of moto's EC2."""

import json
from pathlib import Path

import pytest
from aws_caller import AwsCaller
from controlled import api_of, install
from ec2_nodes import GPU, PODS, create_pod, join, node_of, served_on_ec2
from lightkube.models.core_v1 import Taint as NodeTaint
from real_cluster import Cluster, until

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.jobs.pod_demand import PodsAndNodes
from holdfast.api.clusters import instance_id
from holdfast.model.names import SCALE_DOWN
from holdfast.model.node_settings import KubernetesConfig, Taint
from holdfast.model.pod_demand import NodeShape
from tests.apps.served_api import serving, with_keys

TEAM = Taint(key="example.com/team", value="a", effect="NoSchedule")


def test_waiting_pods_are_found_with_the_nodes_that_they_could_use(
    cluster: Cluster, api: Api
) -> None:
    """Pods that have a place, or that wait for others, are not among them."""
    install(cluster)
    join(cluster, "n1", "i-" + "1" * 17, labels={"example.com/zone": "a"})
    join(
        cluster,
        "n2",
        "i-" + "2" * 17,
        taints=[NodeTaint(key=TEAM.key, value=TEAM.value, effect=TEAM.effect)],
    )
    create_pod(api, "runs")
    until(lambda: node_of(api, "runs") == "n1")
    tolerations = [{"key": TEAM.key, "operator": "Exists"}]
    create_pod(api, "waits")
    create_pod(api, "team", gpus=9, tolerations=tolerations)
    create_pod(api, "typed", nodeSelector={"node.kubernetes.io/instance-type": "p5.48xlarge"})
    create_pod(api, "zoned", nodeSelector={"example.com/zone": "b"})
    create_pod(api, "gated", schedulingGates=[{"name": "example.com/gate"}])
    shapes = {
        "plain": NodeShape(instance_type="ml.p5.48xlarge"),
        "team": NodeShape(config=KubernetesConfig(taints=(TEAM,))),
        "zone": NodeShape(config=KubernetesConfig(labels={"example.com/zone": "b"})),
    }
    pods = PodsAndNodes(api, instance_id)
    found = []

    def all_are_reported() -> bool:
        found[:] = [pods.demand(shapes)]
        return len(found[0].waiting) == 4

    until(all_are_reported)
    [demand] = found
    second = "i-" + "2" * 17
    waiting = {one.name.partition("/")[2]: one for one in demand.waiting}
    assert {name: set(one.fits) for name, one in waiting.items()} == {
        "waits": {"plain", "zone"},
        "team": {"plain", "zone", "team", second},
        "typed": {"plain"},
        "zoned": {"zone"},
    }
    assert waiting["waits"].resources == {GPU: 8, "cpu": 500, "memory": 1 << 30, "pods": 1}
    first = demand.nodes["i-" + "1" * 17]
    assert (first.pods, first.is_open) == (("default/runs",), True)
    assert first.shape.config.labels["example.com/zone"] == "a"
    assert "kubernetes.io/hostname" not in first.shape.config.labels
    assert demand.nodes[second].pods == ()
    assert demand.nodes[second].shape.config.taints == (TEAM,)
    assert demand.nodes[second].shape.resources[GPU] == 8
    cluster.kubectl("cordon", "n2")
    until(lambda: not pods.demand(shapes).nodes[second].is_open)
    assert all(second not in one.fits for one in pods.demand(shapes).waiting)


def group(count: int, least: int) -> str:
    one = {
        "InstanceGroupName": "gpu",
        "InstanceCount": count,
        "MinInstanceCount": least,
        "InstanceType": "ml.p5.48xlarge",
        "ExecutionRole": "arn:aws:iam::123456789012:role/nodes",
        "KubernetesConfig": {"Labels": {"example.com/pool": "train"}},
    }
    return json.dumps([one])


def test_a_group_grows_for_pods_and_shrinks_when_they_have_ended(
    cluster: Cluster, tmp_path: Path
) -> None:
    install(cluster)
    api = api_of(cluster)
    selector = {"nodeSelector": {"example.com/pool": "train"}}
    with served_on_ec2(cluster, tmp_path) as (served, machines):
        aws = AwsCaller(served)
        name = ["--cluster-name", "lab"]
        scaling = ["--auto-scaling", "Mode=Enable,AutoScalerType=Karpenter"]
        continuous = ["--node-provisioning-mode", "Continuous"]
        groups = ["--instance-groups", group(3, 0)]
        assert "requires NodeProvisioningMode" in aws.refused(
            "create-cluster", *name, *groups, *scaling
        )
        aws("create-cluster", *name, *groups, *scaling, *continuous)

        def size() -> int:
            found = aws("describe-cluster", *name)
            assert found["AutoScaling"]["Mode"] == "Enable"
            return int(found["InstanceGroups"][0]["TargetCount"])

        until(lambda: aws("describe-cluster", *name)["ClusterStatus"] == "InService")
        assert (size(), machines.settle()) == (0, set())
        for number in range(5):
            create_pod(api, f"p{number}", **selector)
        until(lambda: len(machines.settle()) == 3)
        placed = {}

        def are_placed() -> bool:
            machines.settle()
            placed.update({f"p{number}": node_of(api, f"p{number}") for number in range(5)})
            return sum(map(bool, placed.values())) == 3

        until(are_placed)
        assert size() == 3  # more pods wait than the limit allows

        [last, *ended] = [one for one in placed if placed[one]]
        kept, others = placed[last], [one for one in placed if not placed[one]]
        for one in ended:
            api.delete(f"{PODS}/{one}", grace=0)
        until(lambda: all(node_of(api, one) for one in others))
        assert len(machines.settle()) == 3
        for one in others:
            api.delete(f"{PODS}/{one}", grace=0)
        until(lambda: machines.settle() == {kept})
        assert (size(), node_of(api, last)) == (1, kept)
        events = aws("list-cluster-events", *name)["Events"]
        assert any("idle for 5s" in one["Description"] for one in events)
        api.delete(f"{PODS}/{last}", grace=0)
        until(lambda: machines.settle() == set())
        aws("delete-cluster", *name)
        until(lambda: aws("list-clusters", "--name-contains", "lab")["ClusterSummaries"] == [])
    api.close()


@pytest.mark.parametrize("platform", ["kubernetes", "local"])
def test_a_server_without_machines_refuses_it(
    platform: str, cluster: Cluster, tmp_path: Path
) -> None:
    install(cluster)
    where = ["--kubeconfig", str(cluster.plane.kubeconfig())] if platform == "kubernetes" else []
    with serving(with_keys(tmp_path / "api.toml"), "--platform", platform, *where) as served:
        said = AwsCaller(served).refused(
            "create-cluster", "--cluster-name", "lab", "--instance-groups", group(0, 0),
            "--auto-scaling", "Mode=Enable", "--node-provisioning-mode", "Continuous",
        )  # fmt: skip

    assert f"AutoScaling: --platform of the server is {platform}, and " in said
    assert SCALE_DOWN not in said
