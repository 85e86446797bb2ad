"""Labels and taints are refused where nodes are not nodes of Kubernetes."""

from datetime import UTC, datetime

import pytest
from botocore.exceptions import ClientError
from served_api import serving, with_keys

from holdfast.apps.api.node_settings import with_settings
from holdfast.apps.target import Where
from holdfast.model.clusters import DesiredCluster, DesiredGroup, GroupStage, MachineGroup
from holdfast.model.node_settings import KubernetesConfig, Taint
from holdfast.model.sagemaker import ClusterStatus

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LABELS = KubernetesConfig(labels={"a": "1"})
TAINTS = KubernetesConfig(taints=(Taint(key="a", effect="NoExecute"),))


def rejected(platform: str, config: KubernetesConfig, stage: GroupStage = GroupStage.NEW):
    made_of = MachineGroup(cluster="lab", name="gpu", kubernetes=config)
    cluster = DesiredCluster(
        name="lab",
        uid="0123456789ab",
        created_at=NOW,
        since=NOW,
        status=ClusterStatus.CREATING,
        groups=(DesiredGroup(made_of=made_of, target=1, stage=stage),),
    )
    return list(with_settings(Where(platform=platform), lambda _: ["another"])(cluster))


@pytest.mark.parametrize("config", [LABELS, TAINTS])
def test_only_kubernetes_has_labels_and_taints(config) -> None:
    [other, problem] = rejected("slurm", config)

    assert other == "another"
    assert problem.startswith("InstanceGroups: gpu: KubernetesConfig: labels and taints need")
    assert problem.endswith("--platform of the server is slurm; omit it")
    assert rejected("kubernetes", config) == rejected("slurm", KubernetesConfig()) == ["another"]


def test_a_group_that_is_being_deleted_blocks_no_change() -> None:
    assert rejected("slurm", LABELS, GroupStage.LEAVING) == ["another"]


def test_a_server_of_one_machine_refuses_them(tmp_path) -> None:
    group = {
        "InstanceGroupName": "gpu",
        "InstanceCount": 1,
        "InstanceType": "ml.g5.xlarge",
        "ExecutionRole": "arn:aws:iam::123456789012:role/nodes",
        "KubernetesConfig": {"Labels": {"a": "1"}},
    }
    with (
        serving(with_keys(tmp_path / "api.toml")) as served,
        pytest.raises(ClientError, match="--platform of the server is local; omit it"),
    ):
        served.client().create_cluster(ClusterName="lab", InstanceGroups=[group])
