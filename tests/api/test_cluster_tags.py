"""Tags of clusters, and what is refused for clusters of somebody else."""

import pytest
from api_calls import PLACE
from created_calls import Lab

from holdfast.api.clusters import cluster_id
from tests.engines.fake_clusters import ShownCluster


@pytest.fixture
def lab(tmp_path):
    lab = Lab(f"sqlite:///{tmp_path}/clusters.db")
    yield lab
    lab.database.close()


def test_tags_are_added_listed_and_deleted(lab) -> None:
    lab.create(Tags=[{"Key": "team", "Value": "a"}])
    arn = lab.arn()
    lab.call("AddTags", ResourceArn=arn, Tags=[{"Key": "team", "Value": "b"},
                                               {"Key": "cost", "Value": "1"}])  # fmt: skip
    assert lab.call("ListTags", ResourceArn=arn)["Tags"] == [
        {"Key": "cost", "Value": "1"}, {"Key": "team", "Value": "b"},
    ]  # fmt: skip
    lab.call("DeleteTags", ResourceArn=arn, TagKeys=["team", "nothing"])
    assert lab.call("ListTags", ResourceArn=arn)["Tags"] == [{"Key": "cost", "Value": "1"}]
    many = [{"Key": str(number), "Value": ""} for number in range(50)]
    assert lab.refused("AddTags", ResourceArn=arn, Tags=many)[0] == "ResourceLimitExceeded"


def test_only_clusters_have_tags(lab) -> None:
    lab.clusters.append(ShownCluster("other", lab.late.now()))
    for arn in (PLACE.arn("0123456789ab"), PLACE.arn(cluster_id("other"))):
        refused = lab.refused("AddTags", ResourceArn=arn, Tags=[{"Key": "a", "Value": "b"}])
        assert refused[0] == "ValidationException"
    assert lab.call("ListTags", ResourceArn=PLACE.arn(cluster_id("other")))["Tags"] == []


def test_a_cluster_that_somebody_else_made_is_not_changed(lab) -> None:
    lab.clusters.append(ShownCluster("other", lab.late.now()))
    for operation in ("DeleteCluster", "UpdateCluster", "UpdateClusterSoftware"):
        code, message = lab.refused(operation, ClusterName="other")
        assert code == "ValidationException"
        assert "was not created by this API" in message
    assert lab.refused("DeleteCluster", ClusterName="nowhere")[0] == "ResourceNotFound"
